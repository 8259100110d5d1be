"""The last task of every recipe: assign the own rows to the shared Boolean components, report summed counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.messages import Broadcast, Update
from felb.linalg.assign import assign_rows
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
        c = confusion(shard, U, V)
        update = {
            "counts": np.array([c.tp, c.fp, c.fn, c.cells]),
            "supports": np.count_nonzero(U, axis=0),
        }
        return keep(state, broadcast, U), Update(update)

    return assign


def summed_counts(counts: NDArray[np.int64] | None) -> Counts:
    """Read the summed message back; zero counts before it has arrived."""
    return Counts() if counts is None else Counts(*(int(c) for c in counts))
