"""Response validation at the coordinator: every response is checked before it enters a sum.

Where sums are masked, nobody but the site can look at its response; then the sum is checked. Sites
check the sums that a coordinator tells them in the same way.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import FederationError
from felb.federated.gate import Gate
from felb.federated.journal import MAX_BYTES, unpack
from felb.federated.protocol import Update
from felb.federated.rules import check_response, rows_told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.protocol import Algorithm, Release, Request, Sums

REHEARSED_ROWS = 4
ROOM_FOR_NAMES = 1 << 14
SETTING = 4
"""Numbers in an array up to which it is a setting of the task, such as weights, and not a V."""
MAX_COUNT = 1 << 53
"""Of a whole number in a response; sums of many stay far from the end of int64."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What an array of a response must look like."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


Kind = tuple[Any, ...]


class ResponseValidator:
    """Knows what responses look like by having rehearsed each task on a few made-up rows.

    Responses are sums over rows or have V's shape, so they look alike for every number of rows. A request may be about
    more or fewer components or candidates, and with other settings, so its task is rehearsed for each of these; always
    as a site that is new to the run, since rounds in between may have been skipped.
    """

    def __init__(self, algorithm: Algorithm, n_features: int) -> None:
        self._algorithm = algorithm
        rows = np.random.default_rng(0).random((REHEARSED_ROWS, n_features)) < 0.5 if n_features < 1 << 20 else None
        self._rows = BinaryMatrix.of(np.zeros((1, n_features), bool) if rows is None else rows)
        self._known: dict[Kind, dict[str, Expected]] = {}
        self._n_features = n_features
        self._told_rows: dict[str, int] = {}
        self._lock = threading.Lock()

    def expect(self, request: Request) -> Mapping[str, Expected]:
        """Return what a task's responses look like."""
        with self._lock:
            asked = _kind(request)
            if asked not in self._known:
                rng = np.random.default_rng(0)
                _, update = self._algorithm.respond(None, self._rows, request, rng=rng)
                self._known[asked] = {
                    name: Expected(np.shape(value), np.asarray(value).dtype) for name, value in update.values.items()
                }
            return self._known[asked]

    def admit(self, data: Any, request: Request, *, site: str) -> Release:
        """Return a site's response if it may enter the sum; otherwise raise an error that names the site."""
        expected = self.expect(request)
        limit = ROOM_FOR_NAMES + sum(int(np.prod(e.shape)) * max(8, e.dtype.itemsize) for e in expected.values())
        try:
            values = unpack(data, limit=min(limit, MAX_BYTES))
            noisy = self._algorithm.privacy is not None
            check(values, expected, noisy=noisy)
            rows = self._told_rows.get(site)
            check_response(values, request, n_features=self._n_features, noisy=noisy, rows=rows)
            if not noisy and (told := rows_told(values)) is not None:
                self._told_rows[site] = told
        except FederationError as error:
            raise FederationError(f"the response of {site} to round {request.round} was rejected: {error}") from error
        return _gate(site).release(Update(values), request, rng=np.random.default_rng(0))

    def admit_sum(self, sums: Sums, request: Request) -> None:
        """Raise unless a sum holds the arrays that the task tells, in their shapes, of numbers that some rows have."""
        expected = self.expect(request)
        look = {name: (value.shape, value.dtype.kind == "f") for name, value in sums.items()}
        if look != {name: (want.shape, want.dtype.kind == "f") for name, want in expected.items()}:
            raise FederationError(
                f"the sum of round {request.round} holds other arrays than {', '.join(sorted(expected))}"
            )
        try:
            noisy = self._algorithm.privacy is not None
            check_response(dict(sums), request, n_features=self._n_features, noisy=noisy, sites=sums.clients)
        except FederationError as error:
            raise FederationError(f"the sum of round {request.round} was rejected: {error}") from error


def check(values: Mapping[str, NDArray[Any]], expected: Mapping[str, Expected], *, noisy: bool = False) -> None:
    """Raise unless the arrays are those expected: names, shapes, types, finite values.

    Noise on a grid needs more digits than what it hides, so `noisy` real numbers may be longer.
    """
    if values.keys() != expected.keys():
        raise FederationError(f"it holds {sorted(values)} instead of {sorted(expected)}")
    for name, value in values.items():
        want = expected[name]
        if value.shape != want.shape:
            raise FederationError(f"{name} has shape {value.shape} instead of {want.shape}")
        if value.dtype != want.dtype and not (noisy and value.dtype.kind == want.dtype.kind == "f"):
            raise FederationError(f"{name} is of type {value.dtype} instead of {want.dtype}")
        if not np.all(np.isfinite(value)):
            raise FederationError(f"{name} holds NaN or infinity")
        if value.dtype.kind in "iu" and value.size and np.abs(value.astype(np.float64)).max() > MAX_COUNT:
            raise FederationError(f"{name} holds a count that no data can have")


def _kind(request: Request) -> Kind:
    """Return what the look of a task's responses depends on: its settings, and the shapes of what it is about."""
    values = ((name, np.asarray(value)) for name, value in sorted(request.values.items()))
    return (
        request.task,
        *((name, a.shape, a.dtype.str, a.tobytes() if a.size <= SETTING else b"") for name, a in values),
    )


def _gate(site: str) -> Gate:
    # Only a gate makes releases. The site's own has logged what left; this one only admits what came.
    return Gate(site, lambda _: None)
