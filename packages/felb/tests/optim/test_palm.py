"""The theorems of the paper, as far as a computer can check them, and the kernels against plain algebra."""

import numpy as np
import pytest

from felb.data import planted
from felb.kernels.passes import gather, squared_loss, statistics_pass
from felb.metrics import integrality_gap
from felb.optim import palm
from felb.optim.palm import Objective, Point, loss_at
from felb.optim.prox import LARGEST_WEIGHT, Geometric
from felb.optim.steps import Lipschitz, Multiplicative, Penalty, constant_rows, projected_rows, uniform_columns

RULES = [Lipschitz(), Multiplicative()]
DATA = planted(120, 40, 4, noise=0.05, seed=3)


def palm_step(A, point, objective, **options):
    point, statistics = palm.palm_step(A, point, objective, **options)
    return point, loss_at(A, point, statistics)


def start(A, k, rule, dtype=np.float64, seed=0):
    Vt = np.ascontiguousarray(uniform_columns(seed, k, A.shape[1], dtype=dtype).T)
    return Point.start(rule.first_rows(A, Vt), Vt)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("objective", [
    Objective(kappa=0.01, gamma=0.0, exact=True),
    Objective(kappa=0.01, gamma=2.0, exact=True),
    Objective(kappa=0.0, gamma=0.0, exact=False),
], ids=["exact", "exact, pulled", "printed, no l1"])  # fmt: skip
def test_without_inertia_and_with_constant_weight_the_objective_falls_every_step(rule, objective):
    """Sufficient decrease (the paper's Lemma on clients), for the operators that are exact."""
    A, point, lam = DATA.A, start(DATA.A, 5, rule), 0.3
    target = np.ascontiguousarray(uniform_columns(9, 5, A.shape[1], dtype=np.float64).T)
    value = np.inf
    for _ in range(200):
        point, loss = palm_step(A, point, objective, rule=rule, lam=lam, target=target)
        new = objective.value(loss, point.U, point.Vt, lam=lam, target=target if objective.gamma else None)
        assert new <= value + 1e-9
        value = new


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("beta", [0.0, 0.001, 0.2])
def test_with_growing_weight_the_factors_become_boolean(rule, beta):
    A, point = DATA.A, start(DATA.A, 4, rule, np.float32)
    gaps = []
    for t in range(600):
        lam = Geometric(0.1, 1.05)(t)
        point, _ = palm_step(A, point, Objective(), rule=rule, lam=lam, beta=beta)
        gaps.append(max(integrality_gap(point.U), integrality_gap(point.Vt)))
    assert gaps[0] > 0.1
    assert gaps[-1] < 1e-3
    assert point.Vt.any()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_boolean_factors_of_boolean_data_stay_put(rule):
    data = planted(120, 40, 3, density=1.0, contiguous=True, seed=4)
    # Disjoint tiles: the linear product equals the Boolean one, so the gradient vanishes at the planted factors.
    U = np.zeros((120, 3), np.float32)
    Vt = np.zeros((40, 3), np.float32)
    for c in range(3):
        U[c * 40 : c * 40 + 30, c] = 1
        Vt[c * 13 : c * 13 + 10, c] = 1
    A = type(data.A).of(U @ Vt.T)
    point, loss = palm_step(A, Point.start(U, Vt), Objective(), rule=rule, lam=5.0, beta=0.01)
    np.testing.assert_array_equal(point.U, U)
    np.testing.assert_array_equal(point.Vt, Vt)
    assert loss == 0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_step_is_the_formula_in_dense_algebra(rule):
    A, k = DATA.A, 4
    dense = A.toarray().astype(float)
    rng = np.random.default_rng(1)
    U, V, U0, V0 = rng.random((120, k)), rng.random((k, 40)), rng.random((120, k)), rng.random((k, 40))
    beta, lam, kappa, gamma = 0.05, 0.4, 0.01, 0.7
    target = rng.random((k, 40))

    def prox(x, kap, la):
        return np.where(x <= 0.5, x - kap * np.sign(x), x - kap * np.sign(x - 1) + la) / (1 + la)

    def eta(X, G, numerator):
        if rule.name == "multiplicative":
            return numerator / np.maximum(X, 1e-12)
        return 2 * (1 - beta) / ((1 + 2 * beta) * np.linalg.norm(G))

    lowest = 0 if rule.name == "multiplicative" else -np.inf
    Ut = np.maximum(U + beta * (U - U0), lowest)
    nu = eta(Ut @ V @ V.T, V @ V.T, Ut)
    U1 = np.clip(prox(Ut - nu * (Ut @ V @ V.T - dense @ V.T), nu * kappa, nu * lam), 0, 1)
    Vt = np.maximum(V + beta * (V - V0), lowest)
    xi = eta(U1.T @ U1 @ Vt, U1.T @ U1, Vt)
    V1 = np.clip(prox(Vt - xi * (U1.T @ U1 @ Vt - U1.T @ dense), xi * kappa, xi * lam), 0, 1)
    V1 = (V1 + xi * gamma * target) / (1 + xi * gamma)

    point, loss = palm_step(
        A,
        Point(U, np.ascontiguousarray(V.T), U0, np.ascontiguousarray(V0.T)),
        Objective(kappa=kappa, gamma=gamma),
        rule=rule,
        lam=lam,
        beta=beta,
        target=np.ascontiguousarray(target.T),
    )
    np.testing.assert_allclose(point.U, U1, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(point.Vt.T, V1, rtol=1e-9, atol=1e-12)
    assert loss == pytest.approx(((dense - U1 @ V1) ** 2).sum(), rel=1e-9)
    np.testing.assert_array_equal(point.U_before, U)
    np.testing.assert_array_equal(point.Vt_before, V.T)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_float32_follows_float64(rule):
    narrow, wide = start(DATA.A, 4, rule, np.float32), start(DATA.A, 4, rule, np.float64)
    wide = Point.start(narrow.U.astype(np.float64), narrow.Vt.astype(np.float64))
    for _ in range(20):
        narrow, loss32 = palm_step(DATA.A, narrow, Objective(gamma=0.0), rule=rule, lam=0.1, beta=0.001)
        wide, loss64 = palm_step(DATA.A, wide, Objective(gamma=0.0), rule=rule, lam=0.1, beta=0.001)
        assert narrow.U.dtype == narrow.Vt.dtype == np.float32
    np.testing.assert_allclose(narrow.Vt, wide.Vt, atol=2e-4)
    assert loss32 == pytest.approx(loss64, rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_passes_over_the_data_are_matrix_products(dtype):
    rng = np.random.default_rng(0)
    A = DATA.A.rows(7, 90)
    dense = A.toarray().astype(dtype)
    Vt, U = rng.random((40, 5)).astype(dtype), rng.random((83, 5)).astype(dtype)
    np.testing.assert_allclose(gather(A, Vt), dense @ Vt, rtol=1e-5)
    AtU, UtU = statistics_pass(A, U)
    np.testing.assert_allclose(AtU, dense.T @ U, rtol=1e-5)
    np.testing.assert_allclose(UtU, U.T @ U, rtol=1e-5)
    loss = squared_loss(A.nnz, AtU, UtU, Vt)
    assert loss == pytest.approx(((dense - U @ Vt.T) ** 2).sum(), rel=1e-5)


def test_start_depends_on_each_row_alone():
    Vt = np.ascontiguousarray(uniform_columns(0, 4, 40).T)
    U = projected_rows(DATA.A, Vt)
    order = np.random.default_rng(0).permutation(120)
    np.testing.assert_array_equal(projected_rows(DATA.A.take(order), Vt), U[order])
    G = (Vt.T @ Vt).astype(float)
    np.testing.assert_allclose(U, np.clip(DATA.A.toarray() @ Vt / G.sum(0), 0, 1), rtol=1e-5)
    assert np.isfinite(projected_rows(DATA.A, np.zeros_like(Vt))).all()
    step = Multiplicative().step(Vt.T @ Vt, Penalty(), beta=0.0)
    np.testing.assert_allclose(U, step.apply(constant_rows(DATA.A, Vt), DATA.A.toarray() @ Vt, Vt.T @ Vt), rtol=1e-5)


def test_schedule_grows_and_is_capped():
    assert [Geometric(0.1, 2.0)(t) for t in range(3)] == [0.1, 0.2, 0.4]
    assert Geometric(0.1, 1.05)(10**9) == LARGEST_WEIGHT
    assert Geometric(0.1)(500) == 0.1
    assert Geometric(0.0, 1.05)(10**9) == 0
