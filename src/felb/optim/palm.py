"""(Inertial) proximal alternating linearized minimization of the relaxed factorization.

    argmin_{U,V} ½‖A − UV‖² + R_κλ(U) + R_κλ(V) + (γ/2)‖V − V̂‖²,  U, V in [0, upper]

One step updates U for fixed V, then V for the new U (Gauss-Seidel). A is touched once, by `linalg.row_pass`: what the
V step and the loss need, AᵀU and UᵀU, falls off the same pass. V is kept transposed (features × components).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.linalg.passes import gather, scatter, squared_loss
from felb.optim.prox import elb_penalty, prox_elb, prox_elb_and_towards, prox_elb_exact, prox_elb_then_towards

if TYPE_CHECKING:
    from felb.linalg.binary import BinaryMatrix
    from felb.optim.prox import Array, Weight
    from felb.optim.steps import StepRule


@dataclass(frozen=True, slots=True)
class Objective:
    """The regularizer and the box: κ (`l1`), the pull γ towards V̂, the upper end of the box, which prox."""

    kappa: float = 0.001
    gamma: float = 0.0
    upper: float = 1.0
    exact: bool = False

    def shrink_rows(self, x: Array, eta: Weight, lam: float) -> Array:
        """Return prox of R_κλ with step η at x, in the box."""
        prox = prox_elb_exact if self.exact else prox_elb
        return np.clip(prox(x, eta * self.kappa, eta * lam), 0, self.upper)

    def shrink_columns(self, x: Array, eta: Weight, lam: float, target: Array | None) -> Array:
        """Return prox of R_κλ + (γ/2)‖· − V̂‖² with step η at x, in the box; without a target just R_κλ."""
        if target is None or self.gamma == 0:
            return self.shrink_rows(x, eta, lam)
        prox = prox_elb_and_towards if self.exact else prox_elb_then_towards
        shrunk = prox(x, eta * self.kappa, eta * lam, gamma=eta * self.gamma, target=target)
        return np.clip(shrunk, 0, self.upper)

    def value(self, loss: float, U: Array, Vt: Array, *, lam: float, target: Array | None = None) -> float:
        """½ loss + R(U) + R(V) + (γ/2)‖V − V̂‖² in float64, with the λ that the chosen prox belongs to."""
        weight = lam if self.exact else lam / 2
        pull = 0.0 if target is None else self.gamma / 2 * float(((Vt - target).astype(np.float64) ** 2).sum())
        return loss / 2 + elb_penalty(U, self.kappa, weight) + elb_penalty(Vt, self.kappa, weight) + pull


@dataclass(frozen=True, slots=True)
class Point:
    """Where the optimisation stands: both factors, and where they stood one step before (for inertia)."""

    U: Array
    Vt: Array
    U_before: Array
    Vt_before: Array

    @classmethod
    def start(cls, U: Array, Vt: Array) -> Point:
        """Begin at rest."""
        return cls(U, Vt, U, Vt)


def palm_step(
    A: BinaryMatrix,
    point: Point,
    objective: Objective,
    *,
    rule: StepRule,
    lam: float,
    beta: float = 0.0,
    target: Array | None = None,
) -> tuple[Point, float]:
    """Take one Gauss-Seidel step; return the new point and its ‖A − UV‖² (float64).

    U ← prox(Ũ − ν(ŨVVᵀ − AVᵀ)) with Ũ = U + β(U − U_before), then V ← prox(Ṽ − ξ(UᵀUṼ − UᵀA)) likewise.
    """
    start = _extrapolate(point.U, point.U_before, beta)
    stepped, nu = rule(start, gather(A, point.Vt), point.Vt.T @ point.Vt, beta=beta)
    U = objective.shrink_rows(stepped, nu, lam)
    AtU, UtU = scatter(A, U), U.T @ U
    start = _extrapolate(point.Vt, point.Vt_before, beta)
    stepped, xi = rule(start, AtU, UtU, beta=beta)
    Vt = objective.shrink_columns(stepped, xi, lam, target)
    return Point(U, Vt, point.U, point.Vt), squared_loss(A.nnz, AtU, UtU, Vt)


def _extrapolate(now: Array, before: Array, beta: float) -> Array:
    """Return X + β(X − X_before), kept non-negative as multiplicative steps require."""
    if beta == 0:
        return now
    return np.maximum(now + now.dtype.type(beta) * (now - before), 0)
