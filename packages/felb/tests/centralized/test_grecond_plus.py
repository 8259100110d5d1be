"""GreConD+ against a version on plain Boolean arrays, and its published properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.data import BinaryMatrix, load
from felb.errors import InputError
from felb.metrics import confusion
from felb.sklearn.centralized import GreConD, GreConDPlus


def grow(A, uncovered):
    rows, columns, value = np.ones(len(A), dtype=bool), np.zeros(A.shape[1], dtype=bool), 0
    while True:
        best = None
        for j in np.flatnonzero(~columns):
            a = rows & A[:, j]
            b = A[a].all(axis=0)
            covers = uncovered[np.ix_(a, b)].sum()
            if covers > value:
                best, value = (a, b), covers
        if best is None:
            return rows, columns
        rows, columns = best


def expand(A, uncovered, rows, columns, penalty):
    """Add one line at a time, a row whenever one gains; all gains are counted anew."""
    rows, columns = rows.copy(), columns.copy()
    while True:
        by_row = uncovered[:, columns].sum(axis=1) - penalty * (~A[:, columns]).sum(axis=1)
        by_column = uncovered[rows].sum(axis=0) - penalty * (~A[rows]).sum(axis=0)
        by_row[rows], by_column[columns] = -np.inf, -np.inf
        if by_row.max() > 0:
            rows[by_row.argmax()] = True
        elif by_column.max() > 0:
            columns[by_column.argmax()] = True
        else:
            return rows, columns


def superfluous(A, factors, rows, columns):
    times = sum(np.outer(factor[0], factor[1]).astype(int) for factor in factors)
    return (times[np.outer(rows, columns) & A] >= 2).all()


def slow(A, k, penalty):
    uncovered, factors = A.copy(), []
    while len(factors) < k and uncovered.any():
        concept = grow(A, uncovered)
        rows, columns = expand(A, uncovered, *concept, penalty)
        uncovered[np.ix_(rows, columns)] = False
        factors.append([rows, columns, rows & ~concept[0], columns & ~concept[1]])
        for factor in factors[:-1]:
            if superfluous(A, factors, factor[0], factor[1]):
                factors = [other for other in factors if other is not factor]
        for factor in factors:
            for j in np.flatnonzero(factor[3]):
                if superfluous(A, factors, factor[0], np.arange(A.shape[1]) == j):
                    factor[1] = factor[1] & (np.arange(A.shape[1]) != j)
                    factor[3] = factor[3] & factor[1]
            for r in np.flatnonzero(factor[2]):
                if superfluous(A, factors, np.arange(len(A)) == r, factor[1]):
                    factor[0] = factor[0] & (np.arange(len(A)) != r)
                    factor[2] = factor[2] & factor[0]
    return [factor[:2] for factor in factors]


@given(
    st.tuples(st.integers(1, 20), st.integers(1, 12)),
    st.sampled_from([0.2, 0.5, 0.8, 1.0]),
    st.sampled_from([0.0, 0.3, 1.0, 4.0]),
    st.integers(0, 9999),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_agrees_with_the_slow_version(shape, density, penalty, seed):
    A = np.random.default_rng(seed).random(shape) < density
    expected = slow(A, 8, penalty)
    found = GreConDPlus(8, penalty=penalty).find(BinaryMatrix.of(A), 8, seed=0)
    assert found.attributes["n_iter_"] == len(expected)
    for number, (rows, columns) in enumerate(expected):
        np.testing.assert_array_equal(found.U[:, number], rows)
        np.testing.assert_array_equal(found.V[number], columns)


@pytest.mark.parametrize("name", ["zoo", "soybean"])
def test_every_one_is_covered_with_fewer_components_than_grecond_needs(name):
    A = load(name)
    found, plain = (kind(150).find(A, 150, seed=0) for kind in (GreConDPlus, GreConD))
    counts = confusion(A, found.U, found.V)
    assert counts.fn == 0
    assert 0 < counts.fp < 0.02 * A.nnz
    assert found.attributes["n_iter_"] < plain.attributes["n_iter_"]


def test_ten_components_have_fewer_errors_than_those_of_grecond():
    A = load("soybean")
    found = [kind(10).find(A, 10, seed=0) for kind in (GreConDPlus, GreConD)]
    errors = [confusion(A, each.U, each.V).errors for each in found]
    assert errors[0] < errors[1]


def test_a_large_penalty_never_covers_a_zero():
    A = load("zoo")
    found = GreConDPlus(40, penalty=1e6).find(A, 40, seed=0)
    assert confusion(A, found.U, found.V).errors == 0


def test_a_negative_penalty_is_refused():
    with pytest.raises(InputError, match="penalty must be at least 0"):
        GreConDPlus(2, penalty=-1.0).fit(load("zoo"))
