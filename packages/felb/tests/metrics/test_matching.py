"""Matching of components against all permutations."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from felb.metrics.comparison import NO_MATCH, jaccard_matrix, match_components

ROWS = arrays(bool, st.tuples(st.integers(1, 4), st.just(5)))


@given(ROWS, ROWS)
def test_the_matrix_agrees_with_sets(V, W):
    sets = [[set(np.flatnonzero(row)) for row in rows] for rows in (V, W)]
    expected = [[len(v & w) / len(v | w) if v | w else 0.0 for w in sets[1]] for v in sets[0]]
    np.testing.assert_allclose(jaccard_matrix(V, W), expected)


@given(ROWS, ROWS)
def test_no_other_assignment_has_a_larger_sum(V, W):
    places, index = match_components(V, W)
    alike = jaccard_matrix(V, W)
    size = max(len(V), len(W))
    padded = np.zeros((size, size))
    padded[: len(V), : len(W)] = alike
    best = max(sum(padded[i, p] for i, p in enumerate(order)) for order in permutations(range(size)))
    assert index.sum() == pytest.approx(best)
    taken = places[places != NO_MATCH]
    assert len(set(taken.tolist())) == len(taken)
    np.testing.assert_allclose(index[places != NO_MATCH], alike[places != NO_MATCH, taken])
    assert (index[places == NO_MATCH] == 0).all()


def test_permuted_components_match_themselves():
    V = np.eye(6, dtype=bool) | (np.arange(6) == 0)
    order = np.random.default_rng(0).permutation(6)
    places, index = match_components(V, V[order])
    np.testing.assert_array_equal(order[places], np.arange(6))
    assert (index == 1).all()
