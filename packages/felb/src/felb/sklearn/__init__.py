"""Scikit-learn estimators of the algorithms, on the local engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.late import late_names

if TYPE_CHECKING:
    from felb.sklearn.federated import FELB, FELBMU

__all__ = [
    "FELB",
    "FELBMU",
]

__getattr__ = late_names(
    __name__,
    {
        "FELB": "felb.sklearn.federated",
        "FELBMU": "felb.sklearn.federated",
    },
)
