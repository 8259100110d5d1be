"""Rounds of private statistics: noisy sums over records for a public V̂.

With V̂ frozen, u_r depends on row r alone: the start, the number of steps, the step size 1/‖V̂V̂ᵀ‖ and λ are public.
So the statistics

    [ Σ_r u_r a_rᵀ ,  w Σ_r u_r u_rᵀ ]        with ‖u_r‖ <= c, ‖a_r‖ <= s

are sums over records, and a record moves them by at most √(c²s² + w²c⁴) per round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.optim.prox import prox_elb
from felb.privacy.bounds import GRID_BITS, RecordSum, capped_weights, check_bound, floor_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

    Array = NDArray[np.float64]

LIFT = 0.1
"""Least eigenvalue of UᵀU that is believed, relative to the largest."""


@dataclass(frozen=True, slots=True)
class StatisticsBounds:
    """Bounds of one record in a round of statistics: ‖u_r‖ <= c, ‖a_r‖ <= s, and the weight w of the second part."""

    c: float = 1.0
    s: float = 5.0
    w: float = 1.0

    def __post_init__(self) -> None:
        for name in ("c", "s", "w"):
            check_bound(name, getattr(self, name))

    @property
    def sensitivity(self) -> float:
        """√(c²s² + w²c⁴)."""
        return math.sqrt(self.c**2 * self.s**2 + self.w**2 * self.c**4)


def fit_rows(A: BinaryMatrix, V: Array, *, U: Array | None = None, steps: int = 20, lam: float = 0.02) -> Array:
    """Take proximal gradient steps for U at a frozen, public V; row r of the result depends on row r of A alone.

    u ← clip(prox_{0,λ}(u − (uV Vᵀ − aVᵀ)/‖VVᵀ‖), 0, 1), from ½ or from the U of the round before. All sums run in an
    order that does not depend on the other rows, so that isolation holds to the last bit.
    """
    V = np.asarray(V, dtype=np.float64)
    if V.shape[1] != A.shape[1]:
        raise InputError(f"V has {V.shape[1]} columns, but the data has {A.shape[1]}")
    gram, targets = V @ V.T, A.to_scipy(np.float64) @ V.T
    step = 1 / max(float(np.linalg.norm(gram, 2)), 1e-9)
    rows: Array = np.full((A.shape[0], V.shape[0]), 0.5) if U is None else np.asarray(U, dtype=np.float64)
    for _ in range(steps):
        gradient = -targets
        for component in range(V.shape[0]):  # a matrix product may add in another order for another number of rows
            gradient = gradient + rows[:, component, None] * gram[component]
        rows = np.clip(prox_elb(rows - step * gradient, 0.0, lam), 0, 1)
    return rows


def clipped_statistics(A: BinaryMatrix, U: Array, bounds: StatisticsBounds, *, bits: int = GRID_BITS) -> RecordSum:
    """Return [UᵀA, w·triu(UᵀU)] with clipped rows as km + k(k+1)/2 integers, in steps of 2^−bits.

    Each record's part is rounded towards zero before the sum, so it is never longer than the bounds allow.
    """
    U = np.asarray(U, dtype=np.float64)
    if U.ndim != 2 or U.shape[0] != A.shape[0] or (U.size and U.min() < 0):
        raise InputError(f"U must hold {A.shape[0]} rows of non-negative numbers")
    lengths = np.sqrt((U * U).sum(axis=1))
    clipped = U * np.minimum(1.0, (1 - 1e-12) * bounds.c / np.maximum(lengths, 1e-300))[:, None]
    # A binary record is shortened to s as a whole, so that its share of UᵀA is still an integer times the record.
    shortening = capped_weights(np.sqrt(A.row_sums().astype(np.float64)), bounds.s, 30)
    shares = floor_steps(clipped * np.ldexp(shortening.astype(np.float64), -30)[:, None], bits)
    first = np.asarray((A.to_scipy(np.int64).T @ shares).T)
    left, right = np.triu_indices(U.shape[1])
    second = np.array(
        [floor_steps(bounds.w * clipped[:, i] * clipped[:, j], bits).sum() for i, j in zip(left, right, strict=True)],
        dtype=np.int64,
    )
    return RecordSum(
        np.concatenate((first.ravel(), second)), math.ldexp(1.0, -bits), math.ldexp(bounds.sensitivity, bits)
    )


def read_statistics(
    total: NDArray[Any], k: int, m: int, *, grid: float, bounds: StatisticsBounds
) -> tuple[Array, Array]:
    """Return (UᵀA, UᵀU) of the sum of releases, as real numbers."""
    values = np.asarray(total, dtype=np.float64) * grid
    if values.shape != (k * m + k * (k + 1) // 2,):
        raise InputError(f"{values.size} numbers are no statistics of {k} components and {m} columns")
    gram = np.zeros((k, k))
    gram[np.triu_indices(k)] = values[k * m :] / bounds.w
    return values[: k * m].reshape(k, m), gram + np.triu(gram, 1).T


def improve_components(V: Array, S: Array, G: Array, *, lam: float, steps: int = 10) -> Array:
    """Take the server's steps on ½⟨V, GV⟩ − ⟨V, S⟩ + R(V) over [0, 1], for noisy S ≈ UᵀA and G ≈ UᵀU.

    Noise can make G indefinite, and its small eigenvalues are noise in any case; they are lifted to a tenth of the
    largest.
    """
    values, vectors = np.linalg.eigh((G + G.T) / 2)
    top = max(float(values[-1]), 1e-9)
    lifted = (vectors * np.maximum(values, top * LIFT)) @ vectors.T
    V = np.asarray(V, dtype=np.float64)
    for _ in range(steps):
        V = np.clip(prox_elb(V - (lifted @ V - S) / top, 0.0, lam), 0, 1)
    return V
