"""Scikit-learn estimators of the algorithms, on the local engine."""

from felb.estimators.felb_estimators import FELB, FELBMU

__all__ = ["FELB", "FELBMU"]
