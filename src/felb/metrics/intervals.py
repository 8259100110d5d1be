"""Mean and confidence interval of a score over trials."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean and 95% confidence interval of some trials."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half(self) -> float:
        """Half the width; NaN for a single trial, of which no spread is known."""
        return (self.high - self.low) / 2


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Mean x̄ and the interval x̄ ± t₀.₉₇₅(n−1) s/√n of Student's t; None without values.

    Examples
    --------
    >>> found = mean_interval([1.0, 2.0, 3.0])
    >>> found.mean, round(found.half, 3)
    (2.0, 2.484)
    """
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Interval(mean, math.nan, math.nan, 1)
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half, len(values))
