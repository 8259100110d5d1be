"""Belief propagation as a phase: against a loop over centralized data, over any split, stopped, resumed and chosen."""

import numpy as np
import pytest
from driving import cut, drive, resumed

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.algorithms.bmf import Effort, federated_bmf
from felb.federated.journal import from_arrays, to_arrays
from felb.federated.steps.belief import (
    TRIAL_ROUNDS,
    choose_recovery_or_fit,
    may_pay,
    propagate_beliefs,
    recover_if_it_may_pay,
)
from felb.federated.steps.relaxed import LEVELS, cuts, nmf, threshold_search
from felb.federated.steps.starts import spectral_init
from felb.federated.steps.state import NegativeLogLikelihood, Solution, better_of
from felb.metrics import Counts, confusion
from felb.optim.belief import Belief, assign_new_rows, infer_new_rows, recover

DATA = planted(400, 40, 4, noise=0.2, seed=1)
SHARDS = cut(DATA.A, 3, 50, 51, 300)
QUICK = Effort(relaxed_rounds=4, refine_rounds=3, tries=0, generations=1)


def relaxed(shards=SHARDS):
    return drive(nmf(drive(spectral_init(40, 4, seed=0), shards).solution, 4), shards).solution


@pytest.fixture(scope="module")
def started():
    return drive(threshold_search(relaxed()), SHARDS).solution


@pytest.fixture(scope="module")
def driven(started):
    return drive(propagate_beliefs(started), SHARDS)


# -- the start -------------------------------------------------------------------------------------------------------


def test_the_start_is_the_likeliest_pair_of_thresholds():
    known = relaxed([DATA.A])
    found = drive(threshold_search(known), [DATA.A])
    belief, sums = found.solution.belief, found.sums[-1]
    loss = NegativeLogLikelihood()
    grid = {}
    for (a, b), tp in np.ndenumerate(sums["covered"]):
        claimed = sums["claimed"][a, b]
        grid[a, b] = loss.value(Counts(tp, claimed - tp, DATA.A.nnz - tp, DATA.A.shape[0] * DATA.A.shape[1]))
    a, b = min(grid, key=grid.get)
    np.testing.assert_array_equal(belief.components, cuts(known.relaxed, known.scales, np.array(LEVELS))[b])
    assert belief.inside == pytest.approx((sums["covered"][a, b] + 1) / (sums["claimed"][a, b] + 2))
    assert belief.row_rates[0] == pytest.approx(np.clip(sums["members"][a] / (400 * 4), 0.02, 0.1))


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


def test_it_is_the_loop_over_centralized_data(started, driven):
    centralized = recover([DATA.A], started.belief)
    found = driven.solution
    np.testing.assert_array_equal(found.belief.theta, centralized.belief.theta)
    np.testing.assert_array_equal(found.components, centralized.V)
    np.testing.assert_array_equal(found.weights, centralized.belief.weights)
    assert found.settled == centralized.belief.converged
    asked = [Belief.from_values(request.values).rounds for request in driven.requests]
    assert asked == list(range(driven.rounds))
    assert found.belief.rounds == driven.rounds - 1


def test_counts_are_those_of_the_decision(driven):
    found = driven.solution
    U = assign_new_rows(DATA.A, found.belief)
    assert Counts(*found.counts) == confusion(DATA.A, U, found.components)
    assert found.value == Counts(*found.counts).errors


def test_the_truth_comes_back(driven):
    found = driven.solution
    assert confusion(DATA.signal, assign_new_rows(DATA.A, found.belief), found.components).f1 > 0.8


def test_rows_inferred_anew_say_what_rows_of_the_rounds_say(started, driven):
    centralized = recover([DATA.A], started.belief)
    anew = infer_new_rows(DATA.A, driven.solution.belief)
    assert np.mean((anew > 0) != (centralized.rows[0] > 0)) < 0.01
    np.testing.assert_array_equal(anew[7:9], infer_new_rows(DATA.A.rows(7, 9), driven.solution.belief))


def test_a_belief_without_a_threshold_assigns_nothing(started):
    with pytest.raises(InputError, match="no threshold"):
        assign_new_rows(DATA.A, started.belief)


def test_a_belief_survives_being_sent_and_stored(started, driven):
    belief = driven.solution.belief
    for back in (Belief.from_values(belief.to_values()), from_arrays(Belief, to_arrays(belief))):
        np.testing.assert_array_equal(back.theta, belief.theta)
        assert (back.inside, back.outside, back.threshold) == (belief.inside, belief.outside, belief.threshold)
    assert Belief.from_values(started.belief.to_values()).threshold is None


