"""Seeds, bounds and removed blocks against their definitions on dense arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.kernels import bits, cooccurrence
from felb.kernels import cover as residual


def draw(n, m, density, seed):
    return np.random.default_rng(seed).random((n, m)) < density


matrices = st.builds(
    draw, st.integers(1, 70), st.integers(1, 140), st.sampled_from([0.0, 0.05, 0.3, 0.7, 1.0]), st.integers(0, 999)
)


def slow_best(M, lines, t):
    best, score = -1, 0
    for line in lines:
        pattern = M[line]
        counts = M[:, pattern].sum(axis=1)
        block = counts >= min(t * pattern.sum() + 1, pattern.sum())
        value = (block.sum() - 1) * (pattern.sum() - 1) - (~M[np.ix_(block, pattern)]).sum()
        if value > score:
            best, score = line, value
    return best, score


def check(M, t):
    sizes = M.sum(axis=1)
    matrix = sparse(M)
    for size in np.unique(sizes[sizes > 0]):
        lines = np.flatnonzero(sizes == size)
        found = residual.best_seed(matrix, cooccurrence.transpose(matrix), lines, threshold=t)
        assert tuple(found) == slow_best(M, lines, t)


@pytest.mark.parametrize("advantage", [0.0, 1e9])
@given(matrices, st.sampled_from([0.0, 0.3, 0.5, 1.0]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_best_seed_is_that_of_the_definition(advantage, M, t):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(residual, "SEEDS_PACKED_ADVANTAGE", advantage)
        check(M, t)


@pytest.mark.parametrize("advantage", [0.0, 1e9])
def test_kernels_run_in_the_interpreter(advantage, monkeypatch):
    for module in (bits, cooccurrence, residual):
        interpret(monkeypatch, module)
    monkeypatch.setattr(residual, "SEEDS_PACKED_ADVANTAGE", advantage)
    check(draw(20, 70, 0.3, 0), 0.5)
    M = draw(6, 5, 0.5, 1)
    np.testing.assert_array_equal(cooccurrence.transpose(sparse(M)).toarray(), M.T)


def test_wide_data_is_searched_without_pairs(monkeypatch):
    monkeypatch.setattr(residual, "MOST_PAIRED", 4)
    monkeypatch.setattr(residual, "SEEDS_PACKED_ADVANTAGE", 1e9)
    check(draw(40, 30, 0.4, 2), 0.5)


def test_no_seeds_no_block():
    M = sparse(draw(5, 5, 0.5, 0))
    assert residual.best_seed(M, cooccurrence.transpose(M), np.zeros(0, np.int64), threshold=0.5) == (-1, 0)


@given(matrices, st.integers(0, 99))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_transposing_and_removing_a_block(M, seed):
    rng = np.random.default_rng(seed)
    matrix, rows, columns = sparse(M), rng.random(M.shape[0]) < 0.5, rng.random(M.shape[1]) < 0.5
    np.testing.assert_array_equal(cooccurrence.transpose(matrix).toarray(), M.T)
    np.testing.assert_array_equal(
        residual.without_block(matrix, rows, columns).toarray(), M & ~(rows[:, None] & columns)
    )
    np.testing.assert_array_equal(
        residual.overlaps(cooccurrence.transpose(matrix), np.flatnonzero(columns)), M[:, columns].sum(axis=1)
    )
    np.testing.assert_array_equal(matrix.toarray(), M)
