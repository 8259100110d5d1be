"""The terms of a round: quorum, grace period and timeouts."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

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
    rounds_per_job : rounds between two chances for absent sites to rejoin
    patience : seconds to wait until an earlier process releases the run
    """

    quorum: int = 2
    grace: float = 30.0
    round_timeout: float = 600.0
    rounds_per_job: int = 25
    patience: float = 20.0

    def __post_init__(self) -> None:
        for name in ("quorum", "rounds_per_job"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
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

    def allowance(self, *, everyone: bool, silent: bool) -> float:
        """Return how long missing sites are waited for once a quorum has answered.

        A task for `everyone` has no such limit, only the timeout: absent sites would get no assignment. If all that are
        missing were `silent` in the round before, they are probably gone, and get a moment only.
        """
        if silent:
            return min(self.grace, MOMENT)
        return math.inf if everyone else self.grace

    def wait(
        self,
        counts: Callable[[], tuple[int, int]],
        n_sites: int,
        *,
        allowance: Callable[[], float],
        gone: Callable[[], bool],
        pause: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Wait for a round to be over; False if the job was aborted meanwhile.

        A round is over when every site has answered or failed, at the timeout, or when a quorum has answered and the
        others have had their `allowance` of seconds since.
        """
        start, quorum_since = clock(), math.inf
        while True:
            if gone():
                return False
            answered, failed = counts()
            now = clock()
            if answered >= self.quorum:
                quorum_since = min(quorum_since, now)
            if answered + failed >= n_sites or now - start >= self.round_timeout:
                return True
            if now - quorum_since >= allowance():
                return True
            sleep(pause)