def test_limits(started):
    played = drive(propagate_beliefs(started, 2), SHARDS)
    assert played.rounds == 3
    assert not played.solution.settled
    with pytest.raises(InputError, match="one round"):
        drive(propagate_beliefs(started, 0), SHARDS)
    with pytest.raises(InputError, match="needs a belief"):
        drive(propagate_beliefs(Solution()), SHARDS)


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
        Solution(components=DATA.V, counts=None if c is None else np.array([*c, 1000])) for c in (fit, recovery)
    )
    assert choose_recovery_or_fit(fitted, recovered) is (recovered if taken else fitted)


def test_a_rule_of_its_own_decides_between_steps(started):
    steps = propagate_beliefs(started, 1), propagate_beliefs(started, 2)
    assert drive(better_of(started, *steps, better=lambda old, new: new), SHARDS).solution.belief.rounds == 2


# -- the trial -------------------------------------------------------------------------------------------------------


def fitted_with(*counts):
    return Solution(components=DATA.V, counts=np.array([*counts, DATA.A.shape[0] * DATA.A.shape[1]]))


def tried(known, fitted, shards, *, most_work=1 << 28):
    return drive(recover_if_it_may_pay(known, fitted, rounds=9, most_work=most_work), shards)


def test_the_trial_decides_whether_beliefs_are_propagated(started):
    ones = DATA.A.nnz
    close = tried(started, fitted_with(ones // 10, 0, ones - ones // 10), SHARDS)
    assert close.rounds > TRIAL_ROUNDS + 1
    whole = drive(propagate_beliefs(started, 9), SHARDS).solution
    np.testing.assert_array_equal(close.solution.belief.theta, whole.belief.theta)
    hopeless = tried(started, fitted_with(ones, 1, 0), SHARDS)
    assert hopeless.rounds == TRIAL_ROUNDS + 1
    assert hopeless.solution.counts is None


def test_too_much_work_is_not_even_tried(started):
    assert tried(started, fitted_with(9, 9, 9), SHARDS, most_work=400 * 40 * 4 - 1).rounds == 0
    assert tried(started, fitted_with(9, 9, 9), SHARDS, most_work=400 * 40 * 4).rounds > 0


def test_the_trial_does_not_depend_on_the_split(monkeypatch, started):
    monkeypatch.setattr("felb.federated.steps.belief.TRIAL_ROWS", 100)
    fitted = fitted_with(DATA.A.nnz, 1, 0)
    centralized, cut_up = tried(started, fitted, [DATA.A]), tried(started, fitted, SHARDS)
    assert centralized.rounds == cut_up.rounds == TRIAL_ROUNDS + 1
    for one, other in zip(centralized.sums, cut_up.sums, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
    assert 50 < int(centralized.sums[0]["rows"]) < 160


@pytest.mark.parametrize(
    ("trial", "fit", "pays"),
    [
        ((80, 7, 20), (800, 40, 200), True),  # 1.125 times the errors for each one
        ((80, 9, 20), (800, 40, 200), False),  # 1.21 times, and a smaller F1
        ((90, 110, 10), (100, 0, 900), True),  # far larger F1
        ((0, 0, 0), (100, 0, 900), False),  # no rows
        ((0, 0, 100), (30, 0, 970), False),  # nothing is covered, which is close to the fit of very sparse data
    ],
)
def test_what_may_pay(trial, fit, pays):
    assert may_pay(Counts(*trial, 1000), Counts(*fit, 10_000)) is pays


# -- the method ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["recover", "auto"])
def test_resuming_from_any_round_ends_the_same(objective, tmp_path):
    made = federated_bmf(40, 4, objective=objective, effort=QUICK)
    shards, _ = split(DATA.A, partition.uneven(400, 5, seed=0))
    whole = run(made, shards)
    assert whole.history[-1]["task"] == "assign_by_belief"
    for after in range(1, len(whole.history) + 1, 9):
        again = resumed(made, shards, tmp_path / str(after), after=after)
        np.testing.assert_array_equal(again.outcome.belief.theta, whole.outcome.belief.theta)
        assert again.outcome.counts == whole.outcome.counts
        for name, U in whole.assignments.items():
            np.testing.assert_array_equal(again.assignments[name], U)


def test_ended_at_any_round_it_has_components(started):
    for stop_after in range(5):
        found = drive(propagate_beliefs(started), SHARDS, stop_after=stop_after).solution
        assert found.components.shape == (4, 40)
        assert found.belief.rounds == stop_after


def test_what_leaves_are_integers_of_shapes_that_do_not_depend_on_the_rows():
    log = []
    shards, _ = split(DATA.A, partition.uneven(400, 5, seed=0))
    run(federated_bmf(40, 4, objective="recover", effort=QUICK), shards, outbound=lambda name: log.append)
    shapes = {}
    for record in log:
        shapes.setdefault((record.round, record.what), set()).add(record.shape)
    assert all(len(found) == 1 for found in shapes.values())
    assert {record.dtype for record in log} == {"int64"}
