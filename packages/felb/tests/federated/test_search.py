"""Search and patterns: never worse, the same for any split, nothing but sums leaves a client of a federation."""

import itertools

import numpy as np
import pytest
from driving import Rounds, algorithm_of, cut, dense, drive, resumed

from felb.data import load, planted
from felb.engines.local import run
from felb.errors import FederationError, InputError
from felb.federated.algorithms.bmf import Effort, federated_bmf
from felb.federated.algorithms.felb import felb
from felb.federated.journal import Journal
from felb.federated.steps.refine import STACKED_GAINS
from felb.federated.steps.search import CENTRALIZED_SEARCH, centralized_search, draw_row_pattern, local_search
from felb.federated.steps.starts import cover, find_patterns, make_patterns, random_init
from felb.federated.steps.state import NegativeF1, Solution
from felb.kernels.assign import assign_rows
from felb.metrics import Counts, confusion
from felb.progress import Deadline

DATA = planted(120, 30, 4, noise=0.1, seed=3)
QUICK = Effort(relaxed_rounds=3, refine_rounds=3, tries=2, proposals=40, generations=1)


def start(k=4, seed=0):
    V = np.random.default_rng(seed).random((k, 30)) < 0.2
    return Solution(components=V)


# -- patterns --------------------------------------------------------------------------------------------------------


def test_patterns_are_the_columns_that_are_often_with_a_seed():
    found = drive(find_patterns(Solution(), 30, 5, confidences=(0.5, 1.0)), cut(DATA.A, 50)).solution
    A = DATA.A.toarray().astype(int)
    seeds = np.argsort(-A.sum(axis=0), kind="stable")[:5]
    expected = {
        tuple(np.array([j == s or A[:, j] @ A[:, s] >= tau * A[:, s].sum() for j in range(30)]))
        for s in seeds
        for tau in (0.5, 1.0)
    }
    assert {tuple(row) for row in found.patterns} == expected


def test_columns_without_ones_are_no_seeds():
    together = np.zeros((0, 3), dtype=np.int64)
    assert make_patterns(together, np.zeros(3, np.int64), np.zeros(0, np.int64)).shape == (0, 3)


def test_cover_takes_the_pattern_that_gains_most_each_time():
    patterns = np.random.default_rng(1).random((20, 30)) < 0.2
    V = drive(cover(Solution(patterns=patterns), 4), cut(DATA.A, 40, 70)).solution.components
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
    def covered():
        known = yield from find_patterns(Solution(), 30, 8)
        return (yield from cover(known, 4))

    results = [drive(covered(), shards).solution.components for shards in ([DATA.A], cut(DATA.A, 1, 30, 31))]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("bad", [{"n_seeds": 0}, {"confidences": (0.0,)}, {"confidences": (1.5,)}])
def test_bad_patterns_are_refused(bad):
    with pytest.raises(InputError):
        drive(find_patterns(Solution(), 3, **bad), [DATA.A])


def searching(solution=None, search=local_search, **options):
    """Patterns, then a search from them."""
    solution = yield from find_patterns(solution or start(), 30)
    return (yield from search(solution, **options))


# -- search ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", [None, NegativeF1()], ids=["hamming", "f1"])
def test_search_never_gets_worse_and_its_figures_are_true(objective):
    options = {} if objective is None else {"objective": objective}
    shards = cut(DATA.A, 30, 90)
    driven = drive(searching(proposals=60, batch=5, **options), shards)
    losses = [row["loss"] for row in driven.rows[2:]]
    assert losses[-1] < losses[0]
    assert all(b <= a for a, b in itertools.pairwise(losses))
    known = driven.solution
    if objective is None:
        U = assign_rows(DATA.A, known.components)
        assert confusion(DATA.A, U, known.components) == Counts(*known.counts.tolist())
        wrong = ((U.astype(int) @ known.components.astype(int)) > 0) != dense(shards)
        assert known.value == np.count_nonzero(wrong)


def test_a_search_from_public_sums_does_not_depend_on_the_split():
    algorithm = federated_bmf(30, 4, effort=QUICK)
    a = run(algorithm, {"a": DATA.A}, seed=1).outcome
    b = run(algorithm, {str(i): part for i, part in enumerate(cut(DATA.A, 1, 17, 80))}, seed=1).outcome
    np.testing.assert_array_equal(a.components, b.components)
    assert a.counts == b.counts


def test_a_client_of_a_federation_does_not_know_how_to_tell_rows():
    assert STACKED_GAINS.name in federated_bmf(30, 4, effort="high").tasks
    assert CENTRALIZED_SEARCH.name not in federated_bmf(30, 4, effort="high").tasks
    assert CENTRALIZED_SEARCH.name in federated_bmf(30, 4, effort="high", centralized=True).tasks


def test_a_centralized_search_never_gets_worse_and_refuses_a_second_client():
    def both():
        known = yield from searching(proposals=2)
        return (yield from centralized_search(known, proposals=60, batch=10))

    driven = drive(both(), [DATA.A])
    asked = [request.task for request in driven.requests]
    losses = [row["loss"] for row in driven.rows[asked.index(CENTRALIZED_SEARCH.name) - 1 :]]
    assert len(losses) == 7
    assert losses[-1] < losses[0]
    assert losses == sorted(losses, reverse=True)
    known = driven.solution
    assert Counts(*known.counts.tolist()).errors == known.value
    with pytest.raises(FederationError, match="one owner"):
        drive(both(), cut(DATA.A, 50))


