"""Relaxed factors: federated NMF, and the ways from relaxed to Boolean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.protocol import Checkpoint, Request, Sums, Update
from felb.federated.steps.assignment import counts_array, read_counts, round_cells, tell_assignment
from felb.federated.steps.state import (
    ClientState,
    Cost,
    NegativeLogLikelihood,
    Objective,
    Solution,
    as_array,
    best_so_far,
    required,
)
from felb.federated.tasks import (
    CELLS,
    COUNTS,
    LARGEST,
    RELAXED,
    ROWS,
    TINY,
    WEIGHTS,
    Bounds,
    Input,
    Output,
    TaskSpec,
    Work,
    check_counts,
    require,
)
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import FactorMasks, overlap_grid
from felb.kernels.passes import (
    FixedStatistics,
    add_filled,
    factor_step,
    fixed_statistics,
    from_squares,
    in_units,
    move_rows,
    squared_loss,
    sweep_known_into,
    units_of,
)
from felb.metrics import Counts
from felb.metrics.counts import count_cells
from felb.optim.belief import Belief, first_belief
from felb.optim.steps import HalsStep
from felb.privacy.disclosure import round_counts, round_members

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Values
    from felb.federated.steps.state import Steps


# -- NMF: non-negative U and V that minimise ½‖A − UV‖² over all clients ---------------------------------------------
#
# Hierarchical alternating least squares (Cichocki, Phan). Clients sweep over their rows U_i with V held and send
# U_iᵀA_i and U_iᵀU_i; from their sums the server sweeps over V exactly as if it had all rows.
#
# Rows with unknown cells are swept over their known ones, and in U_iᵀA_i their unknown cells stand at what U_i V says,
# in [0, 1]: expectation maximisation, in which the server's step stays as it is.

SWEEPS = 2
FIRST_ROWS = 0.1
"""Entries of U to start from."""
MEMBER = 0.5
"""Above it, a row has a component, where rows are told as Boolean."""


def sweep_rows(state: ClientState | None, shard: BinaryMatrix, V: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the client's relaxed rows after some sweeps with V held; each depends on its own row of the data only."""
    U = None if state is None else state.relaxed
    if U is None:
        U = np.full((len(shard), len(V)), FIRST_ROWS, dtype=np.float32)
    Vt = np.ascontiguousarray(V.T)
    swept = move_rows(shard, U, Vt, rule=HalsStep(SWEEPS))
    if shard.unknown is not None:
        sweep_known_into(swept, shard, U, Vt, sweeps=SWEEPS)
    return swept


def sum_factor_statistics(work: Work) -> tuple[ClientState, Update]:
    """AᵀU, UᵀU and Σu for the swept rows, in units that V implies; rounded row by row, so that their sums are exact.

    `filled` are the squares that unknown cells add to those of A.
    """
    shard, V = work.rows, np.asarray(work.values["V"])
    U = sweep_rows(work.state, shard, V)
    units = units_of(V)
    supports: dict[str, NDArray[np.int64]] = {}
    if work.least == 1:
        rows = in_units(U, units)
        AtU, UtU, sums = fixed_statistics(shard, rows)
    else:
        rows, (AtU, UtU, sums), supports = count_members(work, U, in_units(np.ones((1, len(V)), U.dtype), units))
    filled = 0
    if shard.unknown is not None:
        AtU, filled = add_filled(AtU, shard.unknown, rows, V=V, units=units)
    update = {"AtU": AtU, "UtU": UtU, "sums": sums, "ones": np.asarray(shard.nnz), "filled": np.asarray(filled)}
    return ClientState(relaxed=U), Update(update, supports=supports)


