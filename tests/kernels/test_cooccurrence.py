"""Co-occurrence counts against the dense product AᵀA."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.kernels import bits, cooccurrence


def draw(n, m, density, seed):
    return np.random.default_rng(seed).random((n, m)) < density


matrices = st.builds(
    draw, st.integers(0, 150), st.integers(0, 70), st.sampled_from([0.0, 0.02, 0.3, 1.0]), st.integers(0, 999)
)


def slow(A):
    return A.T.astype(np.int64) @ A.astype(np.int64)


def check(A, minimum=1):
    found = cooccurrence.cooccurrence(sparse(A))
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, slow(A))
    pairs = cooccurrence.cooccurrence_sparse(sparse(A), minimum=minimum)
    assert pairs.dtype == np.int64
    assert pairs.has_sorted_indices
    assert pairs.nnz == (slow(A) >= minimum).sum()
    np.testing.assert_array_equal(pairs.toarray(), np.where(slow(A) >= minimum, slow(A), 0))


@given(matrices, st.integers(1, 5))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_counts_agree_with_the_dense_product(A, minimum):
    check(A, minimum)


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


def test_sparse_counts_do_not_depend_on_the_blocks(monkeypatch):
    A = draw(60, 40, 0.1, 2)
    monkeypatch.setattr(cooccurrence, "SPARSE_BLOCK_CELLS", 100)
    check(A, minimum=2)


def test_wide_columns():
    matrix = BinaryMatrix(np.array([0, 2, 4]), np.array([3, 69_999, 3, 70_000]), 70_001)
    pairs = cooccurrence.cooccurrence_sparse(matrix).tocoo()
    found = dict(zip(zip(pairs.row.tolist(), pairs.col.tolist(), strict=True), pairs.data.tolist(), strict=True))
    assert found == {
        (3, 3): 2,
        (3, 69_999): 1,
        (3, 70_000): 1,
        (69_999, 3): 1,
        (69_999, 69_999): 1,
        (70_000, 3): 1,
        (70_000, 70_000): 1,
    }


def test_a_minimum_below_one_is_refused():
    with pytest.raises(InputError, match="minimum=0"):
        cooccurrence.cooccurrence_sparse(sparse(draw(3, 3, 0.5, 0)), minimum=0)
