"""Components under differential privacy of records, from one noisy count of which features occur together.

    sizes          how many ones records have, to bound what one of them contributes
    columns        which features occur often; only for data with very many
    co-occurrence  how often features occur together: nearly all of the budget
    choice         which of the candidates, found by the server from the counts, suits the records
    assign         every client assigns its own rows; nothing leaves

Each release is a sum over records with a bounded part of each, on a grid, with discrete noise. What the server makes of
them costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import FederationError, InputError, PrivacyError
from felb.federated.alone import play_alone
from felb.federated.client import Client
from felb.federated.messages import Broadcast, Update
from felb.federated.recipes.assignment import ASSIGN
from felb.federated.recipes.candidates import find_candidates
from felb.federated.recipes.sums import Effort, federated_bmf
from felb.federated.server import Outcome, Recipe
from felb.linalg.binary import BinaryMatrix
from felb.linalg.exact import assign_rows_exact
from felb.privacy.choice import choose, clipped_gains
from felb.privacy.cooccurrence import (
    NoisyCooccurrence,
    columns_to_pair,
    row_bound_from_histogram,
    row_size_histogram,
    select_columns,
    weighted_column_counts,
    weighted_cooccurrence,
)
from felb.privacy.discrete import require_sampler
from felb.privacy.policy import CHOICE, COLUMNS, COOCCURRENCE, SIZES, WIDE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.privacy.bounds import RecordSum
    from felb.privacy.policy import PrivacyPlan


def private_bmf(
    n_features: int,
    n_components: int,
    plan: PrivacyPlan,
    *,
    effort: str | Effort = "default",
    node_cap: int = 1_000,
) -> Recipe:
    """Return the private method.

    Parameters
    ----------
    n_features, n_components : m and k
    plan : the agreement, with its noise calibrated for this federation
    effort : of the factorization of synthetic rows
    node_cap : limit of the search for the best assignment of a row
    """
    if plan.privacy.mechanism != "cooccurrence":
        raise InputError(
            f"this method releases co-occurrence, not {plan.privacy.mechanism!r}; use mechanism='cooccurrence'"
        )
    federated_bmf(n_features, n_components, effort=effort, node_cap=node_cap)  # refuses what it cannot do, now
    require_sampler()
    client = Client(
        tasks={SIZES: sizes, COLUMNS: columns, COOCCURRENCE: cooccurrence, CHOICE: choice, ASSIGN: assign},
        state_type=ClientState,
        assignment=_assignment,
    )
    return Recipe("private-bmf", client, PrivateServer(plan, n_features, n_components, effort, node_cap), plan)


# -- the client --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientState:
    """Private to a client: nothing until it has its assignment."""

    assigned: NDArray[np.bool_] | None = None


def _assignment(state: ClientState) -> NDArray[np.bool_]:
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


def assign(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Assign the own rows; tell nothing about it."""
    V = np.asarray(broadcast.values["components"], dtype=bool)
    node_cap = int(broadcast.values["node_cap"])
    U, _ = assign_rows_exact(shard, V, weight_one=1.0, weight_zero=-1.0, node_cap=node_cap)
    return ClientState(U), Update({})


# -- the server --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServerState:
    """Public: the round to play, and what was made of the releases so far.

    Parameters
    ----------
    row_bound : B, once it is known
    columns, pair_bound : columns whose co-occurrence is asked for, if not all, and B among these
    noise : standard deviation of the last release
    candidates, bound : several V, and G
    chosen : number of the chosen one
    assigned : the clients have assigned their rows
    """

    round: int
    seed: int
    row_bound: int | None = None
    columns: NDArray[np.int64] | None = None
    pair_bound: int | None = None
    noise: float = 0.0
    candidates: NDArray[np.bool_] | None = None
    bound: float = 0.0
    chosen: int | None = None
    assigned: bool = False


