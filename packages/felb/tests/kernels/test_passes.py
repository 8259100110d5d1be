"""The compiled passes against their obvious twins in float64 NumPy and SciPy, written from the formulas."""

from __future__ import annotations

import threading
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from felb.data import BinaryMatrix
from felb.errors import InputError
from felb.kernels import schedule
from felb.kernels.passes import (
    RowPass,
    factor_step,
    factor_steps,
    gather,
    row_pass,
    squared_loss,
    statistics_pass,
)
from felb.optim.steps import GradientStep, HalsStep, MultiplicativeStep, Penalty

WIDTHS = [1, 7, 16, 17, 65, 133]
"""Last parts of 4, 8 and 16 numbers; 8, 4 and 2 rows at once; one panel and two."""
BETA = 0.1


def soft(x, kappa):
    return np.sign(x) * np.maximum(np.abs(x) - kappa, 0)


def printed_prox(x, kappa, lam):
    low = (x - kappa * np.sign(x)) / (1 + lam)
    return np.where(x <= 0.5, low, (x - kappa * np.sign(x - 1) + lam) / (1 + lam))


def exact_prox(x, kappa, lam):
    return np.where(x <= 0.5, soft(x, kappa) / (1 + 2 * lam), 1 + soft(x - 1, kappa) / (1 + 2 * lam))


KAPPA, LAM, STEP = 0.01, 0.3, 0.02
PROXES = {
    "printed": (Penalty(KAPPA, LAM), printed_prox, 1.0),
    "exact": (Penalty(KAPPA, LAM, exact=True), exact_prox, 1.0),
    "unbounded": (Penalty(KAPPA, LAM, upper=np.inf), printed_prox, np.inf),
}


def twin(rule_name, prox_name, U, U_prev, gathered, gram):
    """Return the moved rows in float64, and where the prox is so near a jump that float32 may fall beyond it."""
    point = U + BETA * (U - U_prev)
    if rule_name == "hals":
        point = np.maximum(point, 0)
        for _ in range(2):
            for c in range(gram.shape[0]):
                point[:, c] = np.maximum(0, point[:, c] + (gathered[:, c] - point @ gram[:, c]) / gram[c, c])
        return point, np.zeros(point.shape, bool)
    _, prox, upper = PROXES[prox_name]
    if rule_name == "lipschitz":
        step = STEP
        x = point + step * (gathered - point @ gram)
    elif rule_name == "component":
        step = 1.5 / np.maximum(gram.sum(axis=1), max(1e-6 * gram.sum(axis=1).max(), 1e-4))
        x = point + step * (gathered - point @ gram)
    else:
        point = np.maximum(point, 0)
        step = point / np.maximum(point @ gram, 1e-12)
        x = step * gathered
    jumps = np.any([(x != jump) & (np.abs(x - jump) < 1e-5) for jump in (0, 0.5, 1)], axis=0)
    return np.clip(prox(x, step * KAPPA, step * LAM), 0, upper), jumps


def rule_of(rule_name, prox_name):
    if rule_name == "hals":
        return HalsStep(sweeps=2)
    prox = PROXES[prox_name][0]
    by_name = {"lipschitz": GradientStep(STEP, prox), "component": GradientStep(1.5, prox, by_component=True)}
    return by_name.get(rule_name, MultiplicativeStep(prox))


RULES = [(rule, prox) for rule in ("lipschitz", "component", "multiplicative") for prox in PROXES] + [("hals", "")]


def matrix(n, m, density, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, n, round(n * m * density))
    columns = rng.integers(0, m, rows.size)
    columns[:2] = 0, m - 1
    rows[rows % 7 == 3] = 0  # every seventh row is empty
    return BinaryMatrix.of(sp.csr_array((np.ones(rows.size), (rows, columns)), shape=(n, m)) > 0)


def factors(n, m, k, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    U, U_prev, Vt = (rng.random((size, k), dtype=np.float32) for size in (n, n, m))
    Vt *= 0.5
    U[::5] = 0
    return U.astype(dtype), U_prev.astype(dtype), Vt.astype(dtype)


def close(got, expected, tolerance=1e-5):
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * max(1e-30, np.abs(expected).max()))


