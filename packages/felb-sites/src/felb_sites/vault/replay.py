"""A site plays the server's part along: from the plan and the sums of the rounds it derives the next request itself.

The server's side of an algorithm is a deterministic generator, so a site that knows the plan and the sums knows what
must be asked next, and answers nothing else. What is left to a coordinator that has turned are false sums; they are of
the shape of true ones, at least this site's own part where all sites are in them, and what is made of them is still a
request of the approved algorithm.

Boolean and whole values of a request must be the derived ones to the last bit. Real ones, such as V̂ of relaxed steps,
come from linear algebra, whose last bits depend on the machine. There the coordinator's values are taken if they are
close to the derived ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.loop import Execution
from felb.federated.protocol import Part, Request
from felb.federated.tasks import ResponseValidator
from felb_sites.vault.policy import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.journal import Journal
    from felb.federated.protocol import Algorithm, Sums

CLOSE = 1e-4
"""Largest difference of real values, relative to their own size, or to the largest of their array if it is below 1."""


class Replay:
    """The server's part of a run, as a site plays it.

    Parameters
    ----------
    algorithm, seed : of the approved plan
    journal : what is known of earlier rounds; whoever keeps it takes its changes after `receive`
    sites : that take part by the plan, so that no sum is of more
    """

    def __init__(self, algorithm: Algorithm, seed: int, journal: Journal, *, sites: int) -> None:
        self._sites = sites
        self._validator = ResponseValidator(algorithm)
        self.journal = journal
        self._execution = Execution(algorithm, seed=seed, journal=journal)

    @property
    def have(self) -> int:
        """Rounds whose sums are known."""
        return len(self._execution.rows)

    def receive(self, sums: Sums, *, own: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Play on with the sums of the round that was asked last.

        Parameters
        ----------
        sums : as the coordinator tells them
        own : this site's part in them, where all sites are in the sum
        """
        request = self._execution.request
        if request is None or sums.round != self.have:
            raise Refusal(f"sums of round {sums.round} came, those of {self.have} were due", code="behind")
        if not 1 <= sums.clients <= self._sites:
            raise Refusal(f"the sums of round {sums.round} are of more sites than there are", code="request")
        try:
            with np.errstate(all="ignore"):
                self._validator.check_sum(sums, request, own=own)
                self._execution.receive(sums)
        except Exception as error:  # sums that no round can have
            raise Refusal(
                f"the algorithm cannot process the sums of round {sums.round}: {error!r}", code="request"
            ) from error

    def request(self, real: Mapping[str, NDArray[Any]]) -> Request:
        """Return the request that follows from plan and sums.

        Real-valued fields are the coordinator's, by the names ``p0.field`` for the first part, if they are close to the
        derived ones.
        """
        derived = self._execution.request
        if derived is None:
            raise Refusal("the run is over by its own sums", code="request")
        parts, used = [], set()
        for index, part in enumerate(derived.parts):
            given = {name: f"p{index}.{name}" for name in part.values if f"p{index}.{name}" in real}
            values = {name: real[given[name]] if name in given else value for name, value in part.values.items()}
            if not same_values(values, part.values):
                raise Refusal("the request is not the one that follows from the plan and the sums", code="request")
            used |= set(given.values())
            parts.append(Part(part.task, values, part.lane))
        if used != real.keys():
            raise Refusal("the coordinator has sent fields that the request does not have", code="request")
        return Request.of(parts, all_clients=derived.all_clients, number=derived.round)


def same_values(values: Mapping[str, NDArray[Any]], derived: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether values are the derived ones: to the last bit, and real ones up to rounding."""
    if values.keys() != derived.keys():
        return False
    for name, value in values.items():
        own = np.asarray(derived[name])
        if value.shape != own.shape or value.dtype != own.dtype:
            return False
        if own.dtype.kind != "f":
            if not np.array_equal(value, own):
                return False
        elif own.size and not _close(value, own):
            return False
    return True


def _close(value: NDArray[Any], own: NDArray[Any]) -> bool:
    """Return whether real values are derived ones up to rounding.

    Entries below 1 are close by at most `CLOSE` itself: one that false sums have made huge, or infinite, must not leave
    the others to whoever asks.
    """
    size = np.abs(own)
    scale = min(1.0, max(1e-12, float(size.max())))
    return bool(np.isfinite(size).all() and np.all(np.abs(value - own) <= CLOSE * np.maximum(size, scale)))
