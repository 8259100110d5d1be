"""Row assignment against slow loops over dense rows, and exact assignment against all subsets."""

from __future__ import annotations

from itertools import product as choices

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.errors import InputError
from felb.kernels import assign, exact
from felb.kernels.assign import assign_rows, descend_rows
from felb.kernels.exact import assign_rows_exact

WEIGHTS = [(1.0, -1.0), (0.7, -0.3), (0.31, -0.69), (1.0, 0.0), (0.0, -1.0)]
COMPONENTS = [0, 1, 2, 8, 9, 17, 64, 65, 100]


def draw(n, m, k, density, seed):
    """Return data with noise around U∘V, V, and a start that is not U."""
    rng = np.random.default_rng(seed)
    U, V = rng.random((n, k)) < 0.3, rng.random((k, m)) < density
    A = ((U.astype(int) @ V.astype(int)) > 0) ^ (rng.random((n, m)) < 0.1 * density)
    A[: n // 5] = False
    return A, V, rng.random((n, k)) < 0.2


# Small dense rows, and wide sparse ones of which most columns have no component.
dense_problems = st.builds(
    draw,
    st.integers(0, 6),
    st.integers(0, 130),
    st.sampled_from(COMPONENTS),
    st.sampled_from([0.05, 0.2, 0.5]),
    st.integers(0, 999),
)
wide_problems = st.builds(
    draw, st.integers(1, 4), st.integers(2000, 3000), st.sampled_from(COMPONENTS), st.just(0.004), st.integers(0, 999)
)
problems = st.one_of(dense_problems, wide_problems)


def slow_gain(a, V, u, c, weights):
    covered = np.zeros(V.shape[1], bool)
    for other in np.flatnonzero(u):
        if other != c:
            covered |= V[other]
    left = V[c] & ~covered
    ones, cells = int((left & a).sum()), int(left.sum())
    return weights[0] * ones + weights[1] * (cells - ones)


def slow_cover(A, V, weights):
    U = np.zeros((A.shape[0], V.shape[0]), bool)
    for a, u in zip(A, U, strict=True):
        while not u.all():
            gains = [0.0 if u[c] else slow_gain(a, V, u, c, weights) for c in range(u.size)]
            if max(gains) <= 0.0:
                break
            u[int(np.argmax(gains))] = True
    return U


def slow_descent(A, V, start, weights, sweeps):
    U = start.copy()
    for a, u in zip(A, U, strict=True):
        for _ in range(sweeps):
            before = u.copy()
            for c in range(u.size):
                u[c] = slow_gain(a, V, u, c, weights) > 0.0
            if np.array_equal(before, u):
                break
    return U


def row_values(A, V, U, weights):
    R = (U.astype(int) @ V.astype(int)) > 0
    return weights[0] * (R & A).sum(axis=1) + weights[1] * (R & ~A).sum(axis=1)


def slow_optimum(A, V, weights):
    subsets = np.array(list(choices([False, True], repeat=V.shape[0])), dtype=bool).reshape(2 ** V.shape[0], -1)
    return [max(row_values(np.tile(a, (len(subsets), 1)), V, subsets, weights)) for a in A]


def options(weights):
    return {"weight_one": weights[0], "weight_zero": weights[1]}


@given(problems, st.sampled_from(WEIGHTS), st.integers(0, 3))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_assignment_is_greedy_cover_and_descent(problem, weights, sweeps):
    A, V, _ = problem
    greedy = slow_cover(A, V, weights)
    U = assign_rows(sparse(A), V, sweeps=sweeps, **options(weights))
    assert U.dtype == np.bool_
    np.testing.assert_array_equal(U, slow_descent(A, V, greedy, weights, sweeps))
    assert np.all(row_values(A, V, U, weights) >= row_values(A, V, greedy, weights) - 1e-9)


@given(problems, st.sampled_from(WEIGHTS), st.integers(0, 3))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_descent_from_any_start(problem, weights, sweeps):
    A, V, start = problem
    kept = start.copy()
    U = descend_rows(sparse(A), V, start, sweeps=sweeps, **options(weights))
    np.testing.assert_array_equal(U, slow_descent(A, V, start, weights, sweeps))
    np.testing.assert_array_equal(start, kept)
    assert not np.shares_memory(U, start)
    assert np.all(row_values(A, V, U, weights) >= row_values(A, V, start, weights) - 1e-9)


@pytest.mark.parametrize("shape", [(6, 20, 5), (3, 90, 66), (0, 5, 2), (2, 0, 2), (2, 5, 0)])
def test_kernels_run_in_the_interpreter(shape, monkeypatch):
    interpret(monkeypatch, assign)
    A, V, start = draw(*shape, 0.2, 3)
    for weights in WEIGHTS[:2]:
        expected = slow_descent(A, V, slow_cover(A, V, weights), weights, 3)
        np.testing.assert_array_equal(assign_rows(sparse(A), V, **options(weights)), expected)
        expected = slow_descent(A, V, start, weights, 3)
        np.testing.assert_array_equal(descend_rows(sparse(A), V, start, **options(weights)), expected)


def test_exact_planted_rows_are_found():
    rng = np.random.default_rng(0)
    U, V = rng.random((200, 8)) < 0.3, np.kron(np.eye(8, dtype=bool), np.ones((1, 9), bool))
    A = (U.astype(int) @ V.astype(int)) > 0
    np.testing.assert_array_equal(assign_rows(sparse(A), V), U)


def test_equal_gains_go_to_the_first_component():
    V = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0]], dtype=bool)
    A = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]], dtype=bool)
    expected = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
    np.testing.assert_array_equal(assign_rows(sparse(A), V), expected)


