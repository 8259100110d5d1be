"""Co-occurrence counts against the dense product AᵀA."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.kernels import bits, cooccurrence


def draw(n, m, density, seed):
    return np.random.default_rng(seed).random((n, m)) < density


matrices = st.builds(
    draw, st.integers(0, 150), st.integers(0, 70), st.sampled_from([0.0, 0.02, 0.3, 1.0]), st.integers(0, 999)
)


def slow(A):
    return A.T.astype(np.int64) @ A.astype(np.int64)


def check(A):
    found = cooccurrence.cooccurrence(sparse(A))
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, slow(A))


@given(matrices)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_counts_agree_with_the_dense_product(A):
    check(A)


@pytest.mark.parametrize("advantage", [0.0, 1e9])
@pytest.mark.parametrize("shape", [(70, 20), (130, 9), (0, 4), (4, 0)])
@pytest.mark.parametrize("interpreted", [False, True])
def test_pairs_in_rows_and_packed_columns_agree(shape, advantage, interpreted, monkeypatch):
    if interpreted:
        interpret(monkeypatch, bits)
        interpret(monkeypatch, cooccurrence)
    monkeypatch.setattr(cooccurrence, "PACKED_ADVANTAGE", advantage)
    monkeypatch.setattr(cooccurrence, "PACKED_ROWS", 50)
    check(draw(*shape, 0.3, 0))


def test_counts_of_row_blocks_add_up():
    matrix = sparse(draw(90, 30, 0.2, 1))
    np.testing.assert_array_equal(
        sum(cooccurrence.cooccurrence(block) for block in matrix.row_blocks(13)), cooccurrence.cooccurrence(matrix)
    )