def check_pass(A, U, U_prev, Vt, rule_name, prox_name, *, threads=1, tolerance=1e-5):
    before = [x.copy() for x in (U, U_prev, Vt)]
    got = row_pass(A, U, Vt, rule=rule_of(rule_name, prox_name), U_prev=U_prev, beta=BETA, threads=threads)
    for x, old in zip((U, U_prev, Vt), before, strict=True):
        np.testing.assert_array_equal(x, old)
    ones = A.to_scipy(np.float64)
    V = Vt.astype(np.float64)
    expected, jumps = twin(rule_name, prox_name, U.astype(np.float64), U_prev.astype(np.float64), ones @ V, V.T @ V)
    assert jumps.mean() < 0.01
    close(np.where(jumps, 0, got.U), np.where(jumps, 0, expected), tolerance)
    moved = got.U.astype(np.float64)
    close(got.AtU, ones.T @ moved)
    close(got.UtU, moved.T @ moved)
    assert all(x.dtype == U.dtype and x.flags.c_contiguous for x in got)
    return got


@pytest.fixture(params=["untiled", "tiled"])
def tiling(request, monkeypatch):
    if request.param == "tiled":
        monkeypatch.setattr(schedule, "tile_columns", lambda A, k: 29)
    return request.param


@pytest.mark.parametrize("k", WIDTHS)
@pytest.mark.parametrize(("rule_name", "prox_name"), RULES)
def test_row_pass_agrees_with_its_twin(k, rule_name, prox_name):
    A = matrix(301, 211, 0.1)
    tolerance = 1e-4 if rule_name == "hals" else 1e-5  # coordinates feed on each other's rounding
    check_pass(A, *factors(301, 211, k), rule_name, prox_name, tolerance=tolerance)


@pytest.mark.parametrize("k", [24, 140])  # a rest of eight numbers; more parts than are handled at once
def test_other_widths(k):
    A = matrix(301, 211, 0.1)
    check_pass(A, *factors(301, 211, k), "lipschitz", "exact", threads=2)


@pytest.mark.parametrize("threads", [1, 2, 3, 7, None])
def test_any_number_of_threads(threads, tiling):
    A = matrix(1000, 300, 0.05)
    check_pass(A, *factors(1000, 300, 20), "lipschitz", "printed", threads=threads)


@pytest.mark.parametrize("k", [17, 100])
@pytest.mark.parametrize(("rule_name", "prox_name"), [("lipschitz", "printed"), ("hals", "")])
def test_tiles_change_nothing(k, rule_name, prox_name, monkeypatch):
    A, (U, U_prev, Vt) = matrix(700, 500, 0.2), factors(700, 500, k)
    call = {"rule": rule_of(rule_name, prox_name), "U_prev": U_prev, "beta": BETA, "threads": 1}
    whole = row_pass(A, U, Vt, **call)
    monkeypatch.setattr(schedule, "tile_columns", lambda A, k: 64)
    tiled = row_pass(A, U, Vt, **call)
    # Rows are gathered and scattered in the same order either way, so even the rounding is the same.
    np.testing.assert_array_equal(tiled.U, whole.U)
    np.testing.assert_array_equal(tiled.AtU, whole.AtU)
    close(tiled.UtU, whole.UtU, 1e-6)
    np.testing.assert_array_equal(gather(A, Vt), gather(A, Vt, threads=3))


def test_wide_dense_data_go_in_tiles_and_sparse_data_do_not():
    def shape(n, m, ones_per_row):
        return SimpleNamespace(shape=(n, m), nnz=n * ones_per_row)  # all that the choice looks at

    assert 1000 < schedule.tile_columns(shape(10000, 20000, 1400), 50) < 2000
    assert 500 < schedule.tile_columns(shape(7653, 20082, 4820), 100) < 1000
    assert schedule.tile_columns(shape(10459, 20530, 388), 33) == 20530
    assert schedule.tile_columns(shape(162541, 62423, 115), 20) == 62423
    assert schedule.tile_columns(shape(1630167, 998, 10), 20) == 998
    assert schedule.tile_columns(shape(10, 0, 0), 20) == 1


@pytest.mark.parametrize("m", [65535, 65536, 65537])
def test_both_index_types(m):
    A = matrix(120, m, 0.001)
    assert A.indices.dtype == (np.uint16 if m <= 65536 else np.int32)
    assert A.indices[A.indptr[0] : A.indptr[-1]].max() == m - 1
    U, U_prev, Vt = factors(120, m, 17)
    check_pass(A, U, U_prev, Vt, "lipschitz", "exact", threads=2)
    close(gather(A, Vt), A.to_scipy(np.float64) @ Vt)
    close(statistics_pass(A, U).AtU, A.to_scipy(np.float64).T @ U)


