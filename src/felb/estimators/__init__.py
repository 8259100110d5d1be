"""The scikit-learn faces of the algorithms, on the local engine."""

from felb.estimators.felb import FELB, FELBMU

__all__ = ["FELB", "FELBMU"]
