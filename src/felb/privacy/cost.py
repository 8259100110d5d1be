"""The privacy cost of a release, in a form that an accountant can compose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from felb.errors import InputError

Unit = Literal["record", "client"]
"""Whose presence is hidden: that of one row, or that of a client with all its rows."""

Neighbours = Literal["add_remove", "replace"]
"""Two data sets are neighbours if one has a unit more than the other, or if one unit is exchanged for another."""

Kind = Literal["gaussian", "laplace", "bits"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The privacy one release spends.

    Parameters
    ----------
    kind : the noise; it decides what `loss` means
        ``gaussian``: μ = Δ₂/σ of Gaussian differential privacy;
        ``laplace``: ε = Δ₁/b;
        ``bits``: ε₀ = ln((1−p)/p) of each of `count` bits flipped with probability p
    loss : positive number
    unit, neighbours : whom the release protects, and against which change of the data
    count : independent parts of the release that each cost `loss`
    """

    kind: Kind
    loss: float
    unit: Unit
    neighbours: Neighbours = "add_remove"
    count: int = 1

    def __post_init__(self) -> None:
        for name, allowed in (("kind", Kind), ("unit", Unit), ("neighbours", Neighbours)):
            if getattr(self, name) not in get_args(allowed):
                raise InputError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(get_args(allowed))}")
        if isinstance(self.loss, bool) or not isinstance(self.loss, int | float):
            raise InputError(f"loss must be a number, got {type(self.loss).__name__}")
        if type(self.count) is not int:
            raise InputError(f"count must be a whole number, got {type(self.count).__name__}")
        if not (math.isfinite(self.loss) and self.loss > 0):
            raise InputError(f"a release costs a positive, finite amount, got {self.loss}; None means unprotected")
        if self.count < 1:
            raise InputError(f"a release has at least one part, got count={self.count}")

    @property
    def pure_epsilon(self) -> float:
        """ε of pure differential privacy (δ = 0) by adding up; infinite for Gaussian noise, which offers none."""
        return math.inf if self.kind == "gaussian" else self.count * self.loss

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `from_json` reads them."""
        return {
            "kind": self.kind,
            "loss": self.loss,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "count": self.count,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Cost:
        """Read back what `to_json` gave."""
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"{values} does not describe the cost of a release: {error}") from error
