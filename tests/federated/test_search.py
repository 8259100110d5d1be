"""Search and patterns: never worse, the same for any split, nothing but sums leaves a client of a federation."""

import itertools

import numpy as np
import pytest
from phase_loop import cut, dense, play

from felb.datasets import load, planted
from felb.deadline import Deadline
from felb.engines import run
from felb.engines.checkpoint import load_snapshot, save_snapshot
from felb.errors import FederationError, InputError
from felb.federated.phases.alone import SEARCH_ALONE, SearchAlone, row_pattern
from felb.federated.phases.base import Known
from felb.federated.phases.objective import NegativeF1
from felb.federated.phases.patterns import Cover, Patterns, patterns_from
from felb.federated.phases.pipeline import Chain, pipeline
from felb.federated.phases.search import Search
from felb.federated.phases.stack import TRY
from felb.federated.phases.start import RandomStart
from felb.federated.recipes.felb import felb
from felb.federated.recipes.sums import Effort, federated_bmf
from felb.linalg.assign import assign_rows
from felb.metrics import Counts, confusion

DATA = planted(120, 30, 4, noise=0.1, seed=3)
QUICK = Effort(relaxed_rounds=3, refine_rounds=3, tries=2, proposals=40)


def start(k=4, seed=0):
    V = np.random.default_rng(seed).random((k, 30)) < 0.2
    return Known(components=V)


# -- patterns --------------------------------------------------------------------------------------------------------


def test_patterns_are_the_columns_that_are_often_with_a_seed():
    states = play(Patterns(30, 5, (0.5, 1.0)), cut(DATA.A, 50))
    A = DATA.A.toarray().astype(int)
    seeds = np.argsort(-A.sum(axis=0), kind="stable")[:5]
    expected = {
        tuple(np.array([j == s or A[:, j] @ A[:, s] >= tau * A[:, s].sum() for j in range(30)]))
        for s in seeds
        for tau in (0.5, 1.0)
    }
    assert {tuple(row) for row in states[-1].patterns} == expected


def test_columns_without_ones_are_no_seeds():
    together = np.zeros((0, 3), dtype=np.int64)
    assert patterns_from(together, np.zeros(3, np.int64), np.zeros(0, np.int64)).shape == (0, 3)


def test_cover_takes_the_pattern_that_gains_most_each_time():
    patterns = np.random.default_rng(1).random((20, 30)) < 0.2
    V = play(Cover(4), cut(DATA.A, 40, 70), Known(patterns=patterns))[-1].V
    chosen = np.zeros((0, 30), dtype=bool)
    A = DATA.A.toarray()
    for row in V:
        U = assign_rows(DATA.A, chosen) if len(chosen) else np.zeros((120, 0), bool)
        covered = (U.astype(int) @ chosen.astype(int)) > 0
        gains = [np.maximum(((2 * A.astype(int) - 1) * (p & ~covered)).sum(axis=1), 0).sum() for p in patterns]
        if not row.any():
            assert max(gains) <= 0
            break
        np.testing.assert_array_equal(row, patterns[int(np.argmax(gains))])
        chosen = np.vstack([chosen, row])


def test_patterns_and_cover_do_not_depend_on_the_split():
    phase = Chain(Patterns(30, 8), Cover(4))
    results = [phase.result(play(phase, shards)[-1]).components for shards in ([DATA.A], cut(DATA.A, 1, 30, 31))]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("bad", [{"n_seeds": 0}, {"confidences": (0.0,)}, {"confidences": (1.5,)}])
def test_bad_patterns_are_refused(bad):
    with pytest.raises(InputError):
        Patterns(3, **bad)


# -- search ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [None, NegativeF1()], ids=["hamming", "f1"])
def test_search_never_gets_worse_and_its_figures_are_true(objective):
    options = {} if objective is None else {"objective": objective}
    phase = Chain(Patterns(30), Search(proposals=60, batch=5, **options))
    shards = cut(DATA.A, 30, 90)
    states = play(phase, shards, start())
    losses = [phase.record(state)["loss"] for state in states[3:]]
    assert losses[-1] < losses[0]
    assert all(b <= a for a, b in itertools.pairwise(losses))
    known = phase.result(states[-1])
    if objective is None:
        U = assign_rows(DATA.A, known.components)
        assert confusion(DATA.A, U, known.components) == Counts(*known.counts.tolist())
        wrong = ((U.astype(int) @ known.components.astype(int)) > 0) != dense(shards)
        assert known.value == np.count_nonzero(wrong)


def test_a_search_from_public_sums_does_not_depend_on_the_split():
    recipe = federated_bmf(30, 4, effort=QUICK)
    a = run(recipe, {"a": DATA.A}, seed=1).outcome
    b = run(recipe, {str(i): part for i, part in enumerate(cut(DATA.A, 1, 17, 80))}, seed=1).outcome
    np.testing.assert_array_equal(a.components, b.components)
    assert a.counts == b.counts


def test_a_client_of_a_federation_does_not_know_how_to_tell_rows():
    assert TRY in federated_bmf(30, 4, effort="high").client.tasks
    assert SEARCH_ALONE not in federated_bmf(30, 4, effort="high").client.tasks
    assert SEARCH_ALONE in federated_bmf(30, 4, effort="high", alone=True).client.tasks


def test_a_search_alone_never_gets_worse_and_refuses_a_second_client():
    phase = Chain(Patterns(30), Search(proposals=2), SearchAlone(proposals=60, batch=10))
    states = play(phase, [DATA.A], start())
    losses = [state.phase_2.known.value for state in states if state.phase_2 is not None]
    assert losses[-1] < losses[0]
    assert losses == sorted(losses, reverse=True)
    known = phase.result(states[-1])
    assert Counts(*known.counts.tolist()).errors == known.value
    with pytest.raises(FederationError, match="one owner"):
        play(phase, cut(DATA.A, 50), start())


