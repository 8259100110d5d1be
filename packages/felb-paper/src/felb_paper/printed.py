"""Alg. 1 of the paper in plain NumPy, with every point that it leaves open as a parameter.

felb runs the reading `CHOSEN` as ``setting="literal"``, and a test holds the two against each other. The other readings
exist for the comparison of `benchmarks/readings.py` and for nothing else: this code is dense, in double precision and
has neither a gate nor secure sums. docs/explanation/readings.md tells what the paper says about each point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from felb.kernels.passes import NEGLIGIBLE, SMALLEST_DENOMINATOR
from felb.metrics import integrality_gap
from felb.optim.prox import LARGEST_WEIGHT, prox_elb, prox_elb_exact, prox_towards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Matrix = NDArray[np.floating[Any]]

INERTIA, KAPPA, LAMBDA, RATE = 0.001, 0.001, 0.1, 1.05
"""The paper's β, κ, λ and the factor by which λ grows."""

FLIPPED = 0.01
"""Share of the entries of V̂ that may still change sides in the last round, if a run ends before its last round."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read Alg. 1.

    Parameters
    ----------
    gamma : γ, of which the paper gives no value
    loss : ½‖A − UV‖² ("half"), as in its proofs, or ‖A − UV‖² ("whole"), as in Alg. 1
    step : of FELB: "ipalm", 2(1−β)/((1+2β)L), or "inverse", 1/L; L is the constant of the gradient of the loss
    norm : in which L is measured
    clock : what t counts in λ_t
    start : "independent": every client draws U_i and V_i; "shared": all begin with one V̂
    low, high : bounds of the factors after every step; infinite for none
    tol : end when no entry of V̂ is farther from 0 and 1, and at most 1% have changed sides; None for all rounds
    rounds : at most
    rows : U in the end: "assigned" to the Boolean V̂, or the "kept" U_i, cut at ½
    cap : of λ_t
    exact : the minimiser of the regularizer in place of the printed operator
    aggregation : "proximal": the server applies the operator with κ and λ_t; "mean": it does not
    """

    gamma: float = 1.0
    loss: Literal["half", "whole"] = "half"
    step: Literal["ipalm", "inverse"] = "ipalm"
    norm: Literal["frobenius", "spectral"] = "frobenius"
    clock: Literal["steps", "rounds"] = "steps"
    start: Literal["independent", "shared"] = "independent"
    low: float = 0.0
    high: float = math.inf
    tol: float | None = 0.01
    rounds: int = 100
    rows: Literal["assigned", "kept"] = "assigned"
    cap: float = LARGEST_WEIGHT
    exact: bool = False
    aggregation: Literal["proximal", "mean"] = "proximal"

    def weight(self, t: int, step: int, local_steps: int) -> float:
        """λ_t in a local step of round t."""
        return min(LAMBDA * RATE ** (t * local_steps + step if self.clock == "steps" else t), self.cap)

    def shrink(self, X: Matrix, kappa: Any, lam: Any) -> Matrix:
        """Apply the Boolean proximal operator and the bounds."""
        found = np.clip((prox_elb_exact if self.exact else prox_elb)(X, kappa, lam), self.low, self.high)
        return found if self.low < 0 else np.where(found > NEGLIGIBLE, found, 0.0)

    def size(self, gram: Matrix) -> tuple[float, float]:
        """Return the step along the gradient of ½‖A − UV‖², and η, by which κ, λ and γ are multiplied."""
        constant = max(float(np.linalg.norm(gram) if self.norm == "frobenius" else np.linalg.norm(gram, 2)), 1e-4)
        share = 2 * (1 - INERTIA) / (1 + 2 * INERTIA) if self.step == "ipalm" else 1.0
        return share / constant, share / constant / (2 if self.loss == "whole" else 1)


CHOSEN = Reading()
"""What ``setting="literal"`` does."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a run ends with: U of each client and V̂, both Boolean, V̂ before its cut, and the number of rounds."""

    U: list[NDArray[np.bool_]] | None
    V: NDArray[np.bool_]
    relaxed: Matrix
    rounds: int