def test_descent_drops_what_later_picks_made_useless():
    # The middle is picked first, then both sides, which cover it; with them it gains nothing.
    V = np.array([[0, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=bool)
    A = np.ones((1, 6), bool)
    np.testing.assert_array_equal(assign_rows(sparse(A), V, sweeps=0), [[True, True, True]])
    np.testing.assert_array_equal(assign_rows(sparse(A), V), [[False, True, True]])


def test_rows_are_independent_of_their_block():
    A, V, start = draw(40, 90, 7, 0.2, 5)
    matrix = sparse(A)
    for whole, part in [
        (assign_rows(matrix, V), lambda a, b: assign_rows(matrix.rows(a, b), V)),
        (descend_rows(matrix, V, start), lambda a, b: descend_rows(matrix.rows(a, b), V, start[a:b])),
        (assign_rows_exact(matrix, V)[0], lambda a, b: assign_rows_exact(matrix.rows(a, b), V)[0]),
    ]:
        np.testing.assert_array_equal(np.vstack([part(a, a + 9) for a in range(0, 40, 9)]), whole)


def test_data_with_more_columns_than_two_bytes_address():
    rng = np.random.default_rng(4)
    V = rng.random((4, 70_000)) < 0.0005
    A = (((rng.random((5, 4)) < 0.5).astype(int) @ V.astype(int)) > 0) ^ (rng.random((5, 70_000)) < 0.0001)
    matrix = sparse(A)
    assert matrix.indices.dtype == np.int32
    expected = slow_descent(A, V, slow_cover(A, V, (1.0, -1.0)), (1.0, -1.0), 3)
    np.testing.assert_array_equal(assign_rows(matrix, V), expected)


# -- exact assignment ------------------------------------------------------------------------------------------------


@given(
    st.builds(draw, st.integers(0, 6), st.integers(0, 80), st.integers(0, 7), st.just(0.3), st.integers(0, 999)),
    st.sampled_from([*WEIGHTS, (200.0, -100.0), (0.0, 0.0)]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_exact_assignment_is_the_best_of_all_subsets(problem, weights, from_start):
    A, V, start = problem
    U, proven = assign_rows_exact(sparse(A), V, start=start if from_start else None, **options(weights))
    assert proven.shape == (A.shape[0],)
    assert proven.all()
    values = row_values(A, V, U, weights)
    np.testing.assert_allclose(values, slow_optimum(A, V, weights), atol=1e-7)
    if from_start:
        unchanged = row_values(A, V, start, weights) >= values - 1e-9
        np.testing.assert_array_equal(U[unchanged], start[unchanged])


@pytest.mark.parametrize("k", [1, 17, 64, 65])
def test_exact_assignment_of_disjoint_components_is_separable(k):
    rng = np.random.default_rng(k)
    V = np.kron(np.eye(k, dtype=bool), np.ones((1, 3), bool))
    A = rng.random((20, 3 * k)) < 0.5
    U, proven = assign_rows_exact(sparse(A), V, start=rng.random((20, k)) < 0.5)
    assert proven.all()
    np.testing.assert_array_equal(U, A.reshape(20, k, 3).sum(axis=2) >= 2)


def overlapping(n=30, m=120, k=14):
    rng = np.random.default_rng(0)
    U, V = rng.random((n, k)) < 0.3, rng.random((k, m)) < 0.3
    return ((U.astype(int) @ V.astype(int)) > 0) ^ (rng.random((n, m)) < 0.3), V


def test_the_node_cap_ends_the_search_with_the_best_so_far():
    A, V = overlapping()
    matrix = sparse(A)
    start = assign_rows(matrix, V)
    values = [row_values(A, V, start, (1, -1))]
    for cap in (0, 1, 3, 30, 10_000):
        U, proven = assign_rows_exact(matrix, V, node_cap=cap)
        values.append(row_values(A, V, U, (1, -1)))
        assert np.all(values[-1] >= values[-2])
        if cap == 0:
            assert not proven.any()
            np.testing.assert_array_equal(U, start)
        if cap == 3:
            assert not proven.all()
    assert proven.all()
    assert values[-1].sum() > values[0].sum()


@pytest.mark.parametrize("shape", [(4, 25, 6), (2, 70, 66), (0, 5, 2), (2, 0, 2), (2, 5, 0)])
def test_exact_kernels_run_in_the_interpreter(shape, monkeypatch):
    A, V, start = draw(*shape, 0.2 if shape[2] < 10 else 0.02, 7)
    U, proven = assign_rows_exact(sparse(A), V, start=start, node_cap=50)
    interpret(monkeypatch, assign)
    interpret(monkeypatch, exact)
    again, proven_again = assign_rows_exact(sparse(A), V, start=start, node_cap=50)
    np.testing.assert_array_equal(U, again)
    np.testing.assert_array_equal(proven, proven_again)


def test_exact_search_branches_in_the_interpreter(monkeypatch):
    A, V = overlapping(2, 60, 8)
    U, _ = assign_rows_exact(sparse(A), V)
    interpret(monkeypatch, assign)
    interpret(monkeypatch, exact)
    np.testing.assert_array_equal(assign_rows_exact(sparse(A), V)[0], U)


def test_unusable_arguments_are_named():
    A, V = sparse(np.ones((2, 4), bool)), np.ones((3, 4), bool)
    with pytest.raises(InputError, match=r"V must be .*Boolean"):
        assign_rows(A, V.astype(int))
    with pytest.raises(InputError, match=r"V has 5 columns.* 4"):
        assign_rows(A, np.ones((3, 5), bool))
    with pytest.raises(InputError, match=r"3 x 4.* 2 x 4"):
        descend_rows(A, V, np.ones((3, 3), bool))
    for one, zero in [(-1.0, -1.0), (1.0, 1.0), (float("nan"), -1.0)]:
        with pytest.raises(InputError, match="weight_zero"):
            assign_rows_exact(A, V, weight_one=one, weight_zero=zero)
