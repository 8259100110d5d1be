"""Zhang's updates against dense formulas, and the Boolean factors against all thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.centralized import zhang
from felb.centralized.zhang import balanced, penalised_step
from felb.data import load, planted
from felb.errors import ConvergenceWarning, InputError
from felb.kernels.boolean import threshold_grid
from felb.kernels.passes import gather, statistics_pass
from felb.metrics import confusion
from felb.optim.steps import projected_rows, uniform_columns
from felb.sklearn.centralized import Zhang

DATA = planted(150, 30, 3, noise=0.05, seed=4)


def slow_step(A, W, H, lam):
    """H, then W, by the printed formulas on dense arrays."""
    H = np.maximum(H * (W.T @ A + 3 * lam * H**2) / (W.T @ W @ H + 2 * lam * H**3 + lam * H), 1e-16)
    W = np.maximum(W * (A @ H.T + 3 * lam * W**2) / (W @ (H @ H.T) + 2 * lam * W**3 + lam * W), 1e-16)
    return W, H


def step(A, W, Ht, lam):
    Ht = penalised_step(Ht, *statistics_pass(A, W), lam=lam)
    return penalised_step(W, gather(A, Ht), Ht.T @ Ht, lam=lam), Ht


def objective(A, W, H, lam):
    penalty = ((W**2 - W) ** 2).sum() + ((H**2 - H) ** 2).sum()
    return ((A - W @ H) ** 2).sum() / 2 + lam / 2 * penalty


def start(A, k, seed, dtype=np.float64):
    Ht = np.ascontiguousarray(uniform_columns(seed, k, A.shape[1], dtype=dtype).T)
    return balanced(projected_rows(A, Ht), Ht)


# -- updates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "accuracy"), [(np.float64, 1e-10), (np.float32, 2e-3)])
@pytest.mark.parametrize("lam", [0.0, 0.1, 10.0])
def test_steps_are_the_printed_formulas(dtype, accuracy, lam, monkeypatch):
    monkeypatch.setattr(zhang, "ROWS", 40)  # several blocks
    A = DATA.A
    W, Ht = start(A, 4, 0, dtype)
    W = np.maximum(W, dtype(1e-16))  # rows without a one would be 0 / 0 in the twin
    slow_W, slow_H = W.astype(float), Ht.T.astype(float)
    for _ in range(5):
        W, Ht = step(A, W, Ht, lam)
        slow_W, slow_H = slow_step(A.toarray().astype(float), slow_W, slow_H, lam)
    assert W.dtype == Ht.dtype == dtype
    np.testing.assert_allclose(W, slow_W, rtol=accuracy, atol=accuracy)
    np.testing.assert_allclose(Ht.T, slow_H, rtol=accuracy, atol=accuracy)


@given(st.integers(0, 99), st.sampled_from([0.0, 0.01, 1.0, 30.0]), st.integers(1, 5))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_the_objective_never_rises_while_the_weight_is_fixed(seed, lam, k):
    data = planted(40, 15, 3, noise=0.1, seed=seed).A
    dense = data.toarray().astype(float)
    W, Ht = start(data, k, seed)
    before = np.inf
    for _ in range(40):
        W, Ht = step(data, W, Ht, lam)
        now = objective(dense, W, Ht.T, lam)
        assert now <= before * (1 + 1e-9) + 1e-12
        before = now


def test_balanced_components_have_equal_tops_and_the_same_product():
    rng = np.random.default_rng(0)
    W, Ht = 5 * rng.random((20, 3)), 0.1 * rng.random((9, 3))
    W[:, 2] = 0  # left alone
    W_after, Ht_after = balanced(W, Ht)
    np.testing.assert_allclose(W_after @ Ht_after.T, W @ Ht.T)
    np.testing.assert_allclose(W_after.max(axis=0)[:2], Ht_after.max(axis=0)[:2])
    np.testing.assert_array_equal(Ht_after[:, 2], Ht[:, 2])


# -- the estimator -----------------------------------------------------------------------------------------------------


def test_the_thresholds_are_the_best_of_the_grid():
    model = Zhang(n_components=3, max_iter=30, grid=12, dtype="float64", random_state=0)
    U = model.fit_transform(DATA.A)
    W, Ht = start(DATA.A, 3, 0)
    for t in range(30):
        W, Ht = step(DATA.A, W, Ht, 0.001 * 1.01**t)
    W, Ht = balanced(W, Ht)
    grid = threshold_grid(12)
    errors = [[confusion(DATA.A, np.greater_equal(W, s), np.greater_equal(Ht.T, t)).errors for t in grid] for s in grid]
    assert confusion(DATA.A, U, model.components_).errors == np.min(errors)
    a, b = np.unravel_index(np.argmin(errors), (12, 12))
    assert model.thresholds_ == (grid[a], grid[b])
    np.testing.assert_allclose(model.relaxed_components_, np.minimum(Ht.T, 1), rtol=1e-6)
    np.testing.assert_array_equal(model.components_, model.relaxed_components_ >= model.thresholds_[1])


def test_attributes():
    model = Zhang(n_components=4, max_iter=25, random_state=0).fit(DATA.A)
    assert model.relaxed_components_.shape == model.components_.shape == (4, 30)
    assert model.relaxed_components_.dtype == np.float32
    assert model.n_iter_ == len(model.history_) == 25
    np.testing.assert_allclose(model.history_["lam"], 0.001 * 1.01 ** np.arange(25))
    assert 0 <= model.integrality_gap_ <= 0.5
    assert model.converged_ is (model.integrality_gap_ <= 0.25)
    assert model.complete_
    assert model.history_["loss"][-1] < model.history_["loss"][0]


def test_a_fast_growing_weight_makes_the_factors_boolean():
    model = Zhang(n_components=3, l2_rate=1.05, random_state=0).fit(DATA.A)
    assert model.converged_
    assert model.integrality_gap_ < 1e-3
    assert model.n_iter_ < 1000


def test_planted_components_are_found():
    data = planted(400, 60, 3, seed=0)
    model = Zhang(n_components=3, max_iter=300, random_state=0)
    assert confusion(data.A, model.fit_transform(data.A), model.components_).f1 > 0.9


def test_zoo_is_described_well():
    A = load("zoo")
    model = Zhang(n_components=5, random_state=0)
    assert confusion(A, model.fit_transform(A), model.components_).f1 > 0.87


def test_a_seed_fixes_the_result():
    fits = [Zhang(n_components=3, max_iter=20, random_state=s).fit(DATA.A) for s in (0, 0, 1)]
    np.testing.assert_array_equal(fits[0].relaxed_components_, fits[1].relaxed_components_)
    assert not np.array_equal(fits[0].relaxed_components_, fits[2].relaxed_components_)


def test_all_one_is_covered_and_all_zero_is_not():
    ones = np.ones((15, 6), dtype=int)
    model = Zhang(n_components=2, max_iter=50, random_state=0)
    assert model.inverse_transform(model.fit_transform(ones)).all()
    with pytest.warns(ConvergenceWarning, match="no ones"):
        U = model.fit_transform(0 * ones)
    assert not model.inverse_transform(U).any()
    assert np.isfinite(model.relaxed_components_).all()


def test_more_components_than_needed():
    data = planted(100, 20, 2, density=1.0, seed=0)
    model = Zhang(n_components=8, max_iter=300, random_state=0)
    assert confusion(data.A, model.fit_transform(data.A), model.components_).f1 > 0.9


def test_equal_rows_and_columns_are_treated_alike():
    base = DATA.A.toarray()[:60, :20]
    model = Zhang(n_components=3, max_iter=50, random_state=0)
    U = model.fit_transform(np.vstack([base, base]).astype(int))
    np.testing.assert_array_equal(U[:60], U[60:])


def test_the_time_limit_ends_the_iterations_but_not_the_thresholds():
    model = Zhang(n_components=3, time_limit=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning, match="time limit"):
        U = model.fit_transform(DATA.A)
    assert not model.complete_
    assert model.n_iter_ == 1
    once = Zhang(n_components=3, max_iter=1, random_state=0)
    np.testing.assert_array_equal(U, once.fit_transform(DATA.A))
    assert model.thresholds_ == once.thresholds_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l2": -1.0}, "l2 must be at least 0"),
        ({"l2_rate": float("nan")}, "l2_rate"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"tol": -1.0}, "tol"),
        ({"grid": 1}, "between 2 and 1000 thresholds, got 1"),
        ({"dtype": "float16"}, "dtype must be"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Zhang(**options).fit(DATA.A)