def run_printed(
    parts: Sequence[NDArray[Any]],
    k: int,
    *,
    multiplicative: bool = False,
    reading: Reading = CHOSEN,
    local_steps: int = 10,
    seed: int = 0,
    starts: Sequence[tuple[Matrix, Matrix]] | None = None,
) -> Found:
    """Run Alg. 1 on the rows of some clients.

    Parameters
    ----------
    parts : the rows of each client
    k : number of components
    multiplicative : the steps of FELB-MU
    reading : of the open points
    local_steps : b
    seed : of the random start
    starts : U_i and V_i of each client, in place of random ones; the V_i are equal for a shared start
    """
    m, rng = parts[0].shape[1], np.random.default_rng(seed)
    if starts is None:
        shared = rng.random((k, m))
        drawn = [(rng.random((len(A), k)), rng.random((k, m))) for A in parts]
        starts = [(U, V if reading.start == "independent" else shared) for U, V in drawn]
    data = [np.asarray(A, dtype=np.float64) for A in parts]
    clients = [(U, U, V, V) for U, V in starts]
    shared_before: Matrix | None = None
    V_hat = starts[0][1] if reading.start == "shared" else None
    t = 0
    while t < reading.rounds:
        if V_hat is not None:
            before = V_hat if shared_before is None else shared_before
            clients = [(U, U_before, V_hat, before) for U, U_before, _, _ in clients]
        shared_before, target = V_hat, V_hat
        for step in range(local_steps):
            lam = reading.weight(t, step, local_steps)
            clients = [
                _local_step(A, *point, target, lam=lam, reading=reading, multiplicative=multiplicative)
                for A, point in zip(data, clients, strict=True)
            ]
        V_hat = np.mean([V for _, _, V, _ in clients], axis=0)
        if reading.aggregation == "proximal":
            V_hat = (prox_elb_exact if reading.exact else prox_elb)(
                V_hat, KAPPA, reading.weight(t, local_steps - 1, local_steps)
            )
        V_hat = np.clip(V_hat, reading.low, reading.high)
        t += 1
        decided = reading.tol is not None and integrality_gap(V_hat) <= reading.tol
        if decided and shared_before is not None and np.mean((V_hat > 0.5) != (shared_before > 0.5)) <= FLIPPED:
            break
    assert V_hat is not None
    kept = [U > 0.5 for U, _, _, _ in clients] if reading.rows == "kept" else None
    return Found(kept, V_hat > 0.5, V_hat, t)


def _local_step(
    A: Matrix,
    U: Matrix,
    U_before: Matrix,
    V: Matrix,
    V_before: Matrix,
    target: Matrix | None,
    *,
    lam: float,
    reading: Reading,
    multiplicative: bool,
) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return U and V after lines 3 to 5 of Alg. 1, each with the one before it."""
    U, U_before = _moved(U, U_before, A @ V.T, V @ V.T, None, lam, reading, multiplicative), U
    Vt = _moved(V.T, V_before.T, A.T @ U, U.T @ U, None if target is None else target.T, lam, reading, multiplicative)
    return U, U_before, Vt.T, V


def _moved(
    X: Matrix,
    before: Matrix,
    a: Matrix,
    gram: Matrix,
    target: Matrix | None,
    lam: float,
    reading: Reading,
    multiplicative: bool,
) -> Matrix:
    """Return X after a gradient step from X + β(X − before) and the proximal operators."""
    X = X + INERTIA * (X - before)
    if multiplicative:
        X = np.maximum(X, 0) if reading.low == 0 else X
        below = X @ gram
        tiny = SMALLEST_DENOMINATOR
        eta: Any = X / np.where(np.abs(below) > tiny, below, tiny)
        moved = eta * a
        eta = np.abs(eta) / (2 if reading.loss == "whole" else 1)
    else:
        step, eta = reading.size(gram)
        moved = X + step * (a - X @ gram)
    shrunk = reading.shrink(moved, eta * KAPPA, eta * lam)
    return shrunk if target is None else prox_towards(shrunk, eta * reading.gamma, target)