def count_members(
    work: Work, U: NDArray[np.float32], one: NDArray[np.int32]
) -> tuple[NDArray[np.int32], FixedStatistics, dict[str, NDArray[np.int64]]]:
    """Return rows that have a component or not, their statistics as they may leave, and how many records make these.

    A few rows dominate sums of real numbers. So under disclosure rules a row of U is told as [u > ½], and of AᵀU, UᵀU
    and Σu numbers of records are left, which are told if they are large enough.

    Parameters
    ----------
    U : swept rows
    one : 1 in the units of each component
    """
    typical = np.square(U).sum(axis=0) / np.maximum(U.sum(axis=0), np.finfo(np.float32).tiny)
    rows = np.asarray(round_members(MEMBER * typical < U, work.least) * one, dtype=np.int32)
    AtU, UtU, sums = fixed_statistics(work.rows, rows)
    each = np.maximum(one[0].astype(np.int64), 1)  # 0 where V is so small that no row has the component
    members, shared, having = sums // each, UtU // (each[:, None] * each), AtU // each
    own = np.diagonal(shared)
    having = round_counts(having, members, work.least)
    shared = round_counts(shared, np.minimum(own[:, None], own), work.least)
    supports = {"AtU": having, "UtU": shared, "sums": members, "filled": np.asarray(0)}
    if work.rows.unknown is not None:
        supports["AtU"] = having + fixed_statistics(work.rows.unknown, rows).AtX // each
        supports["filled"] = np.asarray(np.count_nonzero(work.rows.unknown.row_sums()))
    return rows, FixedStatistics(having * each, shared * (each[:, None] * each), sums), supports


FACTOR_STATISTICS = TaskSpec(
    "factor_statistics",
    "relaxed factorization",
    sum_factor_statistics,
    "AᵀU, UᵀU and Σu for the relaxed rows U of the client",
    {"V": RELAXED},
    {
        "AtU": Output("i", ("m", "k"), made_of="named"),
        "UtU": Output("i", ("k", "k"), made_of="named"),
        "sums": Output("i", ("k",), made_of="named"),
        "ones": CELLS,
        "filled": Output("i", made_of="named"),
    },
    by_rows=True,
)


@dataclass(frozen=True, slots=True)
class Factor:
    """V after some rounds, and the statistics it was found from.

    Parameters
    ----------
    round : rounds played
    V : components × features
    AtU, UtU, sums : averaged statistics; `AtU` only where it is remembered
    """

    round: int
    V: NDArray[np.float32]
    AtU: NDArray[np.float64] | None = None
    UtU: NDArray[np.float64] | None = None
    sums: NDArray[np.float64] | None = None


def nmf(solution: Solution, rounds: int = 20, *, memory: float = 0.0) -> Steps:
    """Alternate sweeps at the clients and at the server, from a relaxed V or from a Boolean one.

    Parameters
    ----------
    rounds : how often
    memory : share of the statistics of earlier rounds in the ones V is found from; 0 where all clients play every
        round, about ½ where a sample of them does
    """
    if rounds < 1:
        raise InputError(f"NMF needs at least one round, got rounds={rounds}")
    check_memory(memory)
    V = solution.relaxed if solution.relaxed is not None else required(solution.components, "a V")
    factor = Factor(0, np.asarray(V, dtype=np.float32))
    with best_so_far(lambda: add_scales(factor)):
        while factor.round < rounds:
            factor = yield Checkpoint(factor)
            sums = yield Request(FACTOR_STATISTICS, V=factor.V)
            factor = swept(factor, sums, memory=memory)
    return add_scales(factor)


def swept(factor: Factor, total: Sums, *, memory: float) -> Factor:
    """Sweep over V with the summed statistics; report ‖A − UV‖² of the clients' sweeps, unknown cells of A filled."""
    units = units_of(factor.V)  # powers of two, which lose nothing
    AtU, UtU, sums = total["AtU"] * units, total["UtU"] * (units[:, None] * units), total["sums"] * units
    Vt = np.ascontiguousarray(factor.V.T, dtype=np.float64)
    squares = int(total["ones"]) + from_squares(total["filled"])
    total.report(loss=squared_loss(squares, AtU, UtU, Vt))
    if memory:  # means over clients, since statistics of different samples are mixed
        AtU, UtU, sums = (
            new / total.clients if old is None else memory * old + (1 - memory) * new / total.clients
            for old, new in zip((factor.AtU, factor.UtU, factor.sums), (AtU, UtU, sums), strict=True)
        )
    V = np.ascontiguousarray(factor_step(Vt, AtU, UtU, rule=HalsStep(SWEEPS)).T.astype(np.float32))
    return Factor(factor.round + 1, V, AtU if memory else None, UtU, sums)


def add_scales(factor: Factor) -> Solution:
    """Return V and the typical value Σu²/Σu of each column of U; a column of zeros gets 1."""
    scales = np.ones(len(factor.V))
    if factor.UtU is not None and factor.sums is not None:
        alive = factor.sums > 0
        scales[alive] = np.diagonal(factor.UtU)[alive] / factor.sums[alive]
    return Solution(relaxed=factor.V, scales=scales)


