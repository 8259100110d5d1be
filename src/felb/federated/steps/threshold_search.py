"""Threshold search: from relaxed to Boolean by the pair of thresholds with the smallest summed loss.

With columns of U divided by their typical value and rows of V multiplied by it, both factors are of order one, and
U > t_u, V > t_v is tried for a grid of pairs; the clients send tp and |U∘V| for each. The same counts tell the pair
that makes the data most likely, which is what belief propagation starts from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.protocol import Request, Sums, Update
from felb.federated.steps.assignment import counts_array
from felb.federated.steps.known import ClientState, Known, best_so_far, required
from felb.federated.steps.nmf import swept_rows
from felb.federated.steps.objective import Cost, NegativeLogLikelihood, Objective, as_array
from felb.kernels.boolean import overlap_grid
from felb.metrics import Counts
from felb.optim.belief import Belief, first_belief

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.steps.known import Steps

THRESHOLD_COUNTS = "threshold_counts"
LEVELS = tuple(level / 10 for level in range(1, 10))


def threshold_counts_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Tp and |U∘V| for all pairs of thresholds, and |U| for those of U; rows are swept once more for the final V."""
    V, scales, levels = (np.asarray(request.values[name]) for name in ("V", "scales", "levels"))
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
    return ClientState(relaxed=U), Update(update)


def cuts(V: NDArray[Any], scales: NDArray[np.float64], levels: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Return V, multiplied by the scales, cut at each level."""
    scaled = V * scales[:, None]
    return [np.asarray(scaled > level) for level in levels]


def threshold_search(known: Known, objective: Objective | None = None, *, levels: tuple[float, ...] = LEVELS) -> Steps:
    """Make a relaxed V Boolean, in one round of everybody; without scales, its entries are taken as they are.

    Parameters
    ----------
    objective : what decides between the pairs, the first of equals; the Hamming loss if None
    levels : thresholds to try for U and for V
    """
    objective = objective or Cost()
    V = np.asarray(required(known.relaxed, "a relaxed V"), dtype=np.float32)
    scales = np.ones(len(V)) if known.scales is None else known.scales
    with best_so_far(lambda: Known(relaxed=V, scales=scales)):
        sums = yield Request(THRESHOLD_COUNTS, V=V, scales=scales, levels=levels, all_clients=True)
    value, counts, (_, b) = best_pair(sums, objective)
    sums.report(loss=value)
    return Known(
        relaxed=V,
        scales=scales,
        components=cuts(V, scales, np.asarray([levels[b]]))[0],
        counts=counts_array(counts),
        value=value,
        weights=as_array(objective.weights(counts)),
        belief=likeliest_belief(sums, V, scales, levels=levels),
    )


def best_pair(sums: Sums, objective: Objective) -> tuple[float, Counts, tuple[int, int]]:
    """Return the smallest objective of all pairs, its counts and the numbers of its levels."""
    ones, cells = int(sums["ones"]), int(sums["cells"])
    best: tuple[float, Counts, tuple[int, int]] | None = None
    for (a, b), tp in np.ndenumerate(sums["covered"]):
        counts = Counts(int(tp), int(sums["claimed"][a, b] - tp), int(ones - tp), cells)
        value = objective.value(counts)
        if best is None or value < best[0]:
            best = value, counts, (a, b)
    assert best is not None
    return best


def likeliest_belief(
    sums: Sums, V: NDArray[np.float32], scales: NDArray[np.float64], *, levels: tuple[float, ...]
) -> Belief:
    """Return what to believe at the pair that makes the data most likely."""
    _, counts, (a, b) = best_pair(sums, NegativeLogLikelihood())
    return first_belief(
        cuts(V, scales, np.asarray([levels[b]]))[0],
        row_share=float(sums["members"][a] / max(1, int(sums["rows"]) * len(V))),
        covered_ones=counts.tp,
        covered=counts.tp + counts.fp,
        ones=int(sums["ones"]),
        cells=counts.cells,
    )
