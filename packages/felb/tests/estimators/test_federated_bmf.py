"""`FederatedBMF`: planted structure comes back, whoever holds the rows and whoever plays."""

import numpy as np
import pytest
from sklearn.base import clone

from felb.data import partition, planted
from felb.engines.local import Participation
from felb.errors import ConvergenceWarning, InputError
from felb.federated.algorithms.bmf import Effort
from felb.metrics import confusion
from felb.sklearn.federated import FederatedBMF

S1 = planted(2000, 200, 10, noise=0.2, seed=1)


def f1_star(data, model, U):
    return confusion(data.signal, U, model.components_).f1


def test_fifty_ragged_clients_find_what_centralized_data_shows():
    data = planted(1000, 120, 6, noise=0.15, seed=0)
    effort = Effort(generations=3)  # one is as the other, and by default there are many of them
    centralized = FederatedBMF(6, effort=effort, random_state=0)
    U = centralized.fit_transform(data.A)
    assert f1_star(data, centralized, U) > 0.98
    for labels in (partition.uneven(1000, 50, seed=0), partition.by_component(data.U, 50, seed=0)):
        shared = FederatedBMF(6, effort=effort, random_state=0, n_jobs=2)
        np.testing.assert_array_equal(shared.fit_transform(data.A, groups=labels), U)
        np.testing.assert_array_equal(shared.components_, centralized.components_)
        assert shared.counts_ == centralized.counts_


def test_a_fifth_of_the_clients_in_each_round_is_enough():
    model = FederatedBMF(10, participation=Participation(fraction=0.2), random_state=1)
    U = model.fit_transform(S1.A, groups=partition.by_component(S1.U, 50, seed=1))
    assert {row["clients"] for row in model.history_ if row["task"] in ("factor_statistics", "flip_gains")} == {10}
    assert f1_star(S1, model, U) > 0.97


def test_attributes_after_fit():
    data = planted(300, 40, 4, noise=0.05, seed=0)
    model = FederatedBMF(4, objective="hamming", random_state=0).fit(data.A)
    assert model.components_.dtype == bool
    assert model.relaxed_components_.shape == (4, 40)
    assert model.integrality_gap_ == 0
    assert model.converged_
    assert model.weights_ == (1.0, -1.0)
    assert model.n_iter_ == len(model.history_) - 1
    np.testing.assert_array_equal(model.transform(data.A).sum(axis=0), model.supports_)
    assert confusion(data.A, model.transform(data.A), model.components_) == model.counts_
    assert clone(model).get_params() == model.get_params()


def test_f1_weighs_rows_as_it_weighed_components():
    data = planted(400, 50, 5, noise=0.3, kind="destructive", seed=0)
    fits = {}
    for objective in ("hamming", "f1"):
        fits[objective] = FederatedBMF(5, objective=objective, random_state=0)
        U = fits[objective].fit_transform(data.A)
        np.testing.assert_array_equal(U, fits[objective].transform(data.A))
    assert fits["f1"].counts_.f1 > fits["hamming"].counts_.f1
    one, zero = fits["f1"].weights_
    assert one - zero == 1
    assert -zero == pytest.approx(fits["f1"].counts_.f1 / 2, abs=0.01)


def test_costs_of_wrong_cells():
    data = planted(400, 50, 5, noise=0.2, seed=0)
    careful, balanced, bold = (
        FederatedBMF(5, objective="hamming", false_positive_cost=fp, false_negative_cost=fn, random_state=0)
        .fit(data.A)
        .counts_
        for fp, fn in ((4.0, 1.0), (1.0, 1.0), (1.0, 4.0))
    )
    assert careful.fp < balanced.fp < bold.fp
    assert careful.fn > balanced.fn > bold.fn
    twice = FederatedBMF(5, objective="hamming", false_positive_cost=2.0, false_negative_cost=2.0, random_state=0)
    twice.fit(data.A)
    assert twice.counts_ == balanced
    unequal = FederatedBMF(5, false_positive_cost=4.0, random_state=0).fit(data.A)
    assert (unequal.counts_, unequal.belief_) == (careful, None)


