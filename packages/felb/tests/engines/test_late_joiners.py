"""Clients that come in when a run is under way."""

import numpy as np
import pytest

import felb
from felb.data import partition, planted
from felb.data.partition import split
from felb.engines import local
from felb.engines.local import Participation, run
from felb.errors import InputError
from felb.federated.algorithms.bmf import Effort, federated_bmf
from felb.federated.algorithms.felb import felb as felb_algorithm
from felb.federated.algorithms.felb import felb_mu
from felb.federated.client import Client
from felb.federated.journal import Journal
from felb.metrics import confusion

DATA = planted(600, 60, 4, noise=0.05, seed=1)
GROUPS = partition.even(600, 6, seed=1)
SHARDS, ROWS = split(DATA.A, GROUPS)
LATE = "4"
SHORT = Effort(restarts=1, generations=1)
"""All steps, and as many relaxed rounds as by default, since clients join at certain ones."""


@pytest.fixture
def seen(monkeypatch):
    """The rounds of each client, with whether it had the state that it had left."""
    noted, left = {}, {}

    class Noting(Client):
        def answer(self, states, rows, request, **known):
            noted.setdefault(self.name, []).append((request.round, states is left.get(self.name)))
            left[self.name], release = super().answer(states, rows, request, **known)
            return left[self.name], release

    monkeypatch.setattr(local, "Client", Noting)
    return noted


def f1_star(finished, names=tuple(SHARDS)):
    counts = (
        confusion(DATA.signal.take(ROWS[name]), finished.assignments[name], finished.outcome.components)
        for name in names
    )
    return sum(counts).f1


@pytest.mark.parametrize("first", [1, 3, 10, 24, 25, 26])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_late_client_plays_from_its_round_on(first, sampled, seen):
    """In the start, in the relaxed rounds, at the thresholds, and in Boolean rounds."""
    algorithm = federated_bmf(60, 4, effort=SHORT, sampled=sampled)
    finished = run(algorithm, SHARDS, participation=Participation(joins={LATE: first}))
    rounds = len(finished.history)
    assert rounds > first
    assert seen[LATE] == [(t, True) for t in range(first, rounds)]
    assert all([t for t, _ in seen[name]] == list(range(rounds)) for name in SHARDS if name != LATE)
    assert [row["clients"] for row in finished.history] == [5] * first + [6] * (rounds - first)
    assert f1_star(finished) > 0.98
    assert f1_star(finished, [LATE]) > 0.98
    # The last figures are of all rows.
    assert finished.outcome.counts.cells == 600 * 60


@pytest.mark.parametrize("first", [0, 12, 26, 30])
def test_a_component_that_only_the_late_client_has_is_found(first):
    U, rng = DATA.U.copy(), np.random.default_rng(0)
    U[:, 0] = (int(LATE) == GROUPS) & (rng.random(600) < 0.6)
    signal = (U.astype(int) @ DATA.V.astype(int)) > 0
    A = signal ^ (rng.random(signal.shape) < 0.03)
    model = felb.FederatedBMF(4, random_state=0, participation=Participation(joins={LATE: first}))
    found = model.inverse_transform(model.fit_transform(A, groups=GROUPS))
    assert (found == signal).mean() > 0.99
    assert any((v == DATA.V[0]).mean() > 0.95 for v in model.components_)


def test_what_only_compares_rounds_refuses_late_clients():
    late = Participation(joins={LATE: 3})
    with pytest.raises(InputError, match="all clients"):
        felb.FederatedBMF("mdl", participation=late).fit(DATA.A, groups=GROUPS)
    with pytest.raises(InputError, match="participation"):
        felb.FederatedBMF(4, privacy=felb.privacy.Privacy(epsilon=1.0), participation=late).fit(DATA.A, groups=GROUPS)


@pytest.mark.parametrize("algorithm", [felb_algorithm(60, 4, max_rounds=60), felb_mu(60, 4, max_rounds=60)])
def test_methods_that_average_take_late_clients_too(algorithm):
    finished = run(algorithm, SHARDS, participation=Participation(joins={LATE: 20}))
    assert finished.history[-1]["clients"] == 6
    assert f1_star(finished) > 0.95


def test_a_late_client_may_be_sampled_and_drop_out_like_all_others():
    participation = Participation(fraction=0.5, dropout=0.2, joins={LATE: 10})
    runs = [run(federated_bmf(60, 4, sampled=True), SHARDS, participation=participation, seed=3) for _ in range(2)]
    assert runs[0].history == runs[1].history
    relaxed = [row for row in runs[0].history if row["task"] == "factor_statistics"]
    asked = {row["round"]: row["clients"] + len(row.get("missing", ())) for row in relaxed}
    assert {n for t, n in asked.items() if t < 10} == {2}  # half of five
    assert {n for t, n in asked.items() if t >= 10} == {3}  # half of six
    assert f1_star(runs[0]) > 0.95


def test_a_run_with_a_late_client_is_resumed_as_it_was(tmp_path):
    options = {"participation": Participation(joins={LATE: 12}), "seed": 5}
    algorithm = federated_bmf(60, 4, effort=SHORT)
    finished = run(algorithm, SHARDS, **options)
    for at in (5, 11, 12, 26):

        def stop(progress, at=at):
            if len(progress.history) == at + 1:
                raise KeyboardInterrupt

        journal = tmp_path / str(at)
        with pytest.raises(KeyboardInterrupt):
            run(algorithm, SHARDS, journal=Journal(journal), on_round=stop, **options)
        again = run(algorithm, SHARDS, journal=Journal(journal), **options)
        np.testing.assert_array_equal(again.outcome.components, finished.outcome.components)
        np.testing.assert_array_equal(again.assignments[LATE], finished.assignments[LATE])


def test_the_estimator_knows_rows_of_late_clients():
    model = felb.FederatedBMF(4, random_state=0, participation=Participation(joins={LATE: 8}))
    U = model.fit_transform(DATA.A, groups=GROUPS)
    assert confusion(DATA.signal, U, model.components_).f1 > 0.98
    assert model.counts_.cells == 600 * 60
    np.testing.assert_array_equal(model.supports_, U.sum(axis=0))


def test_rows_of_a_client_that_came_too_late_are_assigned_as_new_ones():
    model = felb.FederatedBMF(4, random_state=0, participation=Participation(joins={LATE: 500}))
    with pytest.warns(UserWarning, match=r"\d+ rounds.* 4 joined"):
        U = model.fit_transform(DATA.A, groups=GROUPS)
    assert model.counts_.cells == 500 * 60
    np.testing.assert_array_equal(U[ROWS[LATE]], model.transform(SHARDS[LATE]))
    assert confusion(DATA.signal, U, model.components_).f1 > 0.98


@pytest.mark.parametrize(
    ("joins", "message"),
    [
        ({"north": 3}, "'north' .*0, 1, 2, 3, 4, 5"),
        (dict.fromkeys(SHARDS, 2), "round 0"),
    ],
)
def test_joins_that_cannot_be(joins, message):
    with pytest.raises(InputError, match=message):
        run(federated_bmf(60, 4, sampled=True), SHARDS, participation=Participation(joins=joins))


@pytest.mark.parametrize("first", [-1, 1.5, None])
def test_a_round_is_a_whole_number(first):
    with pytest.raises(InputError, match=r"4 must join|joins must be a table in which every value is a whole number"):
        Participation(joins={"4": first})
