"""Concepts grown on packed bits, against growth on plain Boolean arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.kernels import bits
from felb.kernels import cover as concepts


def draw(n, m, density, seed):
    rng = np.random.default_rng(seed)
    A = rng.random((n, m)) < density
    return A[rng.integers(0, n, n)][:, rng.integers(0, m, m)]  # with repeated lines, for ties


def slow(A, uncovered):
    """Return rows, columns and value of the next concept."""
    candidates = np.flatnonzero(uncovered.any(axis=0))
    rows, columns, value, improved = np.ones(len(A), dtype=bool), np.zeros(A.shape[1], dtype=bool), 0, True
    while improved:
        improved, start = False, rows
        for j in candidates:
            a = start & A[:, j]
            b = A[a].all(axis=0)
            covers = int(uncovered[np.ix_(a, b)].sum())
            if covers > value:
                rows, columns, value, improved = a, b, covers, True
    return rows, columns, value


def check(A, steps=100):
    cover = concepts.ConceptCover(sparse(A))
    uncovered = A.copy()
    pauses = 0
    while uncovered.any() and steps:
        assert cover.left == uncovered.sum()
        rows, columns, value = slow(A, uncovered)
        pauses += sum(1 for _ in cover.grow())
        assert cover.value == value
        np.testing.assert_array_equal(cover.rows, rows)
        np.testing.assert_array_equal(cover.columns, columns)
        cover.take()
        uncovered[np.ix_(rows, columns)] = False
        steps -= 1
    assert cover.left == uncovered.sum()
    return pauses


@given(st.integers(1, 20), st.integers(1, 150), st.sampled_from([0.05, 0.3, 0.7, 0.95, 1.0]), st.integers(0, 999))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_concepts_agree_with_plain_growth(n, m, density, seed):
    check(draw(n, m, density, seed), steps=12)


def test_all_concepts_until_nothing_is_left():
    check(draw(25, 20, 0.6, 0))


@pytest.mark.parametrize("interpreted", [False, True])
def test_blocks_of_columns_do_not_matter(interpreted, monkeypatch):
    if interpreted:
        interpret(monkeypatch, bits)
        interpret(monkeypatch, concepts)
    monkeypatch.setattr(concepts, "STEPS_AT_A_TIME", 50)
    assert check(draw(30, 70, 0.5, 1), steps=6) > 100


def test_growth_that_is_broken_off_leaves_a_concept(monkeypatch):
    monkeypatch.setattr(concepts, "STEPS_AT_A_TIME", 1)
    A = draw(30, 40, 0.6, 2)
    cover = concepts.ConceptCover(sparse(A))
    for _ in cover.grow():
        np.testing.assert_array_equal(A[cover.rows].all(axis=0), cover.columns)
        np.testing.assert_array_equal(A[:, cover.columns].all(axis=1), cover.rows)
        assert cover.value == cover.rows.sum() * cover.columns.sum() > 0


def test_a_search_that_is_broken_off_does_not_spoil_the_next(monkeypatch):
    A = draw(30, 40, 0.6, 3)
    whole = concepts.ConceptCover(sparse(A))
    list(whole.grow())
    monkeypatch.setattr(concepts, "STEPS_AT_A_TIME", 1)
    cover = concepts.ConceptCover(sparse(A))
    for _ in zip(range(20), cover.grow(), strict=False):
        pass
    list(cover.grow())
    assert cover.value == whole.value
    np.testing.assert_array_equal(cover.columns, whole.columns)


def test_nothing_is_found_where_nothing_is_left():
    cover = concepts.ConceptCover(sparse(np.zeros((3, 4), bool)))
    assert list(cover.grow()) == []
    assert (cover.left, cover.value) == (0, 0)
    assert not cover.columns.any()
