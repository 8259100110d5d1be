"""What a cover leaves and what candidates would add, against loops over cells."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.kernels import gains as kernels
from felb.kernels.boolean import FactorMasks, count_overlaps, overlap_grid
from felb.kernels.gains import count_additions, count_residual_pairs, sum_residual


def problem(seed, k, c=5):
    rng = np.random.default_rng(seed)
    n, m = 20, 70
    A = rng.random((n, m)) < 0.4
    return BinaryMatrix.of(A), rng.random((n, k)) < 0.15, rng.random((k, m)) < 0.1, rng.random((c, m)) < 0.2


def left_by(A, U, V):
    return A.toarray() & ~((U.astype(int) @ V.astype(int)) > 0)


@pytest.mark.parametrize("k", [3, 70])
def test_what_is_left(k):
    check_residual(k)


@pytest.mark.parametrize("k", [4, 66])
def test_the_kernels_run_in_the_interpreter(k, monkeypatch):
    interpret(monkeypatch, kernels)
    check_residual(k)
    check_additions(1, k, (1, -1))


def check_residual(k):
    A, U, V, _ = problem(1, k)
    left = left_by(A, U, V).astype(int)
    np.testing.assert_array_equal(sum_residual(A, FactorMasks.of(U, V)), left.sum(axis=0))
    seeds = np.array([3, 0, 69])
    np.testing.assert_array_equal(count_residual_pairs(A, FactorMasks.of(U, V), seeds), left[:, seeds].T @ left)


@pytest.mark.parametrize("seeds", [[1, 1], [-1], [70]])
def test_seeds_are_different_columns(seeds):
    A, U, V, _ = problem(1, 3)
    with pytest.raises(InputError, match="seeds "):
        count_residual_pairs(A, FactorMasks.of(U, V), np.array(seeds))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 4, 66]), st.sampled_from([(1, -1), (3, -1), (0.7, -0.3), (1, 0)]))
def test_additions(seed, k, weights):
    check_additions(seed, k, weights)


def check_additions(seed, k, weights):
    A, U, V, candidates = problem(seed, k, c=5 if k < 60 else 67)
    one, zero = weights
    dense, covered = A.toarray(), (U.astype(int) @ V.astype(int)) > 0
    ones, zeros = np.zeros(len(candidates), int), np.zeros(len(candidates), int)
    for c, candidate in enumerate(candidates):
        for row, cover in zip(dense, covered, strict=True):
            new = candidate & ~cover
            a, b = (new & row).sum(), (new & ~row).sum()
            if a and one * a + zero * b > 0:
                ones[c] += a
                zeros[c] += b
    found = count_additions(A, FactorMasks.of(U, V), candidates, weight_one=one, weight_zero=zero)
    np.testing.assert_array_equal(found, (ones, zeros))


@pytest.mark.parametrize("k", [3, 70])
def test_a_grid_of_overlaps_is_made_of_single_ones(k):
    A, U, V, _ = problem(2, k)
    Us, Vs = [U, ~U], [V, V & False, ~V]
    covered, claimed = overlap_grid(A, Us, Vs)
    for a, u in enumerate(Us):
        for b, v in enumerate(Vs):
            assert (covered[a, b], claimed[a, b]) == count_overlaps(A, FactorMasks.of(u, v))[:2]
