"""The scikit-learn faces of the recipes, on the local engine."""

from felb.estimators.felb import FELB, FELBMU

__all__ = ["FELB", "FELBMU"]
