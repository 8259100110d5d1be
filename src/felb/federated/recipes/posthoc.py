"""Post-hoc federation of a method for pooled data (paper, Alg. 2).

Every client factorizes its own rows and sends its Boolean V_i, once; the server aggregates them (rounded mean, majority
vote, logical or), and every client assigns its rows to the aggregate. Components are aggregated by their number:
nothing makes the first component of one client mean the same as the first of another, unless they are aligned (see
`felb.federated.recipes.aligned`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.aggregate import BOOLEAN_AGGREGATIONS
from felb.federated.client import Client
from felb.federated.messages import Broadcast, Update
from felb.federated.recipes.assignment import ASSIGN, assign_task, summed_counts
from felb.federated.server import Outcome, Recipe
from felb.models.base import LARGEST_SEED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.aggregate import Aggregation
    from felb.linalg.binary import BinaryMatrix
    from felb.models.pooled import PooledFactorization

FACTORIZE = "factorize alone"
"""The task of the only round before the assignment."""


def posthoc(n_features: int, model: PooledFactorization, aggregation: str) -> Recipe:
    """Return the recipe that runs `model` at every client and aggregates in the named way."""
    if aggregation not in BOOLEAN_AGGREGATIONS:
        raise InputError(f"unknown aggregation {aggregation!r}; use one of {', '.join(BOOLEAN_AGGREGATIONS)}")
    model.check()
    client = Client(
        tasks={FACTORIZE: FactorizeAlone(model), ASSIGN: assign_task(_assigned)},
        state_type=ClientState,
        assignment=lambda state: state.assigned,
    )
    shape = (int(model.n_components), n_features)
    return Recipe(
        f"{type(model).__name__}+{aggregation}", client, PostHocServer(BOOLEAN_AGGREGATIONS[aggregation], shape)
    )


# -- the client --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientState:
    """Private to a client: nothing until it has its assignment."""

    assigned: NDArray[np.bool_] | None = None


def _assigned(state: ClientState | None, broadcast: Broadcast, U: NDArray[np.bool_]) -> ClientState:  # noqa: ARG001
    return ClientState(U)


@dataclass(frozen=True, slots=True)
class FactorizeAlone:
    """The task: k components of the own rows, with the client's own randomness."""

    model: PooledFactorization

    def __call__(
        self,
        state: ClientState | None,  # noqa: ARG002
        shard: BinaryMatrix,
        broadcast: Broadcast,  # noqa: ARG002
        rng: np.random.Generator,
    ) -> tuple[ClientState, Update]:
        """Send V_i, and whether there was time enough to find it."""
        found = self.model.find(shard, int(self.model.n_components), seed=int(rng.integers(LARGEST_SEED)))
        return ClientState(), Update({"V": found.V.astype(np.uint8), "unfinished": np.asarray(int(not found.complete))})


# -- the server --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerState:
    """Public: the round to play, the aggregate, and the sums of the assignment."""

    round: int
    V: NDArray[np.bool_] | None = None
    unfinished: int = 0
    counts: NDArray[np.int64] | None = None
    supports: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class PostHocServer:
    """Aggregates once."""

    aggregation: Aggregation
    shape: tuple[int, int]
    state_type: type[Any] = ServerState

    def start(self, seed: int) -> ServerState:  # noqa: ARG002
        """Nothing is shared in advance."""
        return ServerState(0)

    def broadcast(self, state: ServerState) -> Broadcast | None:
        """Ask for the components, then for the assignment."""
        if state.counts is not None:
            return None
        if state.V is None:
            return Broadcast(FACTORIZE, state.round, {})
        return Broadcast(ASSIGN, state.round, {"components": state.V}, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: ServerState) -> ServerState:
        """V̂ from Σ V_i and C, or the summed counts after the assignment."""
        if "counts" in total:
            counts, supports = np.asarray(total["counts"]), np.asarray(total["supports"])
            return replace(state, round=state.round + 1, counts=counts, supports=supports)
        V = np.asarray(self.aggregation(total["V"], n_clients))
        return ServerState(state.round + 1, V, unfinished=int(total["unfinished"]))

    def record(self, state: ServerState) -> Mapping[str, float]:
        """Clients that ran out of time; then the scores."""
        return {"unfinished": state.unfinished} if state.counts is None else summed_counts(state.counts).scores()

    def outcome(self, state: ServerState) -> Outcome:
        """Return the aggregate with its scores."""
        if state.V is None:
            raise InputError("nothing was found yet: not a single round was completed")
        return Outcome(
            components=state.V,
            relaxed=None,
            integrality_gap=0.0,
            converged=True,
            n_iter=1,
            counts=summed_counts(state.counts),
            supports=np.zeros(self.shape[0], np.int64) if state.supports is None else state.supports,
            complete=state.unfinished == 0,
        )
