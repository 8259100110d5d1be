"""Alg. 1 as printed, in plain NumPy, against what felb runs as its literal setting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import felb
from felb.data import partition, planted
from felb.data.partition import split
from felb.federated.algorithms.felb import LITERAL, SETTINGS
from felb.optim.prox import LARGEST_WEIGHT, prox_elb
from felb.optim.steps import Lipschitz, Multiplicative, uniform_columns
from felb_paper.printed import CHOSEN, Reading, run_printed

DATA = planted(300, 40, 3, noise=0.1, seed=4)
GROUPS = partition.even(300, 4, seed=0)


@pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")
@pytest.mark.parametrize("multiplicative", [False, True])
@pytest.mark.parametrize("rounds", [1, 2, 3, 12])
def test_the_literal_setting_is_the_printed_algorithm(multiplicative, rounds):
    shards, _ = split(DATA.A, GROUPS)
    V = uniform_columns(7, 3, 40, dtype="float64")
    rule = Multiplicative() if multiplicative else Lipschitz()
    starts = [(rule.first_rows(shard, np.ascontiguousarray(V.T)), V) for shard in shards.values()]
    reading = replace(CHOSEN, rounds=rounds, start="shared")
    parts = [shard.toarray() for shard in shards.values()]
    plain = run_printed(parts, 3, multiplicative=multiplicative, reading=reading, local_steps=5, starts=starts)
    kind = felb.FELBMU if multiplicative else felb.FELB
    setting = replace(LITERAL, start="random", max_iter=rounds)
    model = kind(3, setting=setting, local_steps=5, dtype="float64", random_state=7).fit(DATA.A, groups=GROUPS)
    assert model.n_iter_ == plain.rounds
    np.testing.assert_allclose(model.relaxed_components_, plain.relaxed, atol=1e-6)


def test_the_weights_of_the_literal_setting_are_the_published_ones():
    published = {"l1": 0.001, "l2": 0.1, "l2_rate": 1.05, "max_iter": 100}
    assert {name: getattr(SETTINGS["literal"], name) for name in published} == published
    assert (LITERAL.proximity, LITERAL.tol) == (CHOSEN.gamma, CHOSEN.tol)


def test_a_larger_weight_than_the_cap_changes_nothing_in_single_precision():
    X = np.linspace(-1, 3, 4001, dtype=np.float32)
    capped = prox_elb(X, 0.001, np.float32(LARGEST_WEIGHT))
    np.testing.assert_allclose(prox_elb(X, 0.001, np.float32(1e30)), capped, atol=3e-8)


@pytest.mark.parametrize(
    ("reading", "step", "eta"),
    [
        (Reading(), 2 * 0.999 / 1.002 / np.sqrt(10), 2 * 0.999 / 1.002 / np.sqrt(10)),
        (Reading(step="inverse", norm="spectral"), 1 / 3, 1 / 3),
        (Reading(step="inverse", norm="spectral", loss="whole"), 1 / 3, 1 / 6),
    ],
)
def test_step_sizes_are_those_of_the_reading(reading, step, eta):
    assert reading.size(np.diag([1.0, 3.0])) == pytest.approx((step, eta))


def test_rows_that_are_kept_are_those_of_the_last_local_step():
    parts = [part.toarray() for part in split(DATA.A, GROUPS)[0].values()]
    kept = run_printed(parts, 3, reading=Reading(rows="kept", rounds=4))
    assert [U.shape for U in kept.U] == [(75, 3)] * 4
    assert run_printed(parts, 3, reading=Reading(rounds=4)).U is None
