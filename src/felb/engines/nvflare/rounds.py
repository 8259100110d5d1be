"""One round at the coordinator: collect, close, add up, combine."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from felb.errors import FederationError
from felb.federated.messages import Total

if TYPE_CHECKING:
    from felb.engines.local import Snapshot
    from felb.federated.messages import Broadcast, Release
    from felb.federated.server import Recipe

NOT_ANSWERED, ABSENT = "did not answer in time", "was not connected"


class QuorumError(FederationError):
    """Too few sites answered; says why for each of the others."""

    def __init__(self, reasons: dict[str, str], message: str) -> None:
        super().__init__(message)
        self.reasons = reasons


class Answers:
    """What came in during a round; written by FLARE's threads, read by the controller's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._releases: dict[str, Release] = {}
        self._reasons: dict[str, str] = {}
        self._closed = False

    def add(self, site: str, release: Release) -> None:
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

    def taken(self) -> tuple[dict[str, Release], dict[str, str]]:
        """Close the round and return what came in."""
        with self._lock:
            self._closed = True
            return dict(self._releases), dict(self._reasons)


def combined(
    recipe: Recipe, snapshot: Snapshot, broadcast: Broadcast, *, releases: dict[str, Release], reasons: dict[str, str]
) -> Snapshot:
    """Add up a round in the order of names, so that arrival does not show, and let the server combine the sum."""
    total = Total.of(releases[site] for site in sorted(releases))
    server = recipe.server.combine(total.values, total.n_clients, snapshot.server)
    row: dict[str, Any] = {"round": broadcast.round, "task": broadcast.task, "clients": total.n_clients}
    if reasons:
        row["missing"] = sorted(reasons)
    return replace(snapshot, server=server, history=snapshot.history.plus({**row, **recipe.server.record(server)}))
