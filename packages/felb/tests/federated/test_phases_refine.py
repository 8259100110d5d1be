"""Refinement and revival from any Boolean V, against loops over cells."""

import itertools

import numpy as np
import pytest
from driving import cut, drive
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.data import planted
from felb.errors import InputError
from felb.federated.steps.refine import REFINE_ROUNDS, choose_flips, refine
from felb.federated.steps.reseed import make_candidates, reseed
from felb.federated.steps.state import Cost, NegativeF1, Solution
from felb.kernels.assign import assign_rows
from felb.metrics import Counts, confusion

DATA = planted(300, 40, 5, noise=0.1, seed=5)
SPLIT = cut(DATA.A, 3, 50, 51, 200)
OBJECTIVES = [Cost(), Cost(2.0, 1.0), Cost(0.7, 1.9), NegativeF1()]


def disturbed(seed, flips=0.2):
    rng = np.random.default_rng(seed)
    return Solution(components=DATA.V ^ (rng.random(DATA.V.shape) < flips))


def value_at(objective, V, weights):
    U = assign_rows(DATA.A, V, weight_one=weights[0], weight_zero=weights[1])
    return objective.value(confusion(DATA.A, U, V))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_the_summed_loss_never_rises_and_is_that_of_the_result(objective, seed):
    driven = drive(refine(disturbed(seed), objective, seed=seed), SPLIT)
    losses = [row["loss"] for row in driven.rows]
    assert all(b <= a for a, b in itertools.pairwise(losses))
    assert losses[-1] < losses[0]
    found = driven.solution
    assert found.value == losses[-1] == objective.value(Counts(*found.counts))
    assert driven.rounds <= REFINE_ROUNDS + 1
    if isinstance(objective, Cost):
        assert found.value == value_at(objective, found.components, objective.weights(None))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_no_split_shows(objective):
    centralized, split, rows = (
        drive(refine(disturbed(1), objective, seed=4), shards).solution
        for shards in ([DATA.A], SPLIT, cut(DATA.A, *range(1, 60)))
    )
    for other in (split, rows):
        np.testing.assert_array_equal(other.components, centralized.components)
        np.testing.assert_array_equal(other.counts, centralized.counts)
        np.testing.assert_array_equal(other.exclusive, centralized.exclusive)
        assert other.value == centralized.value


@pytest.mark.parametrize("objective", [Cost(), Cost(2.0, 1.0)], ids=str)
def test_where_it_settles_no_single_flip_helps(objective):
    found = drive(refine(disturbed(2), objective, rounds=60, seed=1), SPLIT).solution
    assert found.settled
    weights = objective.weights(None)
    U = assign_rows(DATA.A, found.components, weight_one=weights[0], weight_zero=weights[1])
    for c, j in np.ndindex(found.components.shape):
        other = found.components.copy()
        other[c, j] ^= True
        assert objective.value(confusion(DATA.A, U, other)) >= found.value
    for c in range(5):
        without = found.components.copy()
        without[c] = False
        lost = objective.value(confusion(DATA.A, U, without)) - found.value
        assert lost == found.exclusive[c]


def test_unbalanced_costs_shift_the_balance():
    counts = {}
    for cost in (0.25, 1.0, 4.0):
        found = drive(refine(disturbed(0), Cost(false_positive=cost), rounds=20), SPLIT).solution
        counts[cost] = Counts(*found.counts)
    assert counts[0.25].fp > counts[1.0].fp > counts[4.0].fp
    assert counts[0.25].fn < counts[1.0].fn < counts[4.0].fn


def test_objective_f1_raises_f1():
    first = drive(refine(disturbed(0)), SPLIT).solution
    second = drive(refine(first, NegativeF1()), SPLIT).solution
    assert Counts(*second.counts).f1 >= Counts(*first.counts).f1
    assert -second.value == Counts(*second.counts).f1
    F = Counts(*second.counts).f1
    np.testing.assert_allclose(second.weights, (1 - F / 2, -F / 2), atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000))
