"""The last task of every recipe: assign the own rows to the shared Boolean components, report summed counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.messages import Broadcast, Update
from felb.linalg.assign import assign_rows
from felb.linalg.exact import assign_rows_exact
from felb.metrics import Counts, confusion

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix

ASSIGN = "assign"


def assign_task(keep: Callable[[Any, Broadcast, NDArray[np.bool_]], Any]) -> Task:
    """Make the task: U_i for the broadcast components stays in the state that `keep` builds; what leaves are counts."""

    def assign(
        state: Any,
        shard: BinaryMatrix,
        broadcast: Broadcast,
        rng: np.random.Generator,  # noqa: ARG001
    ) -> tuple[Any, Update]:
        V = np.asarray(broadcast.values["components"], dtype=bool)
        U = assign_rows(shard, V)
        return keep(state, broadcast, U), Update(assignment_counts(shard, U, V))

    return assign


def assign_exactly_task(keep: Callable[[Any, Broadcast, NDArray[np.bool_]], Any]) -> Task:
    """Make the task with the best U_i for the broadcast weights of cells, by branch and bound up to a node cap."""

    def assign_exactly(
        state: Any,
        shard: BinaryMatrix,
        broadcast: Broadcast,
        rng: np.random.Generator,  # noqa: ARG001
    ) -> tuple[Any, Update]:
        V = np.asarray(broadcast.values["components"], dtype=bool)
        one, zero = (float(weight) for weight in broadcast.values["weights"])
        node_cap = int(broadcast.values["node_cap"])
        U, _ = assign_rows_exact(shard, V, weight_one=one, weight_zero=zero, node_cap=node_cap)
        return keep(state, broadcast, U), Update(assignment_counts(shard, U, V))

    return assign_exactly


def assignment_counts(shard: BinaryMatrix, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Return what may be told of an assignment: tp, fp, fn and cells, and how many rows have each component."""
    return {"counts": told_counts(confusion(shard, U, V)), "supports": np.count_nonzero(U, axis=0)}


def told_counts(counts: Counts) -> NDArray[np.int64]:
    """Return counts as a message, which can be summed."""
    return np.array([counts.tp, counts.fp, counts.fn, counts.cells], dtype=np.int64)


def summed_counts(counts: NDArray[np.int64] | None) -> Counts:
    """Read the summed message back; zero counts before it has arrived."""
    return Counts() if counts is None else Counts(*(int(c) for c in counts))