@pytest.mark.parametrize(("start", "stop"), [(0, 100), (37, 300), (150, 150), (299, 300)])
def test_row_slices(start, stop, tiling):
    whole = matrix(300, 100, 0.1)
    part = whole.rows(start, stop)
    U, U_prev, Vt = factors(stop - start, 100, 20)
    if stop > start:
        check_pass(part, U, U_prev, Vt, "multiplicative", "printed", threads=2)
    got = row_pass(part, U, Vt, rule=HalsStep(), threads=2)
    assert got.U.shape == U.shape
    if stop == start:
        assert not got.AtU.any()
        assert not got.UtU.any()


def test_mapped_and_read_only_data(tmp_path):
    A = matrix(300, 100, 0.1)
    A.save(tmp_path / "a.felb")
    mapped = BinaryMatrix.open(tmp_path / "a.felb")
    U, U_prev, Vt = factors(300, 100, 20)
    expected = check_pass(A, U, U_prev, Vt, "lipschitz", "printed")
    for x in (U, U_prev, Vt):
        x.flags.writeable = False
    got = check_pass(mapped, U, U_prev, Vt, "lipschitz", "printed")
    for x, y in zip(got, expected, strict=True):
        np.testing.assert_array_equal(x, y)


def test_shapes_without_ones():
    for n, m in ((0, 5), (4, 0), (4, 5)):
        A = BinaryMatrix(np.zeros(n + 1, np.int64), np.zeros(0, np.int64), m)
        U, _, Vt = factors(n, m, 3)
        got = row_pass(A, U, Vt, rule=GradientStep(0.1, Penalty(exact=True)), threads=2)
        assert got.AtU.shape == (m, 3)
        assert not got.AtU.any()
        assert gather(A, Vt).shape == (n, 3)
        close(statistics_pass(A, U).UtU, U.T @ U)


@pytest.mark.parametrize("k", [15, 33])
def test_statistics_and_gather(k, tiling):
    A = matrix(400, 211, 0.1)
    U, _, Vt = factors(400, 211, k)
    ones = A.to_scipy(np.float64)
    for threads in (1, 3):
        AtU, UtU = statistics_pass(A, U, threads=threads)
        close(AtU, ones.T @ U)
        close(UtU, U.T.astype(np.float64) @ U)
        close(gather(A, Vt, threads=threads), ones @ Vt)
    close(statistics_pass(A, U.astype(np.float64)).AtU, AtU)
    close(gather(A, Vt.astype(np.float64)), ones @ Vt)


@pytest.mark.parametrize(("rule_name", "prox_name"), RULES)
def test_the_step_of_v_is_the_step_of_u_with_given_statistics(rule_name, prox_name):
    A = matrix(300, 211, 0.1)
    U, U_prev, Vt = factors(300, 211, 20)
    rule = rule_of(rule_name, prox_name)
    expected = row_pass(A, U, Vt, rule=rule, U_prev=U_prev, beta=BETA).U
    got = factor_step(U, gather(A, Vt), Vt.T @ Vt, rule=rule, X_prev=U_prev, beta=BETA)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("rule_name", "prox_name"), RULES)
def test_float64_agrees_with_float32(rule_name, prox_name):
    A = matrix(300, 211, 0.1)
    got = check_pass(A, *factors(300, 211, 20, dtype=np.float64), rule_name, prox_name, tolerance=1e-12)
    assert got.U.dtype == np.float64
    U, U_prev, Vt = factors(300, 211, 20, dtype=np.float64)
    rule = rule_of(rule_name, prox_name)
    step = factor_step(U, gather(A, Vt), Vt.T @ Vt, rule=rule, X_prev=U_prev, beta=BETA)
    close(step, got.U, 1e-12)


def test_hals_leaves_coordinates_of_empty_components_alone():
    A = matrix(300, 100, 0.1)
    U, _, Vt = factors(300, 100, 5)
    Vt[:, 2] = 0
    for dtype in (np.float32, np.float64):
        moved = row_pass(A, U.astype(dtype), Vt.astype(dtype), rule=HalsStep(3)).U
        np.testing.assert_array_equal(moved[:, 2], U[:, 2])
        assert np.isfinite(moved).all()


def test_negative_points_are_lifted_where_the_rule_needs_it():
    A = matrix(300, 100, 0.1)
    U, U_prev, Vt = factors(300, 100, 20)
    check_pass(A, U - 0.3, U_prev, Vt, "multiplicative", "printed")
    check_pass(A, U - 0.3, U_prev, Vt, "lipschitz", "printed")
    without = row_pass(A, U - np.float32(0.3), Vt, rule=MultiplicativeStep(Penalty(upper=np.inf)))
    lifted = row_pass(A, np.maximum(U - np.float32(0.3), 0), Vt, rule=MultiplicativeStep(Penalty(upper=np.inf)))
    np.testing.assert_array_equal(without.U, lifted.U)


