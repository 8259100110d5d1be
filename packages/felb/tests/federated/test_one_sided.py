"""Infinite costs: from below nothing is covered that is not there, from above all that is there is covered."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.data import load, planted
from felb.errors import InputError
from felb.federated.steps.state import Cost
from felb.sklearn.federated import FederatedBMF

ZOO = load("zoo").to_scipy().toarray() if hasattr(load("zoo"), "to_scipy") else np.asarray(load("zoo"))
SETS = {"zoo": ZOO, "planted": planted(80, 24, 4, noise=0.1, seed=2).A.toarray()}


def reconstructed(X, **costs):
    model = FederatedBMF(5, effort="fast", random_state=0, **costs)
    U = model.fit_transform(X)
    R = (U.astype(int) @ model.components_.astype(int)) > 0
    np.testing.assert_array_equal(model.inverse_transform(model.transform(X)), R)
    return model, R


@pytest.mark.parametrize("name", SETS)
def test_from_below_there_is_no_false_positive(name):
    X = SETS[name].astype(bool)
    model, R = reconstructed(X, false_positive_cost=np.inf)
    assert not (R & ~X).any()
    assert model.counts_.fp == 0
    assert R.any()


@pytest.mark.parametrize("name", SETS)
def test_from_above_there_is_no_false_negative(name):
    X = SETS[name].astype(bool)
    model, R = reconstructed(X, false_negative_cost=np.inf)
    assert not (X & ~R).any()
    assert model.counts_.fn == 0
    assert not R.all()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.9))
def test_one_sided_errors_stay_one_sided_on_random_data(seed, density):
    X = np.random.default_rng(seed).random((20, 9)) < density
    for side, wrong in (("positive", "fp"), ("negative", "fn")):
        model = FederatedBMF(3, effort="fast", random_state=0, **{f"false_{side}_cost": np.inf}).fit(X)
        assert getattr(model.counts_, wrong) == 0


def test_clients_of_a_factorization_from_below_find_what_one_owner_finds():
    X = SETS["planted"].astype(bool)
    costs = {"false_positive_cost": np.inf, "effort": "fast", "random_state": 0}
    a, b = (FederatedBMF(4, **costs).fit(X, groups=groups) for groups in (None, np.arange(80) % 7))
    np.testing.assert_array_equal(a.components_, b.components_)


def test_a_site_accepts_the_weights_of_an_infinite_cost():
    algorithm = FederatedBMF(4, false_positive_cost=float("inf")).algorithm(24)
    assert Cost.of(np.inf, 1.0, 24).weights(None) in algorithm.limits.weights


@pytest.mark.parametrize("costs", [(np.inf, np.inf), (-np.inf, 1.0), (np.nan, 1.0), (0.0, np.inf)])
def test_costs_that_mean_nothing_are_refused(costs):
    with pytest.raises(InputError, match="cost"):
        Cost.of(*costs, 10)
