"""The private algorithm: only charged noise leaves, its total is what was agreed on, resuming does not spend twice."""

import shutil

import numpy as np
import pytest
from declarations import outputs_of

from felb.data import planted
from felb.data.binary import BinaryMatrix
from felb.data.partition import split
from felb.engines.local import run
from felb.errors import InputError, PrivacyError
from felb.federated.algorithms import private
from felb.federated.algorithms.private import Candidates, private_bmf
from felb.federated.client import compute_update
from felb.federated.gate import Gate, Responses
from felb.federated.journal import Journal
from felb.federated.protocol import Request, Sums, Update
from felb.metrics import confusion
from felb.privacy import Privacy
from felb.privacy.accounting import total_epsilon
from felb.privacy.audit import scale_matches
from felb.privacy.mechanisms import RecordSum
from felb.privacy.statement import statement

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

DATA = planted(600, 30, 3, noise=0.02, heights=(0.25, 0.25), widths=(0.2, 0.2), seed=0)
CLIENTS = 3


def shards(A=DATA.A):
    return split(A, np.arange(len(A)) % CLIENTS)[0]


def made(privacy, *, n_records=600, n_features=30, k=3):
    plan = privacy.plan(n_records=n_records, n_clients=CLIENTS, n_columns=n_features)
    return private_bmf(n_features, k, plan, effort="fast")


@pytest.fixture
def quick(monkeypatch):
    """Candidates without their factorizations, where only what leaves matters."""

    def found(released, n_components, *, factorize, seed):
        V = np.zeros((2, n_components, released.M.shape[0]), dtype=bool)
        V[0, 0, :5] = V[1, 0, 5:9] = True
        return Candidates(V, 3.0)

    monkeypatch.setattr(private, "find_candidates", found)


def play(privacy, **options):
    log = {}
    finished = run(
        made(privacy),
        shards(),
        outbound=lambda name: log.setdefault(name, []).append,
        secure=privacy.noise == "distributed",
        **options,
    )
    return finished, log


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("options", "releases"),
    [
        ({}, ["sizes", "cooccurrence", "choice"]),
        ({"row_bound": 10}, ["cooccurrence", "choice"]),
        ({"noise": "distributed", "colluders": 1}, ["sizes", "cooccurrence", "choice"]),
        ({"neighbours": "replace"}, ["sizes", "cooccurrence", "choice"]),
        ({"score_share": 0.05}, ["sizes", "cooccurrence", "choice", "scores"]),
        ({"mechanism": "statistics", "rounds": 3}, ["statistics"] * 3),
        ({"mechanism": "statistics", "rounds": 2, "score_share": 0.1}, ["statistics"] * 2 + ["scores"]),
        ({"mechanism": "statistics", "rounds": 2, "noise": "distributed"}, ["statistics"] * 2),
        ({"mechanism": "hybrid", "rounds": 2}, ["sizes", "cooccurrence", "statistics", "statistics", "choice"]),
    ],
)
def test_only_charged_noise_leaves_and_its_total_is_what_was_agreed(options, releases):
    privacy = Privacy(1.0, 1e-5, **options)
    finished, log = play(privacy)
    assert log.keys() == shards().keys()
    for records in log.values():
        assert [record.what for record in records] == releases
        assert all(record.mechanism.startswith("discrete gaussian") for record in records)
        assert all(record.dtype == "int64" and record.cost is not None for record in records)
        spent = total_epsilon([record.cost for record in records], 1e-5)
        assert records[-1].total["epsilon"] == pytest.approx(spent)
        assert 0.999 < spent <= 1.0
    assert (finished.outcome.counts is None) == ("scores" not in releases)
    assert finished.outcome.supports is None
    assert {name: len(U) for name, U in finished.assignments.items()} == dict.fromkeys(log, 200)


@pytest.mark.usefixtures("quick")
def test_the_history_holds_only_what_follows_from_releases():
    finished, _ = play(Privacy(1.0))
    known = {"round", "task", "clients", "noise", "row_bound", "candidates", "gain_bound", "chosen"}
    assert {key for row in finished.history for key in row} <= known
    assert [row["task"] for row in finished.history] == ["sizes", "cooccurrence", "choice", "assign"]


@pytest.mark.usefixtures("quick")
def test_in_wide_data_frequent_columns_are_found_first():
    rng = np.random.default_rng(0)
    A = np.zeros((300, 2100), dtype=bool)
    A[:, [3, 70, 500, 2050]] = rng.random((300, 4)) < 0.9
    log, asked = [], {}
    finished = run(
        made(Privacy(50.0, 1e-5), n_records=300, n_features=2100),
        shards(BinaryMatrix.of(A)),
        outbound=lambda _: log.append,
        on_round=lambda progress: asked.setdefault(getattr(progress.request, "task", None), progress.request),
    )
    assert [record.what for record in log][::CLIENTS] == ["sizes", "columns", "cooccurrence", "choice"]
    assert 0.999 * 50 < log[-1].total["epsilon"] <= 50
    assert finished.history[1]["columns"] == 200
    assert 2 <= finished.history[1]["pair_bound"] <= finished.history[0]["row_bound"]
    columns = asked["cooccurrence"].values["columns"]
    assert {3, 70, 500, 2050} <= set(columns)
    candidates = np.flatnonzero(asked["choice"].values["candidates"].any(axis=(0, 1)))
    np.testing.assert_array_equal(candidates, np.sort(columns)[:9])  # those of `quick`, back in their places
    assert set(np.flatnonzero(finished.outcome.components.any(axis=0))) <= set(candidates)