def test_safe_flips_are_improving_and_include_the_best_of_each_column(seed):
    rng = np.random.default_rng(seed)
    gains, V = rng.integers(-4, 5, (4, 9)).astype(float), rng.random((4, 9)) < 0.5
    flips = choose_flips(gains, V, np.random.default_rng(seed))
    improvement = np.where(V, -gains, gains)
    assert (improvement[flips] > 0).all()
    for j in range(9):
        best = improvement[:, j].max()
        assert flips[:, j].any() == (best > 0)
        assert best <= 0 or flips[improvement[:, j].argmax(), j]


def test_averaged_gains_keep_the_last_v():
    driven = drive(refine(disturbed(0), memory=0.5, rounds=15), SPLIT)
    assert driven.solution.value == driven.rows[-1]["measured"]
    assert driven.rows[-1]["measured"] < driven.rows[0]["measured"]


# -- reseeding ---------------------------------------------------------------------------------------------------------


def stuck():
    """One planted component is missing and another is there twice."""
    V = DATA.V.copy()
    V[3] = V[0]
    return drive(refine(Solution(components=V)), SPLIT).solution


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_reseeding_finds_what_is_missing_and_keeps_only_what_helps(objective):
    known = drive(refine(stuck(), objective), SPLIT).solution
    driven = drive(reseed(known, objective, seed=2), SPLIT)
    losses = [known.value, *(row["loss"] for row in driven.rows)]
    assert all(b <= a for a, b in itertools.pairwise(losses))
    assert losses[-1] < losses[0]
    found = driven.solution
    assert objective.value(Counts(*found.counts)) == found.value
    if objective == Cost():
        assert min(np.count_nonzero(v ^ DATA.V[3]) for v in found.components) <= 2


def test_no_split_shows_in_reseeding():
    a, b = (drive(reseed(stuck(), NegativeF1(), tries=4, seed=2), shards).solution for shards in ([DATA.A], SPLIT))
    np.testing.assert_array_equal(a.components, b.components)
    assert a.value == b.value


def test_an_unfinished_try_does_not_count():
    known = stuck()
    rows = drive(reseed(known), SPLIT).rows
    unfinished = next(number for number, row in enumerate(rows) if row["tries"] > 1)
    assert unfinished >= 3  # residual counts, pair counts, candidate gains, and then at least one refinement
    for stop_after in range(unfinished + 1):
        assert drive(reseed(known), SPLIT, stop_after=stop_after).solution is known


def test_a_perfect_cover_leaves_nothing_to_reseed():
    clean = planted(60, 20, 1, density=1.0, seed=0)
    V = np.vstack([clean.V, clean.V])
    known = drive(refine(Solution(components=V)), [clean.A]).solution
    assert drive(reseed(known), [clean.A]).solution.value == 0


def test_candidates_follow_their_definition():
    left = np.array([10, 8, 2, 0])
    found = make_candidates(np.array([[10, 7, 2, 0]]), left, np.array([0]), n_rows=100)
    expected = {(True, True, False, False), (True, True, True, False), (True, False, False, False)}
    assert {tuple(row) for row in found} == expected


@pytest.mark.parametrize("wrong", [{"tries": -1}, {"patience": 0}, {"rounds": -1}, {"n_seeds": 0}])
def test_impossible_settings(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        drive(reseed(stuck(), **wrong), SPLIT)


@pytest.mark.parametrize("wrong", [0, -1, np.nan, np.inf])
def test_costs_are_positive_numbers(wrong):
    with pytest.raises(InputError, match="false_positive_cost"):
        Cost(false_positive=wrong)


def test_refinement_and_reseeding_need_components():
    with pytest.raises(InputError, match="needs a V"):
        drive(refine(Solution()), SPLIT)
    with pytest.raises(InputError, match="exclusive gains"):
        drive(reseed(Solution(components=DATA.V)), SPLIT)