def check_memory(memory: float) -> None:
    """Refuse a share of earlier rounds outside [0, 1)."""
    if not 0 <= memory < 1:
        raise InputError(f"memory={memory}: the share of earlier rounds must be in [0, 1)")


# -- Threshold search: from relaxed to Boolean by the pair of thresholds with the smallest summed loss ---------------
#
# With columns of U divided by their typical value and rows of V multiplied by it, both factors are of order one, and
# U > t_u, V > t_v is tried for a grid of pairs; the clients send tp and |U∘V| for each. The same counts tell the pair
# that makes the data most likely, which is what belief propagation starts from.

LEVELS = tuple(level / 10 for level in range(1, 10))


def count_thresholds(work: Work) -> tuple[ClientState, Update]:
    """Tp and |U∘V| for all pairs of thresholds, and |U| for those of U; rows are swept once more for the final V."""
    V, scales, levels = (np.asarray(work.values[name]) for name in ("V", "scales", "levels"))
    U = sweep_rows(work.state, work.rows, V)
    rows = [round_members(U / scales > t, work.least) for t in levels]
    components = cuts(V, scales, levels)
    supports = {}
    if work.least == 1:
        covered, claimed = overlap_grid(work.rows, rows, components)
    else:
        (covered, claimed), records = round_grid(work, rows, components)
        supports = {"covered": records[0], "claimed": records[1]}
        supports["members"] = np.array([np.count_nonzero(row.any(axis=1)) for row in rows])
    update = {
        "covered": covered,
        "claimed": claimed,
        "members": np.array([np.count_nonzero(row) for row in rows], dtype=np.int64),
        "ones": np.asarray(work.rows.nnz),
        "cells": np.asarray(work.rows.known_cells),
        "rows": np.asarray(len(work.rows)),
    }
    return ClientState(relaxed=U), Update(update, supports=supports)


