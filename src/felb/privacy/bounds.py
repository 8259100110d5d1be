"""Sums over records with a bounded part of each record: shared code of the record-level releases.

All parts are vectors of integers. Where they are non-negative, two of them never point in opposite directions, and
exchanging a record moves a sum by at most √2 times what adding or removing one does; otherwise by twice as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.privacy.cost import Neighbours

GRID_BITS = 10
"""Weights and shares of a record are multiples of 2^−10: coarse enough for int64, fine enough for the noise of any
client to span `felb.privacy.discrete.FINEST` steps, also where it adds a share of it only."""


@dataclass(frozen=True, slots=True)
class RecordSum:
    """A statistic Σ_r f(r) as integers, ready for discrete noise.

    Parameters
    ----------
    values : int64 array, in steps of `grid`; sums over clients are sums of these
    grid : what one step means
    sensitivity : max_r ‖f(r)‖₂ in steps, however the other records look
    signed : parts may have negative entries
    """

    values: NDArray[np.int64]
    grid: float
    sensitivity: float
    signed: bool = False

    def sensitivity_for(self, neighbours: Neighbours) -> float:
        """Δ₂ in steps: the bound itself if a record is added or removed, √2 or 2 times that if it is replaced."""
        if neighbours == "add_remove":
            return self.sensitivity
        return self.sensitivity * (2.0 if self.signed else math.sqrt(2))

    def plus(self, other: RecordSum) -> RecordSum:
        """Return the sum over the records of both; a record has a part in one of them, so the bound stays."""
        if (self.grid, self.sensitivity, self.signed) != (other.grid, other.sensitivity, other.signed):
            raise InputError("two sums over records with different bounds cannot be added")
        return replace(self, values=self.values + other.values)


def floor_steps(values: NDArray[np.float64], bits: int = GRID_BITS) -> NDArray[np.int64]:
    """⌊2^bits · x⌋ for x >= 0: rounding towards zero never lengthens a vector, so bounds survive it."""
    return np.floor(np.ldexp(values, bits)).astype(np.int64)


def capped_weights(norms: NDArray[np.float64], bound: float, bits: int = GRID_BITS) -> NDArray[np.int64]:
    """Integer weights w <= 2^bits with w · norm <= 2^bits · bound: as near to min(1, bound/norm) as the grid allows."""
    full = 1 << bits
    weights = floor_steps(bound / np.maximum(norms, bound), bits)
    # The division rounds; one step less makes sure where it rounded up.
    return np.where(weights * norms > full * bound, weights - 1, weights)


def check_bound(name: str, value: float, least: float = 0.0) -> float:
    """Return a bound that is finite and above `least`, or raise."""
    if not (math.isfinite(value) and value > least):
        raise InputError(f"{name} must be finite and above {least:g}, got {value}")
    return float(value)
