"""How a row of a factor moves when the other factor is held: the row rules of the solvers, as plain values.

A rule sees, for row u of U, the gathered row a = Σ_{j in row} V[:, j] and the Gram matrix G = V Vᵀ, that is all that
½‖A − U V‖² knows about u. The rows of Vᵀ move by the same rules with a = (AᵀU)_j and G = UᵀU. Each rule is stated here
in NumPy; `felb.linalg.kernels` states it once more in vector code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALLEST_DENOMINATOR = 1e-12
"""Denominators of multiplicative steps are at least this."""


@dataclass(frozen=True, slots=True)
class Prox:
    """Pulls numbers towards 0 and 1, whichever is nearer, with strengths κ (like l1) and λ (like l2).

    With t = 1 where x > ½, else 0, and d = x − t, both kinds of it are

        t + sign(d) · max(|d| − κ, floor) / (1 + curvature · λ)

    followed by clipping to [0, upper]. Use `PrintedProx` or `ExactProx`.
    """

    kappa: float = 0.0
    lam: float = 0.0
    upper: float = field(default=1.0, kw_only=True)

    floor = -math.inf
    curvature = 1.0

    def __post_init__(self) -> None:
        for name in ("kappa", "lam", "upper"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name}={getattr(self, name)} of a prox must be 0 or more")

    def apply(self, x: NDArray[Any], step: float | NDArray[Any]) -> NDArray[Any]:
        """Return the prox of `x` with strengths step·κ and step·λ."""
        target = (x > 0.5).astype(x.dtype)
        d = x - target
        pulled = np.sign(d) * np.maximum(np.abs(d) - step * self.kappa, self.floor)
        moved = target + pulled / (1 + self.curvature * step * self.lam)
        return np.asarray(np.clip(moved, 0, self.upper))


@dataclass(frozen=True, slots=True)
class PrintedProx(Prox):
    """(x − κ sign(x))/(1+λ) if x <= ½, else (x − κ sign(x − 1) + λ)/(1+λ): the elastic prox as published.

    It has no dead zone: x slightly below a target is pushed across it.
    """


@dataclass(frozen=True, slots=True)
class ExactProx(Prox):
    """argmin_y ½(x − y)² + κ|y − t| + λ(y − t)², t the nearer of 0 and 1: t + soft(x − t, κ)/(1 + 2λ)."""

    floor = 0.0
    curvature = 2.0


@dataclass(frozen=True, slots=True)
class Lipschitz:
    """A proximal gradient step with one step size η: u ← prox_{ηκ, ηλ}(u + η(a − u G))."""

    step: float
    prox: Prox

    lowest = -math.inf

    def apply(self, u: NDArray[Any], a: NDArray[Any], gram: NDArray[Any]) -> NDArray[Any]:
        """Return the rows that follow `u`."""
        return self.prox.apply(u + self.step * (a - u @ gram), self.step)


@dataclass(frozen=True, slots=True)
class Multiplicative:
    """A proximal step with a step size for each entry, η = u ⊘ (u G): u ← prox_{ηκ, ηλ}(η ⊙ a).

    The gradient part is Lee and Seung's multiplicative update, so it needs (and keeps) u >= 0.
    """

    prox: Prox

    lowest = 0.0

    def apply(self, u: NDArray[Any], a: NDArray[Any], gram: NDArray[Any]) -> NDArray[Any]:
        """Return the rows that follow `u`."""
        step = u / np.maximum(u @ gram, SMALLEST_DENOMINATOR)
        return self.prox.apply(step * a, step)


@dataclass(frozen=True, slots=True)
class Hals:
    """Sweeps over the coordinates, each set to its best value >= 0: u_l ← max(0, u_l + (a_l − (u G)_l) / G_ll).

    A component with G_ll = 0 contributes nothing; its coordinates stay as they are.
    """

    sweeps: int = 1

    lowest = 0.0

    def __post_init__(self) -> None:
        if self.sweeps < 1:
            raise InputError(f"sweeps={self.sweeps}: HALS needs at least one sweep")

    def apply(self, u: NDArray[Any], a: NDArray[Any], gram: NDArray[Any]) -> NDArray[Any]:
        """Return the rows that follow `u`."""
        u = u.copy()
        for _ in range(self.sweeps):
            for coordinate in np.flatnonzero(np.diagonal(gram) > 0):
                slope = a[:, coordinate] - u @ gram[:, coordinate]
                u[:, coordinate] = np.maximum(u[:, coordinate] + slope / gram[coordinate, coordinate], 0)
        return u


Rule = Lipschitz | Multiplicative | Hals

LIPSCHITZ, MULTIPLICATIVE, HALS = 0.0, 1.0, 2.0
"""The rules, as the kernels know them."""


def encode(rule: Rule, beta: float) -> tuple[float, ...]:
    """Return the numbers that kernels take for a rule: its code, β, lowest, step (or sweeps), κ, λ, floor, upper."""
    if isinstance(rule, Hals):
        return HALS, float(beta), rule.lowest, float(rule.sweeps), 0.0, 0.0, 0.0, 0.0
    code, step = (LIPSCHITZ, rule.step) if isinstance(rule, Lipschitz) else (MULTIPLICATIVE, 0.0)
    prox = rule.prox
    lam = prox.curvature * prox.lam
    return code, float(beta), rule.lowest, float(step), float(prox.kappa), lam, prox.floor, float(prox.upper)