ANSWERS = {
    "sizes": {},
    "columns": {"row_bound": np.asarray(4)},
    "cooccurrence": {"row_bound": np.asarray(4), "columns": np.array([0, 3, 4, 11, 20, 21, 29])},
    "choice": {"candidates": np.random.default_rng(1).random((3, 3, 30)) < 0.2, "bound": np.asarray(2.5)},
    "statistics": {
        "V": np.random.default_rng(2).random((3, 30)),
        "lam": np.asarray(0.05),
        "bounds": np.array([0.8, 1.5, 0.5]),
    },
    "scores": {
        "components": np.random.default_rng(1).random((3, 30)) < 0.2,
        "bound": np.asarray(4.0),
        "node_cap": np.asarray(100),
    },
}


@pytest.mark.parametrize("task", ANSWERS)
def test_an_answer_is_the_sum_of_what_each_record_alone_would_answer_and_each_is_bounded(task):
    algorithm, request = made(Privacy(1.0)), Request(task, **ANSWERS[task])

    def answer(rows):
        _, update = compute_update(algorithm, None, rows, request, name="a", seed=0)
        assert list(update.values) == list(update.record_sums) == [task]
        return update.values[task], update.record_sums[task].sensitivity

    rows = DATA.A.rows(0, 40)
    whole, bound = answer(rows)
    parts = [answer(rows.rows(i, i + 1)) for i in range(40)]
    np.testing.assert_array_equal(whole, sum(part for part, _ in parts))
    assert {said for _, said in parts} == {bound}
    assert max(np.linalg.norm(part) for part, _ in parts) <= bound


def test_rounds_that_go_on_from_each_other_keep_records_apart():
    """U is carried from round to round; still each record's part depends on it alone."""
    algorithm, rows = made(Privacy(1.0)), DATA.A.rows(0, 15)
    rng = np.random.default_rng(5)
    asked = [Request("statistics", **{**ANSWERS["statistics"], "V": rng.random((3, 30))}) for _ in range(3)]

    def last_answer(part):
        state = None
        for request in asked:
            state, update = compute_update(algorithm, state, part, request, name="a", seed=0)
        return update.values["statistics"]

    parts = [last_answer(rows.rows(i, i + 1)) for i in range(15)]
    np.testing.assert_array_equal(last_answer(rows), sum(parts))


def test_statistics_recover_what_was_planted():
    finished, _ = play(Privacy(50.0, 1e-5, mechanism="statistics", rounds=25, data_bound=3.0))
    exact = sum(
        confusion(part, finished.assignments[name], finished.outcome.components) for name, part in shards().items()
    )
    assert exact.f1 > 0.9 * confusion(DATA.A, DATA.U, DATA.V).f1


@pytest.mark.usefixtures("quick")
def test_rounds_of_a_hybrid_add_a_candidate():
    finished, _ = play(Privacy(1.0, mechanism="hybrid", rounds=1), on_round=(kept := []).append)
    assert [row["task"] for row in finished.history] == ["sizes", "cooccurrence", "statistics", "choice", "assign"]
    choice = next(progress.request for progress in kept if progress.request.task == "choice")
    assert finished.history[1]["candidates"] == 2
    assert len(choice.values["candidates"]) == 3


@pytest.mark.usefixtures("quick")
def test_noisy_scores_are_near_the_exact_ones_where_there_is_little_noise():
    finished, _ = play(Privacy(40.0, 1e-5, score_share=0.4, score_bound=40.0))
    U = finished.assignments
    exact = sum(confusion(part, U[name], finished.outcome.components) for name, part in shards().items())
    noisy = finished.outcome.counts
    assert noisy.f1 == pytest.approx(exact.f1, abs=0.05)
    assert noisy.rmsd == pytest.approx(exact.rmsd, abs=0.05)
    assert noisy != exact


@pytest.mark.parametrize("options", [{}, {"mechanism": "statistics", "rounds": 2}])
def test_shares_of_noise_add_up_to_what_one_client_would_have_to_add(options):
    """Of five clients one colludes and one drops out: three shares make up the planned variance."""
    privacy = Privacy(1.0, 1e-5, noise="distributed", colluders=1, dropouts=1, **options)
    plan = privacy.plan(n_records=600, n_clients=5, n_columns=150)
    what = "statistics" if options else "cooccurrence"
    part = RecordSum(np.zeros(6_000, np.int64), 1.0, 64.0)
    mechanism = plan.mechanism_for(what, part)
    total = sum(mechanism.release(what, part.values, rng=None)[0] for _ in range(3))
    assert scale_matches(total, 64.0 / plan.mu_of(what))
    assert not scale_matches(total, 1.2 * 64.0 / plan.mu_of(what))
    assert "secure aggregation" in statement(plan)
    assert "at most 1 of them collude with the server and 1 are missing" in statement(plan)


