"""`FederatedBMF` under a privacy specification: what is found, what is said, what is refused before anything leaves."""

import sys

import numpy as np
import pytest
from sklearn.base import clone

import felb
from felb.data import planted
from felb.engines.local import Participation
from felb.errors import InputError, MissingExtraError
from felb.federated.algorithms import private
from felb.federated.algorithms.private import Candidates
from felb.metrics import confusion
from felb.privacy import Privacy
from felb.privacy.mechanisms import _sampler
from felb.sklearn import base as federated
from felb.sklearn.federated import FederatedBMF

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

DATA = planted(4000, 40, 3, noise=0.02, heights=(0.25, 0.25), widths=(0.2, 0.2), seed=0)
SMALL = planted(90, 12, 2, noise=0.02, seed=0)


def test_planted_components_are_recovered():
    model = FederatedBMF(3, privacy=felb.privacy.Privacy(epsilon=4.0), effort="fast", random_state=0)
    U = model.fit_transform(DATA.A, groups=np.arange(4000) % 4)
    assert confusion(DATA.signal, U, model.components_).f1 > 0.95
    np.testing.assert_array_equal(U, model.transform(DATA.A))
    assert model.counts_ is None
    assert model.supports_ is None
    assert model.score(DATA.A) > confusion(DATA.A, DATA.U, DATA.V).f1 - 0.02
    assert "(epsilon, delta) = (4, 1e-05)" in model.privacy_statement_
    assert f"B = {model.history_[0]['row_bound']}" in model.privacy_statement_


def test_without_an_agreement_there_is_no_statement():
    model = FederatedBMF(2, random_state=0).fit(SMALL.A)
    assert model.privacy_statement_ is None
    assert model.counts_ is not None


def test_the_agreement_is_a_parameter_like_others():
    model = FederatedBMF(2, privacy=Privacy(1.0, row_bound=5))
    assert clone(model).privacy == model.privacy


def test_components_that_are_empty_are_warned_of(monkeypatch):
    def nothing(released, n_components, *, factorize, seed):
        return Candidates(np.zeros((2, n_components, released.M.shape[0]), dtype=bool), 1.0)

    monkeypatch.setattr(private, "find_candidates", nothing)
    with pytest.warns(felb.ConvergenceWarning, match="empty"):
        FederatedBMF(2, privacy=Privacy(1.0)).fit(SMALL.A)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must lie between"),
        ({"epsilon": 1.0, "mechanism": "magic"}, "mechanism must be one of cooccurrence"),
        ({"epsilon": 1.0, "mechanism": "uploads", "unit": "record"}, "unit='record'"),
        ({"epsilon": 1.0, "row_bound": 0}, "row_bound must be"),
    ],
)
def test_agreements_that_promise_nothing_cannot_be_made(options, message):
    with pytest.raises(InputError, match=message):
        Privacy(**options)


@pytest.fixture
def nothing_runs(monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("the run was started")

    monkeypatch.setattr(federated, "run", never)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"privacy": 1.0}, "privacy must be"),
        ({"privacy": Privacy(1.0, 1 / 90)}, "below 1/90"),
        ({"privacy": Privacy(1.0, unit="client", theta=1.0)}, "mechanism='uploads'"),
        ({"n_components": "mdl"}, "give a number"),
        ({"objective": "f1"}, "use objective='auto'"),
        ({"objective": "recover"}, "use objective='auto'"),
        ({"false_positive_cost": 2.0}, "leave both costs at 1"),
        ({"effort": "heroic"}, "unknown effort"),
        ({"time_limit": 5.0}, "time_limit"),
        ({"participation": Participation(fraction=0.5)}, "participation"),
        ({"privacy": Privacy(1.0, noise="distributed", colluders=3)}, "colluders"),
    ],
)
def test_what_cannot_be_had_in_private_is_refused_before_anything_leaves(options, message):
    model = FederatedBMF(**({"n_components": 2, "privacy": Privacy(1.0)} | options))
    with pytest.raises(InputError, match=message):
        model.fit(SMALL.A, groups=np.arange(90) % 3)


@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("package", ["dp_accounting.pld", "opendp.measurements"])
def test_without_the_extra_nothing_leaves(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    _sampler.cache_clear()
    from felb.privacy.accounting import _composed_epsilon

    _composed_epsilon.cache_clear()
    with pytest.raises(MissingExtraError, match=r"felb\[privacy\]"):
        FederatedBMF(2, privacy=Privacy(0.77)).fit(SMALL.A)


def test_an_algorithm_for_unknown_clients_has_no_noise_to_calibrate():
    with pytest.raises(InputError, match="use algorithm_for"):
        FederatedBMF(2, privacy=Privacy(1.0)).algorithm(12)
