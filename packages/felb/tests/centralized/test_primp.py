"""PRIMP and PanPal: proximal operator, costs, rank and monotone objective."""

import numpy as np
import pytest

from felb.centralized.primp import CodeTableCost, SquaresCost, two_valued_penalty
from felb.data import load, planted
from felb.errors import InputError
from felb.metrics import confusion
from felb.optim.prox import prox_elb_exact
from felb.sklearn.centralized import PanPal, Primp


def test_the_proximal_operator_minimises_the_two_valued_penalty():
    grid = np.linspace(0, 1, 20001)
    penalty = np.array([two_valued_penalty(np.array([y])) for y in grid])
    for alpha in (0.01, 0.05, 0.2):
        for x in (-0.3, 0.0, 0.1, 0.3, 0.45, 0.55, 0.8, 0.97, 1.2):
            best = grid[np.argmin((grid - x) ** 2 / 2 + alpha * penalty)]
            found = np.clip(prox_elb_exact(np.array([x]), 2 * alpha, 0.0), 0, 1)
            assert found[0] == pytest.approx(best, abs=1e-4)


def slow_length(A, U, Vt):
    """Return the length by the code table, term by term."""
    noise = (A ^ ((U.astype(int) @ Vt.T.astype(int)) > 0)).sum(axis=0)
    used, codes = U.sum(axis=0), -np.log(A.sum(axis=0) / A.sum())
    total, length = used.sum() + noise.sum(), 0.0
    for rows, columns in zip(used, Vt.T, strict=True):
        length += -(rows + 1) * np.log(rows / total) + codes[columns].sum()
    for j in np.flatnonzero(noise):
        length += -(noise[j] + 1) * np.log(noise[j] / total) + codes[j]
    return length


def test_the_length_by_the_code_table_and_its_bound():
    data = planted(120, 25, 3, noise=0.05, seed=2)
    A, cost = data.A.toarray().astype(bool), CodeTableCost(data.A)
    U, Vt = data.U.astype(bool), np.ascontiguousarray(data.V.T.astype(bool))
    bound = cost.bound(confusion(data.A, U, data.V).errors, U, Vt)
    assert cost.exact(U, Vt, bound) == pytest.approx(slow_length(A, U, Vt))
    assert cost.exact(U, Vt, bound) <= bound
    assert cost.of_empty().cost == pytest.approx(slow_length(A, U[:, :0], Vt[:, :0]))


@pytest.mark.parametrize("kind", [CodeTableCost, SquaresCost])
def test_slopes_are_the_gradients_of_the_smooth_part(kind):
    rng, data = np.random.default_rng(0), planted(30, 12, 2, seed=1)
    cost, U, Vt = kind(data.A), rng.random((30, 3)), rng.random((12, 3))
    of_component, of_feature = cost.slopes(U)
    step = 1e-6
    for r, j, c in ((0, 1, 0), (7, 4, 2)):
        moved_U, moved_Vt = U.copy(), Vt.copy()
        moved_U[r, c] += step
        moved_Vt[j, c] += step
        slopes = [(cost.smooth(*at) - cost.smooth(U, Vt)) / step for at in ((moved_U, Vt), (U, moved_Vt))]
        assert slopes == pytest.approx([cost.mu * of_component[c], cost.mu * of_feature[j]], rel=1e-4)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.1])
def test_the_planted_rank_is_found(noise):
    data = planted(500, 100, 5, noise=noise, seed=1)
    model = Primp(20, random_state=0)
    U = model.fit_transform(data.A)
    assert model.rank_ == 5
    assert not model.components_[5:].any()
    assert confusion(data.signal, U, model.components_).f1 > 0.97


@pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")
@pytest.mark.parametrize("kind", [Primp, PanPal])
def test_the_cost_is_never_above_that_of_no_components_and_the_objective_never_increases(kind):
    rng = np.random.default_rng(4)
    noise = rng.random((60, 20)) < 0.1
    for A in (load("zoo").toarray(), noise, planted(200, 30, 3, noise=0.3, seed=0).A.toarray()):
        model = kind(12, rank_step=4, random_state=1, dtype="float64")
        model.fit(A)
        assert model.cost_ <= model.empty_cost_
        for rank in {row["rank"] for row in model.history_}:
            values = [row["objective"] for row in model.history_ if row["rank"] == rank]
            assert np.all(np.diff(values) <= 1e-9 * values[0])


def test_panpal_counts_wrong_cells_and_ones_of_the_factors():
    A = load("zoo")
    model = PanPal(10, random_state=0)
    U = model.fit_transform(A)
    ones = np.count_nonzero(U) + np.count_nonzero(model.components_)
    assert model.cost_ == confusion(A, U, model.components_).errors + ones
    assert model.empty_cost_ == A.nnz


def test_parameters_that_make_no_sense():
    for parameters, message in (({"rank_step": 0}, "rank_step"), ({"grid": 1}, "grid"), ({"tol": -1.0}, "tol")):
        with pytest.raises(InputError, match=message):
            Primp(3, **parameters).fit(load("zoo"))
