"""Search: iterated local search from the best V so far.

A proposal replaces one or two components by patterns of columns and flips some single entries; refinement leads it to a
local minimum, and it becomes the best V if the summed objective is not larger. Several proposals are refined side by
side: a round sends them all, and the sums for all come back. Where a proposal is done, the next one takes its place.

Patterns come from what is public, summed co-occurrence and the components themselves, so nothing but sums leaves a
client, and the result is the same for any split of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.messages import Broadcast
from felb.federated.phases.base import Known, required, stream
from felb.federated.phases.objective import Cost, Objective, as_array
from felb.federated.phases.stack import TRY, Stack, try_task
from felb.federated.recipes.assignment import summed_counts
from felb.federated.state import holding
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task


def draw_public(patterns: NDArray[np.bool_], V: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw a pattern, the columns that two patterns share, or the union or difference of two components of V."""
    kind = rng.random()
    if len(patterns) and kind < 0.8:
        a, b = patterns[rng.integers(0, len(patterns), 2)]
        return np.asarray(a if kind < 0.4 else a & b)
    a, b = V[rng.integers(0, len(V), 2)]
    return np.asarray(a | b if kind < 0.9 else a & ~b)


@dataclass(frozen=True, slots=True)
class SearchState:
    """The best so far, the proposals being refined, and how many were judged, in all and since the last success."""

    round: int
    seed: int
    known: Known = field(metadata=holding(Known))
    stack: Stack = field(metadata=holding(Stack))
    judged: int = 0
    failures: int = 0
    limit: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """Perturb the best V, refine, keep what is not worse; everybody is asked, because losses are compared.

    Parameters
    ----------
    objective : what to minimise
    proposals : how many are refined at most
    patience : stop after this many in a row that did not lower the objective
    work : stop also when the ones of all rows, times the proposals, exceed this; bounds the time on large data
    least : proposals that are made whatever the work
    rounds : rounds of flips in the refinement of a proposal
    batch : proposals refined at the same time
    flips : share of entries flipped in a proposal
    """

    objective: Objective = field(default_factory=Cost)
    proposals: int = 6_000
    patience: int = 6_000
    work: float = 1e8
    least: int = 32
    rounds: int = 8
    batch: int = 16
    flips: float = 0.02
    name: str = "search"
    state_type: type[Any] = SearchState

    def __post_init__(self) -> None:
        check_weights(
            proposals=(self.proposals, 0),
            patience=(self.patience, 1),
            work=(self.work, 0),
            least=(self.least, 0),
            rounds=(self.rounds, 0),
            batch=(self.batch, 1),
        )
        if not 0 <= self.flips < 1:
            raise InputError(f"flips={self.flips}: the share of flipped entries lies in [0, 1)")

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Counts and gains of several V."""
        return {TRY: try_task}

    def start(self, known: Known, seed: int) -> SearchState:
        """Measure the V to start from, in a round of its own."""
        V = required(known.components, "a Boolean V")
        required(known.patterns, "patterns of columns")
        return SearchState(0, seed, known, Stack.of(V[None]), over=self.proposals == 0)

    def broadcast(self, state: SearchState) -> Broadcast | None:
        """Ask for the gains of all proposals."""
        if state.over:
            return None
        values = {"candidates": state.stack.V, "weights": self._weights(state)}
        return Broadcast(TRY, state.round, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: SearchState) -> SearchState:  # noqa: ARG002
        """Flip entries of all proposals; judge those that are done and put new ones in their place."""
        rng = stream(state.seed, self.name, state.round)
        stack = state.stack.refined(total, self.objective, weights=self._weights(state), rng=rng)
        state = replace(state, round=state.round + 1, stack=stack)
        if state.limit == 0:
            return self._first(state, rng)
        done = np.flatnonzero(stack.settled | (stack.ages > self.rounds))
        for place in done:
            state = self._judge(state, int(place))
        over = state.judged >= state.limit or state.failures >= self.patience
        if len(done) and not over:
            new = np.array([self._proposal(state, rng) for _ in done])
            state = replace(state, stack=stack.with_new(done, new))
        return replace(state, over=over)

    def record(self, state: SearchState) -> Mapping[str, float]:
        """Return the smallest objective so far and the proposals that were judged."""
        value = state.known.value
        return {"loss": float(np.nan if value is None else value), "proposals": state.judged}

    def result(self, state: SearchState) -> Known:
        """Return the best that was found; proposals that are not done do not count."""
        return state.known

    def _first(self, state: SearchState, rng: np.random.Generator) -> SearchState:
        """Keep the figures of the V to start from and make the first proposals."""
        known = state.stack.known(0, self.objective, before=state.known)
        counts = summed_counts(known.counts)
        limit = max(1, min(self.proposals, max(self.least, int(self.work / max(counts.tp + counts.fn, 1)))))
        state = replace(state, known=known, limit=limit)
        V = np.array([self._proposal(state, rng) for _ in range(min(self.batch, limit))])
        return replace(state, stack=Stack.of(V))

    def _judge(self, state: SearchState, place: int) -> SearchState:
        """Keep a proposal if it is not worse than the best."""
        value, least = float(state.stack.values[place]), state.known.value
        assert least is not None
        state = replace(state, judged=state.judged + 1, failures=0 if value < least else state.failures + 1)
        if value <= least:
            state = replace(state, known=state.stack.known(place, self.objective, before=state.known))
        return state

    def _proposal(self, state: SearchState, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Replace one or two components of the best V and flip some entries."""
        best, patterns = required(state.known.components, "a Boolean V"), required(state.known.patterns, "patterns")
        V = best.copy()
        for component in rng.choice(len(V), min(len(V), int(rng.integers(1, 3))), replace=False):
            V[component] = draw_public(patterns, best, rng)
        return np.asarray(V ^ (rng.random(V.shape) < self.flips))

    def _weights(self, state: SearchState) -> NDArray[np.float64]:
        counts = state.known.counts
        return as_array(self.objective.weights(None if counts is None else summed_counts(counts)))
