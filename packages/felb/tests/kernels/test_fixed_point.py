"""Fixed-point sums: exact, and the same for every grouping of the rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.kernels.passes import (
    LARGEST_UNITS,
    as_sketch,
    fixed_sketch,
    fixed_statistics,
    from_sketch,
    in_units,
    units_of,
)


def data(seed, n=30, m=12, k=4):
    rng = np.random.default_rng(seed)
    return BinaryMatrix.of(rng.random((n, m)) < 0.3), rng.random((n, k)) * 3, rng.random((k, m)) * 5


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 29))
def test_statistics_are_those_of_plain_integers_and_add_up(seed, cut):
    A, U, V = data(seed)
    X = in_units(U, units_of(V))
    whole = fixed_statistics(A, X)
    dense, rows = A.toarray().astype(np.int64), X.astype(np.int64)
    np.testing.assert_array_equal(whole.AtX, dense.T @ rows)
    np.testing.assert_array_equal(whole.XtX, rows.T @ rows)
    np.testing.assert_array_equal(whole.sums, rows.sum(axis=0))
    parts = fixed_statistics(A.rows(0, cut), X[:cut]), fixed_statistics(A.rows(cut, 30), X[cut:])
    for name in whole._fields:
        np.testing.assert_array_equal(getattr(whole, name), sum(getattr(part, name) for part in parts))


def test_units_are_powers_of_two_that_follow_the_scale_of_v():
    V = np.array([[0.1, 1.0], [0.0, 2.5], [0.0, 0.0]])
    units = units_of(V)
    np.testing.assert_array_equal(np.frexp(units)[0], 0.5)
    np.testing.assert_array_equal(units_of(4 * V[:2]), units[:2] / 4)
    U = np.random.default_rng(0).random((50, 3))
    assert np.abs(in_units(U, units) * units - U).max() <= units.max() / 2
    assert in_units(np.full((1, 3), 1e9), units).max() == LARGEST_UNITS


def test_squares_at_the_clip_are_still_exact():
    X = np.full((3000, 2), LARGEST_UNITS, dtype=np.int32)
    A = BinaryMatrix.of(np.ones((3000, 1)))
    assert fixed_statistics(A, X).XtX[0, 1] == 3000 * LARGEST_UNITS**2


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 29))
def test_sketches_are_exact_and_add_up(seed, cut):
    A, _, _ = data(seed)
    Q = as_sketch(np.linalg.qr(np.random.default_rng(seed).standard_normal((12, 5)))[0])
    whole = fixed_sketch(A, Q)
    np.testing.assert_array_equal(whole, fixed_sketch(A.rows(0, cut), Q) + fixed_sketch(A.rows(cut, 30), Q))
    dense = A.toarray().astype(float)
    np.testing.assert_array_equal(from_sketch(whole), dense.T @ dense @ Q)


def test_rows_must_fit():
    with pytest.raises(InputError, match="X has 2 rows"):
        fixed_statistics(BinaryMatrix.of(np.eye(3)), np.zeros((2, 1), dtype=np.int32))
