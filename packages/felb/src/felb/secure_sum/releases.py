"""Releases as vectors of whole numbers, so that a secure sum can add them: the same sums, bit for bit.

Whole numbers and Booleans are what they are. Floats that leave a client are multiples of a power of two, 2^-bits
(`kernels/fixed_point.py`), and travel as these multiples. Sums below 2^53 multiples are exact, masked and unmasked, so
that both are the same numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from felb.errors import FederationError
from felb.federated.journal import MAX_ARRAYS, MAX_DIMENSIONS, MAX_NAME, digest
from felb.federated.protocol import MOST_SUM, Release, Sums
from felb.federated.tasks import ResponseValidator
from felb.kernels import UPLOAD_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from felb.federated.protocol import Algorithm, Request, Values
    from felb.secure_sum.server import SecureServer, Trip
    from felb.secure_sum.site import SecureSite, SiteState

Side = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where an array stands in a vector: whole numbers (``i``), or floats (``f``) in units of 2^-bits."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
    kind: Literal["i", "f"]
    shape: Annotated[tuple[Side, ...], msgspec.Meta(max_length=MAX_DIMENSIONS)]
    bits: Annotated[int, msgspec.Meta(ge=0, le=UPLOAD_BITS)] = 0


_Layout = Annotated[tuple[Entry, ...], msgspec.Meta(max_length=MAX_ARRAYS)]


def as_vector(values: Values, bits_of: Mapping[str, int], *, sites: int) -> tuple[NDArray[np.int64], bytes]:
    """Return the arrays of a release as one vector of whole numbers, and the layout to read a sum of such vectors.

    Parameters
    ----------
    values : the arrays
    bits_of : the fractional bits that reals have, see `read_bits`
    sites : number of vectors in a sum; a number that could leave 64 bits with so many is a `FederationError`
    """
    entries, parts = [], []
    for name, value in values.items():
        array = np.asarray(value)
        if array.dtype.kind == "f":
            bits = bits_of[name]
            scaled = np.ldexp(array.astype(np.float64), bits)
            if not np.array_equal(scaled, np.rint(scaled)):
                raise FederationError(
                    f"{name} is no multiple of 2^-{bits}, so that its sum would not be exact; "
                    "round it with felb.kernels.passes.on_grid"
                )
        else:
            bits, scaled = 0, array.astype(np.int64)
        if array.size and max(abs(float(scaled.max())), abs(float(scaled.min()))) * sites >= MOST_SUM:
            raise FederationError(f"the sum of {name} over {sites} clients leaves the range of whole numbers")
        parts.append(scaled.astype(np.int64).reshape(-1))
        entries.append(Entry(name, "f" if array.dtype.kind == "f" else "i", array.shape, bits))
    return np.concatenate([np.zeros(0, np.int64), *parts]), msgspec.json.encode(entries)


def read_bits(algorithm: Algorithm, request: Request) -> dict[str, int]:
    """Return the fractional bits of each array of a response, as its task declares them."""
    return {name: output.bits for name, (output, _) in algorithm.expected(request).items()}


def from_vector(total: NDArray[np.int64], layout: bytes) -> dict[str, NDArray[Any]]:
    """Read the sum of vectors as named arrays, floats in float64 and whole numbers in int64."""
    try:
        entries = msgspec.json.decode(layout, type=_Layout)
    except msgspec.MsgspecError as error:
        raise FederationError("the layout of a masked sum could not be read") from error
    sizes = [math.prod(entry.shape) for entry in entries]
    if sum(sizes) != total.size or len({entry.name for entry in entries}) != len(entries):
        raise FederationError("the layout of a masked sum does not fit its length")
    values, ends = {}, np.cumsum([0, *sizes])
    for entry, first, end in zip(entries, ends[:-1], ends[1:], strict=True):
        part = total[first:end].reshape(entry.shape)
        values[entry.name] = np.ldexp(part.astype(np.float64), -entry.bits) if entry.kind == "f" else part.copy()
    return values


@dataclass
class MaskedSums:
    """Adds up releases of clients in one process by the whole protocol of secure aggregation.

    Parameters
    ----------
    algorithm : declares what is added up
    server : of the secure sums of the run
    sites : the client's side, by name
    interfere : brings a message to a site by calling what it is given; a test loses or changes replies here
    """

    algorithm: Algorithm
    server: SecureServer
    sites: Mapping[str, SecureSite]
    interfere: Callable[[Trip, str, Callable[[], bytes]], bytes | None] = lambda _trip, _name, deliver: deliver()
    _states: dict[str, SiteState] = field(default_factory=dict)

    @classmethod
    def simulated(cls, names: Iterable[str], algorithm: Algorithm, *, dropouts: int | None = None) -> MaskedSums:
        """Make clients with keys of their own, and the server; as many as possible may be missing by default."""
        from felb.secure_sum.protocol import Roster, Terms, member_of, new_signing_key, signer
        from felb.secure_sum.server import SecureServer
        from felb.secure_sum.site import SecureSite

        keys = {name: new_signing_key() for name in sorted(names)}
        roster = Roster(tuple(member_of(name, key) for name, key in keys.items()))
        terms = Terms(algorithm.name, "", roster.digest, roster.most_dropouts if dropouts is None else dropouts)
        sites = {name: SecureSite(name, roster, terms, signer(key)) for name, key in keys.items()}
        return cls(algorithm, SecureServer(roster, terms), sites)

    @property
    def least(self) -> int:
        """Return the fewest clients that a sum may have."""
        return min(site.least for site in self.sites.values())

    def __call__(self, releases: Mapping[str, Release], request: Request, missing: Iterable[str]) -> Sums:
        """Play the trips of a round; clients that have released nothing are lost when their input is asked for.

        One that was neither asked nor is `missing` has not joined yet, and is not named as missing.
        """
        asked = {*releases, *missing}
        trips = self.server.aggregate(request.round, digest(request))
        trip = next(trips)
        while True:
            replies = {name: self._reply(trip, name, releases, request) for name in trip.messages}
            try:
                trip = trips.send({name: reply for name, reply in replies.items() if reply is not None})
            except StopIteration as end:
                total = end.value
                values = from_vector(total.vector, total.layout)
                absent = [name for name in total.missing if name in asked]
                sums = Sums(values, len(total.survivors), missing=absent, number=request.round)
                ResponseValidator(self.algorithm).check_sum(sums, request)
                return sums

    def _reply(self, trip: Trip, name: str, releases: Mapping[str, Release], request: Request) -> bytes | None:
        from felb.secure_sum.site import SiteState

        if trip.step == "masked input" and name not in releases:
            return None

        def deliver() -> bytes:
            state, reply = self.sites[name].respond(
                self._states.get(name) or SiteState(),
                trip.messages[name],
                lambda _: as_vector(releases[name].values, read_bits(self.algorithm, request), sites=len(self.sites)),
            )
            self._states[name] = state
            return reply

        return self.interfere(trip, name, deliver)
