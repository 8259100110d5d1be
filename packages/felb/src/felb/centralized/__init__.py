"""Centralized estimators, one algorithm per file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.late import late_names

if TYPE_CHECKING:
    from felb.centralized.elbmf import ELBMF

__all__ = [
    "ELBMF",
]

__getattr__ = late_names(
    __name__,
    {
        "ELBMF": "felb.centralized.elbmf",
    },
)
