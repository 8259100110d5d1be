"""What V gains by each entry, against the definition and against the change of the loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.kernels import gains
from felb.kernels.boolean import FactorMasks
from felb.kernels.gains import count_switches


def draw(n, m, k, density, seed):
    """Return data and factors."""
    rng = np.random.default_rng(seed)
    return rng.random((n, m)) < 0.3, rng.random((n, k)) < density, rng.random((k, m)) < density


problems = st.builds(
    draw,
    st.integers(0, 60),
    st.integers(0, 130),
    st.sampled_from([0, 1, 2, 3, 15, 16, 17, 33, 64, 65, 100]),
    st.sampled_from([0.02, 0.1, 0.4]),
    st.integers(0, 999),
)


def slow_counts(A, U, V):
    k, m = V.shape
    ones, cells = np.zeros((k, m), np.int64), np.zeros((k, m), np.int64)
    for c in range(k):
        others = np.arange(k) != c
        left = U[:, [c]] & ~((U[:, others].astype(int) @ V[others].astype(int)) > 0)
        ones[c], cells[c] = (left & A).sum(axis=0), left.sum(axis=0)
    return ones, cells


def check(A, U, V):
    for fast, slow in zip(count_switches(sparse(A), FactorMasks.of(U, V)), slow_counts(A, U, V), strict=True):
        assert fast.dtype == np.int64
        np.testing.assert_array_equal(fast, slow)


@given(problems)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_counts_agree_with_the_definition(problem):
    check(*problem)


@pytest.mark.parametrize("limit", [0, 22])
@pytest.mark.parametrize("shape", [(30, 40, 3), (9, 70, 66), (0, 5, 2), (3, 0, 2), (3, 5, 0)])
def test_kernels_run_in_the_interpreter_with_and_without_subsets(shape, limit, monkeypatch):
    interpret(monkeypatch, gains)
    monkeypatch.setattr(gains, "MAX_SUBSET_COMPONENTS", limit)
    check(*draw(*shape, 0.1 if shape[2] > 9 else 0.5, 0))


@pytest.mark.parametrize("k", [1, 4, 9])
def test_the_table_over_subsets_agrees_with_pairs_of_masks(k, monkeypatch):
    A, U, V = draw(300, 400, k, 0.4, 1)
    check(A, U, V)
    _, by_subsets = count_switches(sparse(A), FactorMasks.of(U, V))
    monkeypatch.setattr(gains, "MAX_SUBSET_COMPONENTS", -1)
    np.testing.assert_array_equal(count_switches(sparse(A), FactorMasks.of(U, V))[1], by_subsets)


def test_a_gain_is_the_change_of_the_loss():
    A, U, V = draw(25, 12, 4, 0.4, 2)
    ones, cells = count_switches(sparse(A), FactorMasks.of(U, V))
    found = ones - (cells - ones)
    for c, j in np.ndindex(V.shape):
        losses = []
        for value in (False, True):
            switched = V.copy()
            switched[c, j] = value
            losses.append(int((((U.astype(int) @ switched.astype(int)) > 0) != A).sum()))
        assert found[c, j] == losses[0] - losses[1]


@pytest.mark.parametrize("k", [5, 70])
def test_counts_of_row_blocks_add_up(k):
    A, U, V = draw(50, 70, k, 0.1, 1)
    matrix = sparse(A)
    parts = [count_switches(matrix.rows(a, a + 7), FactorMasks.of(U[a : a + 7], V)) for a in range(0, 50, 7)]
    for part, whole in zip(zip(*parts, strict=True), count_switches(matrix, FactorMasks.of(U, V)), strict=True):
        np.testing.assert_array_equal(sum(part), whole)


def test_arguments_are_left_alone():
    A, U, V = draw(20, 30, 5, 0.3, 3)
    before = U.copy(), V.copy()
    U.flags.writeable = V.flags.writeable = False
    count_switches(sparse(A), FactorMasks.of(U, V))
    np.testing.assert_array_equal(U, before[0])
    np.testing.assert_array_equal(V, before[1])
