"""The last request of every algorithm: clients assign their rows to the Boolean components and report summed counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.protocol import Checkpoint, Outcome, Request, Step, Sums, Update
from felb.federated.steps.state import as_array, best_so_far
from felb.federated.tasks import (
    ASSIGNMENT_WEIGHTS,
    COMPONENTS,
    COUNTS,
    NODE_CAP,
    SUPPORTS,
    WEIGHTS,
    TaskSpec,
    Work,
    check_counts,
)
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import FactorMasks, count_rows_by_cells
from felb.kernels.exact import assign_rows_exact
from felb.metrics.counts import Counts, count_cells
from felb.privacy.disclosure import round_members
from felb.progress import current_deadline

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Server
    from felb.federated.steps.state import Objective, Solution
    from felb.federated.tasks import Task

    Assignment = Generator[Request, Sums, Outcome]

ASSIGN = "assign"

ROWS_BETWEEN_LOOKS = 256
"""Rows that are assigned exactly between two looks at the clock, in a run with a time limit."""

HURRIED_NODES = 1
"""Node cap of a run that has used up its time: rows keep their greedy assignment."""


_TOLD = {"counts": COUNTS, "supports": SUPPORTS}


def assign_task(state_type: type[Any], *, exactly: bool = False, do: Task | None = None) -> TaskSpec:
    """Declare the last task of a run: U_i for the requested components stays at the client; what leaves are counts.

    Parameters
    ----------
    state_type : of the algorithm's clients
    exactly : find the best U_i for the requested weights of cells, by branch and bound up to a node cap
    do : the task, where it is another one
    """

    def assign(work: Work) -> tuple[Any, Update]:
        U = _assign_exactly(work) if exactly else assign_rows(work.rows, work.components)
        return state_type(assigned=U), tell_assignment(work, U, work.components)

    search = {"weights": ASSIGNMENT_WEIGHTS, "node_cap": NODE_CAP}
    return TaskSpec(
        ASSIGN,
        "assignment",
        do or assign,
        "right and wrong cells, and how many records have each component",
        {"components": COMPONENTS, **(search if exactly else {})},
        _TOLD,
        relations=check_counts,
        by_rows=exactly,
        assigns=True,
    )


def count_exactly(work: Work) -> tuple[None, Update]:
    """Return the counts of the best assignment to the requested components, which is not kept."""
    return None, tell_assignment(work, _assign_exactly(work), work.components)


EXACT_COUNTS = TaskSpec(
    "exact_counts",
    "comparison of results",
    count_exactly,
    "right and wrong cells, and how many records have each component",
    {"components": COMPONENTS, "weights": WEIGHTS, "node_cap": NODE_CAP},
    _TOLD,
    relations=check_counts,
    by_rows=True,
)


def _assign_exactly(work: Work) -> NDArray[np.bool_]:
    """Return the best U for the requested components, weights and node cap."""
    one, zero = work.weights
    return _assigned_in_time(work.rows, work.components, one, zero, int(work.values["node_cap"]))


def _assigned_in_time(
    shard: BinaryMatrix, V: NDArray[np.bool_], one: float, zero: float, node_cap: int
) -> NDArray[np.bool_]:
    """Return the best U, or from the moment that the time limit of the run has passed the greedy one."""
    deadline = current_deadline()
    if deadline is None:
        return assign_rows_exact(shard, V, weight_one=one, weight_zero=zero, node_cap=node_cap)[0]
    U = assign_rows(shard, V, weight_one=one, weight_zero=zero)
    if node_cap <= HURRIED_NODES:
        return U
    for first in range(0, len(shard), ROWS_BETWEEN_LOOKS):
        if deadline.passed:
            break
        rows = slice(first, first + ROWS_BETWEEN_LOOKS)
        part = shard.rows(rows.start, rows.stop)
        U[rows], _ = assign_rows_exact(part, V, weight_one=one, weight_zero=zero, start=U[rows], node_cap=node_cap)
    return U


def assignment_counts(
    shard: BinaryMatrix, U: NDArray[np.bool_], V: NDArray[np.bool_], factors: FactorMasks | None = None
) -> dict[str, NDArray[Any]]:
    """Return what may be told of an assignment: tp, fp, fn and cells, and how many rows have each component.

    `factors` are the masks of U and V, where they have been made already.
    """
    counts = count_cells(shard, FactorMasks.of(U, V) if factors is None else factors)
    return {"counts": counts_array(counts), "supports": np.count_nonzero(U, axis=0)}


def tell_assignment(work: Work, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> Update:
    """Return what may be told of an assignment, of which components of too few records are left out."""
    U = round_members(U, work.least)
    factors = FactorMasks.of(U, V)
    values = assignment_counts(work.rows, U, V, factors)
    if work.least == 1:
        return Update(values)
    values["counts"], records = round_cells(work, factors, values["counts"])
    return Update(values, supports={"counts": records})


def round_cells(
    work: Work, factors: FactorMasks, counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return tp, fp, fn and cells as they may leave, and how many records make each.

    Ones are covered or not, and zeros likewise. If too few records have a cell of one of the two kinds, all of their
    cells are told as of the other kind, so that no difference to the number of all ones tells of them.
    """
    tp, fp, fn, cells = (int(count) for count in counts)
    rows, n = count_rows_by_cells(work.rows, factors), len(work.rows)
    ones = _round_split((tp, fn), (int(rows[0]), int(rows[2])), work.least, n)
    zeros = _round_split((fp, cells - tp - fp - fn), (int(rows[1]), int(rows[3])), work.least, n)
    told = [ones[0], zeros[0], ones[1], (cells, n)]
    return np.array([count for count, _ in told], np.int64), np.array([made for _, made in told], np.int64)


