"""Unknown cells: every kernel does with a row what it does with the row without its unknown columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.data.binary import BinaryMatrix
from felb.data.coercion import read_partly_known
from felb.errors import InputError
from felb.kernels import passes as filling
from felb.kernels.assign import assign_rows, descend_rows
from felb.kernels.belief import UNIT, infer_rows
from felb.kernels.boolean import FactorMasks, count_overlaps, overlap_grid
from felb.kernels.exact import assign_rows_exact
from felb.kernels.gains import count_additions, count_switches
from felb.kernels.passes import (
    add_filled,
    fixed_statistics,
    from_squares,
    in_units,
    row_pass,
    sweep_known_into,
    units_of,
)
from felb.metrics import Counts, confusion
from felb.optim.steps import HalsStep

WEIGHTS = [(1.0, -1.0), (0.7, -0.3), (3.0, -1.0), (1.0, 0.0)]


def draw(n, m, k, density, seed):
    """Return data with zeros where it is unknown, the unknown cells, and factors; some rows and columns are extreme."""
    rng = np.random.default_rng(seed)
    U, V = rng.random((n, k)) < 0.3, rng.random((k, m)) < density
    unknown = rng.random((n, m)) < rng.choice([0.05, 0.3, 0.8])
    unknown[rng.random(n) < 0.2] = False
    unknown[rng.random(n) < 0.1] = True
    unknown[:, rng.random(m) < 0.05] = True
    A = ((U.astype(int) @ V.astype(int)) > 0) ^ (rng.random((n, m)) < 0.1 * density)
    return A & ~unknown, unknown, U, V


small = st.builds(
    draw,
    st.integers(0, 12),
    st.integers(1, 130),
    st.sampled_from([1, 2, 17, 65]),
    st.sampled_from([0.1, 0.4]),
    st.integers(0, 999),
)
wide = st.builds(
    draw, st.integers(1, 4), st.integers(1000, 1500), st.sampled_from([2, 17]), st.just(0.01), st.integers(0, 999)
)
problems = st.one_of(small, wide)
slow = settings(max_examples=40, deadline=None, derandomize=True)


def masked(A, unknown):
    return sparse(A).with_unknown(sparse(unknown)) if len(A) else sparse(A)


def rows_without_unknown(A, unknown, *factors):
    """Yield each row as a matrix of its known columns only, with the factors cut to these columns."""
    for a, hidden in zip(A, unknown, strict=True):
        yield BinaryMatrix.of(a[None, ~hidden]), *(V[:, ~hidden] for V in factors)


@given(problems, st.sampled_from(WEIGHTS))
@slow
def test_assignment_is_that_of_the_known_columns(problem, weights):
    A, unknown, U, V = problem
    X, worth = masked(A, unknown), {"weight_one": weights[0], "weight_zero": weights[1]}
    covered, descended = assign_rows(X, V, **worth), descend_rows(X, V, U, **worth)
    exact, proven = assign_rows_exact(X, V, **worth)
    for r, (a, v) in enumerate(rows_without_unknown(A, unknown, V)):
        np.testing.assert_array_equal(covered[[r]], assign_rows(a, v, **worth))
        np.testing.assert_array_equal(descended[[r]], descend_rows(a, v, U[[r]], **worth))
        value, best = (gain(a.toarray(), u, v, weights) for u in (exact[[r]], assign_rows_exact(a, v, **worth)[0]))
        if proven[r]:
            assert value == pytest.approx(best)


def gain(A, U, V, weights):
    covered = (U.astype(int) @ V.astype(int)) > 0
    return weights[0] * (covered & A).sum() + weights[1] * (covered & ~A).sum()


@given(problems)
@slow
def test_counts_are_those_of_dense_arrays(problem):
    A, unknown, U, V = problem
    X = masked(A, unknown)
    R = ((U.astype(int) @ V.astype(int)) > 0) & ~unknown
    assert count_overlaps(X, FactorMasks.of(U, V)) == ((A & R).sum(), R.sum(), A.sum())
    assert confusion(X, U, V) == Counts((A & R).sum(), (R & ~A).sum(), (A & ~R).sum(), (~unknown).sum())
    for grid, count in zip(overlap_grid(X, [U, ~U], [V]), count_overlaps(X, FactorMasks.of(~U, V))[:2], strict=True):
        assert grid[1, 0] == count
    ones, cells = count_switches(X, FactorMasks.of(U, V))
    for c in range(len(V)):
        others = np.arange(len(V)) != c
        left = U[:, [c]] & ~unknown & ~((U[:, others].astype(int) @ V[others].astype(int)) > 0)
        np.testing.assert_array_equal(ones[c], (left & A).sum(axis=0))
        np.testing.assert_array_equal(cells[c], left.sum(axis=0))


@given(problems, st.sampled_from(WEIGHTS), st.integers(0, 99))
@slow
def test_additions_are_those_of_the_known_columns(problem, weights, seed):
    A, unknown, U, V = problem
    candidates = np.random.default_rng(seed).random((5, A.shape[1])) < 0.3
    worth = {"weight_one": weights[0], "weight_zero": weights[1]}
    found, expected = (
        count_additions(masked(A, unknown), FactorMasks.of(U, V), candidates, **worth),
        np.zeros((2, 5), int),
    )
    for u, (a, v, c) in zip(U, rows_without_unknown(A, unknown, V, candidates), strict=True):
        expected += count_additions(a, FactorMasks.of(u[None], v), c, **worth)
    np.testing.assert_array_equal(found, expected)


@given(small, st.booleans())
@slow
def test_beliefs_are_those_of_the_known_columns(problem, settled):
    A, unknown, U, V = problem
    rng = np.random.default_rng(len(A))
    theta = np.where(V, 1.5, -8.0) + rng.normal(0, 1, V.shape)
    L = np.where(U, 1.0, -2.0).astype(np.float32)
    model = {"inside": 0.7, "outside": 0.2, "row_rates": np.full(len(V), 0.2), "settled": settled}
    found = infer_rows(masked(A, unknown), L, theta, **model)
    evidence, cells = np.zeros(V.shape), np.zeros(4)
    for r, (a, odds) in enumerate(rows_without_unknown(A, unknown, theta)):
        row = infer_rows(a, L[[r]], odds, **model)
        np.testing.assert_allclose(found.L[[r]], row.L, atol=1e-3)
        evidence[:, ~unknown[r]] += row.evidence * UNIT
        cells += row.cells * UNIT
    np.testing.assert_allclose(found.evidence * UNIT, evidence, atol=1e-2)
    np.testing.assert_allclose(found.cells * UNIT, cells, atol=1e-2, rtol=1e-4)
    assert (found.cells[1] + found.cells[3]) * UNIT == (~unknown).sum()
    assert not found.evidence[:, unknown.all(axis=0)].any()


@given(small)
@slow
def test_relaxed_rows_are_those_of_the_known_columns(problem):
    check_relaxed_rows(problem)


@given(small)
@slow
def test_filled_statistics_are_those_of_the_filled_matrix(problem):
    check_filled(problem)


def test_kernels_for_relaxed_rows_run_in_the_interpreter(monkeypatch):
    interpret(monkeypatch, filling)
    check_relaxed_rows(draw(9, 20, 3, 0.3, 1))
    check_filled(draw(9, 20, 3, 0.3, 1))


def check_relaxed_rows(problem):
    A, unknown, _, V = problem
    rng = np.random.default_rng(len(A))
    relaxed = (V * rng.uniform(0.5, 1.0, V.shape) + 0.01).astype(np.float32)
    start = rng.random((len(A), len(V))).astype(np.float32)
    swept = np.full_like(start, 7)
    sweep_known_into(swept, masked(A, unknown), start, np.ascontiguousarray(relaxed.T), sweeps=2)
    for r, (a, v) in enumerate(rows_without_unknown(A, unknown, relaxed)):
        if not unknown[r].any():
            assert (swept[r] == 7).all()  # left to the pass over all rows
        elif unknown[r].all():
            assert not swept[r].any()
        else:
            wide = row_pass(a, start[[r]].astype(float), v.T.astype(float), rule=HalsStep(2)).U
            np.testing.assert_allclose(swept[[r]], wide, atol=1e-4, rtol=1e-3)


def check_filled(problem):
    A, unknown, U, V = problem
    X, units = masked(A, unknown), units_of(V.astype(float))
    rows = in_units(np.where(U, 0.6, 0.1), units)
    AtX, squares = add_filled(fixed_statistics(X, rows).AtX, sparse(unknown), rows, V=V.astype(np.float32), units=units)
    filled = A + unknown * np.minimum((rows * units) @ V, 1.0)
    np.testing.assert_allclose(AtX, filled.T @ rows, atol=len(A))
    assert from_squares(squares) == pytest.approx((filled**2).sum() - A.sum(), abs=1e-3)


# -- the matrix that carries them --------------------------------------------------------------------------------------


def test_rows_keep_their_unknown_cells():
    A, unknown, _, _ = draw(12, 30, 3, 0.3, 1)
    X = BinaryMatrix.of(A).with_unknown(unknown)
    assert "unknown" in repr(X)
    assert X.density == A.sum() / (~unknown).sum()
    np.testing.assert_array_equal(X.rows(3, 9).unknown.toarray(), unknown[3:9])
    np.testing.assert_array_equal(X.take([5, 2]).unknown.toarray(), unknown[[5, 2]])
    assert X.with_columns([f"c{j}" for j in range(30)]).unknown == X.unknown
    assert BinaryMatrix.vstack([X.rows(0, 4), X.rows(4, 12)]) == X
    mixed = BinaryMatrix.vstack([X, BinaryMatrix.of(A)])
    np.testing.assert_array_equal(mixed.unknown.toarray(), np.vstack([unknown, np.zeros_like(unknown)]))


def test_unknown_cells_belong_to_the_data():
    A, unknown, _, _ = draw(12, 30, 3, 0.3, 1)
    plain = BinaryMatrix.of(A)
    X = plain.with_unknown(sp.csr_array(unknown))
    assert plain.with_unknown(unknown) == X
    assert plain != X
    assert X.fingerprint() != plain.fingerprint()
    assert plain.with_unknown(np.zeros(A.shape)).unknown is None
    assert X.with_unknown(None) == plain
    more = np.zeros(A.shape, bool)
    more[tuple(np.argwhere(~A & ~unknown)[0])] = True
    np.testing.assert_array_equal(X.with_unknown(more).unknown.toarray(), unknown | more)


@pytest.mark.parametrize(
    ("unknown", "message"),
    [
        (np.eye(3), "unknown is 3 x 3.* 3 x 4"),
        (np.full((3, 4), 0.5), "holds 0.5"),
        (np.full((3, 4), np.nan), "missing"),
        (np.ones((3, 4)), "2 cells .*unknown"),
    ],
)
def test_bad_marks_say_what_is_wrong(unknown, message):
    A = BinaryMatrix.of(np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]))
    with pytest.raises(InputError, match=message):
        A.with_unknown(unknown)


def test_a_file_holds_unknown_cells(tmp_path):
    X = BinaryMatrix.of(np.eye(3)).with_unknown(1 - np.eye(3))
    X.save(tmp_path / "x.felb")
    assert BinaryMatrix.open(tmp_path / "x.felb") == X


NAN = np.array([[1, np.nan, 0], [0, 1, np.nan]])


@pytest.mark.parametrize(
    "data",
    [
        NAN,
        NAN.astype(np.float32),
        NAN.tolist(),
        np.where(np.isnan(NAN), None, NAN),
        np.ma.masked_invalid(NAN),
        pd.DataFrame(NAN, columns=list("abc")),
        pd.DataFrame(NAN, columns=list("abc")).astype("Int64"),
        pd.DataFrame(NAN, columns=list("abc")).astype("boolean"),
    ],
    ids=["float", "float32", "list", "None", "masked", "frame", "Int64", "boolean"],
)
@pytest.mark.parametrize("threshold", [None, 0.5])
def test_missing_cells_are_unknown(data, threshold):
    X = read_partly_known(data, binarize_threshold=threshold)
    np.testing.assert_array_equal(X.toarray(), NAN == 1)
    np.testing.assert_array_equal(X.unknown.toarray(), np.isnan(NAN))
    assert X.columns == (("a", "b", "c") if isinstance(data, pd.DataFrame) else None)


def test_a_missing_cell_is_unknown_below_any_threshold():
    X = read_partly_known(np.array([[-3.0, np.nan, 5.0]]), binarize_threshold=-1.0)
    np.testing.assert_array_equal(X.toarray(), [[0, 0, 1]])
    np.testing.assert_array_equal(X.unknown.toarray(), [[0, 1, 0]])


def test_polars_frames_have_missing_cells_too():
    pl = pytest.importorskip("polars")
    X = read_partly_known(pl.DataFrame({"a": [1, None], "b": [True, False], "c": [0.0, float("nan")]}))
    np.testing.assert_array_equal(X.toarray(), [[1, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(X.unknown.toarray(), [[0, 0, 0], [1, 0, 1]])


@pytest.mark.parametrize("data", [np.array([[0.5, np.nan]]), np.array([[np.inf, np.nan]]), sp.csr_array(NAN)])
def test_what_is_no_cell_is_refused(data):
    with pytest.raises(InputError):
        read_partly_known(data)


@pytest.mark.parametrize("data", [np.eye(3), sp.eye(3).tocsr(), pd.DataFrame(np.eye(3)), [[0, 1], [1, 0]]])
def test_without_missing_cells_nothing_is_unknown(data):
    assert read_partly_known(data) == BinaryMatrix.of(data)
    assert read_partly_known(data).unknown is None