@pytest.mark.parametrize("k", [1, 16, 20, 33])
@pytest.mark.parametrize("own", [False, True])
def test_points_are_raised_to_the_floor_of_a_multiplicative_step(k, own):
    A, penalty = matrix(300, 100, 0.1), Penalty(0.001, 0.02, own=own)
    U, _, Vt = factors(300, 100, k)
    raised = row_pass(A, np.maximum(U, np.float32(0.25)), Vt, rule=MultiplicativeStep(penalty))
    floored = row_pass(A, U, Vt, rule=MultiplicativeStep(penalty, 0.25))
    for got, expected in zip(floored, raised, strict=True):
        np.testing.assert_array_equal(got, expected)
    locked = row_pass(A, U, Vt, rule=MultiplicativeStep(penalty))
    assert not locked.U[::5].any(), "rows of zeros stay as they are"
    assert floored.U[::5].any()


def test_the_result_may_replace_the_previous_factor():
    A = matrix(300, 100, 0.1)
    for dtype in (np.float32, np.float64):
        U, U_prev, Vt = factors(300, 100, 20, dtype=dtype)
        rule = rule_of("lipschitz", "printed")
        expected = row_pass(A, U, Vt, rule=rule, U_prev=U_prev, beta=BETA, threads=2)
        out = RowPass(U_prev, np.empty((100, 20), dtype), np.empty((20, 20), dtype))
        row_pass(A, U, Vt, rule=rule, U_prev=U_prev, beta=BETA, threads=2, out=out)
        for x, y in zip(out, expected, strict=True):
            np.testing.assert_array_equal(x, y)


def test_long_sums_keep_their_digits():
    n = 400_000
    A = BinaryMatrix(np.arange(n + 1), np.zeros(n, np.int64), 3)
    U = np.random.default_rng(0).random((n, 2), dtype=np.float32)
    AtU, UtU = statistics_pass(A, U, threads=1)
    exact = U.astype(np.float64)
    np.testing.assert_allclose(AtU[0], exact.sum(axis=0), rtol=2e-6)
    np.testing.assert_allclose(UtU, exact.T @ exact, rtol=2e-6)
    assert not AtU[1:].any()


def test_squared_loss():
    A = matrix(300, 100, 0.1)
    U, _, Vt = factors(300, 100, 20)
    moved = row_pass(A, U, Vt, rule=HalsStep(2))
    loss = squared_loss(A.nnz, moved.AtU, moved.UtU, Vt)
    assert loss == pytest.approx(((A.toarray() - moved.U.astype(float) @ Vt.T) ** 2).sum(), rel=1e-6)


def test_passes_run_in_several_threads_at_once():
    A, (U, U_prev, Vt) = matrix(2000, 300, 0.05), factors(2000, 300, 20)
    call = {"rule": rule_of("lipschitz", "printed"), "U_prev": U_prev, "beta": BETA, "threads": 2}
    expected = row_pass(A, U, Vt, **call)
    results = [None] * 6

    def client(i):
        results[i] = row_pass(A, U, Vt, **call)

    clients = [threading.Thread(target=client, args=(i,)) for i in range(len(results))]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    for got in results:
        for x, y in zip(got, expected, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("parts", [1, 2, 3, 8, 50])
def test_rows_are_split_by_work(parts):
    A = matrix(500, 100, 0.1).rows(20, 480)
    ranges = schedule.split_rows(A, parts)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 460
    assert all(stop == start for (_, stop), (start, _) in pairwise(ranges))
    if parts <= 8:
        work = [A.rows(*r).nnz + 4 * (r[1] - r[0]) for r in ranges]
        assert max(work) - min(work) < 2 * (A.row_sums().max() + 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"U": np.zeros((3, 2), np.float32)}, r"U has shape \(3, 2\); expected \(4, 2\)"),
        ({"Vt": np.zeros((5, 3), np.float32)}, r"Vt has shape \(5, 3\); expected \(5, 2\)"),
        ({"U": np.zeros((4, 2), np.int64)}, "U holds int64; expected float32"),
        ({"U": np.zeros(4, np.float32)}, "expected a 2D array"),
        ({"U_prev": np.zeros((4, 1), np.float32)}, "U_prev has shape"),
        ({"threads": 0}, "threads=0"),
    ],
)
def test_errors_name_what_is_wrong(change, message):
    A = BinaryMatrix(np.array([0, 1, 2, 2, 3]), np.array([0, 4, 2]), 5)
    arguments = {"U": np.zeros((4, 2), np.float32), "Vt": np.zeros((5, 2), np.float32), **change}
    U, Vt = arguments.pop("U"), arguments.pop("Vt")
    with pytest.raises(InputError, match=message):
        row_pass(A, U, Vt, rule=HalsStep(), **arguments)


