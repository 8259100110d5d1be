"""The terms of a round: quorum, grace period and timeouts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from felb.errors import InputError

FEWEST_SITES = 3
"""Of an exact run whose sums the sites are told, so that they can replay it."""
MOMENT = 3.0
"""Seconds for a site that has let the round before pass."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a round: quorum, grace period and timeouts.

    Parameters
    ----------
    quorum : number of responses that a round needs
    grace : seconds for the remaining sites once the quorum has responded
    round_timeout : seconds after which a round ends in any case
    patience : seconds for sites that are not connected, and for a relay that is being restarted
    """

    quorum: int = 2
    grace: float = 30.0
    round_timeout: float = 600.0
    patience: float = 60.0

    def __post_init__(self) -> None:
        if type(self.quorum) is not int or self.quorum < 1:
            raise InputError(f"quorum must be a whole number of at least 1, got {self.quorum!r}")
        for name in ("grace", "round_timeout", "patience"):
            value = getattr(self, name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not (math.isfinite(value) and value >= 0)
            ):
                raise InputError(f"{name} must be a number of seconds, got {value!r}")

    @classmethod
    def of(cls, arguments: Any) -> Terms:
        """Read terms from plain data."""
        if arguments is None:
            return cls()
        unknown = sorted(set(arguments) - set(cls.__dataclass_fields__))
        if unknown:
            raise InputError(f"terms has no {unknown[0]!r}; it has {', '.join(cls.__dataclass_fields__)}")
        return cls(**arguments)

    def to_json(self) -> dict[str, Any]:
        """Return plain data that `of` reads back."""
        return asdict(self)

    def deadline(self, *, begun: float, quorum: float, everyone: bool, silent: bool, away: bool) -> float:
        """Return until when a missing site is waited for once a quorum has answered, on the clock of the arguments.

        Parameters
        ----------
        begun, quorum : when the round began, and when a quorum had answered
        everyone : the task is for all sites: it has no grace period, only the timeout, since absent sites would get no
            assignment
        silent : the site let the round before pass; it is probably gone, and gets a moment
        away : the site is not connected
        """
        end = begun + self.round_timeout
        if silent:
            return min(end, quorum + min(self.grace, MOMENT))
        if not everyone:
            end = min(end, quorum + self.grace)
        return min(end, max(quorum, begun + self.patience)) if away else end
