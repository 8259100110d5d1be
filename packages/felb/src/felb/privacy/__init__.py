"""Privacy specification, mechanisms, accountant and outbound log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from felb._lazy import import_when_used

if TYPE_CHECKING:
    from felb.privacy.spec import Privacy

__all__ = ["Privacy"]

MechanismName = Literal["cooccurrence", "statistics", "hybrid", "uploads"]
"""What a private run releases, see `felb.privacy.Privacy`."""

NoisePlace = Literal["client", "distributed"]
"""Who adds the noise: each client all of it, or a share of it."""

Unit = Literal["record", "client"]
"""Whose presence is hidden: that of one row, or that of a client with all its rows."""

Neighbours = Literal["add_remove", "replace"]
"""Two data sets are neighbours if one has a unit more than the other, or if one unit is exchanged for another."""

__getattr__ = import_when_used(__name__, {"Privacy": "felb.privacy.spec"})
