"""The Boolean product and its agreement with data, against matrix products of dense arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.errors import InputError
from felb.kernels import bits
from felb.kernels import boolean as product
from felb.kernels.boolean import FactorMasks, boolean_product, boolean_product_dense, count_overlaps, overlap_grid


def draw(n, m, k, density, seed):
    """Return data and factors."""
    rng = np.random.default_rng(seed)
    return rng.random((n, m)) < density, rng.random((n, k)) < density, rng.random((k, m)) < density


problems = st.builds(
    draw,
    st.integers(0, 20),
    st.integers(0, 140),
    st.sampled_from([0, 1, 2, 15, 16, 17, 33, 64, 65, 100]),
    st.sampled_from([0.0, 0.02, 0.1, 0.5, 1.0]),
    st.integers(0, 999),
)


def slow_product(U, V):
    return (U.astype(int) @ V.astype(int)) > 0


def slow_counts(A, U, V):
    R = slow_product(U, V)
    return int((A & R).sum()), int(R.sum()), int(A.sum())


def check(A, U, V):
    R = slow_product(U, V)
    dense = boolean_product_dense(U, V)
    assert dense.dtype == np.bool_
    np.testing.assert_array_equal(dense, R)
    assert boolean_product(U, V) == sparse(R)
    counts = count_overlaps(sparse(A), FactorMasks.of(U, V))
    assert counts == slow_counts(A, U, V)
    assert all(type(count) is int for count in counts)


@given(problems)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_products_and_counts_agree_with_dense_arithmetic(problem):
    check(*problem)


@pytest.mark.parametrize("shape", [(4, 9, 3), (3, 70, 66), (0, 5, 2), (3, 0, 2), (3, 5, 0)])
def test_kernels_run_in_the_interpreter(shape, monkeypatch):
    interpret(monkeypatch, bits)
    interpret(monkeypatch, product)
    check(*draw(*shape, 0.2, 0))


def test_counts_of_row_blocks_add_up():
    A, U, V = draw(50, 70, 5, 0.2, 1)
    matrix = sparse(A)
    parts = [count_overlaps(matrix.rows(a, a + 7), FactorMasks.of(U[a : a + 7], V)) for a in range(0, 50, 7)]
    assert tuple(map(sum, zip(*parts, strict=True))) == count_overlaps(matrix, FactorMasks.of(U, V))


def test_wide_products_use_wide_indices():
    V = np.zeros((2, 70_000), bool)
    V[0, [0, 69_999]] = V[1, [5, 65_536]] = True
    U = np.array([[True, False], [False, False], [True, True]])
    R = boolean_product(U, V)
    assert R.indices.dtype == np.int32
    assert R.indices.tolist() == [0, 69_999, 0, 5, 65_536, 69_999]
    assert R.indptr.tolist() == [0, 2, 2, 6]
    assert count_overlaps(R, FactorMasks.of(U, V)) == (6, 6, 6)


def test_read_only_data_in_any_layout():
    A, U, V = draw(30, 40, 6, 0.3, 2)
    matrix = sparse(A)
    matrix.indices.flags.writeable = matrix.indptr.flags.writeable = False
    factors = FactorMasks.of(np.asfortranarray(U), np.asfortranarray(V))
    assert count_overlaps(matrix, factors) == slow_counts(A, U, V)


def test_column_names_are_kept():
    assert boolean_product(np.ones((1, 1), bool), np.ones((1, 2), bool), ["a", "b"]).columns == ("a", "b")


def test_factors_that_do_not_fit_are_named():
    U, V = np.ones((3, 2), bool), np.ones((2, 4), bool)
    with pytest.raises(InputError, match=r"U has 2 .*V has 3"):
        boolean_product(U, np.ones((3, 4), bool))
    with pytest.raises(InputError, match=r"3 x 4.* 3 x 5"):
        overlap_grid(sparse(np.ones((3, 5), bool)), [U], [V])
    with pytest.raises(InputError, match=r"U must be .*Boolean"):
        boolean_product_dense(U.astype(float), V)
