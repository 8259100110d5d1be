"""The in-process transport under the troubles of real federations."""

import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines import local
from felb.engines.local import Participation, run
from felb.errors import FederationError, InputError
from felb.federated.algorithms.felb import LITERAL, felb, felb_mu
from felb.federated.client import Client, compute_update
from felb.federated.journal import Journal
from felb.federated.steps.starts import SPECTRAL_ROUNDS
from felb.federated.tasks import declare
from felb.metrics import confusion

DATA = planted(400, 60, 4, noise=0.05, seed=1)
SHARDS, ROWS = split(DATA.A, partition.even(400, 8, seed=1))


def f1_star(finished):
    counts = [
        confusion(DATA.signal.take(ROWS[name]), U, finished.outcome.components)
        for name, U in finished.assignments.items()
    ]
    return sum(counts).f1


def fail_in_rounds(monkeypatch, victim, rounds):
    """Make a client fail in some rounds."""

    class Failing(Client):
        def answer(self, states, rows, request, **known):
            if self.name == victim and request.round in rounds:
                raise RuntimeError("disk full")
            return super().answer(states, rows, request, **known)

    monkeypatch.setattr(local, "Client", Failing)


def test_a_sample_of_clients_is_enough():
    finished = run(felb_mu(60, 4, max_rounds=80), SHARDS, participation=Participation(fraction=0.5))
    players = {}
    for row in finished.history:
        players.setdefault(row["task"], set()).add(row["clients"])
    # The start and the assignment are everyone's.
    assert players == {"gram_sketch": {8}, "sign_norms": {8}, "local_factor": {4}, "assign": {8}}
    assert f1_star(finished) > 0.95


def test_dropouts_are_survived_and_recorded():
    finished = run(felb_mu(60, 4, max_rounds=80), SHARDS, participation=Participation(dropout=0.3), seed=2)
    missing = [len(row.get("missing", ())) for row in finished.history]
    assert sum(missing) > 80
    assert all(row["clients"] + len(row.get("missing", ())) == 8 for row in finished.history)
    assert f1_star(finished) > 0.95
    again = run(felb_mu(60, 4, max_rounds=80), SHARDS, participation=Participation(dropout=0.3), seed=2)
    assert again.history == finished.history


def test_one_client_of_two_that_often_drop_out():
    two = dict(list(SHARDS.items())[:2])
    finished = run(felb(60, 4, max_rounds=20), two, participation=Participation(dropout=0.8))
    assert all(row["clients"] >= 1 for row in finished.history)


def test_a_quorum_that_is_never_reached_is_an_error():
    with pytest.raises(FederationError, match="8 of 8 clients"):
        run(felb(60, 4), SHARDS, participation=Participation(dropout=0.9, quorum=8))


def test_a_failing_client_ends_the_run_unless_a_quorum_is_set(monkeypatch):
    algorithm = felb_mu(60, 4, max_rounds=40)
    fail_in_rounds(monkeypatch, "0", range(5, 15))
    with pytest.raises(RuntimeError, match="disk full"):
        run(algorithm, SHARDS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        finished = run(algorithm, SHARDS, participation=Participation(quorum=4))
    assert [str(w.message) for w in caught] == [f"round {t}: 0 failed (disk full)" for t in range(5, 15)]
    failed = [row["round"] for row in finished.history if "0" in row.get("missing", ())]
    assert failed == list(range(5, 15))
    assert f1_star(finished) > 0.95
    with (
        pytest.warns(RuntimeWarning, match="disk full"),
        pytest.raises(FederationError, match=r"7 of 8 .*quorum is 8.*Failed: 0"),
    ):
        run(algorithm, SHARDS, participation=Participation(quorum=8))


def test_a_late_joiner_starts_from_the_shared_components(monkeypatch):
    fail_in_rounds(monkeypatch, "3", range(30))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        finished = run(felb_mu(60, 4, max_rounds=40), SHARDS, participation=Participation(quorum=1))
    assert finished.history[29]["clients"] == 7
    assert finished.history[30]["clients"] == 8
    assert f1_star(finished) > 0.9


def test_threads_do_not_change_the_result_and_are_used():
    seen = set()

    def spied(spec):
        def do(work):
            seen.add(threading.get_ident())
            return spec.do(work)

        return replace(spec, do=do)

    base = felb(60, 4, max_rounds=5)
    parallel = run(replace(base, tasks=declare(*map(spied, base.tasks.values()))), SHARDS, workers=3)
    assert len(seen) > 1
    np.testing.assert_array_equal(parallel.outcome.relaxed, run(base, SHARDS).outcome.relaxed)


def interrupt_after(rounds):
    def on_round(progress):
        if len(progress.history) == rounds:
            raise KeyboardInterrupt

    return on_round


@pytest.mark.parametrize("compact", [0, 1 << 30])
@pytest.mark.parametrize("rounds", range(1, SPECTRAL_ROUNDS + 12 + 2))
def test_resuming_from_any_round_ends_the_same(tmp_path, rounds, compact, monkeypatch):
    monkeypatch.setattr("felb.federated.journal.COMPACT_BYTES", compact)
    algorithm = felb(60, 4, max_rounds=12)
    options = {"seed": 5, "participation": Participation(fraction=0.6, dropout=0.1)}
    whole = run(algorithm, SHARDS, **options)
    assert len(whole.history) == SPECTRAL_ROUNDS + 12 + 1
    with pytest.raises(KeyboardInterrupt):
        run(algorithm, SHARDS, journal=Journal(tmp_path), on_round=interrupt_after(rounds), **options)
    for _ in range(2):  # the second time from the end
        resumed = run(algorithm, SHARDS, journal=Journal(tmp_path), **options)
        np.testing.assert_array_equal(resumed.outcome.relaxed, whole.outcome.relaxed)
        assert resumed.history == whole.history
        for name, U in whole.assignments.items():
            np.testing.assert_array_equal(resumed.assignments[name], U)


def test_literal_clients_start_on_their_own():
    algorithm = felb(60, 4, setting=LITERAL, max_rounds=3)
    server = algorithm.server(0)
    first = server.send(next(server).state)
    assert set(first.values) == {"t"}, "no V̂ is shared"
    a, b = (
        compute_update(algorithm, None, SHARDS["0"], first, name=name, seed=0)[1].values["V"] for name in ("a", "b")
    )
    assert not np.array_equal(a, b)
    finished = run(algorithm, SHARDS)
    assert finished.outcome.n_iter == 3


def test_early_stop_when_boolean_and_still():
    finished = run(felb(60, 4, rate=1.5, max_rounds=500, tol=0.01), SHARDS)
    assert finished.outcome.n_iter < 60
    assert finished.outcome.converged
    assert finished.outcome.integrality_gap <= 0.01
    decided = run(felb(60, 4, rate=1.5, max_rounds=500), SHARDS)
    assert decided.outcome.n_iter < finished.outcome.n_iter
    assert decided.outcome.converged
    np.testing.assert_array_equal(decided.outcome.components, finished.outcome.components)


@pytest.mark.parametrize("wrong", [{"fraction": 0}, {"fraction": 1.1}, {"dropout": 1}, {"quorum": 0}])
def test_impossible_participation(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Participation(**wrong)
