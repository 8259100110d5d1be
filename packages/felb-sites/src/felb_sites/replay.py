"""A site plays the server's part along: from the plan and the sums of the rounds it derives the next request itself.

The server's side of an algorithm is a deterministic generator, so a site that knows the plan and the sums knows what
must be asked next, and answers nothing else. What is left to a coordinator that has turned are false sums; they are of
the shape of true ones, and what is made of them is still a request of the approved algorithm.

Boolean and whole values of a request must be the derived ones to the last bit. Real ones, such as V̂ of relaxed steps,
come from linear algebra, whose last bits depend on the machine. There the coordinator's values are taken if they are
close to the derived ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.journal import Journal, digest, pack, unpack
from felb.federated.loop import Execution
from felb.federated.protocol import Sums
from felb.federated.tasks import ResponseValidator
from felb_sites.site_policy import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.federated.protocol import Algorithm, Request

CLOSE = 1e-4
"""Largest difference of real values, relative to their own size, or to the largest of their array if it is below 1."""
MOST_CLIENTS = 100_000
MOST_ROUNDS_AT_ONCE = 100_000


class Replay:
    """The server's part of a run, as a site plays it.

    Parameters
    ----------
    algorithm, seed : of the approved plan
    folder : where the sums are kept
    sites : that take part by the plan, so that no sum is of more
    """

    def __init__(self, algorithm: Algorithm, seed: int, folder: Path, *, sites: int | None = None) -> None:
        self._sites = MOST_CLIENTS if sites is None else sites
        self._validator = ResponseValidator(algorithm)
        self._journal = Journal(folder, advice=f"delete {folder}; the coordinator sends all sums again")
        self._execution = Execution(algorithm, seed=seed, journal=self._journal)

    @property
    def have(self) -> int:
        """Rounds whose sums are known."""
        return len(self._execution.rows)

    def receive(self, sums: Sequence[Sums]) -> None:
        """Play on with the sums of further rounds; those that are known are left out."""
        for part in sums:
            if part.round != self.have:
                if part.round < self.have:
                    continue
                break  # rounds are missing in between; the next request tells that
            request = self._execution.request
            if request is None:
                break
            if part.clients > self._sites:
                raise Refusal(f"the sums of round {part.round} are of more sites than there are", code="request")
            try:
                with np.errstate(all="ignore"):
                    self._validator.check_sum(part, request)
                    self._execution.receive(part)
            except Exception as error:  # sums that no round can have
                raise Refusal(
                    f"the algorithm cannot process the sums of round {part.round}: {error!r}", code="request"
                ) from error
            self._journal.keep(None)

    def check(self, request: Request) -> None:
        """Refuse a request that is not the one the algorithm makes now."""
        derived = self._execution.request
        if request.round > self.have:
            raise Refusal(f"sums are missing: {self.have} rounds are known", code="behind")
        if derived is None or derived.round != request.round:
            raise Refusal("the algorithm does not ask this now", code="request")
        own, asked = (([(part.task, part.lane) for part in one.parts], one.all_clients) for one in (derived, request))
        if own != asked:
            raise Refusal("the algorithm asks another task now", code="request")
        alike = (same_values(a.values, b.values) for a, b in zip(request.parts, derived.parts, strict=True))
        if digest(derived) != digest(request) and not all(alike):
            raise Refusal("the request is not the one that follows from the plan and the sums", code="request")


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


def pack_sums(sums: Sequence[Sums]) -> tuple[list[list[int]], bytes]:
    """Return sums as they travel: round, clients and size of each, and their arrays one after the other."""
    parts = [pack(dict(part)) for part in sums]
    table = [[part.round, part.clients, len(data)] for part, data in zip(sums, parts, strict=True)]
    return table, b"".join(parts)


def unpack_sums(table: Any, data: bytes) -> list[Sums]:
    """Read what `pack_sums` wrote; a `Refusal` on anything else."""
    if not isinstance(table, list) or len(table) > MOST_ROUNDS_AT_ONCE:
        raise Refusal("sums without their table", code="request")
    found, at = [], 0
    for line in table:
        if not isinstance(line, list) or len(line) != 3 or not all(type(number) is int for number in line):
            raise Refusal("sums without their table", code="request")
        number, clients, size = line
        if not (number >= 0 and 1 <= clients <= MOST_CLIENTS and 0 <= size <= len(data) - at):
            raise Refusal("sums of another form", code="request")
        try:
            values = unpack(data[at : at + size])
        except Exception as error:
            raise Refusal("sums that cannot be read", code="request") from error
        found.append(Sums(values, clients, number=number))
        at += size
    if at != len(data):
        raise Refusal("sums of another size", code="request")
    return found
