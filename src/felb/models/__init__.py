"""Centralized estimators, one algorithm per file."""

from felb.models.elbmf import ELBMF

__all__ = ["ELBMF"]
