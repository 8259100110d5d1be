"""Any recipe, with its Boolean components refined before rows are assigned.

The recipe is played until it would assign. From the components it has found, entries are flipped by what all clients
together would gain (see `felb.federated.phases.refine`), and every client then has the best assignment of its rows to
the result. With everybody in every round, the summed loss is never larger than that of the recipe alone: refinement
measures the recipe's own components first and keeps the best it has measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.client import Client
from felb.federated.messages import Broadcast
from felb.federated.phases.base import Known
from felb.federated.phases.refine import Refine
from felb.federated.recipes.assignment import ASSIGN, assign_exactly_task, summed_counts
from felb.federated.server import Outcome, Recipe, Server
from felb.federated.state import holding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.federated.messages import Update
    from felb.linalg.binary import BinaryMatrix

NODE_CAP = 1_000
"""Limit of the search for the best assignment of a row."""


def refined(recipe: Recipe, refine: Refine | None = None, *, node_cap: int = NODE_CAP) -> Recipe:
    """Return the recipe that refines what another one finds.

    Parameters
    ----------
    recipe : the one that finds components
    refine : how to refine them; for the fewest wrong cells of all clients if None
    node_cap : limit of the search for the best assignment of a row
    """
    refine = refine or Refine()
    state_type = make_dataclass(
        "RefinedClientState",
        [
            ("own", Any, field(default=None, metadata=holding(recipe.client.state_type))),
            ("assigned", Any, field(default=None)),
        ],
        frozen=True,
    )

    def assigned(state: Any, broadcast: Broadcast, U: NDArray[np.bool_]) -> Any:  # noqa: ARG001
        return state_type(assigned=U)

    own = {word: _played(task, state_type) for word, task in recipe.client.tasks.items() if word != ASSIGN}
    tasks = {**own, **{word: _refining(task, state_type) for word, task in refine.tasks.items()}}
    tasks[ASSIGN] = assign_exactly_task(assigned)
    client = Client(tasks=tasks, state_type=state_type, assignment=lambda state: state.assigned)
    return Recipe(f"{recipe.name}, refined", client, RefinedServer(recipe.server, refine, node_cap))


def _played(task: Task, state_type: type[Any]) -> Task:
    """Return a task of the recipe, which sees its own state only."""

    def played(state: Any, shard: BinaryMatrix, broadcast: Broadcast, rng: np.random.Generator) -> tuple[Any, Update]:
        own, update = task(None if state is None else state.own, shard, broadcast, rng)
        return state_type(own=own), update

    return played


def _refining(task: Task, state_type: type[Any]) -> Task:
    """Return a task of the refinement, which needs no state; that of the recipe is of no use any more."""

    def refining(
        state: Any,  # noqa: ARG001
        shard: BinaryMatrix,
        broadcast: Broadcast,
        rng: np.random.Generator,
    ) -> tuple[Any, Update]:
        new, update = task(None, shard, broadcast, rng)
        return state_type(assigned=new.assigned), update

    return refining


@dataclass(frozen=True)
class RefinedServer:
    """Plays a server until it would assign, then refines its components, then asks for the assignment.

    Parameters
    ----------
    inner : the server that finds components
    refine : the refinement
    node_cap : limit of the search for the best assignment of a row
    """

    inner: Server
    refine: Refine
    node_cap: int = NODE_CAP

    @cached_property
    def state_type(self) -> type[Any]:
        """The round to play, the states of both parts (that of the refinement once it has begun), the final sums."""
        return make_dataclass(
            "RefinedState",
            [
                ("round", int),
                ("seed", int),
                ("inner", Any, field(metadata=holding(self.inner.state_type))),
                ("refine", Any, field(default=None, metadata=holding(self.refine.state_type))),
                ("counts", Any, field(default=None)),
                ("supports", Any, field(default=None)),
            ],
            frozen=True,
        )

    def start(self, seed: int) -> Any:
        """Start the inner server."""
        return self._settle(self.state_type(0, seed, self.inner.start(seed)))

    def broadcast(self, state: Any) -> Broadcast | None:
        """Ask what the inner server asks, then for gains, then for the assignment."""
        if state.counts is not None:
            return None
        asked = self.inner.broadcast(state.inner) if state.refine is None else self.refine.broadcast(state.refine)
        if asked is not None:
            return replace(asked, round=state.round)
        known = self.refine.result(state.refine)
        assert known.weights is not None
        values = {"components": known.boolean(), "weights": known.weights, "node_cap": np.asarray(self.node_cap)}
        return Broadcast(ASSIGN, state.round, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: Any) -> Any:
        """Let the part that has asked combine, or keep the sums of the assignment."""
        new = replace(state, round=state.round + 1)
        if state.refine is None:
            return self._settle(replace(new, inner=self.inner.combine(total, n_clients, state.inner)))
        if self.refine.broadcast(state.refine) is not None:
            return replace(new, refine=self.refine.combine(total, n_clients, state.refine))
        return replace(new, counts=np.asarray(total["counts"]), supports=np.asarray(total["supports"]))

    def record(self, state: Any) -> Mapping[str, float]:
        """Return the figures of the part that was played last, or the scores of the assignment."""
        if state.counts is not None:
            return summed_counts(state.counts).scores()
        if state.refine is None or state.refine.round == 0:
            return self.inner.record(state.inner)
        return self.refine.record(state.refine)

    def outcome(self, state: Any) -> Outcome:
        """Return the refined components; what they were cut from, and how decidedly, is as the inner server says."""
        found = self.inner.outcome(state.inner)
        if state.refine is None:
            return found
        known = self.refine.result(state.refine)
        assert known.components is not None
        assert known.weights is not None
        one, zero = (float(weight) for weight in known.weights)
        counts = known.counts if state.counts is None else state.counts
        supports = known.supports if state.supports is None else state.supports
        return replace(
            found,
            components=known.components,
            n_iter=state.round - int(state.counts is not None),
            counts=summed_counts(counts),
            supports=np.zeros(len(known.components), np.int64) if supports is None else supports,
            weights=(one, zero),
            belief=None,
        )

    def _settle(self, state: Any) -> Any:
        """Begin to refine when the inner server has nothing left to ask but the assignment."""
        asked = self.inner.broadcast(state.inner)
        if asked is not None and asked.task != ASSIGN:
            return state
        found = Known(components=self.inner.outcome(state.inner).components)
        return replace(state, refine=self.refine.start(found, state.seed))
