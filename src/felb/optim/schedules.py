"""Regularization weights over time."""

from __future__ import annotations

from dataclasses import dataclass

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
