"""The theorems of the paper, numerically, with several clients.

Theorem 1 (convergence) rests on a sufficient decrease of every client's objective and on a bound of its subgradients.
Both hold under the conditions of PALM: no inertia, a constant λ, the exact proximal operator, a step of 1/(1.1 L), and
a V̂ that stays. Theorem 2 (Boolean limit) is about a λ that grows without bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run
from felb.federated.algorithms.felb import LITERAL, felb, felb_mu
from felb.metrics import integrality_gap
from felb.optim.palm import Objective, Point, loss_at, palm_step
from felb.optim.prox import elb_penalty, prox_elb_exact
from felb.optim.steps import Lipschitz

DATA = planted(160, 30, 4, noise=0.1, seed=0)
GROUPS = partition.even(160, 4, seed=0)
CLIENTS = list(split(DATA.A, GROUPS)[0].values())
K, LAM = 4, 0.1


@dataclass(frozen=True)
class Step:
    """One local step of all clients: where they were, where they are, and the summed objective after it."""

    before: list[Point]
    after: list[Point]
    value: float
    target: np.ndarray


def walk(objective, *, steps=120, seed=0):
    """Yield the local steps of all clients towards a V̂ that stays."""
    rng = np.random.default_rng(seed)
    target = rng.random((30, K))
    points = [Point.start(rng.random((len(A), K)), rng.random((30, K))) for A in CLIENTS]
    for _ in range(steps):
        moved = [
            palm_step(A, p, objective, rule=Lipschitz(), lam=LAM, target=target)
            for A, p in zip(CLIENTS, points, strict=True)
        ]
        value = sum(
            objective.value(loss_at(A, p, found), p.U, p.Vt, lam=LAM, target=target)
            for A, (p, found) in zip(CLIENTS, moved, strict=True)
        )
        yield Step(points, [p for p, _ in moved], value, target)
        points = [p for p, _ in moved]


EXACT = Objective(kappa=0.001, gamma=1.0, exact=True)


def test_the_summed_objective_decreases_sufficiently_at_every_step_of_the_clients():
    last = None
    for step in walk(EXACT):
        least = 0.0  # ρ₁‖z⁺ − z‖² with ρ₁ = (1.1 − 1) L / 2 for each block
        for p, new in zip(step.before, step.after, strict=True):
            least += 0.05 * np.linalg.norm(p.Vt.T @ p.Vt) * np.sum((new.U - p.U) ** 2)
            least += 0.05 * np.linalg.norm(new.U.T @ new.U) * np.sum((new.Vt - p.Vt) ** 2)
        if last is not None:
            assert last - step.value >= least - 1e-9
        last = step.value


def test_a_subgradient_is_bounded_by_the_length_of_the_step():
    """Of the block V, as in the lemma: w = ∇f(V⁺) + r + γ(V⁺ − V̂), with r from the optimality of the proximal step."""
    for step in walk(EXACT, steps=60):
        for A, p, new in zip(CLIENTS, step.before, step.after, strict=True):
            gram, AtU = new.U.T @ new.U, A.toarray().T @ new.U
            constant = np.linalg.norm(gram)
            eta = 1 / (1.1 * constant)
            start, end = p.Vt @ gram - AtU, new.Vt @ gram - AtU
            slope = (p.Vt - new.Vt) / eta - start - EXACT.gamma * (new.Vt - step.target)
            inside = (new.Vt > 1e-9) & (new.Vt < 1 - 1e-9) & (np.abs(new.Vt - 0.5) > 1e-9)
            nearest = new.Vt > 0.5
            expected = EXACT.kappa * np.sign(new.Vt - nearest) + 2 * LAM * (new.Vt - nearest)
            np.testing.assert_allclose(slope[inside], expected[inside], atol=1e-9)  # r is the slope of R there
            subgradient = np.where(inside, end + slope + EXACT.gamma * (new.Vt - step.target), 0)
            assert np.linalg.norm(subgradient) <= 2.1 * constant * np.linalg.norm(new.Vt - p.Vt) + 1e-9


def shared_value(points, V_hat):
    """Σ ‖V_i − V̂‖²/2 + R(V̂), what the server minimises."""
    pulled = sum(0.5 * np.sum((p.Vt - V_hat) ** 2) for p in points)
    return pulled + elb_penalty(V_hat, 0.001, LAM)


def test_the_proximal_mean_with_a_share_of_the_weights_minimises_the_objective_of_the_server():
    *_, last = walk(EXACT, steps=5)
    count = len(CLIENTS)
    mean = np.mean([p.Vt for p in last.after], axis=0)
    best = shared_value(last.after, prox_elb_exact(mean, 0.001 / count, LAM / count))
    for other in (mean, prox_elb_exact(mean, 0.001, LAM), last.target, np.rint(mean)):
        assert shared_value(last.after, other) >= best - 1e-12


def test_that_clients_take_the_aggregate_as_their_own_can_raise_the_objective():
    """Line 9 of Alg. 1, V_i ← V̂, is no step of the proof."""
    raised = 0
    for seed in range(3):
        *_, last = walk(EXACT, steps=20, seed=seed)
        V_hat = prox_elb_exact(np.mean([p.Vt for p in last.after], axis=0), 0.001, LAM)

        def value(points, shared):
            return sum(
                EXACT.value(np.sum((A.toarray() - p.U @ p.Vt.T) ** 2), p.U, p.Vt, lam=LAM, target=shared)
                for A, p in zip(CLIENTS, points, strict=True)
            )

        replaced = [replace(p, Vt=V_hat) for p in last.after]
        raised += value(replaced, V_hat) > value(last.after, V_hat)
    assert raised == 3


def test_the_printed_operator_raises_the_objective_by_little_where_it_has_no_dead_zone():
    """For κ > 0 the printed operator pushes entries across 0 or 1; the exact one keeps them there."""
    largest = {}
    for exact in (True, False):
        values = [step.value for step in walk(Objective(kappa=0.05, exact=exact), steps=250)]
        largest[exact] = float(np.max(np.diff(values)))
    assert largest[True] <= 1e-9
    assert 1e-3 < largest[False] < 0.05


@dataclass
class Watching:
    """A mechanism that adds nothing and notes what clients send."""

    name = "watching"

    def __post_init__(self):
        self.gaps = []

    def release(self, what, value, *, rng):
        if what == "V":
            self.gaps.append(integrality_gap(value))
        return value, None


def last_gaps(make, gamma):
    """Return the integrality gaps of V̂, and of the V_i that clients send, in the last of 60 rounds."""
    watching = Watching()
    algorithm = make(30, K, setting=LITERAL, tol=0.0, max_rounds=60, local_steps=5, gamma=gamma)
    finished = run(algorithm, split(DATA.A, GROUPS)[0], seed=0, mechanism=watching)
    return finished.history["integrality_gap"][59], max(watching.gaps[59 * 4 : 60 * 4])


@pytest.mark.parametrize("make", [felb, felb_mu])
def test_with_a_growing_weight_the_shared_components_become_boolean(make):
    assert last_gaps(make, gamma=1.0)[0] < 1e-4


def test_what_clients_send_becomes_boolean_without_the_pull_and_not_with_it():
    """The pull towards V̂ comes after the Boolean operator: where a client differs from V̂, its V_i stays in between."""
    assert last_gaps(felb, gamma=0.0)[1] < 1e-3
    assert last_gaps(felb, gamma=1.0)[1] > 0.05
    assert last_gaps(felb, gamma=10.0)[1] > last_gaps(felb, gamma=1.0)[1]
