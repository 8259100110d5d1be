"""Belief propagation as a whole: it recovers what was planted, learns the noise, and cares not who has which rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from felb.data import BinaryMatrix, planted
from felb.errors import InputError
from felb.kernels.belief import UNIT
from felb.kernels.passes import factor_step, row_pass
from felb.metrics import confusion
from felb.optim import belief as module
from felb.optim.belief import (
    THRESHOLDS,
    Belief,
    add_sums,
    best_threshold,
    combine,
    count_thresholds,
    decide_rows,
    first_belief,
    first_rows,
    infer,
    known_components,
    learn_components,
    learn_rates,
    recover,
)
from felb.optim.steps import HalsStep


def start(A, k, *, cut=0.5):
    """Return a belief from a short non-negative factorization, cut halfway to the size of its large entries."""
    rng = np.random.default_rng(0)
    U, Vt = np.full((A.shape[0], k), 0.1, np.float32), rng.random((A.shape[1], k), dtype=np.float32)
    for _ in range(30):
        U, AtU, UtU = row_pass(A, U, Vt, rule=HalsStep(2))
        Vt = factor_step(Vt, AtU, UtU, rule=HalsStep(2))
    U, V = (cut * (X**2).sum(axis=0) / np.maximum(X.sum(axis=0), 1e-9) < X for X in (U, Vt))
    return belief_of(A, U, V.T)


def belief_of(A, U, V):
    counts = confusion(A, U, V)
    return first_belief(
        V,
        row_share=float(np.mean(U)),
        covered_ones=counts.tp,
        covered=counts.tp + counts.fp,
        ones=counts.tp + counts.fn,
        cells=counts.cells,
    )


@pytest.fixture(scope="module")
def noisy():
    """Return planted data in which a third of the cells is wrong, and a belief to start from."""
    data = planted(800, 120, 5, noise=0.3, heights=(0.15, 0.3), widths=(0.15, 0.3), seed=1)
    return data, start(data.A, 5)


def f1_star(data, found):
    return confusion(data.signal, found.U, found.V).f1


@pytest.mark.parametrize(
    ("kind", "noise", "least"),
    [("xor", 0.3, 0.9), ("additive", 0.3, 0.98), ("destructive", 0.3, 0.99), ("destructive", 0.6, 0.97)],
)
def test_planted_components_and_the_noise_are_recovered(kind, noise, least):
    data = planted(1000, 150, 5, noise=noise, kind=kind, heights=(0.1, 0.25), widths=(0.1, 0.25), seed=2)
    found = recover([data.A], start(data.A, 5))
    assert found.decision.recoverable
    assert f1_star(data, found) >= least
    A, S = data.A.toarray(), data.signal.toarray()
    assert found.belief.inside == pytest.approx(A[S].mean(), abs=0.02)
    assert found.belief.outside == pytest.approx(max(A[~S].mean(), 1e-3), abs=0.02)
    assert found.belief.column_rate == pytest.approx(data.V.mean(), abs=0.04)
    assert found.belief.row_rates.mean() == pytest.approx(data.U.mean(), abs=0.04)
    assert found.decision.expected_f1 == pytest.approx(f1_star(data, found), abs=0.05)


def test_it_is_better_than_its_start_and_nearly_as_good_as_knowing_the_components(noisy):
    data, belief = noisy
    found = recover([data.A], belief)
    given = recover([data.A], known_components(data.V, inside=belief.inside, outside=belief.outside), learn=learn_rates)
    np.testing.assert_array_equal(given.V, data.V)
    assert f1_star(data, found) > f1_star(data, given) - 0.02
    assert f1_star(data, found) > 0.9


@pytest.mark.parametrize("clients", [2, 7, 50])
def test_split_and_centralized_rows_give_identical_results(noisy, clients):
    data, belief = noisy
    rng = np.random.default_rng(clients)
    cuts = [0, *np.sort(rng.integers(0, 801, clients - 1)).tolist(), 800]  # some clients may have no rows
    shards = [data.A.rows(a, b) for a, b in pairwise(cuts)]
    centralized, split = recover([data.A], belief, threads=2), recover(shards, belief)
    np.testing.assert_array_equal(centralized.belief.theta, split.belief.theta)
    np.testing.assert_array_equal(centralized.rows[0], np.concatenate(split.rows))
    np.testing.assert_array_equal(centralized.belief.row_rates, split.belief.row_rates)
    assert (centralized.belief.inside, centralized.belief.outside) == (split.belief.inside, split.belief.outside)
    assert centralized.decision == split.decision


def test_a_broadcast_carries_all_that_clients_need(noisy):
    data, belief = noisy
    for _ in range(2):
        again = Belief.from_values({name: np.array(value) for name, value in belief.to_values().items()})
        for x, y in zip(infer(data.A, None, belief), infer(data.A, None, again), strict=True):
            np.testing.assert_equal(x, y)
        belief = combine(belief, infer(data.A, None, belief)[1])


@pytest.mark.parametrize("fill", [0, 1])
def test_constant_data(fill):
    A = BinaryMatrix.of(np.full((60, 30), fill))
    U, V = np.full((60, 3), fill, bool), np.full((3, 30), fill, bool)
    found = recover([A], belief_of(A, U, V))
    assert np.isfinite(found.belief.theta).all()
    if fill:
        assert confusion(A, found.U, found.V).f1 == 1
    else:
        assert not found.decision.recoverable


def test_pure_noise_has_no_recoverable_structure():
    rng = np.random.default_rng(3)
    A = BinaryMatrix.of(rng.random((300, 60)) < 0.5)
    found = recover([A], belief_of(A, rng.random((300, 2)) < 0.02, rng.random((2, 60)) < 0.05))
    assert not found.decision.recoverable


def test_empty_rows_and_columns_belong_to_nothing():
    data = planted(400, 80, 3, noise=0.2, kind="destructive", heights=(0.2, 0.4), widths=(0.2, 0.4), seed=4)
    A = data.A.toarray()
    A[:20] = A[:, :5] = False
    A = BinaryMatrix.of(A)
    found = recover([A], start(A, 3))
    assert not found.U[:20].any()
    assert not found.V[:, :5].any()
    assert confusion(A, found.U, found.V).recall > 0.95


def test_no_rows_at_all():
    belief = Belief(np.zeros((2, 3)), 0.6, 0.3, np.full(2, 0.1), 0.1)
    L, sums = infer(BinaryMatrix.of(np.zeros((0, 3))), None, belief)
    assert L.shape == (0, 2)
    assert all((value == 0).all() for value in sums.values())
    assert not best_threshold(count_thresholds(L, belief)).recoverable


# -- the formulas ------------------------------------------------------------------------------------------------------


def totals(k, m, *, evidence=0.0, members=0.0, cells=(0.0, 0.0, 0.0, 0.0), rows=0):
    fixed = {"evidence": np.full((k, m), evidence), "members": np.full(k, members), "cells": np.array(cells)}
    return {name: np.rint(value / UNIT).astype(np.int64) for name, value in fixed.items()} | {"rows": np.asarray(rows)}


def test_the_start_follows_from_densities():
    V = np.array([[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]], bool)
    belief = first_belief(V, row_share=0.05, covered_ones=79, covered=98, ones=129, cells=596)
    assert belief.inside == pytest.approx(0.8)
    assert belief.outside == pytest.approx(51 / 500)
    assert belief.row_rates == pytest.approx([0.05])
    v = 1 / (1 + np.exp(-belief.theta[0]))
    assert v[0] == pytest.approx(0.8)
    assert v[1:] == pytest.approx(min(0.05, 0.1, 0.3 * 0.102 / 0.698))
    np.testing.assert_allclose(first_rows(4, belief), np.log(0.05 / 0.95), rtol=1e-6)
    assert first_rows(4, belief).shape == (4, 1)


def test_components_are_damped_except_in_the_first_round():
    belief = Belief(np.full((1, 2), 2.0), 0.6, 0.3, np.full(1, 0.1), 0.2)
    prior = np.log(0.2 / 0.8)
    first = learn_components(belief, totals(1, 2, evidence=5))
    np.testing.assert_allclose(first.theta, prior + 5)
    later = learn_components(learn_rates(belief, totals(1, 2)), totals(1, 2, evidence=5))
    np.testing.assert_allclose(later.theta, 0.4 * 2 + 0.6 * (prior + 5))
    v = 1 / (1 + np.exp(-np.array([2, later.theta[0, 0]])))
    assert later.change == pytest.approx(2 * (v[1] - v[0]) / (2 * v[1]))


def test_rates_are_learnt_from_the_third_round_on():
    belief = Belief(np.full((1, 100), 0.0), 0.6, 0.3, np.full(1, 0.1), 0.2)
    sums = totals(1, 100, members=40, cells=(700, 1000, 1800, 9000), rows=100)
    for rounds in (1, 2):
        belief = learn_rates(belief, sums)
        assert (belief.rounds, belief.inside, belief.outside, belief.column_rate) == (rounds, 0.6, 0.3, 0.2)
    belief = learn_rates(belief, sums)
    assert belief.inside == pytest.approx(701 / 1002)
    assert belief.outside == pytest.approx(1801 / 9002)
    assert belief.row_rates == pytest.approx([40.5 / 101])
    assert belief.column_rate == pytest.approx(50.5 / 101)


def test_noise_that_says_nothing_still_leaves_a_model():
    belief = Belief(np.zeros((1, 10)), 0.6, 0.3, np.full(1, 0.1), 0.2, rounds=5)
    for cells in ((0, 0, 0, 0), (10, 100, 80, 100), (100, 100, 0, 0), (0, 100, 0, 100)):
        learnt = learn_rates(belief, totals(1, 10, cells=cells))
        assert 0.001 <= learnt.outside < learnt.inside <= 0.999


def test_a_run_ends_when_nothing_changes_or_time_is_up(monkeypatch):
    def at(rounds, change):
        return Belief(np.zeros((1, 1)), 0.6, 0.3, np.full(1, 0.1), 0.2, rounds, change)

    assert not at(8, 0.0).finished
    assert at(9, 0.0).converged
    assert not at(99, 6e-4).finished
    assert at(100, 1.0).finished
    assert not at(100, 1.0).converged
    monkeypatch.setattr(module, "MAX_ROUNDS", 3)
    assert at(3, 1.0).finished


def test_the_threshold_has_the_largest_expected_f1():
    claimed = np.arange(9, 0, -1) * 100
    expected = np.array([400, 398, 396, 394, 392, 390, 250, 150, 80])
    total = {
        "claimed": claimed,
        "expected": np.rint(expected / UNIT).astype(np.int64),
        "covered": np.array(int(410 / UNIT)),
        "members": np.array(7),
    }
    f1 = 2 * expected / (claimed + 410)
    decision = best_threshold(total)
    assert decision.threshold == THRESHOLDS[np.argmax(f1)]
    assert decision.expected_f1 == pytest.approx(f1.max())
    assert decision.recoverable
    assert not best_threshold({**total, "members": np.array(0)}).recoverable


def test_rows_are_cut_at_the_threshold():
    L = np.array([[-3.0, -1.0, 0.5]], np.float32)
    np.testing.assert_array_equal(decide_rows(L, 0.5), [[False, False, True]])
    np.testing.assert_array_equal(decide_rows(L, 0.1), [[False, True, True]])


def test_sums_add_by_name():
    total = add_sums([{"a": np.array([1, 2])}, {"a": np.array([3, 4])}])
    np.testing.assert_array_equal(total["a"], [4, 6])


def test_a_belief_that_makes_no_sense_is_refused():
    with pytest.raises(InputError, match="k x m"):
        Belief(np.zeros((2, 3)), 0.6, 0.3, np.full(1, 0.1), 0.2)
    with pytest.raises(InputError, match="outside < inside"):
        Belief(np.zeros((1, 3)), 0.3, 0.6, np.full(1, 0.1), 0.2)
