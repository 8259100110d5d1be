"""The in-process engine under the troubles of real federations."""

import threading
import warnings

import numpy as np
import pytest

from felb.datasets import partition, planted
from felb.datasets.shards import split
from felb.engines import Participation, run
from felb.errors import FederationError, InputError
from felb.federated.client import Client
from felb.federated.messages import Broadcast
from felb.federated.recipes.felb import felb, felb_mu
from felb.federated.recipes.felb_setting import LITERAL
from felb.federated.server import Recipe
from felb.metrics import confusion

DATA = planted(400, 60, 4, noise=0.05, seed=1)
SHARDS, ROWS = split(DATA.A, partition.even(400, 8, seed=1))


def f1_star(finished):
    counts = [
        confusion(DATA.signal.take(ROWS[name]), U, finished.outcome.components)
        for name, U in finished.assignments.items()
    ]
    return sum(counts).f1


def sabotaged(recipe, victim, rounds):
    """Return the recipe with a client that fails in some rounds, told by the number of its rows."""

    def wrap(task):
        def step(state, shard, broadcast, rng):
            if shard is victim and broadcast.round in rounds:
                raise RuntimeError("disk full")
            return task(state, shard, broadcast, rng)

        return step

    client = Client({k: wrap(t) for k, t in recipe.client.tasks.items()}, recipe.client.state_type,
                    recipe.client.assignment)  # fmt: skip
    return Recipe(recipe.name, client, recipe.server)


def test_a_sample_of_clients_is_enough():
    finished = run(felb_mu(60, 4, max_rounds=80), SHARDS, participation=Participation(fraction=0.5))
    players = {}
    for row in finished.history:
        players.setdefault(row["task"], set()).add(row["clients"])
    assert players == {"sketch": {8}, "signs": {8}, "factorize": {4}, "assign": {8}}  # start and assignment: everyone
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
    with pytest.raises(FederationError, match="fewer than 8 of 8 clients answered"):
        run(felb(60, 4), SHARDS, participation=Participation(dropout=0.9, quorum=8))


def test_a_failing_client_ends_the_run_unless_a_quorum_is_set():
    victim = next(iter(SHARDS.values()))
    recipe = sabotaged(felb_mu(60, 4, max_rounds=40), victim, rounds=range(5, 15))
    with pytest.raises(RuntimeError, match="disk full"):
        run(recipe, SHARDS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        finished = run(recipe, SHARDS, participation=Participation(quorum=4))
    assert [str(w.message) for w in caught] == [f"round {t}: 0 failed (disk full)" for t in range(5, 15)]
    failed = [row["round"] for row in finished.history if "0" in row.get("missing", ())]
    assert failed == list(range(5, 15))
    assert f1_star(finished) > 0.95
    with (
        pytest.warns(RuntimeWarning, match="disk full"),
        pytest.raises(FederationError, match=r"only 7 of 8 .*quorum is 8.*Failed: 0"),
    ):
        run(recipe, SHARDS, participation=Participation(quorum=8))


def test_a_late_joiner_starts_from_the_shared_components():
    victim = SHARDS["3"]
    recipe = sabotaged(felb_mu(60, 4, max_rounds=40), victim, rounds=range(30))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        finished = run(recipe, SHARDS, participation=Participation(quorum=1))
    assert finished.history[29]["clients"] == 7
    assert finished.history[30]["clients"] == 8
    assert f1_star(finished) > 0.9


def test_threads_do_not_change_the_result_and_are_used():
    seen = set()

    def spy(task):
        def step(*args):
            seen.add(threading.get_ident())
            return task(*args)

        return step

    base = felb(60, 4, max_rounds=5)
    client = Client({k: spy(t) for k, t in base.client.tasks.items()}, base.client.state_type, base.client.assignment)
    parallel = run(Recipe("felb", client, base.server), SHARDS, workers=3)
    assert len(seen) > 1
    np.testing.assert_array_equal(parallel.outcome.relaxed, run(base, SHARDS).outcome.relaxed)


def test_resuming_from_any_round_ends_the_same():
    recipe = felb(60, 4, max_rounds=12)
    snapshots = []
    options = {"seed": 5, "participation": Participation(fraction=0.6, dropout=0.1)}
    whole = run(recipe, SHARDS, on_round=snapshots.append, **options)
    assert len(snapshots) == 4 + 12 + 1
    for snapshot in snapshots:
        resumed = run(recipe, SHARDS, resume=snapshot, **options)
        np.testing.assert_array_equal(resumed.outcome.relaxed, whole.outcome.relaxed)
        assert resumed.history == whole.history
        for name, U in whole.assignments.items():
            np.testing.assert_array_equal(resumed.assignments[name], U)


def test_literal_clients_start_on_their_own():
    recipe = felb(60, 4, setting=LITERAL, max_rounds=3)
    assert recipe.server.broadcast(recipe.server.start(0)).values == {}
    rng = np.random.default_rng(0)
    first = Broadcast("factorize", 0, {})
    a, b = (recipe.client.step(None, SHARDS["0"], first, rng=rng)[1].values["V"] for _ in range(2))
    assert not np.array_equal(a, b)
    finished = run(recipe, SHARDS)
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
