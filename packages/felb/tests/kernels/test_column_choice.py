"""Columns that represent the others: the kernel agrees with a slow reading of its definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret

from felb.kernels import cooccurrence as column_choice
from felb.kernels.cooccurrence import columns_as_components


def represented(A, j, chosen, weights):
    """Column j by disjoint chosen columns, the best first: the columns and what they gain."""
    found, value = [], 0.0
    while True:
        free = [i for i in chosen if all(not (A[:, i] & A[:, f]).any() for f in found)]
        gains = [np.where(A[A[:, i] == 1, j] == 1, *weights).sum() for i in free]
        if not gains or max(gains) <= 0:
            return found, value
        best = int(np.argmax(gains))
        found, value = [*found, free[best]], value + gains[best]


def slow(A, k, weights):
    m = A.shape[1]
    chosen = [j for j in range(m) if A[:, j].any()]

    def total(kept):
        return sum(represented(A, j, kept, weights)[1] for j in range(m))

    while len(chosen) > k:
        without = [total([i for i in chosen if i != left_out]) for left_out in chosen]
        chosen.pop(int(np.argmax(without)))
    exchanged = True
    while exchanged:
        exchanged = False
        for out in [j for j in range(m) if A[:, j].any()]:
            if out not in chosen:
                continue
            rest, there = [i for i in chosen if i != out], total(chosen)
            others = [j for j in range(m) if A[:, j].any() and j not in chosen]
            after = [total(sorted([*rest, new])) for new in others]
            if after and max(after) > there:
                chosen, exchanged = sorted([*rest, others[int(np.argmax(after))]]), True
    V = np.zeros((k, m), dtype=bool)
    for j in range(m):
        for i in represented(A, j, chosen, weights)[0]:
            V[chosen.index(i), j] = True
    return V


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.sampled_from([(1, -1), (1, -3), (2, -1), (1, -100)]))
def test_columns_are_given_up_where_it_costs_least(seed, k, weights):
    check(seed, k, weights)


def test_the_kernels_run_in_the_interpreter(monkeypatch):
    interpret(monkeypatch, column_choice)
    check(3, 2, (1, -1))


def check(seed, k, weights):
    rng = np.random.default_rng(seed)
    A = (rng.random((12, 7)) < rng.uniform(0.1, 0.7)).astype(int)
    V = columns_as_components(A.T @ A, k, weight_one=weights[0], weight_zero=weights[1])
    np.testing.assert_array_equal(V, slow(A, k, weights))


def test_a_column_that_is_a_union_of_others_needs_no_component():
    parts = np.repeat(np.eye(4, dtype=int), 5, axis=0)
    A = np.column_stack([parts, parts[:, 0] | parts[:, 2], parts[:, 1]])
    V = columns_as_components(A.T @ A, 4)
    U = A[:, [0, 2, 3, 5]]  # of two equal columns, the first is given up
    np.testing.assert_array_equal((U @ V.astype(int)) > 0, A == 1)


@pytest.mark.parametrize("k", [1, 5])
def test_without_ones_there_are_no_components(k):
    assert not columns_as_components(np.zeros((3, 3), dtype=np.int64), k).any()
