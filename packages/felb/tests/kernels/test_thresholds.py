"""The errors of all pairs of thresholds against one Boolean product per pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.errors import InputError
from felb.kernels import boolean as thresholds
from felb.kernels.boolean import best_thresholds, threshold_errors, threshold_grid


def draw(n, m, k, empty, seed):
    """Return data and relaxed factors, of whose entries a share is 0 and some lie on the grid or above it."""
    rng = np.random.default_rng(seed)
    W, H = 1.2 * rng.random((n, k)), 1.2 * rng.random((k, m))
    for X in (W, H):
        X[rng.random(X.shape) < 0.2] = 0.5
        X[rng.random(X.shape) < 0.2] = 1.0
        X[rng.random(X.shape) < empty] = 0.0
    return rng.random((n, m)) < 0.3, W, H


problems = st.builds(
    draw,
    st.integers(0, 25),
    st.integers(0, 25),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 999),
)


def slow_errors(A, W, H, grid):
    def cut(X, threshold):
        return (X.astype(np.float64) >= threshold).astype(int)

    return np.array([[((cut(W, s) @ cut(H, t) > 0) != A).sum() for t in grid] for s in grid])


def check(A, W, H, grid):
    found = threshold_errors(sparse(A), W, np.ascontiguousarray(H.T), grid=grid)
    np.testing.assert_array_equal(found, slow_errors(A, W, H, grid))


@given(problems, st.sampled_from([2, 3, 9, 30]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_errors_are_those_of_all_pairs(problem, size):
    check(*problem, threshold_grid(size))


def test_single_precision_is_compared_as_it_is():
    A, W, H = draw(30, 20, 3, 0.3, 1)
    check(A, W.astype(np.float32), H.astype(np.float32), threshold_grid(20))


def test_the_kernel_runs_in_the_interpreter(monkeypatch):
    interpret(monkeypatch, thresholds)
    check(*draw(8, 9, 3, 0.3, 2), threshold_grid(7))


def test_the_smallest_of_equally_good_thresholds_is_taken():
    A, W, H = draw(12, 10, 3, 0.3, 3)
    grid = threshold_grid(15)
    errors = slow_errors(A, W, H, grid)
    s, t, least = best_thresholds(sparse(A), W, np.ascontiguousarray(H.T), grid=grid)
    assert least == errors.min()
    assert (s, t) == min((grid[a], grid[b]) for a, b in np.argwhere(errors == errors.min()))


def test_the_grid():
    grid = threshold_grid(100)
    assert (len(grid), grid[0], grid[-1]) == (100, 1e-12, 1.0)
    np.testing.assert_allclose(np.diff(grid), (1 - 1e-12) / 99)


@pytest.mark.parametrize("size", [-1, 0, 1, 1001])
def test_a_grid_too_small_or_too_large_is_refused(size):
    with pytest.raises(InputError, match=f"got {size}"):
        threshold_grid(size)


def test_factors_that_do_not_fit_the_data_are_refused():
    A, W, H = draw(5, 6, 2, 0.0, 0)
    with pytest.raises(InputError, match="shape"):
        threshold_errors(sparse(A), W[1:], H.T, grid=threshold_grid(3))
    with pytest.raises(InputError, match="shape"):
        threshold_errors(sparse(A), W, H, grid=threshold_grid(3))
