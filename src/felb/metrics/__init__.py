"""Scores from counts that add across clients, and their history over the rounds."""

from felb.metrics.counts import DECIDED, Counts, confusion, integrality_gap
from felb.metrics.history import History

__all__ = ["DECIDED", "Counts", "History", "confusion", "integrality_gap"]
