"""Every federated method under every privacy: what leaves is a bounded sum or a bounded upload, or nothing does."""

import numpy as np
import pytest

import felb
from felb.data import planted
from felb.data.partition import split
from felb.engines import local
from felb.errors import InputError
from felb.federated.gate import Gate
from felb.privacy import Privacy
from felb.privacy.mechanisms import RecordSum

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")
pytestmark = pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")

DATA = planted(90, 10, 2, noise=0.02, seed=0)
SHARDS = split(DATA.A, np.arange(90) % 3)[0]
PLANS = {
    "cooccurrence": Privacy(2.0),
    "scores": Privacy(2.0, score_share=0.1),
    "statistics": Privacy(2.0, mechanism="statistics", rounds=2),
    "statistics, distributed": Privacy(2.0, mechanism="statistics", rounds=2, noise="distributed", score_share=0.1),
    "hybrid": Privacy(2.0, mechanism="hybrid", rounds=1),
    "client": Privacy(2.0, unit="client", theta=2.0),
}
METHODS = {
    "FederatedBMF": lambda privacy: felb.FederatedBMF(2, effort="fast", privacy=privacy),
    "FELB": lambda privacy: felb.FELB(2, max_iter=2, privacy=privacy),
    "FELBMU": lambda privacy: felb.FELBMU(2, max_iter=2, privacy=privacy),
    "PostHoc": lambda privacy: felb.PostHoc(felb.ELBMF(2, max_iter=9), privacy=privacy),
    "PostHoc Asso": lambda privacy: felb.PostHoc(felb.Asso(2), "or", privacy=privacy),
    "PostHoc aligned": lambda privacy: felb.PostHoc(felb.Asso(2), "aligned-or", privacy=privacy),
}
UNITS = {"record": {"FederatedBMF"}, "client": set(METHODS) - {"FederatedBMF"}}


def test_every_federated_estimator_with_an_agreement_is_walked():
    made = {type(make(None)) for make in METHODS.values()}
    federated = {
        kind
        for name in felb.__all__
        if isinstance(kind := getattr(felb, name), type) and hasattr(kind, "algorithm_for")
    }
    without = {felb.FedNMF, felb.FedProx, felb.Scaffold, felb.ProxSkip}
    assert federated - without <= made
    for kind in without:  # no specification can be made, so none can be broken
        assert "privacy" not in kind().get_params()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("spec", PLANS)
def test_only_bounded_values_leave(method, spec, monkeypatch):
    privacy = PLANS[spec]
    model = METHODS[method](privacy)
    if method not in UNITS[privacy.unit]:
        with pytest.raises(InputError, match=f"mechanism='{privacy.mechanism}'"):
            model.algorithm_for(SHARDS)
        return
    passed, log = [], []
    release = Gate.release

    def watched(gate, update, *rest, **options):
        passed.append((gate, update))
        return release(gate, update, *rest, **options)

    monkeypatch.setattr(Gate, "release", watched)
    algorithm = model.algorithm_for(SHARDS)
    secure = privacy.noise == "distributed"
    finished = local.run(algorithm, SHARDS, outbound=lambda _: log.append, secure=secure)
    clients = [(gate, update) for gate, update in passed if gate.client in SHARDS]
    assert clients
    for gate, update in clients:
        assert gate.plan is algorithm.privacy
        assert gate.accountant is not None
        for name in update.values:
            bounded = name == "V" if privacy.unit == "client" else isinstance(update.record_sums.get(name), RecordSum)
            assert bounded, f"{name} left unbounded"
    assert {record.what for record in log} == set(algorithm.privacy.shares)
    assert all(record.cost is not None and record.mechanism != "none" for record in log)
    assert finished.outcome.supports is None
    assert (finished.outcome.counts is None) == (privacy.score_share is None)
    exact = {"loss", "counts", "supports", "unfinished", "missing"}
    assert not exact & {key for row in finished.history for key in row}