def test_row_patterns_are_rows_or_what_two_rows_share():
    A, rng = DATA.A.toarray(), np.random.default_rng(0)
    shared = {tuple(a & b) for a in A for b in A}
    assert {tuple(draw_row_pattern(DATA.A, rng)) for _ in range(50)} <= shared
    assert not draw_row_pattern(DATA.A.rows(0, 0), rng).any()


def test_work_and_patience_bound_the_search():
    def judged(**options):
        return drive(searching(batch=3, **options), [DATA.A]).rows[-1]["proposals"]

    assert judged(proposals=9) in (9, 10, 11)
    assert judged(proposals=500, work=0, least=6) in (6, 7, 8)
    assert judged(proposals=500, patience=5) < 500


@pytest.mark.parametrize("bad", [{"proposals": -1}, {"batch": 0}, {"flips": 1.0}, {"work": -1.0}])
def test_bad_searches_are_refused(bad):
    with pytest.raises(InputError):
        drive(searching(**bad), [DATA.A])


@pytest.mark.parametrize("compact", [0, 1 << 30])
@pytest.mark.parametrize("centralized", [False, True])
def test_a_search_resumes_as_if_it_had_not_stopped(tmp_path, centralized, compact, monkeypatch):
    monkeypatch.setattr("felb.federated.journal.COMPACT_BYTES", compact)
    algorithm = federated_bmf(30, 4, effort=QUICK, centralized=centralized)
    whole = run(algorithm, {"a": DATA.A}, seed=2)
    searching = [row["round"] for row in whole.history if row["task"] in (STACKED_GAINS.name, CENTRALIZED_SEARCH.name)]
    again = resumed(algorithm, {"a": DATA.A}, tmp_path, after=searching[2 * (not centralized)] + 1, seed=2)
    np.testing.assert_array_equal(again.outcome.components, whole.outcome.components)
    assert again.history == whole.history


def test_zoo_gets_better_by_search():
    zoo = load("zoo")

    def errors(proposals):
        effort = Effort(generations=0, proposals=proposals)
        return run(federated_bmf(17, 5, effort=effort, centralized=True), {"a": zoo}).outcome.counts.errors

    assert errors(50) < errors(0)


# -- deadlines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [0, 4, 5, 6, 12, 30])
def test_a_deadline_ends_a_run_with_a_valid_result(rounds):
    finished = run(federated_bmf(30, 4, effort=QUICK), {"a": DATA.A}, deadline=Rounds(rounds))
    outcome = finished.outcome
    assert not outcome.complete
    assert not outcome.converged
    assert outcome.n_iter == rounds
    assert outcome.components.shape == (4, 30)
    assert confusion(DATA.A, finished.assignments["a"], outcome.components) == outcome.counts


def test_a_deadline_that_is_not_reached_changes_nothing():
    algorithm = federated_bmf(30, 4, effort="fast")
    a, b = (run(algorithm, {"a": DATA.A}, deadline=deadline).outcome for deadline in (None, Rounds(10_000)))
    assert (a.complete, b.complete) == (True, True)
    np.testing.assert_array_equal(a.components, b.components)


def test_an_algorithm_that_cannot_end_early_says_so():
    with pytest.raises(InputError, match="ended early"):
        run(felb(30, 4), {"a": DATA.A}, deadline=Deadline(1.0))


def test_a_step_without_patterns_says_what_is_missing():
    with pytest.raises(InputError, match="patterns"):
        run(algorithm_of(lambda seed: local_search(start(), seed=seed), DATA.A.shape[1]), {"a": DATA.A})


@pytest.mark.parametrize("rounds", [3, 20])
def test_a_run_that_was_ended_early_is_replayed_as_it_was(tmp_path, rounds):
    """Interrupted after its time was up, it ends with the same components without a time limit."""
    algorithm, shards = federated_bmf(30, 4, effort=QUICK), {"a": DATA.A}
    whole = run(algorithm, shards, deadline=Rounds(rounds), journal=Journal(tmp_path / "j"))
    again = run(algorithm, shards, journal=Journal(tmp_path / "j"))
    np.testing.assert_array_equal(again.outcome.components, whole.outcome.components)
    assert again.history == whole.history
    assert not again.outcome.complete


def test_two_starts_compete_where_columns_are_few():
    def tasks(features):
        effort = Effort(relaxed_rounds=3, refine_rounds=3, tries=0, cover_features=features)
        finished = run(federated_bmf(30, 4, effort=effort), {"a": DATA.A})
        return finished.outcome.counts.errors, {row["task"] for row in finished.history}

    one, asked = tasks(29)
    assert "candidate_gains" not in asked
    both, asked = tasks(30)
    assert "candidate_gains" in asked
    assert both <= one


def test_random_starts_differ_by_number_and_seed_and_ask_nothing():
    def drawn(number, seed):
        return random_init(30, 4, seed=seed, number=number).relaxed

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
