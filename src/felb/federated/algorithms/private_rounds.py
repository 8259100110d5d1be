"""Rounds of private statistics: clients release noisy [UᵀA, w UᵀU] for a fixed V̂, and the server updates V̂.

Everything a record's u_r depends on besides the record is public: the V̂ of this and earlier rounds, the steps and their
size, λ, the start. So a round is a sum over records with a bounded part of each, and T rounds cost √T times one.

The server averages the statistics of rounds, S ← βS + (1 − β)S_t, which divides their noise while V̂ hardly moves, and
takes few steps for each: what it would fit beyond that is noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.federated.protocol import Request, Update
from felb.optim.random_start import uniform_columns
from felb.privacy.names import STATISTICS
from felb.privacy.statistics import (
    StatisticsBounds,
    clipped_statistics,
    fit_rows,
    improve_components,
    read_statistics,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.privacy.bounds import RecordSum

    Array = NDArray[np.float64]

FIRST, LAST = 0.01, 0.3
"""λ of the first and the last round; it grows geometrically between them."""

START = 0.3
"""Entries of the first V̂ are uniform below this: small ones leave room for components to part."""

MEMORY = 0.5
"""β, the share of earlier rounds in the averaged statistics."""

ROW_STEPS, SERVER_STEPS = 5, 3

FINE_BITS = 12
"""Parts of a record are multiples of 2^−12. They are products of shares, many of them small; on the grid that serves
for counts, rounding towards zero would take much of UᵀU."""


def round_statistics(shard: BinaryMatrix, U: Array, bounds: StatisticsBounds) -> RecordSum:
    """Return the clipped statistics on the grid of the rounds."""
    return clipped_statistics(shard, U, bounds, bits=FINE_BITS)


@dataclass(frozen=True, slots=True)
class Averaged:
    """Public: rounds played, V̂, and the averaged statistics."""

    played: int
    V: Array
    S: Array | None = None
    G: Array | None = None


def random_components(shape: tuple[int, int], seed: int) -> Array:
    """Return the first V̂ where nothing is known; nothing but a seed decides which."""
    return np.asarray(START * uniform_columns(seed, *shape, dtype="float64"), dtype=np.float64)


def lam_at(played: int, rounds: int, *, first: float) -> float:
    """λ of the next round: from `first` to `LAST`, geometrically."""
    return float(first * (LAST / first) ** (played / max(rounds - 1, 1)))


def moved(at: Averaged, values: Array, bounds: StatisticsBounds, *, lam: float) -> Averaged:
    """Average the statistics and move V̂."""
    S, G = read_statistics(values, *at.V.shape, grid=1.0, bounds=bounds)
    if at.S is not None and at.G is not None:
        S, G = MEMORY * at.S + (1 - MEMORY) * S, MEMORY * at.G + (1 - MEMORY) * G
    V = improve_components(at.V, S, G, lam=lam, steps=SERVER_STEPS)
    return Averaged(at.played + 1, V, S, G)


def statistics_task(U: Array | None, shard: BinaryMatrix, request: Request) -> tuple[Array, Update]:
    """Take steps for U from where the last round left it, and sum up; U stays."""
    V = np.asarray(request.values["V"], dtype=np.float64)
    c, s, w = (float(bound) for bound in request.values["bounds"])
    U = fit_rows(shard, V, U=U, steps=ROW_STEPS, lam=float(request.values["lam"]))
    return U, Update.of_records(**{STATISTICS: round_statistics(shard, U, StatisticsBounds(c, s, w))})
