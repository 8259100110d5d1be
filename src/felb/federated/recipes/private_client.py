"""What a client can do in the private method: one sum over its records at a time, with a bounded part of each.

Every task reads all it needs from the broadcast, and none looks at what another record says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import FederationError
from felb.federated.client import Client
from felb.federated.messages import Broadcast, Update
from felb.federated.recipes.assignment import ASSIGN
from felb.federated.recipes.private_rounds import statistics_task
from felb.linalg.exact import assign_rows_exact
from felb.privacy.choice import clipped_gains
from felb.privacy.cooccurrence import (
    row_size_histogram,
    select_columns,
    weighted_column_counts,
    weighted_cooccurrence,
)
from felb.privacy.names import CHOICE, COLUMNS, COOCCURRENCE, SCORES, SIZES, STATISTICS
from felb.privacy.scores import clipped_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.linalg.binary import BinaryMatrix


@dataclass(frozen=True, slots=True)
class ClientState:
    """Private to a client: U between rounds of statistics, and at the end its assignment."""

    assigned: NDArray[np.bool_] | None = None
    U: NDArray[np.float64] | None = None


def assignment(state: ClientState) -> NDArray[np.bool_]:
    """Read the Boolean U_i off a final state."""
    if state.assigned is None:
        raise FederationError("this client was not asked for its assignment yet")
    return state.assigned


def sizes(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,  # noqa: ARG001
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """How many of the own records have how many ones."""
    return ClientState(), Update.of_records(**{SIZES: row_size_histogram(shard)})


def columns(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """How often each feature occurs."""
    bound = float(broadcast.values["row_bound"])
    return ClientState(), Update.of_records(**{COLUMNS: weighted_column_counts(shard, bound)})


def cooccurrence(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """How often features, all or the given ones, occur together."""
    bound = float(broadcast.values["row_bound"])
    chosen = broadcast.values.get("columns")
    part = shard if chosen is None else select_columns(shard, np.asarray(chosen))
    return ClientState(), Update.of_records(**{COOCCURRENCE: weighted_cooccurrence(part, bound)})


def statistics(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """How the own records relate the components of the round to the features."""
    U, update = statistics_task(None if state is None else state.U, shard, broadcast)
    return ClientState(U=U), update


def choice(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """How much more the own records gain by each candidate than by the first."""
    candidates = list(np.asarray(broadcast.values["candidates"], dtype=bool))
    bound = float(broadcast.values["bound"])
    return ClientState(), Update.of_records(**{CHOICE: clipped_gains(shard, candidates, bound)})


def scores(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """How many cells of the own records are right and wrong, each record's part bounded."""
    U, V = _best_rows(shard, broadcast)
    bound = float(broadcast.values["bound"])
    return ClientState(), Update.of_records(**{SCORES: clipped_counts(shard, U, V, bound)})


def assign(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Assign the own rows; tell nothing about it."""
    U, _ = _best_rows(shard, broadcast)
    return ClientState(U), Update({})


def _best_rows(shard: BinaryMatrix, broadcast: Broadcast) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    V = np.asarray(broadcast.values["components"], dtype=bool)
    node_cap = int(broadcast.values["node_cap"])
    U, _ = assign_rows_exact(shard, V, weight_one=1.0, weight_zero=-1.0, node_cap=node_cap)
    return U, V


CLIENT = Client(
    tasks={
        SIZES: sizes,
        COLUMNS: columns,
        COOCCURRENCE: cooccurrence,
        STATISTICS: statistics,
        CHOICE: choice,
        SCORES: scores,
        ASSIGN: assign,
    },
    state_type=ClientState,
    assignment=assignment,
)