def test_row_patterns_are_rows_or_what_two_rows_share():
    A, rng = DATA.A.toarray(), np.random.default_rng(0)
    shared = {tuple(a & b) for a in A for b in A}
    assert {tuple(row_pattern(DATA.A, rng)) for _ in range(50)} <= shared
    assert not row_pattern(DATA.A.rows(0, 0), rng).any()


def test_work_and_patience_bound_the_search():
    def judged(**options):
        phase = Chain(Patterns(30), Search(batch=3, **options))
        return phase.record(play(phase, [DATA.A], start())[-1])["proposals"]

    assert judged(proposals=9) in (9, 10, 11)
    assert judged(proposals=500, work=0, least=6) in (6, 7, 8)
    assert judged(proposals=500, patience=5) < 500


@pytest.mark.parametrize("bad", [{"proposals": -1}, {"batch": 0}, {"flips": 1.0}, {"work": -1.0}])
def test_bad_searches_are_refused(bad):
    with pytest.raises(InputError):
        Search(**bad)


@pytest.mark.parametrize("alone", [False, True])
def test_a_search_resumes_as_if_it_had_not_stopped(tmp_path, alone):
    recipe = federated_bmf(30, 4, effort=QUICK, alone=alone)
    snapshots = []
    whole = run(recipe, {"a": DATA.A}, seed=2, on_round=snapshots.append)
    searching = [s for s in snapshots if s.history[-1]["task"] in (TRY, SEARCH_ALONE)]
    save_snapshot(tmp_path / "stopped", searching[2 * (not alone)])
    back = load_snapshot(tmp_path / "stopped", recipe)
    resumed = run(recipe, {"a": DATA.A}, seed=2, resume=back)
    np.testing.assert_array_equal(resumed.outcome.components, whole.outcome.components)
    assert resumed.history == whole.history


def test_zoo_gets_better_by_search():
    zoo = load("zoo")
    without = run(federated_bmf(17, 5), {"a": zoo}).outcome.counts.errors
    effort = Effort(proposals=50)
    assert run(federated_bmf(17, 5, effort=effort, alone=True), {"a": zoo}).outcome.counts.errors < without


# -- deadlines -------------------------------------------------------------------------------------------------------


class Rounds(Deadline):
    """A deadline after some looks at it instead of some seconds."""

    def __init__(self, looks):
        object.__setattr__(self, "seconds", 1.0)
        object.__setattr__(self, "_left", looks)

    __slots__ = ("_left",)

    @property
    def passed(self):
        object.__setattr__(self, "_left", self._left - 1)
        return self._left < 0


@pytest.mark.parametrize("rounds", [0, 1, 4, 6, 12, 30])
def test_a_deadline_ends_a_run_with_a_valid_result(rounds):
    finished = run(federated_bmf(30, 4, effort=QUICK), {"a": DATA.A}, deadline=Rounds(rounds))
    outcome = finished.outcome
    assert not outcome.complete
    assert not outcome.converged
    assert outcome.n_iter == rounds
    assert outcome.components.shape == (4, 30)
    assert confusion(DATA.A, finished.assignments["a"], outcome.components) == outcome.counts


def test_a_deadline_that_is_not_reached_changes_nothing():
    recipe = federated_bmf(30, 4, effort="fast")
    a, b = (run(recipe, {"a": DATA.A}, deadline=deadline).outcome for deadline in (None, Rounds(10_000)))
    assert (a.complete, b.complete) == (True, True)
    np.testing.assert_array_equal(a.components, b.components)


def test_a_recipe_that_cannot_end_early_says_so():
    with pytest.raises(InputError, match="cannot be ended early"):
        run(felb(30, 4), {"a": DATA.A}, deadline=Deadline(1.0))


def test_a_phase_without_patterns_says_what_is_missing():
    with pytest.raises(InputError, match="patterns"):
        run(pipeline("x", Search(), known=start()), {"a": DATA.A})


def test_two_starts_compete_where_columns_are_few():
    def tasks(features):
        effort = Effort(relaxed_rounds=3, refine_rounds=3, tries=0, cover_features=features)
        finished = run(federated_bmf(30, 4, effort=effort), {"a": DATA.A})
        return finished.outcome.counts.errors, {row["task"] for row in finished.history}

    one, asked = tasks(29)
    assert "weigh" not in asked
    both, asked = tasks(30)
    assert "weigh" in asked
    assert both <= one


def test_random_starts_differ_by_number_and_seed_and_ask_nothing():
    def drawn(number, seed):
        phase = RandomStart(30, 4, number)
        state = phase.start(Known(), seed)
        assert phase.broadcast(state) is None
        return phase.result(state).relaxed

    first = drawn(0, 7)
    assert first.shape == (4, 30)
    assert (first > 0).all()
    np.testing.assert_array_equal(first, drawn(0, 7))
    assert not np.array_equal(first, drawn(1, 7))
    assert not np.array_equal(first, drawn(0, 8))


def test_more_starts_find_more_and_the_same_however_rows_are_split():
    zoo = load("zoo")

    def found(restarts, shards):
        effort = Effort(tries=0, cover_features=0, cuts=False, restarts=restarts)
        return run(federated_bmf(17, 10, effort=effort, objective="hamming"), shards).outcome

    one, several = found(0, {"a": zoo}), found(3, {"a": zoo})
    assert several.counts.errors < one.counts.errors
    split = found(3, {"a": zoo.rows(0, 17), "b": zoo.rows(17, len(zoo))})
    np.testing.assert_array_equal(split.components, several.components)
    assert split.counts == several.counts
