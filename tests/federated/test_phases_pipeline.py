"""Phases put together: chains, portfolios, nested states, and runs that stop or resume anywhere."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from phase_loop import play

from felb.datasets import partition, planted
from felb.datasets.shards import split
from felb.engines import Participation, run
from felb.engines.checkpoint import load_snapshot, save_snapshot
from felb.errors import InputError
from felb.federated.phases.base import Known
from felb.federated.phases.objective import Cost
from felb.federated.phases.pipeline import Best, Chain, pipeline
from felb.federated.phases.refine import Refine
from felb.federated.phases.relaxed import Relaxed
from felb.federated.phases.start import Start
from felb.federated.phases.thresholds import Thresholds
from felb.federated.recipes.sums import Effort, federated_bmf
from felb.federated.state import from_arrays, holding, to_arrays
from felb.linalg.assign import assign_rows
from felb.linalg.exact import assign_rows_exact
from felb.metrics import Counts, confusion

DATA = planted(150, 40, 4, noise=0.1, seed=1)
SHARDS, _ = split(DATA.A, partition.uneven(150, 6, seed=1))
QUICK = Effort(relaxed_rounds=4, refine_rounds=4, tries=2)


def recipe(**options):
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


def test_a_chain_is_its_phases_one_after_the_other():
    phases = Start(40, 4), Relaxed(3), Thresholds(), Refine(rounds=3)
    known = Known()
    shards = list(SHARDS.values())
    for phase in phases:
        known = phase.result(play(phase, shards, known, seed=7)[-1])
    chained = Chain(*phases)
    found = chained.result(play(chained, shards, seed=7)[-1])
    np.testing.assert_array_equal(found.components, known.components)
    np.testing.assert_array_equal(found.relaxed, known.relaxed)
    assert found.value == known.value


def test_phases_that_have_nothing_to_ask_are_passed_over():
    @dataclass(frozen=True)
    class Silent:
        name: str = "silent"
        state_type: type = Outer
        tasks: dict = field(default_factory=dict)

        def start(self, known, seed):
            return Outer(1)

        def broadcast(self, state):
            return None

        def result(self, state):
            return Known(components=DATA.V, value=3.0)

    chain = Chain(Silent(), Silent())
    state = chain.start(Known(), 0)
    assert chain.broadcast(state) is None
    assert chain.result(state).value == 3.0
    assert chain.record(state) == {}


def given(V):
    """A chain that starts from V, whatever was known before."""

    @dataclass(frozen=True)
    class Given(Refine):
        def start(self, known, seed):
            return super().start(Known(components=V), seed)

    return Given(rounds=1)


def test_the_best_of_several_is_taken_and_the_first_of_equals():
    shards = list(SHARDS.values())
    far, near = np.zeros_like(DATA.V), DATA.V
    for order in ([far, near], [near, far], [near, near, far]):
        phase = Best(*(given(V) for V in order))
        states = play(phase, shards)
        values = [g.result(play(g, shards)[-1]).value for g in map(given, order)]
        assert phase.result(states[-1]).value == min(values)
        assert phase.broadcast(states[-1]) is None
        results = [phase.result(state).value for state in states[1:]]
        assert sorted(results, reverse=True) == results


def test_a_word_means_one_thing():
    @dataclass(frozen=True)
    class Other(Refine):
        @property
        def tasks(self):
            return {"gains": lambda *args: None}

    with pytest.raises(InputError, match="different things by the task 'gains'"):
        Chain(Refine(), Other())
    with pytest.raises(InputError, match="at least one phase"):
        Chain()


# -- runs ------------------------------------------------------------------------------------------------------------


def test_refinement_alone_is_a_recipe_that_starts_from_any_v():
    V = DATA.V ^ (np.random.default_rng(0).random(DATA.V.shape) < 0.1)
    finished = run(pipeline("refine", Refine(rounds=20), known=Known(components=V)), SHARDS)
    before = confusion(DATA.A, assign_rows(DATA.A, V), V).errors
    assert finished.outcome.counts.errors < before
    assert finished.outcome.converged


@pytest.mark.parametrize(
    "options",
    [{}, {"objective": "hamming"}, {"objective": "f1"}, {"objective": "recover"}, {"false_positive_cost": 2.5}],
    ids=str,
)
def test_no_split_shows_in_the_outcome(options):
    pooled = run(recipe(**options), {"all": DATA.A}, seed=3)
    for labels in (partition.uneven(150, 50, seed=2), partition.by_component(DATA.U, 20)):
        shards, rows = split(DATA.A, labels)
        shared = run(recipe(**options), shards, seed=3)
        np.testing.assert_array_equal(shared.outcome.components, pooled.outcome.components)
        np.testing.assert_array_equal(shared.outcome.relaxed, pooled.outcome.relaxed)
        assert shared.outcome.counts == pooled.outcome.counts
        assert shared.outcome.weights == pooled.outcome.weights
        for name, U in shared.assignments.items():
            np.testing.assert_array_equal(U, pooled.assignments["all"][rows[name]])


@pytest.mark.parametrize("sampled", [False, True])
def test_resuming_from_any_round_ends_the_same(sampled, tmp_path):
    options = {"seed": 5}
    if sampled:
        options["participation"] = Participation(fraction=0.6, dropout=0.1)
    made = recipe(objective="f1", sampled=sampled)
    snapshots = []
    whole = run(made, SHARDS, on_round=snapshots.append, **options)
    assert len(snapshots) == whole.outcome.n_iter + 1
    for i, snapshot in enumerate(snapshots[:: 1 if sampled else 3]):
        path = tmp_path / f"{i}.npz"
        save_snapshot(path, snapshot)
        resumed = run(made, SHARDS, resume=load_snapshot(path, made), **options)
        np.testing.assert_array_equal(resumed.outcome.components, whole.outcome.components)
        assert resumed.outcome.counts == whole.outcome.counts
        # NaN is not equal to itself, but is written alike.
        assert str(list(resumed.history)) == str(list(whole.history))
        for name, U in whole.assignments.items():
            np.testing.assert_array_equal(resumed.assignments[name], U)


def test_every_round_has_a_valid_outcome():
    made = recipe()
    with pytest.raises(InputError, match="not a single round"):
        made.server.outcome(made.server.start(0))
    outcomes = []
    run(made, SHARDS, on_round=lambda snapshot: outcomes.append(made.server.outcome(snapshot.server)))
    for outcome in outcomes:
        assert outcome.components.shape == (4, 40)
        assert outcome.components.dtype == bool
        assert outcome.supports.shape == (4,)
    losses = [outcome.counts.errors for outcome in outcomes if outcome.counts.cells]
    # A recovery that is taken in the end may have some more errors than the fit.
    assert losses[-1] <= 1.05 * min(losses)
    assert len(losses) > 5


def test_rounds_are_numbered_through():
    finished = run(recipe(objective="hamming"), SHARDS)
    assert [row["round"] for row in finished.history] == list(range(finished.outcome.n_iter + 1))
    assert [row["task"] for row in finished.history[:5]] == ["sketch"] * 3 + ["signs", "sweep"]
    assert finished.history[-1]["task"] == "assign"


def test_the_last_assignment_is_the_best_for_the_weights():
    finished = run(recipe(false_positive_cost=3.0), SHARDS)
    assert finished.outcome.weights == (1.0, -3.0)
    for name, U in finished.assignments.items():
        best, proven = assign_rows_exact(SHARDS[name], finished.outcome.components, weight_zero=-3.0, node_cap=10**6)
        assert proven.all()
        cost = Cost(false_positive=3.0)
        values = [cost.value(confusion(SHARDS[name], u, finished.outcome.components)) for u in (U, best)]
        assert values[0] == values[1]


def test_what_leaves_are_integers_of_shapes_that_do_not_depend_on_the_rows():
    log = []
    run(recipe(), SHARDS, outbound=lambda name: log.append)
    assert len({len(shard) for shard in SHARDS.values()}) == 6
    shapes = {}
    for record in log:
        shapes.setdefault((record.round, record.what), set()).add(record.shape)
    assert all(len(found) == 1 for found in shapes.values())
    assert {record.dtype for record in log} == {"int64"}


def test_a_step_changes_nothing_it_was_given():
    made = recipe()
    snapshots = []
    run(made, SHARDS, on_round=snapshots.append)
    for snapshot in snapshots[:-1]:
        broadcast = made.server.broadcast(snapshot.server)
        shard, state = SHARDS["0"], snapshot.clients.get("0")
        before = None if state is None else {name: array.copy() for name, array in to_arrays(state).items()}
        first, second = (made.client.step(state, shard, broadcast, rng=np.random.default_rng(0)) for _ in range(2))
        for name, value in first[1].values.items():
            np.testing.assert_array_equal(value, second[1].values[name])
        for name, array in (before or {}).items():
            np.testing.assert_array_equal(array, to_arrays(state)[name])


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
        recipe(**wrong)


def test_counts_of_what_is_known_are_those_of_the_components():
    made = recipe(objective="hamming", effort=replace(QUICK, tries=0))
    snapshots = []
    run(made, SHARDS, on_round=snapshots.append)
    known = made.server.phase.result(snapshots[-1].server.phase)
    U = assign_rows(DATA.A, known.components)
    assert Counts(*known.counts) == confusion(DATA.A, U, known.components)
    np.testing.assert_array_equal(known.supports, U.sum(axis=0))
