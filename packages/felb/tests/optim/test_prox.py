"""Each operator against a grid search for what its docstring says it minimises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from felb.optim.prox import (
    elb_penalty,
    prox_elb,
    prox_elb_and_towards,
    prox_elb_exact,
    prox_elb_then_towards,
    prox_towards,
)

GRID = np.linspace(-2, 3, 200_001)
VALUES = st.floats(-1.5, 2.5)
WEIGHTS = st.floats(0, 3)


def penalty(y, kappa, lam):
    return np.minimum(kappa * abs(y) + lam * y**2, kappa * abs(y - 1) + lam * (y - 1) ** 2)


def objective(y, x, kappa, lam, gamma=0.0, target=0.0):
    return 0.5 * (x - y) ** 2 + penalty(y, kappa, lam) + gamma / 2 * (y - target) ** 2


def at(function, x, *args, **kwargs):
    return float(function(np.array([x]), *args, **kwargs)[0])


@given(VALUES, WEIGHTS, WEIGHTS)
def test_exact_prox_beats_every_point_of_a_grid(x, kappa, lam):
    y = at(prox_elb_exact, x, kappa, lam)
    assert objective(y, x, kappa, lam) <= objective(GRID, x, kappa, lam).min() + 1e-9


@given(VALUES, WEIGHTS)
def test_printed_prox_without_l1_belongs_to_half_the_weight(x, lam):
    y = at(prox_elb, x, 0.0, lam)
    assert objective(y, x, 0.0, lam / 2) <= objective(GRID, x, 0.0, lam / 2).min() + 1e-9


@given(VALUES, WEIGHTS, WEIGHTS)
def test_printed_prox_is_the_formula(x, kappa, lam):
    nearest = 0.0 if x <= 0.5 else 1.0
    expected = (x - kappa * np.sign(x - nearest) + lam * nearest) / (1 + lam)
    assert at(prox_elb, x, kappa, lam) == pytest.approx(expected, abs=1e-12)


def test_printed_prox_has_no_dead_zone_and_the_exact_one_has():
    assert at(prox_elb, 0.05, 0.1, 1.0) < 0
    assert at(prox_elb_exact, 0.05, 0.1, 1.0) == 0
    assert at(prox_elb, 0.95, 0.1, 1.0) > 1
    assert at(prox_elb_exact, 0.95, 0.1, 1.0) == 1


def test_the_middle_goes_down():
    assert at(prox_elb, 0.5, 0.0, 1.0) == 0.25
    assert at(prox_elb_exact, 0.5, 0.0, 0.5) == 0.25


@given(VALUES, WEIGHTS, VALUES)
def test_pull_towards_the_shared_components(x, gamma, target):
    y = at(prox_towards, x, gamma, np.array([target]))
    values = 0.5 * (x - GRID) ** 2 + gamma / 2 * (GRID - target) ** 2
    assert 0.5 * (x - y) ** 2 + gamma / 2 * (y - target) ** 2 <= values.min() + 1e-9


@given(VALUES, WEIGHTS, WEIGHTS, WEIGHTS, st.floats(0, 1))
def test_exact_prox_of_the_sum_beats_the_grid(x, kappa, lam, gamma, target):
    y = at(prox_elb_and_towards, x, kappa, lam, gamma=gamma, target=np.array([target]))
    assert objective(y, x, kappa, lam, gamma, target) <= objective(GRID, x, kappa, lam, gamma, target).min() + 1e-9


def test_the_papers_composition_is_one_after_the_other():
    x, target = np.array([0.3, 0.8]), np.array([1.0, 0.0])
    composed = prox_elb_then_towards(x, 0.1, 0.5, gamma=2.0, target=target)
    np.testing.assert_array_equal(composed, prox_towards(prox_elb(x, 0.1, 0.5), 2.0, target))
    boxed = prox_elb_then_towards(np.array([-1.0, 2.0]), 0.0, 0.0, gamma=1.0, target=target, upper=1.0)
    np.testing.assert_array_equal(boxed, [0.5, 0.5])


@pytest.mark.parametrize("prox", [prox_elb, prox_elb_exact])
def test_booleans_stay_put_and_large_weights_make_them(prox):
    booleans = np.array([0.0, 1.0], dtype=np.float32)
    for lam in (0.0, 0.1, 7.3, 1e8):
        np.testing.assert_array_equal(prox(booleans, 0.001, lam), booleans)
    x = np.linspace(-1, 2, 13, dtype=np.float32)
    np.testing.assert_allclose(prox(x, 0.001, 1e8), x > 0.5, atol=1e-6)


@pytest.mark.parametrize("prox", [prox_elb, prox_elb_exact])
def test_arrays_of_weights_and_types(prox):
    x = np.array([[0.2, 0.9]], dtype=np.float32)
    weights = np.array([[0.1, 0.2]], dtype=np.float32)
    y = prox(x, weights, weights)
    assert y.dtype == np.float32
    assert y[0, 1] == pytest.approx(prox(x[:, 1:], 0.2, 0.2)[0, 0], rel=1e-6)
    np.testing.assert_array_equal(x, np.array([[0.2, 0.9]], dtype=np.float32))


def test_penalty_is_the_printed_regularizer():
    x = np.array([-0.5, 0.0, 0.25, 0.75, 1.0, 1.5])
    assert elb_penalty(x, 0.3, 0.7) == pytest.approx(penalty(x, 0.3, 0.7).sum())
    assert elb_penalty(np.array([0.0, 1.0]), 5.0, 5.0) == 0
