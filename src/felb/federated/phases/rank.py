"""The number of components: the one with the shortest description of all data, from summed counts alone.

With n records, m features, r = |U∘V| covered cells, of which fp are zeros, and fn ones left of c cells (nm, if all are
known), the data is described in

    Σ_l ( log₂(n+1) + log₂ C(n, |U_l|) + log₂(m+1) + log₂ C(m, |V_l|) )
        + log₂(r+1) + log₂ C(r, fp) + log₂(c−r+1) + log₂ C(c−r, fn)

bits: which records and features each component has, and which cells of either kind are wrong. Starting from more
components than are needed, one after the other is dropped or merged with another, and the rest is refined.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import lgamma, log, log2
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import ClientState, Known, required, stream
from felb.federated.phases.objective import Cost, Objective, as_array
from felb.federated.phases.stack import TRY, Stack, try_task
from felb.federated.recipes.assignment import summed_counts
from felb.federated.state import holding
from felb.linalg.assign import assign_rows
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix
    from felb.metrics import Counts

SHARED = "shared"

LEAST_WRONG, MOST_WRONG = 1e-6, 0.4
"""Limits for the share of wrong cells where the worth of a cell is estimated from it."""


def subset_bits(size: int, chosen: int) -> float:
    """log₂(size + 1) + log₂ C(size, chosen): how many are chosen, and which."""
    return (log(size + 1) + lgamma(size + 1) - lgamma(chosen + 1) - lgamma(size - chosen + 1)) / log(2)


def component_bits(V: NDArray[np.bool_], supports: NDArray[np.int64], *, n_rows: int) -> NDArray[np.float64]:
    """Return the bits that tell the records and the features of each component; 0 for one that is in no record."""
    m = V.shape[1]
    bits = [
        subset_bits(n_rows, int(support)) + subset_bits(m, int(size)) if support and size else 0.0
        for support, size in zip(supports, np.count_nonzero(V, axis=1), strict=True)
    ]
    return np.array(bits, dtype=np.float64)


def description_length(V: NDArray[np.bool_], supports: NDArray[np.int64], counts: Counts, *, n_rows: int) -> float:
    """Return the bits that describe the known cells by U and V and the cells where U∘V is wrong."""
    covered = counts.tp + counts.fp
    wrong = subset_bits(covered, counts.fp) + subset_bits(counts.cells - covered, counts.fn)
    return float(component_bits(V, supports, n_rows=n_rows).sum() + wrong)


def shared_task(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """How many records have both of two components, components × components."""
    V = np.asarray(broadcast.values["components"], dtype=bool)
    one, zero = (float(weight) for weight in broadcast.values["weights"])
    U = assign_rows(shard, V, weight_one=one, weight_zero=zero)
    # Counts stay below 2^53, so that a product of doubles is exact and fast.
    wide = U.astype(np.float64)
    return ClientState(broadcast.round, assigned=U), Update({"shared": np.rint(wide.T @ wide).astype(np.int64)})


def merges(V: NDArray[np.bool_], shared: NDArray[np.int64], *, most: int) -> NDArray[np.bool_]:
    """Return V with two components replaced by their union, for the pairs that are most alike.

    Pieces of one component have much the same records or much the same features, so the likeness of two is the larger
    of the Jaccard indices of their records and of their features.
    """
    alike = np.maximum(_jaccard(shared), _jaccard(V.astype(np.int64) @ V.T.astype(np.int64)))
    first, second = np.triu_indices(len(V), 1)
    order = np.argsort(-alike[first, second], kind="stable")[:most]
    found = []
    for a, b in zip(first[order], second[order], strict=True):
        merged = V.copy()
        merged[a] |= V[b]
        found.append(np.delete(merged, b, axis=0))
    return np.array(found, dtype=bool).reshape(len(found), len(V) - 1, V.shape[1])


def _jaccard(common: NDArray[np.int64]) -> NDArray[np.float64]:
    sizes = np.diagonal(common)
    return np.asarray(common / np.maximum(sizes[:, None] + sizes - common, 1))


@dataclass(frozen=True, slots=True)
class RankState:
    """What has the shortest description, the present components, and the candidates with one less being refined.

    `shared` is known once the present components were found to be all of use.
    """

    round: int
    seed: int
    known: Known = field(metadata=holding(Known))
    present: Known = field(metadata=holding(Known))
    stack: Stack | None = field(default=None, metadata=holding(Stack))
    n_rows: int = 0
    length: float = np.inf
    failures: int = 0
    last_size: int = 0
    last_length: float = np.nan
    over: bool = False


@dataclass(frozen=True, slots=True)
class Rank:
    """Take away components one by one and keep the number with the shortest description.

    While a component costs more bits than it seems to save, the one that costs most is dropped. From there on, every
    step tries to drop each of the least useful components and to merge pairs that are alike, refines all of these and
    takes the one with the shortest description; after some steps without a shorter one it ends.

    Parameters
    ----------
    objective : what refinement minimises
    rounds : rounds of refinement in a step
    drops, merges : candidates of either kind in a step
    patience : steps without a shorter description before the end
    """

    objective: Objective = field(default_factory=Cost)
    rounds: int = 3
    drops: int = 4
    merges: int = 8
    patience: int = 3
    name: str = "rank"
    state_type: type[Any] = RankState

    def __post_init__(self) -> None:
        check_weights(
            rounds=(self.rounds, 0),
            drops=(self.drops, 1),
            merges=(self.merges, 0),
            patience=(self.patience, 1),
        )

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Gains of several V, and records that components share."""
        return {TRY: try_task, SHARED: shared_task}

    def start(self, known: Known, seed: int) -> RankState:
        """Measure the components as they are, without those of no feature."""
        V = required(known.components, "a Boolean V")
        V = V[V.any(axis=1)]
        return RankState(0, seed, known, known, Stack.of(V[None]), over=len(V) == 0)

    def broadcast(self, state: RankState) -> Broadcast | None:
        """Ask for the gains of the candidates, or for what pairs of the present components share."""
        if state.over:
            return None
        weights = self._weights(state)
        if state.stack is None:
            components = required(state.present.components, "a Boolean V")
            return Broadcast(SHARED, state.round, {"components": components, "weights": weights}, everyone=True)
        return Broadcast(TRY, state.round, {"candidates": state.stack.V, "weights": weights}, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: RankState) -> RankState:  # noqa: ARG002
        """Refine the candidates; when they are done, take the one with the shortest description."""
        state = replace(state, round=state.round + 1, last_size=0)
        if state.stack is None:
            V = required(state.present.components, "a Boolean V")
            merged = merges(V, np.asarray(total["shared"]), most=self.merges)
            return replace(state, stack=Stack.of(np.concatenate([self._dropped(state, self.drops), merged])))
        rng = stream(state.seed, self.name, state.round)
        stack = state.stack.refined(total, self.objective, weights=self._weights(state), rng=rng)
        state = replace(state, stack=stack, n_rows=int(total["rows"]))
        return self._step(state, stack) if stack.settled.all() or stack.ages[0] > self.rounds else state

    def record(self, state: RankState) -> Mapping[str, float]:
        """Return the number of components with its description length, where a step has just ended."""
        if not state.last_size:
            return {}
        return {"n_components": state.last_size, "description_length": state.last_length}

    def result(self, state: RankState) -> Known:
        """Return the components with the shortest description."""
        return state.known

    def _step(self, state: RankState, stack: Stack) -> RankState:
        """Take the candidate with the shortest description and prepare the next ones."""
        lengths = [
            description_length(V, supports, summed_counts(counts), n_rows=state.n_rows)
            for V, supports, counts in zip(stack.best, stack.supports, stack.counts, strict=True)
        ]
        place = int(np.argmin(lengths))
        found = stack.known(place, self.objective, before=state.known)
        shorter = lengths[place] <= state.length
        state = replace(
            state,
            present=found,
            known=found if shorter else state.known,
            length=lengths[place] if shorter else state.length,
            failures=0 if shorter else state.failures + 1,
            last_size=stack.best.shape[1],
            last_length=lengths[place],
        )
        if state.last_size == 1 or state.failures >= self.patience:
            return replace(state, over=True)
        if self._use(state).min() < 0:
            return replace(state, stack=Stack.of(self._dropped(state, 1)))
        return replace(state, stack=None)

    def _use(self, state: RankState) -> NDArray[np.float64]:
        """Return the bits each component saves; a wrong cell costs the logarithm of the odds that a cell is right."""
        present = state.present
        V, supports, exclusive = (
            required(value, "measured components")
            for value in (present.components, present.supports, present.exclusive)
        )
        counts = summed_counts(present.counts)
        share = min(max((counts.fp + counts.fn) / max(counts.cells, 1), LEAST_WRONG), MOST_WRONG)
        bits = component_bits(V, supports, n_rows=state.n_rows)
        # A component of no record costs nothing, but is one too many.
        return np.where(supports > 0, exclusive * log2((1 - share) / share) - bits, -np.inf)

    def _dropped(self, state: RankState, most: int) -> NDArray[np.bool_]:
        """Return the present components without each of the least useful ones."""
        V = required(state.present.components, "a Boolean V")
        return np.array([np.delete(V, place, axis=0) for place in np.argsort(self._use(state), kind="stable")[:most]])

    def _weights(self, state: RankState) -> NDArray[np.float64]:
        counts = state.present.counts
        return as_array(self.objective.weights(None if counts is None else summed_counts(counts)))