@pytest.mark.usefixtures("quick")
def test_the_last_task_tells_nothing():
    finished, log = play(Privacy(1.0))
    assert finished.history[-1]["task"] == "assign"
    assert not [record for records in log.values() for record in records if record.task == "assign"]


# -- resuming ----------------------------------------------------------------------------------------------------


class Interruption(Exception):
    pass


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("options", "lost_round"),
    [({}, 0), ({}, 1), ({}, 2), ({}, 3)]
    + [({"mechanism": "statistics", "rounds": 3}, lost) for lost in range(4)]
    + [({"mechanism": "hybrid", "rounds": 1, "row_bound": 4}, lost) for lost in range(3)]
    + [({"mechanism": "statistics", "rounds": 2, "score_share": 0.1}, 2)],
)
def test_a_round_that_was_answered_is_not_charged_again(options, lost_round, tmp_path):
    """The round is answered by all, then the process ends before it is written down; asked again, clients repeat."""
    privacy = Privacy(1.0, 1e-5, **options)
    method = made(privacy)
    kept = {name: Responses(method.privacy.accountant()) for name in shards()}
    options, log = {"responses": kept.__getitem__, "outbound": lambda _: log.append}, []
    lost = Journal(tmp_path / "lost")

    def on_round(progress):
        if len(progress.history) == lost_round:
            shutil.copytree(tmp_path / "lost", tmp_path / "before")
        if len(progress.history) == lost_round + 1:
            raise Interruption

    with pytest.raises(Interruption):
        run(method, shards(), on_round=on_round, journal=lost, **options)
    finished = run(method, shards(), journal=Journal(tmp_path / "before"), **options)
    releases = len(finished.history) - 1  # the last task tells nothing
    assert len(log) == releases * CLIENTS
    for responses in kept.values():
        assert len(responses.accountant.entries) == releases
        assert 0.999 < responses.accountant.spent <= privacy.epsilon


@pytest.mark.usefixtures("quick")
def test_with_the_responses_lost_a_second_look_is_charged_and_refused():
    method = made(Privacy(1.0, 1e-5))
    kept, log = {name: Responses(method.privacy.accountant()) for name in shards()}, []
    run(method, shards(), responses=kept.__getitem__)
    forgetful = {name: Responses(responses.accountant) for name, responses in kept.items()}
    with pytest.raises(PrivacyError, match="total"):
        run(method, shards(), responses=forgetful.__getitem__, outbound=lambda _: log.append)
    assert not log


@pytest.mark.usefixtures("quick")
def test_a_run_is_not_resumed_without_its_responses(tmp_path):
    method = made(Privacy(1.0))
    run(method, shards(), journal=Journal(tmp_path / "j"))
    with pytest.raises(PrivacyError, match="not known"):
        run(method, shards(), journal=Journal(tmp_path / "j"))


# -- refusals ----------------------------------------------------------------------------------------------------


def test_a_value_without_a_bound_does_not_leave():
    plan = Privacy(1.0).plan(n_records=600, n_clients=CLIENTS, n_columns=30)
    log = []
    gate = Gate.private("north", log.append, plan=plan, responses=Responses(plan.accountant()))
    bounded = RecordSum(np.zeros(3, np.int64), 1.0, 64.0)
    update = Update({"sizes": bounded.values, "counts": np.array([1, 2])}, {"sizes": bounded})
    with pytest.raises(PrivacyError, match="change counts"):
        gate.release(update, Request("sizes"), outputs_of(update), rng=np.random.default_rng(0))
    update = Update.of_records(V=bounded)
    with pytest.raises(InputError, match="not released"):
        gate.release(update, Request("sizes"), outputs_of(update), rng=np.random.default_rng(0))
    assert not log
    assert not gate.accountant.entries


def test_mechanisms_that_the_algorithm_does_not_play_are_refused():
    with pytest.raises(InputError, match="mechanism='uploads'"):
        made(Privacy(1.0, mechanism="uploads"))


@pytest.mark.usefixtures("quick")
def test_distributed_noise_is_refused_outside_of_a_secure_sum():
    with pytest.raises(PrivacyError, match="secure=True"):
        run(made(Privacy(1.0, noise="distributed")), shards())


@pytest.mark.usefixtures("quick")
def test_too_few_shares_of_distributed_noise_are_noticed():
    plan = Privacy(1.0, noise="distributed", dropouts=1).plan(n_records=600, n_clients=4, n_columns=30)

    def after(clients):
        candidates = next(private_bmf(30, 3, plan, effort="fast").server(0)).generator
        assert next(candidates).task == "sizes"
        return candidates.send(Sums({"sizes": np.zeros(31, np.int64)}, clients))

    assert after(3).values["row_bound"] == 20
    with pytest.raises(PrivacyError, match="1 missing"):
        after(2)
