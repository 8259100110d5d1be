"""From relaxed to Boolean: the pair of thresholds with the smallest summed loss.

With columns of U divided by their typical value and rows of V multiplied by it, both factors are of order one, and
U > t_u, V > t_v is tried for a grid of pairs; the clients send tp and |U∘V| for each. The same counts tell the pair
that makes the data most likely, which is what belief propagation starts from.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import ClientState, Known, required
from felb.federated.phases.objective import Cost, NegativeLogLikelihood, Objective, as_array
from felb.federated.phases.relaxed import swept_rows
from felb.federated.recipes.assignment import told_counts
from felb.linalg.product import overlap_grid
from felb.metrics import Counts
from felb.optim.belief import Belief, first_belief

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix

CUT = "cut"
LEVELS = tuple(level / 10 for level in range(1, 10))


def cut_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Tp and |U∘V| for all pairs of thresholds, and |U| for those of U; rows are swept once more for the final V."""
    V, scales, levels = (np.asarray(broadcast.values[name]) for name in ("V", "scales", "levels"))
    U = swept_rows(state, shard, V)
    rows = [U / scales > t for t in levels]
    covered, claimed = overlap_grid(shard, rows, cuts(V, scales, levels))
    update = {
        "covered": covered,
        "claimed": claimed,
        "members": np.array([np.count_nonzero(row) for row in rows], dtype=np.int64),
        "ones": np.asarray(shard.nnz),
        "cells": np.asarray(shard.known_cells),
        "rows": np.asarray(len(shard)),
    }
    return ClientState(broadcast.round, relaxed=U), Update(update)


def cuts(V: NDArray[Any], scales: NDArray[np.float64], levels: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Return V, multiplied by the scales, cut at each level."""
    scaled = V * scales[:, None]
    return [np.asarray(scaled > level) for level in levels]


@dataclass(frozen=True, slots=True)
class ThresholdState:
    """What was known, and the counts of all pairs once they are in."""

    V: NDArray[np.float32]
    scales: NDArray[np.float64]
    covered: NDArray[np.int64] | None = None
    claimed: NDArray[np.int64] | None = None
    members: NDArray[np.int64] | None = None
    ones: int = 0
    cells: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Make a relaxed V Boolean, in one round of everybody.

    Parameters
    ----------
    objective : what decides between the pairs
    levels : thresholds to try for U and for V
    """

    objective: Objective = field(default_factory=Cost)
    levels: tuple[float, ...] = LEVELS
    name: str = "thresholds"
    state_type: type[Any] = ThresholdState

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Counts for a grid of cuts."""
        return {CUT: cut_task}

    def start(self, known: Known, seed: int) -> ThresholdState:  # noqa: ARG002
        """Take the relaxed V and its scales; without scales, entries are taken as they are."""
        V = np.asarray(required(known.relaxed, "a relaxed V"), dtype=np.float32)
        return ThresholdState(V, np.ones(len(V)) if known.scales is None else known.scales)

    def broadcast(self, state: ThresholdState) -> Broadcast | None:
        """Ask for the grid, once."""
        if state.covered is not None:
            return None
        values: dict[str, NDArray[Any]] = {"V": state.V, "scales": state.scales, "levels": np.asarray(self.levels)}
        return Broadcast(CUT, 0, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: ThresholdState) -> ThresholdState:  # noqa: ARG002
        """Keep the summed counts."""
        return replace(
            state,
            covered=np.asarray(total["covered"]),
            claimed=np.asarray(total["claimed"]),
            members=np.asarray(total["members"]),
            ones=int(total["ones"]),
            cells=int(total["cells"]),
            rows=int(total["rows"]),
        )

    def record(self, state: ThresholdState) -> Mapping[str, float]:
        """Return the loss at the best pair."""
        value = self.result(state).value
        return {} if value is None else {"loss": value}

    def result(self, state: ThresholdState) -> Known:
        """Return V cut at the best pair, the first of equals."""
        if state.covered is None or state.claimed is None:
            return Known(relaxed=state.V, scales=state.scales)
        value, counts, (_, b) = self._best(state, self.objective)
        return Known(
            relaxed=state.V,
            scales=state.scales,
            components=self._components(state, b),
            counts=told_counts(counts),
            value=value,
            weights=as_array(self.objective.weights(counts)),
            belief=self._belief(state),
        )

    def _best(self, state: ThresholdState, objective: Objective) -> tuple[float, Counts, tuple[int, int]]:
        assert state.covered is not None
        assert state.claimed is not None
        best: tuple[float, Counts, tuple[int, int]] | None = None
        for (a, b), tp in np.ndenumerate(state.covered):
            counts = Counts(int(tp), int(state.claimed[a, b] - tp), int(state.ones - tp), state.cells)
            value = objective.value(counts)
            if best is None or value < best[0]:
                best = value, counts, (a, b)
        assert best is not None
        return best

    def _components(self, state: ThresholdState, level: int) -> NDArray[np.bool_]:
        return cuts(state.V, state.scales, np.asarray([self.levels[level]]))[0]

    def _belief(self, state: ThresholdState) -> Belief:
        """Return what to believe at the pair that makes the data most likely."""
        assert state.members is not None
        _, counts, (a, b) = self._best(state, NegativeLogLikelihood())
        return first_belief(
            self._components(state, b),
            row_share=float(state.members[a] / max(1, state.rows * len(state.V))),
            covered_ones=counts.tp,
            covered=counts.tp + counts.fp,
            ones=state.ones,
            cells=counts.cells,
        )
