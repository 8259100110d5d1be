"""Step rules: how far to go along the gradient of ½‖A − UV‖² before the proximal operator.

A rule takes the point X it starts from, X·G and the data term for the other factor's Gram matrix G (for rows of U:
G = VVᵀ and A·Vᵀ; for columns of V: G = UᵀU and Aᵀ·U) and gives the point after the gradient step X − η(X·G − data)
together with η, which also scales the proximal operator. FELB and FELB-MU differ in this rule only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from felb.optim.start import constant_rows, projected_rows

if TYPE_CHECKING:
    from felb.linalg.binary import BinaryMatrix
    from felb.optim.prox import Array, Weight

LIPSCHITZ_FLOOR = 1e-4
"""Keeps the step finite when a factor has vanished."""

DENOMINATOR_FLOOR = 1e-12


class StepRule(Protocol):
    """(X, data, G, inertia) -> (X − η(XG − data), η)."""

    @property
    def name(self) -> str:
        """The word for this rule."""
        ...

    def first_rows(self, A: BinaryMatrix, Vt: Array) -> Array:
        """Return the U to start from, given the V to start from; it depends on each row alone."""
        ...

    def __call__(self, point: Array, data: Array, gram: Array, *, beta: float) -> tuple[Array, Weight]:
        """Take the gradient step from `point`."""
        ...


@dataclass(frozen=True, slots=True)
class Lipschitz:
    """One step size for all: η = 1/L with L = ‖G‖ in the Frobenius norm, an upper bound of the gradient's constant.

    Without inertia η = 1/(1.1 L); with inertia β the step of iPALM, η = 2(1−β) / ((1+2β) L).
    """

    name: str = "lipschitz"

    def first_rows(self, A: BinaryMatrix, Vt: Array) -> Array:
        """Return AVᵀ ⊘ 1VVᵀ."""
        return projected_rows(A, Vt)

    def step_size(self, gram: Array, beta: float) -> float:
        """Return η for the Gram matrix of the other factor."""
        constant = max(float(np.linalg.norm(gram)), LIPSCHITZ_FLOOR)
        return 2 * (1 - beta) / ((1 + 2 * beta) * constant) if beta else 1 / (1.1 * constant)

    def __call__(self, point: Array, data: Array, gram: Array, *, beta: float) -> tuple[Array, Weight]:
        """Return X − η(XG − data) and the scalar η."""
        eta = point.dtype.type(self.step_size(gram, beta))
        return point - eta * (point @ gram - data), eta


@dataclass(frozen=True, slots=True)
class Multiplicative:
    """One step size per entry, η = X ⊘ XG, which turns the gradient step into X ⊙ data ⊘ XG (Lee and Seung)."""

    name: str = "multiplicative"

    def first_rows(self, A: BinaryMatrix, Vt: Array) -> Array:
        """Return ½ everywhere."""
        return constant_rows(A, Vt)

    def __call__(self, point: Array, data: Array, gram: Array, *, beta: float) -> tuple[Array, Weight]:  # noqa: ARG002
        """Return X ⊙ data ⊘ XG and the array η; X must not be negative."""
        eta: Any = point / np.maximum(point @ gram, point.dtype.type(DENOMINATOR_FLOOR))
        return eta * data, eta
