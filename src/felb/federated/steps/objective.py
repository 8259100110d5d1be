"""Objectives of the Boolean steps: functions of the summed counts, and the weights of cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.metrics import Counts

LEAST_F1 = 0.02
"""Below it, covering would cost next to nothing and everything would be covered."""

WEIGHT_BITS = 20
"""Weights are rounded to this many fractional bits, so that a fixed point is reached exactly."""


class Objective(Protocol):
    """A function of summed counts to be made small by switching cells on and off."""

    @property
    def name(self) -> str:
        """The word for this objective."""
        ...

    def value(self, counts: Counts) -> float:
        """Return what is minimised."""
        ...

    def weights(self, counts: Counts | None) -> tuple[float, float]:
        """Return (s₁, s₀): what covering a one and covering a zero is worth at these counts, if any are known."""
        ...


@dataclass(frozen=True, slots=True)
class Cost:
    """c₊·fp + c₋·fn; with both costs 1, the Hamming loss |A ⊕ U∘V|."""

    false_positive: float = 1.0
    false_negative: float = 1.0
    name: str = "hamming"

    def __post_init__(self) -> None:
        for name in ("false_positive", "false_negative"):
            cost = getattr(self, name)
            if not (np.isfinite(cost) and cost > 0):
                raise InputError(f"{name}_cost must be a positive number, or inf for one of the two, got {cost}")

    @classmethod
    def of(cls, false_positive: float, false_negative: float, n_features: int) -> Cost:
        """Return costs of which one may be infinite, for data of so many columns.

        An infinite cost is (m + 1) times the other one. As a row has m cells, a row that is assigned by gains never
        pays for a single false positive (factorization from below) or false negative (from above).
        """
        if np.isinf(false_positive) and np.isinf(false_negative):
            raise InputError("false_positive_cost and false_negative_cost cannot both be infinite; give one a number")
        if false_positive == np.inf:
            false_positive = (n_features + 1) * false_negative
        elif false_negative == np.inf:
            false_negative = (n_features + 1) * false_positive
        return cls(false_positive, false_negative)

    def value(self, counts: Counts) -> float:
        """Return the cost of all wrong cells."""
        return self.false_positive * counts.fp + self.false_negative * counts.fn

    def weights(self, counts: Counts | None) -> tuple[float, float]:  # noqa: ARG002
        """A covered one is no false negative, a covered zero is a false positive."""
        return self.false_negative, -self.false_positive


@dataclass(frozen=True, slots=True)
class NegativeF1:
    """−F1 by Dinkelbach's method: at F = F1, more of (1 − F/2)·tp − (F/2)·fp means a larger F1."""

    name: str = "f1"

    def value(self, counts: Counts) -> float:
        """Return −F1."""
        return -counts.f1

    def weights(self, counts: Counts | None) -> tuple[float, float]:
        """Return (1 − F/2, −F/2), or the weights of the Hamming loss where no F is known."""
        if counts is None:
            return 1.0, -1.0
        half = np.ldexp(np.rint(np.ldexp(max(counts.f1, LEAST_F1) / 2, WEIGHT_BITS)), -WEIGHT_BITS)
        return float(1 - half), float(-half)


@dataclass(frozen=True, slots=True)
class NegativeLogLikelihood:
    """−log P(A | U∘V) where cells are one with the density a inside of U∘V and b outside, both as counted."""

    name: str = "likelihood"

    def value(self, counts: Counts) -> float:
        """Return −Σ (ones·log p + zeros·log (1 − p)) over the two densities p."""
        covered = counts.tp + counts.fp
        total = 0.0
        for ones, cells in ((counts.tp, covered), (counts.fn, counts.cells - covered)):
            density = (ones + 1) / (cells + 2)
            total -= ones * np.log(density) + (cells - ones) * np.log1p(-density)
        return float(total)

    def weights(self, counts: Counts | None) -> tuple[float, float]:
        """Return (log a/b, log (1−a)/(1−b)), or the weights of the Hamming loss where a > b is not known."""
        if counts is None:
            return 1.0, -1.0
        inside = (counts.tp + 1) / (counts.tp + counts.fp + 2)
        outside = (counts.fn + 1) / (counts.cells - counts.tp - counts.fp + 2)
        if inside <= outside:
            return 1.0, -1.0
        return float(np.log(inside / outside)), float(np.log1p(-inside) - np.log1p(-outside))


def as_array(weights: tuple[float, float]) -> NDArray[np.float64]:
    """Return weights as they are requested."""
    return np.asarray(weights, dtype=np.float64)
