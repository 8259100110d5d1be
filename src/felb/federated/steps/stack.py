"""Several V of the same size that are refined in parallel: one round sends all of them and receives all sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.protocol import Request, Update
from felb.federated.steps.assignment import read_counts
from felb.federated.steps.objective import Objective, as_array
from felb.federated.steps.refine import assigned_gains, safe_flips, weighed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.steps.known import ClientState, Known

STACKED_GAINS = "stacked_gains"


def stacked_gains_task(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[None, Update]:
    """Counts and gains for each of several V."""
    return None, Update(several_gains(shard, request))


def several_gains(shard: BinaryMatrix, request: Request) -> dict[str, NDArray[Any]]:
    """Return the sums of `assigned_gains` for each of the requested candidates, stacked, and the number of rows."""
    weights = np.asarray(request.values["weights"])
    parts = [assigned_gains(shard, V, weights) for V in np.asarray(request.values["candidates"], dtype=bool)]
    stacked = {name: np.array([part[name] for part in parts]) for name in parts[0]}
    return {**stacked, "rows": np.asarray(len(shard))}


@dataclass(frozen=True, slots=True)
class Stack:
    """For each of several V: the one to be measured next, the best of its descendants with its metrics, its age.

    Parameters
    ----------
    V, best : candidates × components × features
    values : the objective at `best`
    counts, supports, exclusive : summed counts, records of components and exclusive gains at `best`
    ages : rounds since the start
    settled : nothing was left to flip in the last round
    """

    V: NDArray[np.bool_]
    best: NDArray[np.bool_]
    values: NDArray[np.float64]
    counts: NDArray[np.int64]
    supports: NDArray[np.int64]
    exclusive: NDArray[np.float64]
    ages: NDArray[np.int64]
    settled: NDArray[np.bool_]

    @classmethod
    def of(cls, V: NDArray[np.bool_]) -> Stack:
        """Return a stack of V that were not measured yet."""
        size = len(V)
        return cls(
            V=V,
            best=V,
            values=np.full(size, np.inf),
            counts=np.zeros((size, 4), dtype=np.int64),
            supports=np.zeros(V.shape[:2], dtype=np.int64),
            exclusive=np.zeros(V.shape[:2]),
            ages=np.zeros(size, dtype=np.int64),
            settled=np.zeros(size, dtype=bool),
        )

    def refined(
        self,
        total: Mapping[str, NDArray[Any]],
        objective: Objective,
        *,
        weights: NDArray[np.float64],
        rng: np.random.Generator,
    ) -> Stack:
        """Return the stack after a round: what is better is kept, and improving entries are flipped."""
        gains = weighed(total, (float(weights[0]), float(weights[1])))
        values = np.array([objective.value(read_counts(counts)) for counts in total["counts"]])
        better = (values < self.values) | (self.counts[:, 3] != total["counts"][:, 3])
        flips = np.array([safe_flips(gain, V, rng) for gain, V in zip(gains, self.V, strict=True)])
        return Stack(
            V=self.V ^ flips,
            best=np.where(better[:, None, None], self.V, self.best),
            values=np.where(better, values, self.values),
            counts=np.where(better[:, None], total["counts"], self.counts),
            supports=np.where(better[:, None], total["supports"], self.supports),
            exclusive=np.where(better[:, None], np.where(self.V, gains, 0.0).sum(axis=2), self.exclusive),
            ages=self.ages + 1,
            settled=np.asarray(~flips.any(axis=(1, 2))),
        )

    def with_new(self, places: NDArray[np.int64], V: NDArray[np.bool_]) -> Stack:
        """Return the stack with new V, not measured yet, in some places."""
        return self.with_part(places, Stack.of(V))

    def part(self, places: NDArray[np.int64]) -> Stack:
        """Return what is in some places."""
        return Stack(**{name: getattr(self, name)[places] for name in self.__slots__})

    def with_part(self, places: NDArray[np.int64], part: Stack) -> Stack:
        """Return the stack with another one in some places."""
        changed = {}
        for name in self.__slots__:
            array = getattr(self, name).copy()
            array[places] = getattr(part, name)
            changed[name] = array
        return replace(self, **changed)

    def known(self, place: int, objective: Objective, *, before: Known) -> Known:
        """Return the best of one place as knowledge, with what is not about V taken from before."""
        counts = self.counts[place]
        return replace(
            before,
            components=self.best[place],
            counts=counts,
            supports=self.supports[place],
            exclusive=self.exclusive[place],
            value=float(self.values[place]),
            weights=as_array(objective.weights(read_counts(counts))),
            settled=False,
        )