@dataclass(frozen=True, slots=True)
class PrivateServer:
    """Asks each question once."""

    plan: PrivacyPlan
    n_features: int
    n_components: int
    effort: str | Effort
    node_cap: int
    state_type: type[Any] = ServerState

    def start(self, seed: int) -> ServerState:
        """Begin with B, if it was agreed on."""
        return ServerState(0, seed, row_bound=self.plan.privacy.row_bound)

    def broadcast(self, state: ServerState) -> Broadcast | None:
        """Ask the next question, of everybody."""
        task = self._task(state)
        if task is None:
            return None
        values: dict[str, NDArray[Any]] = {}
        if task in (COLUMNS, COOCCURRENCE):
            values["row_bound"] = np.asarray(self._row_bound(state))
        if task == COOCCURRENCE and state.columns is not None:
            values["columns"] = state.columns
        if task == CHOICE:
            assert state.candidates is not None
            values = {"candidates": state.candidates, "bound": np.asarray(state.bound)}
        if task == ASSIGN:
            values = {"components": self._components(state), "node_cap": np.asarray(self.node_cap)}
        return Broadcast(task, state.round, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: ServerState) -> ServerState:
        """Read the noisy sum, and make of it what the next question needs."""
        task = self._task(state)
        self._check_noise(n_clients)
        following = replace(state, round=state.round + 1)
        if task == ASSIGN:
            return replace(following, assigned=True)
        assert task is not None
        public = self._public(task, state)
        noise = self.plan.sigma_of_sum(task, public, n_answers=n_clients)
        following = replace(following, noise=noise)
        values = np.asarray(total[task], dtype=np.float64) * public.grid
        if task == SIZES:
            return replace(following, row_bound=row_bound_from_histogram(values, self.n_features, sigma=noise))
        if task == COLUMNS:
            assert state.row_bound is not None
            paired, bound = columns_to_pair(values, sigma=noise, row_bound=state.row_bound)
            # A bound that was agreed on stands.
            return replace(following, columns=paired, pair_bound=self.plan.privacy.row_bound or bound)
        if task == COOCCURRENCE:
            released = NoisyCooccurrence.of(values, self._width(state), grid=1.0, sigma=noise)
            found = find_candidates(released, self.n_components, factorize=self._factorize, seed=state.seed)
            return replace(following, candidates=self._widened(found.V, state), bound=found.bound)
        return replace(following, chosen=choose(values, sigma=noise))

    def record(self, state: ServerState) -> Mapping[str, float]:
        """Return what was read off the last release; all of it follows from what was released."""
        if state.assigned:
            return {}
        if state.chosen is not None:
            return {"noise": state.noise, "chosen": state.chosen}
        if state.candidates is not None:
            return {"noise": state.noise, "candidates": len(state.candidates), "gain_bound": state.bound}
        if state.columns is not None:
            assert state.pair_bound is not None
            return {"noise": state.noise, "columns": state.columns.size, "pair_bound": state.pair_bound}
        return {} if state.row_bound is None else {"noise": state.noise, "row_bound": state.row_bound}

    def outcome(self, state: ServerState) -> Outcome:
        """Return the chosen components; counts stay with the clients."""
        if state.candidates is None:
            raise InputError("nothing was found yet: the co-occurrence was not released")
        return Outcome(
            components=self._components(state),
            relaxed=None,
            integrality_gap=0.0,
            converged=True,
            n_iter=state.round - int(state.assigned),
            counts=None,
            supports=None,
        )

    def _task(self, state: ServerState) -> str | None:
        if state.row_bound is None:
            return SIZES
        if state.candidates is None:
            return COLUMNS if self.n_features > WIDE and state.columns is None else COOCCURRENCE
        if state.chosen is None:
            return CHOICE
        return None if state.assigned else ASSIGN

    def _public(self, task: str, state: ServerState) -> RecordSum:
        """Return the sum that no records give: its grid and its bound are those of every client."""
        nobody = BinaryMatrix.of(np.zeros((0, self._width(state) if task == COOCCURRENCE else self.n_features), bool))
        if task == SIZES:
            return row_size_histogram(nobody)
        if task == CHOICE:
            assert state.candidates is not None
            return clipped_gains(nobody, list(state.candidates), state.bound)
        return (weighted_column_counts if task == COLUMNS else weighted_cooccurrence)(nobody, self._row_bound(state))

    def _check_noise(self, n_clients: int) -> None:
        privacy = self.plan.privacy
        if privacy.noise == "aggregate" and n_clients < self.plan.n_clients - privacy.dropouts:
            raise PrivacyError(
                f"{n_clients} of {self.plan.n_clients} clients answered, but noise was planned for at most "
                f"{privacy.dropouts} missing; agree on more dropouts, or on noise='client'"
            )

    def _row_bound(self, state: ServerState) -> int:
        """Return B for what is asked next."""
        assert state.row_bound is not None
        return state.row_bound if state.pair_bound is None else state.pair_bound

    def _width(self, state: ServerState) -> int:
        return self.n_features if state.columns is None else int(state.columns.size)

    def _widened(self, V: NDArray[np.bool_], state: ServerState) -> NDArray[np.bool_]:
        """Return candidates over the columns that were asked for as candidates over all."""
        if state.columns is None:
            return V
        whole = np.zeros((*V.shape[:2], self.n_features), dtype=bool)
        whole[:, :, state.columns] = V
        return whole

    def _factorize(self, A: BinaryMatrix, n_components: int, seed: int) -> NDArray[np.bool_]:
        recipe = federated_bmf(
            A.shape[1], n_components, objective="hamming", effort=self.effort, alone=True, node_cap=self.node_cap
        )
        return play_alone(recipe, A, seed=seed).components

    @staticmethod
    def _components(state: ServerState) -> NDArray[np.bool_]:
        assert state.candidates is not None
        return np.asarray(state.candidates[state.chosen or 0])