def _round_split(
    parts: tuple[int, int], records: tuple[int, int], least: int, n: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return two numbers of cells, each with how many records make it; one that too few make goes to the other."""
    if records[0] < least:
        return (0, n), (sum(parts), n)
    if records[1] < least:
        return (sum(parts), n), (0, n)
    return (parts[0], records[0]), (parts[1], records[1])


def counts_array(counts: Counts) -> NDArray[np.int64]:
    """Return counts as an array, which can be summed."""
    return np.array([counts.tp, counts.fp, counts.fn, counts.cells], dtype=np.int64)


def read_counts(counts: NDArray[np.int64] | None) -> Counts:
    """Read a summed array of counts; zero counts where there is none."""
    return Counts() if counts is None else Counts(*(int(c) for c in counts))


# -- the server ------------------------------------------------------------------------------------------------------


def assigned(components: NDArray[np.bool_], **outcome: Any) -> Assignment:
    """Ask every client to assign its rows to the components; return the outcome with the summed counts."""
    sums = yield Request(ASSIGN, components=components, all_clients=True)
    return counted(sums, components, **outcome)


def request_exact_assignment(
    components: NDArray[np.bool_], weights: NDArray[np.float64], *, node_cap: int, **outcome: Any
) -> Assignment:
    """Ask every client for the best assignment of its rows by the weights of cells."""
    sums = yield Request(ASSIGN, components=components, weights=weights, node_cap=node_cap, all_clients=True)
    one, zero = (float(weight) for weight in weights)
    return counted(sums, components, weights=(one, zero), **outcome)


def choose_by_exact_loss(
    solution: Solution, lower: Sequence[Solution], objective: Objective, *, node_cap: int
) -> Generator[Request, Sums, Solution]:
    """Return what has the smallest objective when rows are assigned exactly: `solution`, or one of lower effort.

    Searches compare losses of quick assignments, which the last, exact one may turn round, so those of lower effort are
    always asked for. The exact loss is never larger than the quick one, so `solution` is asked for only if it may lose.
    """
    best, least = solution, solution.value
    with best_so_far(lambda: solution):
        for other in lower:
            if other.value is None or least is None or np.array_equal(other.boolean(), solution.boolean()):
                continue
            exact = yield from _exact_value(other, objective, node_cap)
            if exact < least and best is solution:
                least = yield from _exact_value(solution, objective, node_cap)
            if exact < least:
                best, least = other, exact
    return best


def _exact_value(solution: Solution, objective: Objective, node_cap: int) -> Generator[Request, Sums, float]:
    weights = as_array(objective.weights(read_counts(solution.counts)))
    sums = yield Request(
        EXACT_COUNTS, components=solution.boolean(), weights=weights, node_cap=node_cap, all_clients=True
    )
    value = objective.value(read_counts(sums["counts"]))
    sums.report(loss=value)
    return value


def counted(sums: Sums, components: NDArray[np.bool_], **outcome: Any) -> Outcome:
    """Return the outcome of an assignment from its sums."""
    counts = read_counts(sums["counts"])
    sums.report(**counts.scores())
    return Outcome(
        components=components, n_iter=sums.round, counts=counts, supports=np.asarray(sums["supports"]), **outcome
    )


def play_until_assignment(server: Server) -> Generator[Request | Step | Checkpoint, Any, Outcome]:
    """Play a server up to its assignment; return its outcome as it would be if no row was assigned.

    The server must ask for the assignment itself, not within a step.
    """
    value: Any = None
    try:
        while True:
            asked = server.send(value)
            if isinstance(asked, Request) and asked.task == ASSIGN:
                value = make_empty_assignment(len(asked.values["components"]))
            else:
                value = yield asked
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome


def make_empty_assignment(n_components: int, *, number: int = 0) -> Sums:
    """Return the sums of an assignment of no rows."""
    return Sums({"counts": np.zeros(4, np.int64), "supports": np.zeros(n_components, np.int64)}, 0, number=number)
