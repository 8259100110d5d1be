"""FELB, FELB-MU and post-hoc methods under a specification: V with noise is all that leaves, within the total."""

import shutil

import numpy as np
import pytest
from declarations import outputs_of

import felb
from felb.data import planted
from felb.data.partition import split
from felb.engines.local import Participation, run
from felb.errors import InputError, PrivacyError
from felb.federated.gate import Gate, Responses
from felb.federated.journal import Journal
from felb.federated.protocol import Checkpoint, Request, Sums, Update
from felb.privacy import Privacy
from felb.privacy import releases as uploads
from felb.privacy.accounting import total_epsilon
from felb.sklearn import base as federated

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")
pytestmark = pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")

DATA = planted(120, 12, 2, noise=0.02, seed=0)
GROUPS = np.arange(120) % 3
SHARDS = split(DATA.A, GROUPS)[0]
FELB = {"n_components": 2, "max_iter": 3, "random_state": 0}
CLIENT = {"unit": "client", "theta": 2.0}
BITS = felb.ELBMF(2, max_iter=20)

CASES = {
    "felb, uploads": felb.FELB(**FELB, privacy=Privacy(2.0, **CLIENT)),
    "felb-mu, uploads": felb.FELBMU(**FELB, privacy=Privacy(2.0, neighbours="replace", **CLIENT)),
    "felb, distributed": felb.FELB(
        **FELB, privacy=Privacy(2.0, noise="distributed", colluders=1, **CLIENT), secure=True
    ),
    "felb, agreed rounds": felb.FELB(**FELB, privacy=Privacy(2.0, rounds=2, **CLIENT)),
    "felb, literal": felb.FELB(**FELB, setting="literal", privacy=Privacy(2.0, **CLIENT)),
    "posthoc, bits": felb.PostHoc(BITS, random_state=0, privacy=Privacy(2.0, unit="client")),
    "posthoc, aligned bits": felb.PostHoc(
        BITS, "aligned-vote", alignment_passes=3, random_state=0, privacy=Privacy(2.0, unit="client")
    ),
    "posthoc, agreed uploads": felb.PostHoc(
        BITS, "aligned-vote", random_state=0, privacy=Privacy(2.0, unit="client", rounds=2)
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_only_noisy_components_leave_and_their_total_is_what_was_agreed(case):
    model, log = CASES[case], {}
    algorithm = model.algorithm_for(SHARDS)
    finished = run(algorithm, SHARDS, secure=model.secure, outbound=lambda name: log.setdefault(name, []).append)
    plan = algorithm.privacy
    assert log.keys() == SHARDS.keys()
    for records in log.values():
        assert {record.what for record in records} == {"V"}
        assert len(records) == plan.uploads.rounds
        assert all(record.cost is not None and record.cost.unit == "client" for record in records)
        spent = total_epsilon([record.cost for record in records], plan.delta)
        assert records[-1].total["epsilon"] == pytest.approx(spent)
        assert 0.99 * plan.privacy.epsilon < spent <= plan.privacy.epsilon
    assert finished.outcome.counts is None
    assert finished.outcome.supports is None
    assert {len(U) for U in finished.assignments.values()} == {40}
    told = {key for row in finished.history for key in row}
    assert told <= {"round", "task", "clients", "integrality_gap", "change", "lam", "agreement"}


def test_the_estimator_says_what_was_promised():
    model = CASES["felb, uploads"].fit(DATA.A, groups=GROUPS)
    assert "one client" in model.privacy_statement_
    assert "(2, 1e-05)" in model.privacy_statement_
    assert model.counts_ is None
    assert model.transform(DATA.A).shape == (120, 2)
    plain = felb.FELB(**FELB).fit(DATA.A, groups=GROUPS)
    assert plain.privacy_statement_ is None
    assert plain.counts_ is not None


def test_without_the_noise_the_components_are_those_without_an_agreement(monkeypatch):
    """Nothing but noise (and a grid that is fine where ε is large) stands between the two."""
    monkeypatch.setattr(uploads, "discrete_gaussian", lambda sigma, size: np.zeros(size, np.int64))
    loose = Privacy(5000.0, 1e-5, unit="client", theta=5.0)
    noisy = felb.FELB(2, max_iter=60, random_state=0, privacy=loose).fit(DATA.A, groups=GROUPS)
    plain = felb.FELB(2, max_iter=60, random_state=0).fit(DATA.A, groups=GROUPS)
    np.testing.assert_array_equal(noisy.components_, plain.components_)
    voted = felb.PostHoc(BITS, random_state=0).fit(DATA.A, groups=GROUPS)
    flipped = felb.PostHoc(BITS, random_state=0, privacy=Privacy(480.0, 1e-5, unit="client")).fit(DATA.A, groups=GROUPS)
    np.testing.assert_array_equal(flipped.components_, voted.components_)


# -- replays and refusals ----------------------------------------------------------------------------------------


class Interruption(Exception):
    pass


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lost_round", [0, 1])
def test_a_round_that_was_answered_is_not_charged_again(case, lost_round, tmp_path):
    method = CASES[case].algorithm_for(SHARDS)
    kept = {name: Responses(method.privacy.accountant()) for name in SHARDS}
    log = []
    options = {"responses": kept.__getitem__, "outbound": lambda _: log.append, "secure": CASES[case].secure}

    def on_round(progress):
        if len(progress.history) == lost_round:
            shutil.copytree(tmp_path / "lost", tmp_path / "before")
        if len(progress.history) == lost_round + 1:
            raise Interruption

    with pytest.raises(Interruption):
        run(method, SHARDS, on_round=on_round, journal=Journal(tmp_path / "lost"), **options)
    run(method, SHARDS, journal=Journal(tmp_path / "before"), **options)
    for responses in kept.values():
        assert len(responses.accountant.entries) == method.privacy.uploads.rounds
    assert len(log) == 3 * method.privacy.uploads.rounds


@pytest.mark.parametrize("case", ["felb, uploads", "posthoc, bits"])
def test_a_budget_that_is_spent_sends_nothing(case):
    method, log = CASES[case].algorithm_for(SHARDS), []
    kept = {name: Responses(method.privacy.accountant()) for name in SHARDS}
    run(method, SHARDS, responses=kept.__getitem__, secure=CASES[case].secure)
    again = {name: Responses(responses.accountant) for name, responses in kept.items()}
    with pytest.raises(PrivacyError, match="total"):
        run(method, SHARDS, responses=again.__getitem__, outbound=lambda _: log.append, secure=CASES[case].secure)
    assert not log


def test_nothing_beside_the_upload_passes_the_gate():
    plan = CASES["felb, uploads"].algorithm_for(SHARDS).privacy
    log = []
    gate = Gate.private("north", log.append, plan=plan, responses=Responses(plan.accountant()))
    update = Update({"V": np.zeros((2, 12)), "loss": np.asarray(3.0)})
    with pytest.raises(PrivacyError, match=r"loss .*bounded"):
        gate.release(update, Request("local_factor"), outputs_of(update), rng=np.random.default_rng(0))
    assert not log
    assert not gate.accountant.entries


def test_too_few_shares_of_noise_are_noticed():
    server = CASES["felb, distributed"].algorithm_for(SHARDS).server(0)
    checkpoint = next(server)
    assert isinstance(checkpoint, Checkpoint)
    server.send(checkpoint.state)
    with pytest.raises(PrivacyError, match="noise was planned"):
        server.send(Sums({"V": np.zeros((2, 12))}, 2))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (felb.FELB(2, privacy=1.0), "privacy must be"),
        (felb.FELB(2, privacy=Privacy(1.0)), "mechanism='cooccurrence'"),
        (felb.FELBMU(2, privacy=Privacy(1.0, mechanism="hybrid")), "mechanism='hybrid'"),
        (felb.PostHoc(BITS, privacy=Privacy(1.0, mechanism="statistics")), "mechanism='statistics'"),
        (felb.FELB(2, privacy=Privacy(1.0, unit="client")), "need theta"),
        (felb.FELB(2, refine=True, privacy=Privacy(1.0, **CLIENT)), "use refine=False"),
        (felb.PostHoc(BITS, refine=True, privacy=Privacy(1.0, unit="client")), "use refine=False"),
        (felb.FELB(2, privacy=Privacy(1.0, 0.4, **CLIENT)), "below 1/3"),
        (felb.FELB(2, privacy=Privacy(1.0, noise="distributed", colluders=3, **CLIENT)), "colluders"),
        (
            felb.FELB(
                2, participation=Participation(fraction=0.5), privacy=Privacy(1.0, noise="distributed", **CLIENT)
            ),
            "leave out participation",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_leaves(model, message, monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("the run was started")

    monkeypatch.setattr(federated, "run", never)
    with pytest.raises(InputError, match=message):
        model.fit(DATA.A, groups=GROUPS)


def test_an_algorithm_for_unknown_clients_has_no_noise_to_calibrate():
    with pytest.raises(InputError, match="use algorithm_for"):
        CASES["felb, uploads"].algorithm(12)