def test_parameters_are_checked():
    with pytest.raises(InputError, match="kappa=-1"):
        Penalty(-1)
    with pytest.raises(InputError, match="sweeps=0"):
        HalsStep(0)
    out = RowPass(np.zeros((4, 2)), np.zeros((5, 2), np.float32), np.zeros((2, 2), np.float32))
    A = BinaryMatrix(np.array([0, 1, 2, 2, 3]), np.array([0, 4, 2]), 5)
    with pytest.raises(InputError, match=r"out\.U must be a C-contiguous float32"):
        row_pass(A, np.zeros((4, 2), np.float32), np.zeros((5, 2), np.float32), rule=HalsStep(), out=out)


@pytest.mark.parametrize("k", [1, 17])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    "rule",
    [
        lambda p: GradientStep(0.05, p),
        lambda p: GradientStep(1.5, p, by_component=True),
        MultiplicativeStep,
        lambda p: MultiplicativeStep(p, 0.3),
    ],
    ids=["gradient", "component", "mu", "mu, floor"],
)
def test_rows_are_drawn_towards_a_target(k, exact, own, rule):
    rng = np.random.default_rng(k)
    X, X_prev, gathered, target = (rng.random((131, k)).astype(np.float32) for _ in range(4))
    gram = X.T @ X / 131
    step = rule(Penalty(0.01, 0.3, gamma=0.7, exact=exact, own=own))
    options = {"rule": step, "X_prev": X_prev, "beta": 0.1}
    got = factor_step(X, gathered, gram, target=target, **options)
    wide = [a.astype(np.float64) for a in (X, gathered, gram)]
    expected = factor_step(*wide, target=target, **options)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
    free = factor_step(X, gathered, gram, **options)
    assert np.abs(free - target).sum() > np.abs(got - target).sum()
    if own:  # γ√(G_ll tr(G)/k) in place of γ, column by column
        curvature = np.diagonal(wide[2])
        for column in range(k):
            gamma = 0.7 * float(np.sqrt(curvature[column] * curvature.mean()))
            absolute = rule(Penalty(0.01, 0.3, gamma=gamma, exact=exact))
            pulled = factor_step(*wide, target=target, **options | {"rule": absolute})
            np.testing.assert_allclose(expected[:, column], pulled[:, column], rtol=1e-6)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (63, 3), (64, 5), (200, 20)])
def test_float64_sweeps_over_given_rows_are_those_of_numpy(n, k):
    rng = np.random.default_rng(k)
    X, gathered, basis = rng.random((n, k)) - 0.3, rng.random((n, k)) * 5, rng.random((30, k))
    gram = basis.T @ basis
    if k > 1:
        gram[1], gram[:, 1] = 0, 0  # a component that contributes nothing stays as it is
    before = X.copy()
    moved = factor_step(X, gathered, gram, rule=HalsStep(2))
    np.testing.assert_allclose(moved, HalsStep(2).apply(np.maximum(X, 0), gathered, gram), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(X, before)
    parts = [
        factor_step(X[rows], gathered[rows], gram, rule=HalsStep(2)) for rows in (slice(0, n // 3), slice(n // 3, n))
    ]
    np.testing.assert_array_equal(np.concatenate(parts), moved)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize(("rule_name", "prox_name"), RULES)
def test_several_steps_are_one_after_the_other(rule_name, prox_name, drawn, dtype):
    rng = np.random.default_rng(3)
    X, before, gathered, target = (rng.random((131, 17)).astype(dtype) for _ in range(4))
    options = {"rule": rule_of(rule_name, prox_name), "beta": 0.0 if rule_name == "hals" else 0.1}
    if drawn and rule_name != "hals":
        options["target"] = target
    gram = X.T @ X
    found = factor_steps(X, gathered, gram, steps=4, X_prev=before, **options)
    for _ in range(4):
        X, before = factor_step(X, gathered, gram, X_prev=before, **options), X
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], before)
