"""Steps put together: one after the other, the best of several, and runs that stop or resume anywhere."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from driving import algorithm_of, drive, resumed

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import Participation, run
from felb.errors import InputError
from felb.federated.algorithms.bmf import BooleanFit, Effort, federated_bmf
from felb.federated.journal import from_arrays, holding, to_arrays
from felb.federated.protocol import TimeUp
from felb.federated.steps.refine import refine
from felb.federated.steps.relaxed import nmf, threshold_search
from felb.federated.steps.starts import spectral_init
from felb.federated.steps.state import Cost, Solution, best_of, step
from felb.kernels.assign import assign_rows
from felb.kernels.exact import assign_rows_exact
from felb.metrics import Counts, confusion
from felb.progress import Deadline

DATA = planted(150, 40, 4, noise=0.1, seed=1)
SHARDS, _ = split(DATA.A, partition.uneven(150, 6, seed=1))
QUICK = Effort(relaxed_rounds=4, refine_rounds=4, tries=2, restarts=1, generations=1)


class After(Deadline):
    """A deadline after some looks at it instead of some seconds."""

    __slots__ = ("_left",)

    def __init__(self, looks):
        object.__setattr__(self, "seconds", 1.0)
        object.__setattr__(self, "_left", looks)

    @property
    def passed(self):
        object.__setattr__(self, "_left", self._left - 1)
        return self._left < 0


def made(**options):
    return federated_bmf(40, 4, **({"effort": QUICK} | options))


# -- states --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    number: int | None = None
    array: np.ndarray | None = None


@dataclass(frozen=True)
class Outer:
    name: int
    inner: Inner | None = field(default=None, metadata=holding(Inner))


@dataclass(frozen=True)
class Outermost:
    outer: Outer | None = field(default=None, metadata=holding(Outer))


@pytest.mark.parametrize(
    "state",
    [Outermost(), Outermost(Outer(1)), Outermost(Outer(2, Inner())), Outermost(Outer(3, Inner(4, np.arange(3))))],
    ids=str,
)
def test_nested_states_survive_being_stored(state):
    arrays = to_arrays(state)
    assert not any(array.dtype.hasobject for array in arrays.values())
    back = from_arrays(Outermost, arrays)
    assert str(back) == str(state)


def test_a_state_within_a_state_must_be_declared():
    @dataclass(frozen=True)
    class Undeclared:
        inner: Inner

    with pytest.raises(TypeError, match=r"field inner of Undeclared.*holding"):
        to_arrays(Undeclared(Inner(1)))


def test_arrays_of_another_state_are_refused():
    with pytest.raises(TypeError, match="Inner has no field name"):
        from_arrays(Inner, to_arrays(Outer(1)))


# -- composition -----------------------------------------------------------------------------------------------------


def test_named_steps_are_their_generators_one_after_the_other():
    def chain(named):
        known = yield from named(spectral_init(40, 4, seed=7))
        known = yield from named(nmf(known, 3))
        known = yield from named(threshold_search(known))
        return (yield from named(refine(known, rounds=3, seed=7)))

    shards = list(SHARDS.values())
    plain, named = (drive(chain(n), shards).solution for n in (lambda g: g, lambda g: step("x", g)))
    np.testing.assert_array_equal(named.components, plain.components)
    np.testing.assert_array_equal(named.relaxed, plain.relaxed)
    assert named.value == plain.value


def refined_from(V):
    return refine(Solution(components=V), rounds=1)


def test_the_best_of_several_is_taken_and_the_first_of_equals():
    shards = list(SHARDS.values())
    far, near = np.zeros_like(DATA.V), DATA.V
    for order in ([far, near], [near, far], [near, near, far]):
        values = [drive(refined_from(V), shards).solution.value for V in order]
        driven = drive(best_of(*map(refined_from, order)), shards)
        assert driven.solution.value == min(values)
        ended = [
            drive(best_of(*map(refined_from, order)), shards, stop_after=t).solution.value
            for t in range(1, driven.rounds)
        ]
        assert sorted(ended, reverse=True) == ended, "what is handed on never gets worse"


def test_a_step_that_was_ended_hands_on_the_best_of_those_before():
    def unlucky():
        raise TimeUp
        yield

    found = Solution(components=DATA.V, value=3.0)

    def lucky():
        return found
        yield

    with pytest.raises(TimeUp) as up:
        drive(best_of(lucky(), unlucky()), [DATA.A])
    assert up.value.found is found


# -- runs ------------------------------------------------------------------------------------------------------------


def test_refinement_alone_is_an_algorithm_that_starts_from_any_v():
    V = DATA.V ^ (np.random.default_rng(0).random(DATA.V.shape) < 0.1)
    finished = run(algorithm_of(lambda seed: refine(Solution(components=V), rounds=20, seed=seed), 40), SHARDS)
    before = confusion(DATA.A, assign_rows(DATA.A, V), V).errors
    assert finished.outcome.counts.errors < before
    assert finished.outcome.converged


@pytest.mark.parametrize(
    "options",
    [{}, {"objective": "hamming"}, {"objective": "f1"}, {"objective": "recover"}, {"false_positive_cost": 2.5}],
    ids=str,
)
def test_no_split_shows_in_the_outcome(options):
    centralized = run(made(**options), {"all": DATA.A}, seed=3)
    for labels in (partition.uneven(150, 50, seed=2), partition.by_component(DATA.U, 20)):
        shards, rows = split(DATA.A, labels)
        shared = run(made(**options), shards, seed=3)
        np.testing.assert_array_equal(shared.outcome.components, centralized.outcome.components)
        np.testing.assert_array_equal(shared.outcome.relaxed, centralized.outcome.relaxed)
        assert shared.outcome.counts == centralized.outcome.counts
        assert shared.outcome.weights == centralized.outcome.weights
        for name, U in shared.assignments.items():
            np.testing.assert_array_equal(U, centralized.assignments["all"][rows[name]])


@pytest.mark.parametrize("compact", [0, 1 << 30])
@pytest.mark.parametrize("sampled", [False, True])
def test_resuming_from_any_round_ends_the_same(sampled, compact, tmp_path, monkeypatch):
    monkeypatch.setattr("felb.federated.journal.COMPACT_BYTES", compact)
    options = {"seed": 5}
    if sampled:
        options["participation"] = Participation(fraction=0.6, dropout=0.1)
    algorithm = made(objective="f1", sampled=sampled)
    whole = run(algorithm, SHARDS, **options)
    for after in range(1, whole.outcome.n_iter + 2, 3 if sampled else 11):
        again = resumed(algorithm, SHARDS, tmp_path / str(after), after=after, **options)
        np.testing.assert_array_equal(again.outcome.components, whole.outcome.components)
        assert again.outcome.counts == whole.outcome.counts
        # NaN is not equal to itself, but is written alike.
        assert str(list(again.history)) == str(list(whole.history))
        for name, U in whole.assignments.items():
            np.testing.assert_array_equal(again.assignments[name], U)


def test_ended_at_any_round_it_has_a_valid_result():
    whole = run(made(), SHARDS)
    errors = []
    for rounds in range(0, len(whole.history) - 1, 4):
        outcome = run(made(), SHARDS, deadline=After(rounds)).outcome
        assert outcome.components.shape == (4, 40)
        assert outcome.components.dtype == bool
        assert outcome.supports.shape == (4,)
        assert (outcome.n_iter, outcome.complete) == (rounds, False)
        errors.append(outcome.counts.errors)
    # A recovery that is taken in the end may have some more errors than the fit.
    assert whole.outcome.counts.errors <= 1.05 * min(errors)
    assert len(errors) > 5


def test_rounds_are_numbered_through():
    finished = run(made(objective="hamming"), SHARDS)
    assert [row["round"] for row in finished.history] == list(range(finished.outcome.n_iter + 1))
    first = ["gram_sketch"] * 3 + ["sign_norms", "flip_gains", "factor_statistics"]
    assert [row["task"] for row in finished.history[:6]] == first
    assert finished.history[-1]["task"] == "assign"


def test_the_last_assignment_is_the_best_for_the_weights():
    finished = run(made(false_positive_cost=3.0), SHARDS)
    assert finished.outcome.weights == (1.0, -3.0)
    for name, U in finished.assignments.items():
        best, proven = assign_rows_exact(SHARDS[name], finished.outcome.components, weight_zero=-3.0, node_cap=10**6)
        assert proven.all()
        cost = Cost(false_positive=3.0)
        values = [cost.value(confusion(SHARDS[name], u, finished.outcome.components)) for u in (U, best)]
        assert values[0] == values[1]


def test_what_leaves_are_integers_of_shapes_that_do_not_depend_on_the_rows():
    log = []
    run(made(), SHARDS, outbound=lambda name: log.append)
    assert len({len(shard) for shard in SHARDS.values()}) == 6
    shapes = {}
    for record in log:
        shapes.setdefault((record.round, record.what), set()).add(record.shape)
    assert all(len(found) == 1 for found in shapes.values())
    assert {record.dtype for record in log} == {"int64"}


def test_a_task_changes_nothing_it_was_given():
    algorithm, shard, seen = made(), SHARDS["0"], []

    def watched(spec):
        def do(work):
            before = {} if work.state is None else {name: a.copy() for name, a in to_arrays(work.state).items()}
            first, second = (spec.do(replace(work, rng=np.random.default_rng(0))) for _ in range(2))
            for name, value in first[1].values.items():
                np.testing.assert_array_equal(value, second[1].values[name])
            for name, array in before.items():
                np.testing.assert_array_equal(array, to_arrays(work.state)[name])
            seen.append(spec.name)
            return spec.do(work)

        return replace(spec, do=do)

    tasks = {name: watched(spec) for name, spec in algorithm.tasks.items()}
    run(replace(algorithm, tasks=tasks), {"0": shard})
    assert len(set(seen)) >= 10


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objective": "moon"}, "unknown objective 'moon'"),
        ({"effort": "none"}, "unknown effort 'none'"),
        ({"objective": "f1", "false_negative_cost": 2.0}, "leave both costs at 1"),
        ({"objective": "recover", "false_negative_cost": 2.0}, "leave both costs at 1"),
        ({"false_positive_cost": 0.0}, "false_positive_cost must be a positive"),
        ({"node_cap": 0}, "node_cap"),
    ],
)
def test_parameters_are_checked_at_the_edge(wrong, message):
    with pytest.raises(InputError, match=message):
        made(**wrong)


def test_counts_of_what_is_known_are_those_of_the_components():
    fit = BooleanFit(40, 4, Cost(), "hamming", replace(QUICK, tries=0))
    known = drive(fit.search(0), list(SHARDS.values())).solution
    U = assign_rows(DATA.A, known.components)
    assert Counts(*known.counts) == confusion(DATA.A, U, known.components)
    np.testing.assert_array_equal(known.supports, U.sum(axis=0))
