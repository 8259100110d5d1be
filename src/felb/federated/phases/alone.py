"""Search where there is no federation: the one owner of all rows perturbs and refines many V within a task.

Compared with `Search`, patterns may come from rows, and V is improved like U is, by coordinate descent on its columns
with U held, since nobody else's rows count. A client of a federation does not know this task.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import FederationError, InputError
from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import ClientState, Known, required
from felb.federated.phases.objective import Cost, Objective, as_array
from felb.federated.phases.search import draw_public
from felb.federated.recipes.assignment import assignment_counts, summed_counts
from felb.federated.state import holding
from felb.linalg.assign import assign_rows, descend_rows
from felb.linalg.binary import BinaryMatrix
from felb.metrics import confusion
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task

SEARCH_ALONE = "search-alone"

FROM_ROWS, WHOLE_ROW = 0.5, 0.3
"""Chances that a pattern comes from rows, and that it then is one row, not the intersection of two."""


def search_alone_task(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,
) -> tuple[ClientState, Update]:
    """Return the best V after some proposals, each made from the best one before, and its counts."""
    V, public = (np.asarray(broadcast.values[name], dtype=bool) for name in ("components", "patterns"))
    proposals, rounds = (int(broadcast.values[name]) for name in ("proposals", "rounds"))
    one, zero = (float(weight) for weight in broadcast.values["weights"])
    turned = _turned(shard)
    if shard.unknown is not None:
        turned = turned.with_unknown(_turned(shard.unknown))
    least, U = np.inf, assign_rows(shard, V, weight_one=one, weight_zero=zero)
    if len(V):
        for proposal in range(proposals + 1):
            new = V if proposal == 0 else perturbed(shard, V, public, flips=float(broadcast.values["flips"]), rng=rng)
            found = _descend(shard, turned, new, weights=(one, zero), rounds=rounds)
            if found[0] <= least:
                least, U, V = found
    update = assignment_counts(shard, U, V)
    return ClientState(broadcast.round, assigned=U), Update({**update, "components": V.astype(np.int64)})


def _turned(A: BinaryMatrix) -> BinaryMatrix:
    return BinaryMatrix.of(A.to_scipy(np.uint8).T.tocsr())


def perturbed(
    A: BinaryMatrix, V: NDArray[np.bool_], public: NDArray[np.bool_], *, flips: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return V with one or two components replaced by patterns, and some entries flipped."""
    new = V.copy()
    for component in rng.choice(len(V), min(len(V), int(rng.integers(1, 3))), replace=False):
        if rng.random() < FROM_ROWS:
            new[component] = row_pattern(A, rng)
        else:
            new[component] = draw_public(public, V, rng)
    return np.asarray(new ^ (rng.random(V.shape) < flips))


def row_pattern(A: BinaryMatrix, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a random row, or the intersection of two."""
    pattern = np.zeros(A.shape[1], dtype=bool)
    if len(A):
        first, second = (A.indices[A.indptr[r] : A.indptr[r + 1]] for r in rng.integers(0, len(A), 2))
        pattern[first if rng.random() < WHOLE_ROW else np.intersect1d(first, second, assume_unique=True)] = True
    return pattern


def _descend(
    A: BinaryMatrix,
    turned: BinaryMatrix,
    V: NDArray[np.bool_],
    *,
    weights: tuple[float, float],
    rounds: int,
) -> tuple[float, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the cost, U and V after coordinate descent on both in turn, until the cost does not fall."""
    worth: dict[str, Any] = {"weight_one": weights[0], "weight_zero": weights[1]}
    U = assign_rows(A, V, **worth)
    cost = np.inf
    for _ in range(rounds):
        V = np.ascontiguousarray(descend_rows(turned, U.T, V.T, **worth).T)
        U = descend_rows(A, V, U, **worth)
        counts = confusion(A, U, V)
        last, cost = cost, weights[0] * counts.fn - weights[1] * counts.fp
        if cost >= last:
            break
    return cost, U, V


@dataclass(frozen=True, slots=True)
class AloneState:
    """The best so far and the proposals that were made."""

    round: int
    known: Known = field(metadata=holding(Known))
    made: int = 0
    limit: int = 1
    over: bool = False


@dataclass(frozen=True, slots=True)
class SearchAlone:
    """Let the owner of all rows search.

    Parameters
    ----------
    objective : what to minimise
    proposals : how many are refined at most
    work : stop also when the ones of all rows, times the proposals, exceed this; bounds the time on large data
    least : proposals that are made whatever the work
    rounds : rounds of descent on V and U for a proposal
    batch : proposals within a task; a time limit is looked at between tasks
    flips : share of entries flipped in a proposal
    """

    objective: Objective = field(default_factory=Cost)
    proposals: int = 20_000
    work: float = 1e8
    least: int = 32
    rounds: int = 8
    batch: int = 100
    flips: float = 0.02
    name: str = "search alone"
    state_type: type[Any] = AloneState

    def __post_init__(self) -> None:
        check_weights(
            proposals=(self.proposals, 0),
            work=(self.work, 0),
            least=(self.least, 0),
            rounds=(self.rounds, 1),
            batch=(self.batch, 1),
        )
        if not 0 <= self.flips < 1:
            raise InputError(f"flips={self.flips}: the share of flipped entries lies in [0, 1)")

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The search."""
        return {SEARCH_ALONE: search_alone_task}

    def start(self, known: Known, seed: int) -> AloneState:  # noqa: ARG002
        """Start from a V with its counts."""
        required(known.components, "a Boolean V")
        required(known.patterns, "patterns of columns")
        counts = summed_counts(required(known.counts, "the counts of a V"))
        limit = min(self.proposals, max(self.least, int(self.work / max(counts.tp + counts.fn, 1))))
        return AloneState(0, known, limit=limit, over=limit == 0)

    def broadcast(self, state: AloneState) -> Broadcast | None:
        """Ask for some more proposals."""
        if state.over:
            return None
        known = state.known
        values = {
            "components": required(known.components, "a Boolean V"),
            "patterns": required(known.patterns, "patterns of columns"),
            "weights": as_array(self.objective.weights(summed_counts(known.counts))),
            "proposals": np.asarray(self._next(state)),
            "rounds": np.asarray(self.rounds),
            "flips": np.asarray(self.flips),
        }
        return Broadcast(SEARCH_ALONE, state.round, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: AloneState) -> AloneState:
        """Keep what was found if it is not worse."""
        if n_clients != 1:
            raise FederationError("a search alone is for one owner of all rows; use Search in a federation")
        counts = np.asarray(total["counts"])
        value, least = self.objective.value(summed_counts(counts)), state.known.value
        made = state.made + self._next(state)
        state = replace(state, round=state.round + 1, made=made, over=made >= state.limit)
        if least is not None and value > least:
            return state
        known = replace(
            state.known,
            components=np.asarray(total["components"], dtype=bool),
            counts=counts,
            supports=np.asarray(total["supports"]),
            exclusive=None,
            value=value,
            weights=as_array(self.objective.weights(summed_counts(counts))),
            settled=False,
        )
        return replace(state, known=known)

    def record(self, state: AloneState) -> Mapping[str, float]:
        """Return the smallest objective so far and the proposals that were made."""
        value = state.known.value
        return {"loss": float(np.nan if value is None else value), "proposals": state.made}

    def result(self, state: AloneState) -> Known:
        """Return the best that was found."""
        return state.known

    def _next(self, state: AloneState) -> int:
        return min(self.batch, state.limit - state.made)
