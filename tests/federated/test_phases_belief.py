"""Belief propagation as a phase: against a loop over pooled data, over any split, stopped, resumed and chosen."""

import numpy as np
import pytest
from phase_loop import cut, play

from felb.datasets import partition, planted
from felb.datasets.shards import split
from felb.engines import run
from felb.engines.checkpoint import load_snapshot, save_snapshot
from felb.errors import InputError
from felb.federated.phases.base import Known
from felb.federated.phases.belief import Propagation, recovered_or_fitted
from felb.federated.phases.objective import NegativeLogLikelihood
from felb.federated.phases.pipeline import Best, Chain
from felb.federated.phases.relaxed import Relaxed
from felb.federated.phases.start import Start
from felb.federated.phases.thresholds import LEVELS, Thresholds, cuts
from felb.federated.recipes.sums import Effort, federated_bmf
from felb.federated.state import from_arrays, to_arrays
from felb.metrics import Counts, confusion
from felb.optim.belief import Belief, assign_new_rows, infer_new_rows, recover

DATA = planted(400, 40, 4, noise=0.2, seed=1)
SHARDS = cut(DATA.A, 3, 50, 51, 300)
QUICK = Effort(relaxed_rounds=4, refine_rounds=3, tries=0)


@pytest.fixture(scope="module")
def started():
    chain = Chain(Start(40, 4), Relaxed(4), Thresholds())
    return chain.result(play(chain, SHARDS)[-1])


@pytest.fixture(scope="module")
def states(started):
    return play(Propagation(), SHARDS, started)


# -- the start -------------------------------------------------------------------------------------------------------


def test_the_start_is_the_likeliest_pair_of_thresholds():
    chain = Chain(Start(40, 4), Relaxed(4))
    relaxed = chain.result(play(chain, [DATA.A])[-1])
    phase = Thresholds()
    state = play(phase, [DATA.A], relaxed)[-1]
    belief = phase.result(state).belief
    loss = NegativeLogLikelihood()
    grid = {}
    for (a, b), tp in np.ndenumerate(state.covered):
        claimed = state.claimed[a, b]
        grid[a, b] = loss.value(Counts(tp, claimed - tp, DATA.A.nnz - tp, DATA.A.shape[0] * DATA.A.shape[1]))
    a, b = min(grid, key=grid.get)
    np.testing.assert_array_equal(belief.components, cuts(relaxed.relaxed, relaxed.scales, np.array(LEVELS))[b])
    assert belief.inside == pytest.approx((state.covered[a, b] + 1) / (state.claimed[a, b] + 2))
    assert belief.row_rates[0] == pytest.approx(np.clip(state.members[a] / (400 * 4), 0.02, 0.1))


def test_likelihood_of_counts_is_that_of_the_cells():
    rng = np.random.default_rng(0)
    A, R = rng.random((2, 30, 20)) < [[[0.4]], [[0.3]]]
    tp = int((A & R).sum())
    counts = Counts(tp, int(R.sum()) - tp, int(A.sum()) - tp, A.size)
    p = np.where(R, (tp + 1) / (R.sum() + 2), (counts.fn + 1) / (A.size - R.sum() + 2))
    loss = NegativeLogLikelihood()
    assert loss.value(counts) == pytest.approx(-np.log(np.where(A, p, 1 - p)).sum())
    assert loss.weights(None) == loss.weights(Counts(0, 10, 10, 100)) == (1.0, -1.0)
    one, zero = loss.weights(Counts(50, 10, 10, 200))
    assert zero < 0 < one


# -- rounds ----------------------------------------------------------------------------------------------------------


def test_it_is_the_loop_over_pooled_data(started, states):
    pooled = recover([DATA.A], started.belief)
    np.testing.assert_array_equal(states[-1].belief.theta, pooled.belief.theta)
    found = Propagation().result(states[-1])
    np.testing.assert_array_equal(found.components, pooled.V)
    np.testing.assert_array_equal(found.weights, pooled.belief.weights)
    assert found.settled == pooled.belief.converged
    assert [state.belief.rounds for state in states] == [*range(len(states) - 1), len(states) - 2]


def test_counts_are_those_of_the_decision(states):
    found = Propagation().result(states[-1])
    U = assign_new_rows(DATA.A, found.belief)
    assert Counts(*found.counts) == confusion(DATA.A, U, found.components)
    assert found.value == Counts(*found.counts).errors


