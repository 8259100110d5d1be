"""Scores from counts that add across clients."""

from felb.metrics.counts import DECIDED, Counts, confusion, integrality_gap

__all__ = ["DECIDED", "Counts", "confusion", "integrality_gap"]
