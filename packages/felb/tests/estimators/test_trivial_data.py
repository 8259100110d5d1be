"""Data without ones, or with a handful of them, ends at once with a warning, by every method."""

from __future__ import annotations

import numpy as np
import pytest

import felb
from felb.data import partition
from felb.federated.algorithms.registry import METHODS
from felb.sklearn.methods import make

ROWS, COLUMNS, K = 300, 40, 6
SEARCHING = ("bmf", "felb", "felb-mu", "elbmf", "zhang")
"""Methods that would iterate for long without looking first."""


def data(ones):
    A = np.zeros((ROWS, COLUMNS), dtype=bool)
    rng = np.random.default_rng(1)
    A[rng.choice(ROWS, ones, replace=False), rng.choice(COLUMNS, ones, replace=False)] = True
    return A


def fit(name, A, **parameters):
    """Fit over five clients, or on all rows; return the model and the texts of its warnings."""
    model = make(name, n_components=K, **({"random_state": 0} if "random_state" in METHODS[name].parameters() else {}))
    model.set_params(**parameters)
    groups = {"groups": partition.even(ROWS, 5)} if METHODS[name].federated else {}
    with pytest.warns(felb.ConvergenceWarning) as caught:
        model.fit(A, **groups)
    return model, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_that_there_are_no_ones(name):
    model, texts = fit(name, data(0))
    assert len(texts) == 1
    assert "no ones for n_components=6" in texts[0]
    assert model.score(data(0)) == 1.0
    if name in SEARCHING:
        assert model.n_iter_ <= 1
        assert not model.components_.any()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("ones", [1, 5])
def test_every_method_says_that_there_are_few_ones(name, ones):
    model, texts = fit(name, data(ones))
    assert ("a single one" if ones == 1 else "only 5 ones") in texts[0]
    if name in SEARCHING:
        assert model.n_iter_ <= 1
        assert model.score(data(ones)) == 1.0
        assert model.supports_.sum() == ones
        assert model.converged_


@pytest.mark.parametrize("name", ["elbmf", "zhang", "bmf"])
def test_nothing_but_ones_needs_no_search(name):
    model = make(name, n_components=K, random_state=0).fit(np.ones((ROWS, COLUMNS)))
    assert model.n_iter_ <= 1
    assert model.components_[0].all()
    assert model.score(np.ones((ROWS, COLUMNS))) == 1.0


@pytest.mark.parametrize("name", SEARCHING)
def test_fitted_attributes_are_there_without_a_search(name):
    model, _ = fit(name, data(5))
    assert model.integrality_gap_ == 0.0
    assert model.complete_
    assert model.history_ is not None
    if name == "zhang":
        assert model.thresholds_ == (0.5, 0.5)
    if name != "bmf":
        assert model.relaxed_components_.dtype == np.float32
        np.testing.assert_array_equal(model.relaxed_components_ > 0.5, model.components_)


@pytest.mark.parametrize("objective", ["auto", "hamming", "f1", "recover"])
def test_every_objective_of_the_default_method_ends_at_once(objective):
    for ones in (0, 5):
        model, texts = fit("bmf", data(ones), objective=objective)
        assert len(texts) == 1
        assert [row["task"] for row in model.history_] == ["gram_sketch", "assign"]


def test_the_number_of_components_is_that_of_the_columns_with_ones():
    for ones, expected in ((0, 1), (5, 5)):
        with pytest.warns(felb.ConvergenceWarning):
            model = felb.FederatedBMF("mdl", random_state=0).fit(data(ones))
        assert model.components_.shape == (expected, COLUMNS)


@pytest.mark.parametrize("name", ["felb", "felb-mu"])
def test_refinement_and_sampling_end_early_too(name):
    for parameters in ({"refine": True}, {"participation": felb.Participation(0.4)}):
        model, _ = fit(name, data(5), **parameters)
        assert model.score(data(5)) == 1.0
        assert model.n_iter_ <= 3


@pytest.mark.parametrize("name", ["felb", "felb-mu"])
@pytest.mark.parametrize("setting", ["literal", "unweighted"])
def test_settings_without_the_spectral_start_look_at_nothing_first_but_say_so_too(name, setting):
    for ones, said in ((0, "no ones"), (5, "only 5 ones")):
        model, texts = fit(name, data(ones), setting=setting)
        assert said in texts[0]
        assert {row["task"] for row in model.history_} == {"local_factor", "assign"}
        assert np.isfinite(model.relaxed_components_).all()
        if not ones:
            assert model.score(data(0)) == 1.0


@pytest.mark.parametrize("method", [felb.FELB, felb.FELBMU])
def test_few_ones_at_those_who_were_asked_do_not_end_the_search(method):
    A = felb.data.planted(60, 20, 3, seed=0).A.toarray()
    A[:20] = False
    groups = np.repeat(["a", "b", "c"], 20)
    for seed in range(4):  # whoever of the three is asked first
        model = method(3, random_state=seed, participation=felb.Participation(1 / 3)).fit(A, groups=groups)
        first = {row["task"]: row["clients"] for row in model.history_}
        assert first == {"gram_sketch": 3, "sign_norms": 3, "local_factor": 1, "assign": 3}
        assert model.counts_.f1 > 0.9


@pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")
def test_data_with_more_ones_is_asked_nothing_else():
    A = felb.data.planted(200, 30, 3, noise=0.05, seed=0).A
    model = felb.FELB(3, random_state=0, max_iter=20).fit(A, groups=partition.even(200, 4))
    assert {row["task"] for row in model.history_} == {"gram_sketch", "sign_norms", "local_factor", "assign"}
