"""Data that needs no search, told from column sums and from sketches."""

from __future__ import annotations

import numpy as np
import pytest

from felb.data.binary import BinaryMatrix
from felb.kernels.passes import as_sketch, fixed_sketch, from_sketch
from felb.optim.palm import exact_components, exact_components_of_sketch


def with_ones(count, shape=(50, 30), seed=0):
    """A matrix with so many ones at random."""
    A = np.zeros(shape, dtype=bool)
    A.flat[np.random.default_rng(seed).choice(A.size, count, replace=False)] = True
    return A


def of_sums(A, k):
    return exact_components(A.sum(axis=0), A.size, k)


def of_sketch(A, k, seed=0):
    width = min(A.shape[1], k + 10)
    drawn = np.random.default_rng(seed).standard_normal((A.shape[1], width))
    Q = as_sketch(np.linalg.qr(drawn)[0])
    return exact_components_of_sketch(from_sketch(fixed_sketch(BinaryMatrix.of(A), Q)), Q, k)


def explains(A, V):
    """Whether every row of A is a union of rows of V."""
    inside = ~(V[None] & ~A[:, None]).any(axis=2)
    return bool(((inside[:, :, None] & V[None]).any(axis=1) == A).all())


@pytest.mark.parametrize("find", [of_sums, of_sketch])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("count", [0, 1, 2, 5, 6])
def test_as_many_ones_as_components_are_written_exactly(find, count, seed):
    A = with_ones(count, seed=seed)
    V = find(A, 6)
    assert V.shape == (6, 30)
    assert explains(A, V)
    assert (V.sum(axis=1) <= 1).all()


@pytest.mark.parametrize("find", [of_sums, of_sketch])
def test_nothing_but_ones_is_one_component(find):
    V = find(np.ones((50, 30), dtype=bool), 6)
    assert V[0].all()
    assert not V[1:].any()


@pytest.mark.parametrize("find", [of_sums, of_sketch])
@pytest.mark.parametrize("seed", range(2))
def test_other_data_is_not_trivial(find, seed):
    assert find(with_ones(7, seed=seed), 6) is None
    assert find(with_ones(200, seed=seed), 6) is None
    assert find(with_ones(1499, seed=seed), 6) is None
    few = np.zeros((50, 30), dtype=bool)
    few[:, :4] = with_ones(90, (50, 4), seed=seed)  # few columns have ones, but many of them
    assert find(few, 6) is None
    assert find(with_ones(9, (10, 4), seed=seed), 6) is None  # fewer columns than components


def test_a_large_number_of_rows_does_not_blur_the_number_of_ones():
    few = np.zeros((100_000, 30), dtype=bool)
    few[:, 3] = True
    assert of_sketch(few, 6) is None
    few[6:] = False
    assert of_sketch(few, 6)[0].tolist() == few[0].tolist()
