"""Client tasks of the private method: each returns one sum over records with a bounded part of each record.

Every task reads all it needs from the request, and none looks at what another record says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.federated.algorithms.private_rounds import statistics_task
from felb.federated.protocol import Request, Update
from felb.federated.steps.assignment import ASSIGN
from felb.kernels.exact import assign_rows_exact
from felb.privacy.choice import clipped_gains
from felb.privacy.names import CHOICE, COLUMNS, COOCCURRENCE, SCORES, SIZES, STATISTICS
from felb.privacy.private_cooccurrence import (
    row_size_histogram,
    select_columns,
    weighted_column_counts,
    weighted_cooccurrence,
)
from felb.privacy.scores import clipped_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Task


@dataclass(frozen=True, slots=True)
class ClientState:
    """Private to a client: U between rounds of statistics, and at the end its assignment."""

    assigned: NDArray[np.bool_] | None = None
    U: NDArray[np.float64] | None = None


def sizes(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    request: Request,  # noqa: ARG001
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[None, Update]:
    """How many of the own records have how many ones."""
    return None, Update.of_records(**{SIZES: row_size_histogram(shard)})


def columns(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[None, Update]:
    """How often each feature occurs."""
    bound = float(request.values["row_bound"])
    return None, Update.of_records(**{COLUMNS: weighted_column_counts(shard, bound)})


def cooccurrence(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[None, Update]:
    """How often features, all or the given ones, occur together."""
    bound = float(request.values["row_bound"])
    chosen = request.values.get("columns")
    part = shard if chosen is None else select_columns(shard, np.asarray(chosen))
    return None, Update.of_records(**{COOCCURRENCE: weighted_cooccurrence(part, bound)})


def statistics(
    state: ClientState | None,
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """How the own records relate the components of the round to the features."""
    U, update = statistics_task(None if state is None else state.U, shard, request)
    return ClientState(U=U), update


def choice(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[None, Update]:
    """How much more the own records gain by each candidate than by the first."""
    candidates = list(np.asarray(request.values["candidates"], dtype=bool))
    bound = float(request.values["bound"])
    return None, Update.of_records(**{CHOICE: clipped_gains(shard, candidates, bound)})


def scores(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[None, Update]:
    """How many cells of the own records are right and wrong, each record's part bounded."""
    U, V = _best_rows(shard, request)
    bound = float(request.values["bound"])
    return None, Update.of_records(**{SCORES: clipped_counts(shard, U, V, bound)})


def assign(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Assign the own rows; release nothing."""
    U, _ = _best_rows(shard, request)
    return ClientState(U), Update({})


def _best_rows(shard: BinaryMatrix, request: Request) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    V = np.asarray(request.values["components"], dtype=bool)
    node_cap = int(request.values["node_cap"])
    U, _ = assign_rows_exact(shard, V, weight_one=1.0, weight_zero=-1.0, node_cap=node_cap)
    return U, V


PRIVATE_TASKS: dict[str, Task] = {
    SIZES: sizes,
    COLUMNS: columns,
    COOCCURRENCE: cooccurrence,
    STATISTICS: statistics,
    CHOICE: choice,
    SCORES: scores,
    ASSIGN: assign,
}
