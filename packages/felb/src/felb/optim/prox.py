"""Proximal operators, weights over time, and validation of their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]
    Weight = float | np.floating[Any] | Array


def check_weights(**least: tuple[float, float]) -> None:
    """Raise unless every value (first of the pair) is a number no smaller than the second."""
    for name, (value, smallest) in least.items():
        if not value >= smallest:  # also catches NaN
            raise InputError(f"{name} must be at least {smallest}, got {value}")


MOST_LOCAL_STEPS = 10_000
"""Steps of a client between two rounds; a round of more would not end in any time that the other clients wait for."""


def check_local_steps(steps: int) -> None:
    """Raise unless a client takes at least one step in a round and at most `MOST_LOCAL_STEPS`."""
    if not 1 <= steps <= MOST_LOCAL_STEPS:
        raise InputError(f"local_steps must lie in [1, {MOST_LOCAL_STEPS}], got {steps}")


def check_inertia(beta: float) -> None:
    """Raise unless iPALM converges with this inertia."""
    if not 0 <= beta < 0.5:
        raise InputError(f"inertia must lie in [0, 0.5), got {beta}")


LARGEST_WEIGHT = 1e8
"""Beyond this λ every value is Boolean to float32 precision; a cap keeps long runs finite."""


@dataclass(frozen=True, slots=True)
class Geometric:
    """λ_t = λ·rate^t, capped; rate = 1 is a constant weight, rate > 1 forces Boolean factors in the limit."""

    start: float
    rate: float = 1.0

    def __call__(self, t: int) -> float:
        """Return λ_t for t = 0, 1, …"""
        if self.start == 0:
            return 0.0
        try:
            return min(self.start * self.rate**t, LARGEST_WEIGHT)
        except OverflowError:
            return LARGEST_WEIGHT


# -- Proximal operators as functions; each docstring states the minimised function -----------------------------------
#
# All are elementwise, never change an argument, and take `kappa` and `lam` as scalars or arrays that broadcast: with
# elementwise step sizes η (multiplicative updates), pass ``eta * kappa`` and ``eta * lam``.


def elb_penalty(x: Array, kappa: Weight, lam: Weight) -> float:
    """R_κλ(X) = Σ min(κ|x| + λx², κ|x−1| + λ(x−1)²), the W-shaped regularizer (Eq. elb_reg), in float64."""
    x = x.astype(np.float64, copy=False)
    at_zero, at_one = np.abs(x), np.abs(x - 1)
    return float(np.minimum(kappa * at_zero + lam * at_zero**2, kappa * at_one + lam * at_one**2).sum())


def prox_elb(x: Array, kappa: Weight, lam: Weight) -> Array:
    """Return the Boolean proximal operator as printed in the paper (Eq. elb_prox).

    (x − κ sign(x)) / (1+λ) if x <= ½, else (x − κ sign(x−1) + λ) / (1+λ).

    For κ = 0 this is argmin_y ½(x−y)² + R_{0,λ/2}(y). For κ > 0 it has no dead zone: a value closer than κ to 0 or 1
    is pushed across it by up to κ, where the minimiser would be 0 or 1 itself; see `prox_elb_exact`.
    """
    nearest = (x > 0.5).astype(x.dtype)
    return np.asarray((x - kappa * np.sign(x - nearest) + lam * nearest) / (1 + lam), dtype=x.dtype)


def prox_elb_exact(x: Array, kappa: Weight, lam: Weight) -> Array:
    """argmin_y ½(x−y)² + R_κλ(y), exactly, for R as printed (Eq. elb_reg).

    Soft-thresholding around the nearer of 0 and 1: c + sign(x−c) max(|x−c| − κ, 0) / (1 + 2λ), c = [x > ½].
    """
    nearest = (x > 0.5).astype(x.dtype)
    offset = x - nearest
    shrunk = np.sign(offset) * np.maximum(np.abs(offset) - kappa, 0)
    return np.asarray(nearest + shrunk / (1 + 2 * lam), dtype=x.dtype)


def prox_towards(x: Array, gamma: Weight, target: Array) -> Array:
    """argmin_y ½(x−y)² + (γ/2)(y−v̂)² = (x + γv̂) / (1+γ), the pull towards the shared V̂ (Eq. prox_prox)."""
    return np.asarray((x + gamma * target) / (1 + gamma), dtype=x.dtype)


def prox_elb_then_towards(
    x: Array, kappa: Weight, lam: Weight, *, gamma: Weight, target: Array, upper: float = np.inf
) -> Array:
    """prox^p_γ(prox^r_κλ(x)), the paper's composition of both operators (Eq. update); the first one in [0, upper]."""
    return prox_towards(np.clip(prox_elb(x, kappa, lam), 0, upper), gamma, target)


def prox_elb_and_towards(x: Array, kappa: Weight, lam: Weight, *, gamma: Weight, target: Array) -> Array:
    """argmin_y ½(x−y)² + R_κλ(y) + (γ/2)(y−v̂)², the exact operator of the sum.

    Completing the square moves the pull into the point: prox_R with κ/(1+γ), λ/(1+γ) at (x + γv̂)/(1+γ).
    """
    return prox_elb_exact(prox_towards(x, gamma, target), kappa / (1 + gamma), lam / (1 + gamma))
