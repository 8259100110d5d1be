"""Scores from counts that add across clients, and their history over the rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb._lazy import import_when_used

if TYPE_CHECKING:
    from felb.metrics.counts import DECIDED, Counts, History, confusion, integrality_gap

__all__ = [
    "DECIDED",
    "Counts",
    "History",
    "confusion",
    "integrality_gap",
]

__getattr__ = import_when_used(
    __name__,
    {
        "DECIDED": "felb.metrics.counts",
        "Counts": "felb.metrics.counts",
        "History": "felb.metrics.counts",
        "confusion": "felb.metrics.counts",
        "integrality_gap": "felb.metrics.counts",
    },
)