def round_grid(
    work: Work, rows: Sequence[NDArray[np.bool_]], components: Sequence[NDArray[np.bool_]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return tp and |U∘V| of every pair of a U and a V as they may leave, and how many records make each."""
    told = np.zeros((2, len(rows), len(components)), dtype=np.int64)
    records = np.zeros_like(told)
    for (a, U), (b, V) in product(enumerate(rows), enumerate(components)):
        factors = FactorMasks.of(U, V)
        (tp, fp, _, _), made = round_cells(work, factors, counts_array(count_cells(work.rows, factors)))
        told[:, a, b] = tp, tp + fp
        # A number that is 0 is made of nobody; the sum of two is made of those that make the larger one.
        records[:, a, b] = made[0], max(made[0] * (tp > 0), made[1] * (fp > 0))
    return told, records


def _check_thresholds(told: Values, values: Values, bounds: Bounds) -> None:
    covered, claimed, ones, cells = (told[name] for name in ("covered", "claimed", "ones", "cells"))
    require(covered <= claimed, "covered exceeds claimed")
    require(covered <= ones, "covered exceeds the number of ones")
    require(claimed <= cells, "claimed exceeds the number of cells")
    require(ones <= cells, "ones exceed the number of cells")
    require(told["members"] <= bounds.rows * len(values["V"]), "members exceed rows times components")


LEVEL = Input("f", ("l",), 0.0, 1.0)
MOST_LEVELS = {"l": 32}

THRESHOLD_COUNTS = TaskSpec(
    "threshold_counts",
    "threshold search",
    count_thresholds,
    "cells covered, and ones among them, for each pair of thresholds of U and V",
    {"V": RELAXED, "scales": Input("f", ("k",), TINY, LARGEST), "levels": LEVEL},
    {
        "covered": Output("i", ("l", "l"), high="cells", made_of="named"),
        "claimed": Output("i", ("l", "l"), high="cells", made_of="named"),
        "members": Output("i", ("l",), made_of="named"),
        "ones": CELLS,
        "cells": CELLS,
        "rows": ROWS,
    },
    sizes=MOST_LEVELS,
    relations=_check_thresholds,
    by_rows=True,
)


def cuts(V: NDArray[Any], scales: NDArray[np.float64], levels: NDArray[np.float64]) -> list[NDArray[np.bool_]]:
    """Return V, multiplied by the scales, cut at each level."""
    scaled = V * scales[:, None]
    return [np.asarray(scaled > level) for level in levels]


def threshold_search(
    solution: Solution, objective: Objective | None = None, *, levels: tuple[float, ...] = LEVELS
) -> Steps:
    """Make a relaxed V Boolean, in one round of everybody; without scales, its entries are taken as they are.

    Parameters
    ----------
    objective : what decides between the pairs, the first of equals; the Hamming loss if None
    levels : thresholds to try for U and for V
    """
    objective = objective or Cost()
    V = np.asarray(required(solution.relaxed, "a relaxed V"), dtype=np.float32)
    scales = np.ones(len(V)) if solution.scales is None else solution.scales
    with best_so_far(lambda: Solution(relaxed=V, scales=scales)):
        sums = yield Request(THRESHOLD_COUNTS, V=V, scales=scales, levels=levels, all_clients=True)
    value, counts, (_, b) = find_best_pair(sums, objective)
    sums.report(loss=value)
    return Solution(
        relaxed=V,
        scales=scales,
        components=cuts(V, scales, np.asarray([levels[b]]))[0],
        counts=counts_array(counts),
        value=value,
        weights=as_array(objective.weights(counts)),
        belief=find_likeliest_belief(sums, V, scales, levels=levels),
    )


def find_best_pair(sums: Sums, objective: Objective) -> tuple[float, Counts, tuple[int, int]]:
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


def find_likeliest_belief(
    sums: Sums, V: NDArray[np.float32], scales: NDArray[np.float64], *, levels: tuple[float, ...]
) -> Belief:
    """Return what to believe at the pair that makes the data most likely."""
    _, counts, (a, b) = find_best_pair(sums, NegativeLogLikelihood())
    return first_belief(
        cuts(V, scales, np.asarray([levels[b]]))[0],
        row_share=float(sums["members"][a] / max(1, int(sums["rows"]) * len(V))),
        covered_ones=counts.tp,
        covered=counts.tp + counts.fp,
        ones=int(sums["ones"]),
        cells=counts.cells,
    )


# -- From relaxed to Boolean V: each row is cut at a fraction of its maximum, and records are reassigned -------------
#
# Thresholds for both factors take the columns of U for comparable. Where a few records have most of the ones they are
# not, and what U says is best forgotten.

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


def cut_at(V: NDArray[Any], share: float) -> NDArray[np.bool_]:
    """Return the entries of V above a share of the greatest entry of their row."""
    return np.asarray(np.float32(share) * V.max(axis=1, keepdims=True, initial=0.0) < V)


def count_cuts(work: Work) -> tuple[ClientState | None, Update]:
    """Confusion counts of the rows, assigned anew, for each cut."""
    V, (one, zero) = np.asarray(work.values["V"]), work.weights
    found = []
    for share in np.asarray(work.values["shares"]):
        components = cut_at(V, share)
        U = assign_rows(work.rows, components, weight_one=one, weight_zero=zero)
        found.append(tell_assignment(work, U, components))
    supports = {} if work.least == 1 else {"counts": np.stack([update.supports["counts"] for update in found])}
    return work.state, Update({"counts": np.stack([update.values["counts"] for update in found])}, supports=supports)


CUT_COUNTS = TaskSpec(
    "cut_counts",
    "threshold search",
    count_cuts,
    "right and wrong cells for each cut of V",
    {"V": RELAXED, "shares": LEVEL, "weights": WEIGHTS},
    {"counts": replace(COUNTS, shape=("l", 4))},
    sizes=MOST_LEVELS,
    relations=check_counts,
    by_rows=True,
)


def cut_relaxed(solution: Solution, objective: Objective | None = None, *, shares: tuple[float, ...] = SHARES) -> Steps:
    """Make a relaxed V Boolean, in one round of everybody.

    Parameters
    ----------
    objective : what decides between the cuts, the first of equals; the Hamming loss if None
    shares : of the greatest entry of a row of V, at which it is cut
    """
    objective = objective or Cost()
    V = np.asarray(required(solution.relaxed, "a relaxed V"), dtype=np.float32)
    weights = as_array(objective.weights(None))
    sums = yield Request(CUT_COUNTS, V=V, shares=shares, weights=weights, all_clients=True)
    values = [objective.value(read_counts(counts)) for counts in sums["counts"]]
    best = int(np.argmin(values))
    sums.report(loss=values[best])
    counts = sums["counts"][best]
    return replace(
        solution,
        components=cut_at(V, shares[best]),
        counts=counts,
        supports=None,
        exclusive=None,
        value=values[best],
        weights=as_array(objective.weights(read_counts(counts))),
        settled=False,
    )
