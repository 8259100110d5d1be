"""FastStep against dense NumPy twins of its loss and of its steps."""

import numpy as np
import pytest

from felb.centralized.faststep import FLOOR, count_step_cells, step_loss
from felb.data import BinaryMatrix, load, planted
from felb.errors import InputError
from felb.kernels.step_loss import descend_rows_into
from felb.metrics import confusion
from felb.sklearn.centralized import FastStep

RNG = np.random.default_rng(0)
A = RNG.random((14, 9)) < 0.4
U, V = RNG.random((14, 3)) * 4, RNG.random((9, 3)) * 4


def dense_loss(A, U, V, tau):
    X = U @ V.T
    return float(np.where(A, np.logaddexp(0, tau - X), X**2 / (4 * tau)).sum())


def dense_step(A, U, V, tau):
    """Take a Newton step in every coordinate of U, with all cells and numerical derivatives of none."""
    U = U.copy()
    for c in range(U.shape[1]):
        X = U @ V.T
        chance = 1 / (1 + np.exp(X - tau))
        slope = (np.where(A, -chance, X / (2 * tau)) * V[:, c]).sum(axis=1)
        curvature = (np.where(A, chance * (1 - chance), 1 / (2 * tau)) * V[:, c] ** 2).sum(axis=1)
        step = -slope / np.maximum(curvature, 1e-12)
        for r in range(len(U)):
            before = dense_loss(A[r], U[r], V, tau)
            for halving in range(12):
                moved = U[r].copy()
                moved[c] = max(U[r, c] + step[r] / 2**halving, FLOOR)
                if dense_loss(A[r], moved, V, tau) <= before:
                    U[r] = moved
                    break
    return U


@pytest.mark.parametrize("tau", [2.0, 20.0])
def test_the_loss_and_a_sweep_are_those_of_dense_arrays(tau):
    matrix = BinaryMatrix.of(A)
    assert step_loss(matrix, U, V, tau) == pytest.approx(dense_loss(A, U, V, tau))
    found = U.copy()
    descend_rows_into(found, V, V.T @ V, matrix.indptr, matrix.indices, tau, FLOOR)
    np.testing.assert_allclose(found, dense_step(A, U, V, tau), rtol=1e-9)


def test_the_loss_of_zeros_is_a_bound_of_the_logistic_one_with_its_slope_at_the_step():
    x, tau = np.linspace(0.01, 39.9, 500), 20.0
    assert np.all(x**2 / (4 * tau) >= np.logaddexp(0, x - tau) - 1e-8)
    assert tau / (2 * tau) == 0.5


def test_the_loss_decreases():
    for data in (load("zoo"), planted(200, 40, 3, noise=0.1, seed=0).A):
        losses = FastStep(6, random_state=0, tol=0.0, max_iter=15).fit(data).history_["loss"]
        assert np.all(np.diff(losses) <= 1e-9 * losses[0])


def test_planted_blocks_are_found_by_the_step_and_by_the_threshold():
    data = planted(1000, 100, 5, noise=0.05, seed=1)
    model = FastStep(5, random_state=0)
    rows = model.fit_transform(data.A)
    assert model.step_counts(data.signal).f1 > 0.95
    assert confusion(data.signal, rows, model.components_).f1 > 0.98


def test_cells_of_the_step_are_counted_as_in_a_dense_array():
    counts = count_step_cells(BinaryMatrix.of(A), U, V, 8.0)
    claimed = U @ V.T >= 8.0
    assert (counts.tp, counts.fp, counts.fn) == ((A & claimed).sum(), (claimed & ~A).sum(), (A & ~claimed).sum())


def test_what_makes_no_sense_is_refused():
    with pytest.raises(InputError, match="tau must be positive"):
        FastStep(2, tau=0.0).fit(load("zoo"))
    with pytest.raises(InputError, match="records of the fit"):
        FastStep(2, random_state=0).fit(load("zoo")).step_counts(load("zoo").rows(0, 5))