def test_nothing_and_everything():
    for constant in (np.zeros((15, 6), dtype=int), np.ones((15, 6), dtype=int)):
        with pytest.warns() if not constant.any() else _quiet():
            model = FederatedBMF(2, random_state=0).fit(constant)
        np.testing.assert_array_equal(model.inverse_transform(model.transform(constant)), constant.astype(bool))


def _quiet():
    from contextlib import nullcontext

    return nullcontext()


def test_unknown_words_are_refused_when_fitting():
    with pytest.raises(InputError, match="unknown objective"):
        FederatedBMF(2, objective="mdl").fit(np.eye(4))
    with pytest.raises(InputError, match="unknown effort"):
        FederatedBMF(2, effort="heroic").fit(np.eye(4))


@pytest.mark.parametrize(("kind", "noise", "better"), [("destructive", 0.6, 0.3), ("additive", 0.3, 0.0)])
def test_one_sided_noise_is_seen_through(kind, noise, better):
    data = planted(1000, 120, 6, noise=noise, kind=kind, seed=0)
    scores = {}
    for objective in ("hamming", "recover", "auto"):
        model = FederatedBMF(6, objective=objective, random_state=0)
        scores[objective] = f1_star(data, model, model.fit_transform(data.A))
    assert scores["recover"] > 0.95
    assert scores["recover"] >= scores["hamming"] + better
    assert scores["auto"] == scores["recover"]


def test_rows_are_inferred_alike_in_fit_and_transform():
    data = planted(600, 80, 5, noise=0.3, seed=0)
    model = FederatedBMF(5, objective="recover", random_state=0)
    U = model.fit_transform(data.A, groups=partition.uneven(600, 20))
    np.testing.assert_array_equal(model.transform(data.A), U)
    np.testing.assert_array_equal(model.transform(data.A.rows(3, 9)), U[3:9])
    np.testing.assert_array_equal(U.sum(axis=0), model.supports_)
    assert confusion(data.A, U, model.components_) == model.counts_
    assert 0 < model.belief_.outside < model.belief_.inside < 1


def test_noise_alone_is_no_structure():
    noise = np.random.default_rng(0).random((300, 40)) < 0.2
    with pytest.warns(ConvergenceWarning, match="no recoverable structure"):
        model = FederatedBMF(3, objective="recover", random_state=0).fit(noise)
    assert not model.components_.any()
    assert not model.transform(noise).any()
    assert model.counts_.tp == model.counts_.fp == 0


def test_fits_of_real_data_are_kept():
    from felb.data import load

    data = load("zoo")
    auto, fit = (FederatedBMF(10, objective=word, random_state=0).fit(data) for word in ("auto", "hamming"))
    assert auto.counts_ == fit.counts_
    assert auto.belief_ is None


def test_the_number_of_components_can_be_found():
    data = planted(400, 60, 5, noise=0.05, heights=(0.1, 0.3), widths=(0.1, 0.3), seed=2)
    model = FederatedBMF("mdl", max_components=10, effort="fast", random_state=0).fit(data.A)
    assert model.components_.shape == (5, 60)
    assert min(model.rank_curve_, key=model.rank_curve_.get) == 5
    assert model.complete_
    with pytest.raises(InputError, match="whole number"):
        FederatedBMF("many").fit(data.A)


def test_a_time_limit_ends_the_fit():
    model = FederatedBMF(10, effort="high", time_limit=1e-6, random_state=0)
    with pytest.warns(ConvergenceWarning, match="time limit"):
        U = model.fit_transform(S1.A)
    assert not model.complete_
    assert model.components_.shape == (10, 200)
    assert confusion(S1.A, U, model.components_) == model.counts_