def test_the_truth_comes_back(states):
    found = Propagation().result(states[-1])
    assert confusion(DATA.signal, assign_new_rows(DATA.A, found.belief), found.components).f1 > 0.8


def test_rows_inferred_anew_say_what_rows_of_the_rounds_say(started, states):
    pooled = recover([DATA.A], started.belief)
    anew = infer_new_rows(DATA.A, states[-1].belief)
    assert np.mean((anew > 0) != (pooled.rows[0] > 0)) < 0.01
    np.testing.assert_array_equal(anew[7:9], infer_new_rows(DATA.A.rows(7, 9), states[-1].belief))


def test_a_belief_without_a_threshold_assigns_nothing(started):
    with pytest.raises(InputError, match="no threshold"):
        assign_new_rows(DATA.A, started.belief)


def test_a_belief_survives_being_sent_and_stored(states):
    belief = states[-1].belief
    for back in (Belief.from_values(belief.to_values()), from_arrays(Belief, to_arrays(belief))):
        np.testing.assert_array_equal(back.theta, belief.theta)
        assert (back.inside, back.outside, back.threshold) == (belief.inside, belief.outside, belief.threshold)
    assert Belief.from_values(states[0].belief.to_values()).threshold is None


def test_limits(started):
    phase = Propagation(2)
    played = play(phase, SHARDS, started)
    assert len(played) == 4
    assert not phase.result(played[-1]).settled
    idle = Propagation(most_work=400 * 40 * 4 - 1)
    assert len(play(idle, SHARDS, started)) == 1
    assert idle.result(idle.start(started, 0)).counts is None
    assert len(play(Propagation(1, 400 * 40 * 4), SHARDS, started)) == 3
    with pytest.raises(InputError, match="at least one round"):
        Propagation(0)
    with pytest.raises(InputError, match="needs a belief"):
        Propagation().start(Known(), 0)


# -- the choice ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fit", "recovery", "taken"),
    [
        ((80, 50, 50), (80, 55, 50), True),  # 1.05 times the errors
        ((80, 50, 50), (75, 53, 55), False),  # more, and a smaller F1
        ((80, 50, 50), (90, 70, 40), True),  # 1.1 times, and a larger F1
        ((80, 50, 50), (90, 75, 40), False),  # more
        ((10, 0, 90), (90, 110, 10), True),  # far larger F1
        ((10, 0, 90), None, False),
    ],
)
def test_a_recovery_must_be_close_or_far_better(fit, recovery, taken):
    fitted, recovered = (
        Known(components=DATA.V, counts=None if c is None else np.array([*c, 1000])) for c in (fit, recovery)
    )
    assert recovered_or_fitted(fitted, recovered) is (recovered if taken else fitted)
    assert recovered_or_fitted(None, recovered) is recovered


def test_a_rule_of_its_own_decides_between_phases(started):
    last = Best(Propagation(1), Propagation(2), better=lambda old, new: new)
    assert last.result(play(last, SHARDS, started)[-1]).belief.rounds == 2


# -- the method ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["recover", "auto"])
def test_resuming_from_any_round_ends_the_same(objective, tmp_path):
    made = federated_bmf(40, 4, objective=objective, effort=QUICK)
    shards, _ = split(DATA.A, partition.uneven(400, 5, seed=0))
    snapshots = []
    whole = run(made, shards, on_round=snapshots.append)
    assert whole.history[-1]["task"] == "decide"
    for i, snapshot in enumerate(snapshots[::4]):
        save_snapshot(tmp_path / f"{i}.npz", snapshot)
        resumed = run(made, shards, resume=load_snapshot(tmp_path / f"{i}.npz", made))
        np.testing.assert_array_equal(resumed.outcome.belief.theta, whole.outcome.belief.theta)
        assert resumed.outcome.counts == whole.outcome.counts
        for name, U in whole.assignments.items():
            np.testing.assert_array_equal(resumed.assignments[name], U)
    for snapshot in snapshots:
        assert made.server.outcome(snapshot.server).components.shape == (4, 40)


def test_what_leaves_are_integers_of_shapes_that_do_not_depend_on_the_rows():
    log = []
    shards, _ = split(DATA.A, partition.uneven(400, 5, seed=0))
    run(federated_bmf(40, 4, objective="recover", effort=QUICK), shards, outbound=lambda name: log.append)
    shapes = {}
    for record in log:
        shapes.setdefault((record.round, record.what), set()).add(record.shape)
    assert all(len(found) == 1 for found in shapes.values())
    assert {record.dtype for record in log} == {"int64"}
