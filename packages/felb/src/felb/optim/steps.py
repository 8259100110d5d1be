"""Step rules: how the rows of one factor are updated while the other is fixed, and the rows to start from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from felb.errors import InputError
from felb.kernels.passes import (
    COMPONENT,
    GRADIENT,
    HALS,
    MULTIPLICATIVE,
    NEGLIGIBLE,
    SMALLEST_DENOMINATOR,
    SMALLEST_SHARE,
    SMALLEST_SUM,
    Numbers,
    gather,
)
from felb.optim.prox import prox_elb, prox_elb_and_towards, prox_elb_exact, prox_elb_then_towards

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from felb.data.binary import BinaryMatrix
    from felb.kernels.passes import Rule
    from felb.optim.prox import Weight

    Array = NDArray[np.floating[Any]]


# -- Starting points: a random V determined by a seed, and the rows of U that follow from it -------------------------

SMALLEST_SCALE = 1e-12


def uniform_columns(seed: int, k: int, m: int, *, dtype: DTypeLike = np.float32) -> Array:
    """V, k × m, uniform on [0, 1)."""
    return np.random.default_rng(seed).random((k, m)).astype(dtype)


# The random V alone breaks the symmetry between components. A random U would only add an offset that differs from
# client to client; without it a row starts the same wherever it is, and results are better.


def constant_rows(A: BinaryMatrix, Vt: Array) -> Array:
    """U = ½. A multiplicative step makes `projected_rows` of it; a step of Lipschitz size would overshoot to 0."""
    return np.full((A.shape[0], Vt.shape[1]), 0.5, dtype=Vt.dtype)


def projected_rows(A: BinaryMatrix, Vt: Array) -> Array:
    """U = AVᵀ ⊘ 1VVᵀ in [0, 1], what a multiplicative step makes of constant rows."""
    scale = np.maximum(Vt.T @ Vt.sum(axis=1), Vt.dtype.type(SMALLEST_SCALE))
    return np.asarray(np.clip(gather(A, Vt) / scale, 0, 1))


def typical_scale(V: Array) -> Array:
    """Return V >= 0 with rows divided by Σv²/Σv, their typical entry: 1 for a row of zeros and ones; rows of 0 stay."""
    sums, squares = V.sum(axis=1, keepdims=True), (V * V).sum(axis=1, keepdims=True)
    return np.asarray(V * np.divide(sums, squares, out=np.ones_like(sums), where=squares > 0))


# -- Step rules: how the rows of one factor are updated while the other factor is fixed ------------------------------
#
# A *rule* is fixed for a run and says how far to go along the gradient of ½‖A − UV‖² before the proximal operator; FELB
# and FELB-MU differ in it only. A *step* is what a rule comes to for one Gram matrix and one λ; `felb.kernels.passes`
# takes it over the data. For rows u of U with a = Vᵀ summed over the ones of the row and G = VVᵀ (or rows of Vᵀ with
# AᵀU and UᵀU), the gradient is uG − a.

LIPSCHITZ_FLOOR = 1e-4
"""Keeps the step finite when a factor has vanished."""


class StepRule(Protocol):
    """A rule: where to start, and the step for a Gram matrix."""

    @property
    def name(self) -> str:
        """The word for this rule."""
        ...

    def first_rows(self, A: BinaryMatrix, Vt: Array) -> Array:
        """Return the U to start from, given the V to start from; it depends on each row alone."""
        ...

    def step(self, gram: Array, penalty: Penalty, *, beta: float) -> Rule:
        """Return the step to take for the Gram matrix of the factor that is held."""
        ...


@dataclass(frozen=True, slots=True)
class Lipschitz:
    """One step size for all: η = 1/L with L = ‖G‖ in the Frobenius norm, an upper bound of the gradient's constant.

    Without inertia η = 1/(1.1 L); with inertia β the step of iPALM, η = 2(1−β) / ((1+2β) L).

    With `by_component`, every component l has a step of its own, with L_l = Σ_d |G_ld| in place of L. The diagonal
    matrix of these is an upper bound of G, as L times the identity is, so that the same sizes are allowed (and without
    inertia no step increases the objective). Components of small curvature take long steps, where one size for all is
    that of the heaviest.
    """

    by_component: bool = False
    name: str = "lipschitz"

    def first_rows(self, A: BinaryMatrix, Vt: Array) -> Array:
        """Return AVᵀ ⊘ 1VVᵀ."""
        return projected_rows(A, Vt)

    def step_size(self, gram: Array, beta: float) -> float:
        """Return η for the Gram matrix of the other factor."""
        constant = max(float(np.linalg.norm(gram)), LIPSCHITZ_FLOOR)
        return 2 * (1 - beta) / ((1 + 2 * beta) * constant) if beta else 1 / (1.1 * constant)

    def step(self, gram: Array, penalty: Penalty, *, beta: float) -> Rule:
        """Return a gradient step of size η, or of a size for each component."""
        if self.by_component:
            return GradientStep(2 * (1 - beta) / (1 + 2 * beta) if beta else 1 / 1.1, penalty, by_component=True)
        return GradientStep(self.step_size(gram, beta), penalty)


@dataclass(frozen=True, slots=True)
class Multiplicative:
    """One step size per entry, η = X ⊘ XG, which turns the gradient step into X ⊙ a ⊘ XG (Lee and Seung).

    A multiplicative step cannot leave zero. Entries are therefore raised to `floor` before each step; with 0, an entry
    that has once become zero remains zero.
    """

    floor: float = 0.0
    name: str = "multiplicative"

    def first_rows(self, A: BinaryMatrix, Vt: Array) -> Array:
        """Return ½ everywhere."""
        return constant_rows(A, Vt)

    def step(self, gram: Array, penalty: Penalty, *, beta: float) -> Rule:  # noqa: ARG002
        """Return a multiplicative step."""
        return MultiplicativeStep(penalty, self.floor)


@dataclass(frozen=True, slots=True)
class Penalty:
    """What draws factors towards Boolean values (κ, λ) and V towards V̂ (γ), and the box [0, upper].

    `exact` takes the minimiser of the regularizer (and of its sum with the pull) instead of the printed operators. With
    `own`, component l is pulled with γ√(G_ll tr(G)/k) in place of γ: its unit is the geometric mean of the component's
    own curvature and the mean one.
    """

    kappa: float = 0.0
    lam: float = 0.0
    gamma: float = 0.0
    upper: float = 1.0
    exact: bool = False
    own: bool = False

    def __post_init__(self) -> None:
        for name in ("kappa", "lam", "gamma", "upper"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name}={getattr(self, name)} of a penalty must be 0 or more")

    def shrink(self, x: Array, eta: Weight, gram: Array, target: Array | None) -> Array:
        """Return the proximal operator with step η at x, in the box; without a target, nothing is pulled there."""
        own = np.diagonal(gram)
        gamma = eta * (np.sqrt(own * own.mean()) * x.dtype.type(self.gamma) if self.own else self.gamma)
        kappa, lam = eta * self.kappa, eta * self.lam
        if target is None or self.gamma == 0:
            shrunk = prox_elb_exact(x, kappa, lam) if self.exact else prox_elb(x, kappa, lam)
        elif self.exact:
            shrunk = prox_elb_and_towards(x, kappa, lam, gamma=gamma, target=target)
        else:
            shrunk = prox_elb_then_towards(x, kappa, lam, gamma=gamma, target=target, upper=self.upper)
        return np.where(shrunk > NEGLIGIBLE, np.minimum(shrunk, shrunk.dtype.type(self.upper)), shrunk.dtype.type(0))

    def numbers(self, code: float, *, beta: float, lowest: float, step: float, pulled: bool) -> Numbers | None:
        """Return the numbers of a step with this penalty; kernels do not know the exact operator of the sum."""
        if pulled and self.gamma and self.exact:
            return None
        lam, floor = (2 * self.lam, 0.0) if self.exact else (self.lam, -math.inf)
        gamma = self.gamma if pulled else 0.0
        return Numbers(code, beta, lowest, step, self.kappa, lam, floor, self.upper, gamma, float(self.own))


@dataclass(frozen=True, slots=True)
class GradientStep:
    """u ← prox_η(u + η(a − uG)), with one step size η for all entries, or η_l = η / Σ_d |G_ld| `by_component` l."""

    eta: float
    penalty: Penalty
    by_component: bool = False

    lowest = -math.inf

    def apply(self, u: Array, a: Array, gram: Array, target: Array | None = None) -> Array:
        """Return the rows that follow `u`."""
        eta: Weight = u.dtype.type(self.eta)
        if self.by_component:
            sums = np.abs(gram).sum(axis=1)
            least = max(float(sums.max(initial=0)) * SMALLEST_SHARE, SMALLEST_SUM)
            eta = (self.eta / np.maximum(sums, least)).astype(u.dtype)
        return self.penalty.shrink(u + eta * (a - u @ gram), eta, gram, target)

    def numbers(self, beta: float, *, pulled: bool) -> Numbers | None:
        """Return the step as kernels take it."""
        code = COMPONENT if self.by_component else GRADIENT
        return self.penalty.numbers(code, beta=beta, lowest=self.lowest, step=self.eta, pulled=pulled)


@dataclass(frozen=True, slots=True)
class MultiplicativeStep:
    """u ← prox_η(η ⊙ a) with η = u ⊘ uG, for points that are raised to `lowest` >= 0; the result is >= 0."""

    penalty: Penalty
    lowest: float = 0.0

    def apply(self, u: Array, a: Array, gram: Array, target: Array | None = None) -> Array:
        """Return the rows that follow `u`."""
        eta: Any = u / np.maximum(u @ gram, u.dtype.type(SMALLEST_DENOMINATOR))
        return self.penalty.shrink(eta * a, eta, gram, target)

    def numbers(self, beta: float, *, pulled: bool) -> Numbers | None:
        """Return the step as kernels take it."""
        return self.penalty.numbers(MULTIPLICATIVE, beta=beta, lowest=self.lowest, step=0.0, pulled=pulled)


CACHED_BYTES = 1 << 19
"""Bytes of rows that HALS sweeps together in NumPy: every coordinate reads all of them, so they stay in the cache."""


@dataclass(frozen=True, slots=True)
class HalsStep:
    """Sweeps over the coordinates, each set to its best value >= 0: u_l ← max(0, u_l + (a_l − (uG)_l) / G_ll).

    A component with G_ll = 0 contributes nothing; its coordinates stay as they are.
    """

    sweeps: int = 1

    lowest = 0.0

    def __post_init__(self) -> None:
        if self.sweeps < 1:
            raise InputError(f"sweeps={self.sweeps}: HALS needs at least one sweep")

    def apply(self, u: Array, a: Array, gram: Array, target: Array | None = None) -> Array:
        """Return the rows that follow `u`; there is no pull towards a target."""
        if target is not None:
            raise InputError("HALS sweeps are not drawn towards a target")
        u = u.copy()
        at_once = max(64, CACHED_BYTES // max(1, u.itemsize * u.shape[1]) // 64 * 64)
        for first in range(0, len(u), at_once):
            self._sweep_into(u[first : first + at_once], a[first : first + at_once], gram)
        return u

    def _sweep_into(self, u: Array, a: Array, gram: Array) -> None:
        for _ in range(self.sweeps):
            for coordinate in np.flatnonzero(np.diagonal(gram) > 0):
                slope = a[:, coordinate] - u @ gram[:, coordinate]
                u[:, coordinate] = np.maximum(u[:, coordinate] + slope / gram[coordinate, coordinate], 0)

    def numbers(self, beta: float, *, pulled: bool) -> Numbers | None:
        """Return the step as kernels take it."""
        return None if pulled else Numbers(HALS, beta, self.lowest, float(self.sweeps))
