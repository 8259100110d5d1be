"""Rounds of private statistics: clients tell noisy [UᵀA, w UᵀU] for a frozen V̂, the server moves V̂.

Everything a record's u_r depends on besides the record is public: the V̂ of this and earlier rounds, the steps and their
size, λ, the start. So a round is a sum over records with a bounded part of each, and T rounds cost √T times one.

The server averages the statistics of rounds, S ← βS + (1 − β)S_t, which divides their noise while V̂ hardly moves, and
takes few steps for each: what it would fit beyond that is noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.messages import Broadcast, Update
from felb.optim.start import uniform_columns
from felb.privacy.names import STATISTICS
from felb.privacy.statistics import (
    StatisticsBounds,
    clipped_statistics,
    fit_rows,
    improve_components,
    read_statistics,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.linalg.binary import BinaryMatrix
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
class RoundsState:
    """Public: rounds played, V̂, and the averaged statistics."""

    played: int
    V: Array
    S: Array | None = None
    G: Array | None = None


@dataclass(frozen=True, slots=True)
class Rounds:
    """The server's side of T rounds.

    Parameters
    ----------
    rounds : T
    bounds : c, s, w of a record's part
    first, last : λ of the first and the last round
    """

    rounds: int
    bounds: StatisticsBounds
    first: float = FIRST
    last: float = LAST

    def from_nothing(self, shape: tuple[int, int], seed: int) -> RoundsState:
        """Start at random components; nothing but a seed decides which."""
        return RoundsState(0, np.asarray(START * uniform_columns(seed, *shape, dtype="float64"), dtype=np.float64))

    def from_components(self, V: NDArray[np.bool_]) -> RoundsState:
        """Start at components that are public already."""
        return RoundsState(0, np.asarray(V, dtype=np.float64))

    def over(self, state: RoundsState) -> bool:
        """Whether all rounds were played; nothing else ends them."""
        return state.played >= self.rounds

    def lam(self, played: int) -> float:
        """λ of the next round."""
        return float(self.first * (self.last / self.first) ** (played / max(self.rounds - 1, 1)))

    def asked(self, state: RoundsState) -> Mapping[str, NDArray[Any]]:
        """Return what a client needs for its statistics."""
        bounds = np.array([self.bounds.c, self.bounds.s, self.bounds.w])
        return {"V": state.V, "lam": np.asarray(self.lam(state.played)), "bounds": bounds}

    def combine(self, values: Array, state: RoundsState) -> RoundsState:
        """Average the statistics and move V̂."""
        S, G = read_statistics(values, *state.V.shape, grid=1.0, bounds=self.bounds)
        if state.S is not None and state.G is not None:
            S, G = MEMORY * state.S + (1 - MEMORY) * S, MEMORY * state.G + (1 - MEMORY) * G
        V = improve_components(state.V, S, G, lam=self.lam(state.played), steps=SERVER_STEPS)
        return RoundsState(state.played + 1, V, S, G)

    @staticmethod
    def components(state: RoundsState) -> NDArray[np.bool_]:
        """Return V̂, cut at ½."""
        return np.asarray(state.V > 0.5)


def statistics_task(U: Array | None, shard: BinaryMatrix, broadcast: Broadcast) -> tuple[Array, Update]:
    """Take steps for U from where the last round left it, and sum up; U stays."""
    V = np.asarray(broadcast.values["V"], dtype=np.float64)
    c, s, w = (float(bound) for bound in broadcast.values["bounds"])
    U = fit_rows(shard, V, U=U, steps=ROW_STEPS, lam=float(broadcast.values["lam"]))
    return U, Update.of_records(**{STATISTICS: round_statistics(shard, U, StatisticsBounds(c, s, w))})
