"""GreEss against a version on plain Boolean arrays; essential ones against their definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.data import BinaryMatrix, load
from felb.kernels.cover import essential_ones
from felb.metrics import confusion
from felb.sklearn.centralized import GreConD, GreEss


def share(A, rows):
    return A[rows].all(axis=0)


def hold(A, columns):
    return A[:, columns].all(axis=1)


def interval(A, r, j):
    """Return the concepts between that of row r and that of column j, by their columns."""
    m, found = A.shape[1], set()
    for code in range(2**m):
        rows = hold(A, np.array([code >> i & 1 for i in range(m)], dtype=bool))
        columns = share(A, rows)
        if rows[r] and columns[j]:
            found.add(columns.tobytes())
    return found


def grow(A, uncovered):
    candidates = np.flatnonzero((uncovered & A).any(axis=0))
    rows, columns, value = np.ones(len(A), dtype=bool), np.zeros(A.shape[1], dtype=bool), 0
    while True:
        best = None
        for j in candidates:
            a = rows & A[:, j]
            b = share(A, a)
            covers = uncovered[np.ix_(a, b)].sum()
            if covers > value:
                best, value = (a, b), covers
        if best is None:
            return rows, columns, value
        rows, columns = best


def slow(A, k):
    essential = essential_ones(BinaryMatrix.of(A)).toarray().astype(bool)
    left, blocks = essential.copy(), []
    while left.any():
        rows, columns, _ = grow(essential, left)
        shared = share(A, rows)
        blocks.append((hold(A, columns), shared))
        left[np.ix_(hold(A, shared), shared)] = False
    uncovered, factors = A.copy(), []
    while len(factors) < k and uncovered.any():
        best, most, chosen = None, 0, None
        for number, (rows, columns) in enumerate(blocks):
            r, c, value = grow(A[np.ix_(rows, columns)], uncovered[np.ix_(rows, columns)])
            if value > most:
                a, b = np.zeros(len(A), dtype=bool), np.zeros(A.shape[1], dtype=bool)
                a[np.flatnonzero(rows)[r]] = b[np.flatnonzero(columns)[c]] = True
                best, most, chosen = (a, b), value, number
        if best is None:
            best = grow(A, uncovered)[:2]
        else:
            del blocks[chosen]
        factors.append(best)
        uncovered[np.ix_(*best)] = False
    return factors


@given(st.tuples(st.integers(1, 9), st.integers(1, 6)), st.sampled_from([0.3, 0.6, 0.85]), st.integers(0, 9999))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_a_one_is_essential_if_no_other_has_a_smaller_interval(shape, density, seed):
    A = np.random.default_rng(seed).random(shape) < density
    ones = {(r, j): interval(A, r, j) for r, j in zip(*np.nonzero(A), strict=True)}
    expected = np.zeros(shape, dtype=bool)
    for place, own in ones.items():
        expected[place] = not any(other < own for other in ones.values())
    np.testing.assert_array_equal(essential_ones(BinaryMatrix.of(A)).toarray(), expected)


@given(st.tuples(st.integers(1, 20), st.integers(1, 12)), st.sampled_from([0.2, 0.5, 0.8, 1.0]), st.integers(0, 9999))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_agrees_with_the_slow_version(shape, density, seed):
    A = np.random.default_rng(seed).random(shape) < density
    expected = slow(A, 10)
    found = GreEss(10).find(BinaryMatrix.of(A), 10, seed=0)
    assert found.attributes["n_iter_"] == len(expected)
    for number, (rows, columns) in enumerate(expected):
        np.testing.assert_array_equal(found.U[:, number], rows)
        np.testing.assert_array_equal(found.V[number], columns)


@pytest.mark.parametrize("name", ["zoo", "soybean"])
def test_components_are_concepts_and_fewer_than_those_of_grecond_are_exact(name):
    A = load(name)
    found, plain = (kind(150).find(A, 150, seed=0) for kind in (GreEss, GreConD))
    assert confusion(A, found.U, found.V).errors == 0
    assert found.attributes["n_iter_"] < plain.attributes["n_iter_"]
    dense = A.toarray().astype(bool)
    for number in range(found.attributes["n_iter_"]):
        np.testing.assert_array_equal(share(dense, found.U[:, number]), found.V[number])
        np.testing.assert_array_equal(hold(dense, found.V[number]), found.U[:, number])
