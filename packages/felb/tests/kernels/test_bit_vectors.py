"""Counts in vector code against the same counts in plain Python and in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from felb.kernels import bits as bit_vectors
from felb.kernels.bits import (
    GROUP,
    add_bits,
    add_overlaps,
    add_paying,
    best_gain,
    component_masks,
    grouped_words,
    places_among,
    words_of_row,
)


@njit
def compiled_overlaps(counts, table, which, words, length, sign):
    add_overlaps(counts, table, which, words, length, sign)


@njit
def compiled_best(ones, cells, weight_one, weight_zero):
    return best_gain(ones, cells, weight_one, weight_zero)


@njit
def compiled_paying(added, ones, cells, weight_one, weight_zero):
    add_paying(added, ones, cells, weight_one, weight_zero)


@njit
def compiled_bits(counters, rows, masks):
    for row, mask in zip(rows, masks):  # noqa: B905  (Numba)
        add_bits(counters, row, mask)


@pytest.mark.parametrize("k", [1, 8, 9, 100])
@pytest.mark.parametrize("density", [0.02, 0.5])
def test_overlaps_are_those_of_sets_of_columns(k, density):
    rng = np.random.default_rng(k)
    sets, row = rng.random((k, 300)) < density, np.flatnonzero(rng.random(300) < 0.2)
    used = sets.any(axis=0)
    table = grouped_words(sets[:, used])
    which, words = np.empty(table.shape[1] + 1, np.int64), np.empty(table.shape[1] + 1, np.uint64)
    length = words_of_row(which, words, row.astype(np.uint16), places_among(used))
    start = rng.integers(0, 9, GROUP * len(table))
    plain, compiled = start.copy(), start.copy()
    for sign in (1, 1, -1):
        add_overlaps(plain, table, which, words, length, sign)
        compiled_overlaps(compiled, table, which, words, length, sign)
    np.testing.assert_array_equal(compiled, plain)
    np.testing.assert_array_equal((compiled - start)[:k], sets[:, row].sum(axis=1))


def test_words_of_a_row_are_the_same_in_the_interpreter():
    used = np.zeros(500, bool)
    used[3:400:3] = True
    row, places = np.arange(0, 500, 7), places_among(used)
    found = []
    for function in (words_of_row, words_of_row.py_func):
        which, words = np.zeros(9, np.int64), np.zeros(9, np.uint64)
        length = function(which, words, row, places)
        found.append((which[:length].tolist(), words[:length].tolist()))
    assert found[0] == found[1]
    assert sum(word.bit_count() for word in found[0][1]) == np.count_nonzero(used[row])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("weights", [(1.0, -1.0), (0.3, -0.7), (1.0, 0.0), (0.0, -1.0)])
def test_of_equal_gains_the_first_wins(seed, weights):
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 4, 3 * GROUP)  # few values, so that ties abound
    ones = rng.integers(0, cells + 1)
    assert compiled_best(ones, cells, *weights) == best_gain(ones, cells, *weights)


@pytest.mark.parametrize("weights", [(1.0, -1.0), (0.3, -0.7), (1.0, 0.0), (0.0, -1.0)])
def test_what_pays_is_added(weights):
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 9, 2 * GROUP)
    ones, plain = rng.integers(0, cells + 1), rng.integers(0, 99, (2, 2 * GROUP))
    compiled = plain.copy()
    expected = plain + (weights[0] * ones + weights[1] * (cells - ones) > 0) * np.array([ones, cells - ones])
    add_paying(plain, ones, cells, *weights)
    compiled_paying(compiled, ones, cells, *weights)
    np.testing.assert_array_equal(plain, expected)
    np.testing.assert_array_equal(compiled, expected)


def test_without_a_positive_gain_none_wins():
    cells = np.arange(2 * GROUP)
    assert compiled_best(np.zeros_like(cells), cells, 1.0, -1.0) == -1
    assert best_gain(np.zeros_like(cells), cells, 1.0, -1.0) == -1


@pytest.mark.parametrize("width", [bit_vectors.COUNTERS, 2 * bit_vectors.COUNTERS])
def test_counters_count_the_bits_of_masks(width):
    rng = np.random.default_rng(width)
    rows, members = rng.integers(0, 5, 400), rng.random((400, width)) < 0.3
    masks = component_masks(members)[:, 0]
    expected = np.zeros((5, width), np.int64)
    np.add.at(expected, rows, members)
    plain, compiled = np.zeros((2, 5, width), np.uint16)
    for row, mask in zip(rows, masks, strict=True):
        add_bits(plain, row, mask)
    compiled_bits(compiled, rows, masks)
    np.testing.assert_array_equal(compiled, expected)
    np.testing.assert_array_equal(plain, expected)
