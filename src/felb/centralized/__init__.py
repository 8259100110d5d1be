"""Centralized estimators, one algorithm per file."""

from felb.centralized.elbmf import ELBMF

__all__ = ["ELBMF"]
