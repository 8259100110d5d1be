"""One round at the coordinator: collect responses, then close."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from felb.errors import FederationError
from felb.federated.protocol import Sums

if TYPE_CHECKING:
    from felb.federated.protocol import Release, Request

T = TypeVar("T")
NOT_ANSWERED, ABSENT = "did not answer in time", "was not connected"


class QuorumError(FederationError):
    """Too few sites answered; says why for each of the others."""

    def __init__(self, reasons: dict[str, str], message: str) -> None:
        super().__init__(message)
        self.reasons = reasons


class NotReady(QuorumError):
    """Sites that were named do not take part, so nobody was asked for anything."""

    def __init__(self, reasons: dict[str, str]) -> None:
        told = "; ".join(f"{site}: {reason}" for site, reason in sorted(reasons.items()))
        super().__init__(reasons, f"the run was not begun, and no privacy budget was spent. {told}")


class Answers(Generic[T]):
    """What came in during a round; written by FLARE's threads, read by the controller's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._releases: dict[str, T] = {}
        self._reasons: dict[str, str] = {}
        self._closed = False

    def add(self, site: str, release: T) -> None:
        """Keep an answer, unless the round is closed or the site has answered."""
        with self._lock:
            if not self._closed and site not in self._releases:
                self._releases[site] = release
                self._reasons.pop(site, None)

    def fail(self, site: str, reason: str) -> None:
        """Keep why a site has no answer."""
        with self._lock:
            if not self._closed and site not in self._releases:
                self._reasons[site] = reason

    def counts(self) -> tuple[int, int]:
        """Return how many answers were admitted, and how many sites gave none."""
        with self._lock:
            return len(self._releases), len(self._reasons)

    def heard(self) -> set[str]:
        """Return the sites that have answered or said why not."""
        with self._lock:
            return {*self._releases, *self._reasons}

    def taken(self) -> tuple[dict[str, T], dict[str, str]]:
        """Close the round and return what came in."""
        with self._lock:
            self._closed = True
            return dict(self._releases), dict(self._reasons)


def summed(request: Request, releases: dict[str, Release], reasons: dict[str, str]) -> Sums:
    """Add up a round in the order of names, so that arrival does not show."""
    return Sums.of((releases[site] for site in sorted(releases)), missing=reasons, number=request.round)


def quorum_error(request: Request, came: int, quorum: int, *, reasons: dict[str, str]) -> QuorumError:
    """Return the error of a round for which too few sites have answered."""
    told = "; ".join(f"{site}: {reason}" for site, reason in sorted(reasons.items()))
    return QuorumError(reasons, f"round {request.round}: {came} sites answered and {quorum} are needed. {told}")
