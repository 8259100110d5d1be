"""Search: iterated local search from the best V so far.

A proposal replaces one or two components by patterns of columns and flips some single entries; refinement leads it to a
local minimum, and it becomes the best V if the summed objective is not larger. Several proposals are refined side by
side: a round sends them all, and the sums for all come back. Where a proposal is done, the next one takes its place.

Patterns come from what is public (`Patterns`, and the components themselves), so nothing but sums leaves a client. Only
where there is a single owner of all rows may patterns be taken from the rows (`OwnRows`): a client of a federation does
not know that task.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from felb.errors import FederationError, InputError
from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import ClientState, Known, required, stream
from felb.federated.phases.objective import Cost, Objective, as_array
from felb.federated.phases.stack import TRY, Stack, several_gains, try_task
from felb.federated.recipes.assignment import summed_counts
from felb.federated.state import holding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix

TRY_ALONE = "try-alone"

WHOLE_ROW = 0.3
"""Chance that a pattern of an owner of all rows is a row, not the intersection of two."""


def try_alone_task(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,
) -> tuple[ClientState, Update]:
    """The same, and patterns from rows of the data; for a single owner of all rows."""
    update = several_gains(shard, broadcast)
    update["patterns"] = row_patterns(shard, int(broadcast.values["patterns"]), rng=rng)
    return ClientState(broadcast.round), Update(update)


def row_patterns(A: BinaryMatrix, count: int, *, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return random rows and intersections of two random rows."""
    patterns = np.zeros((count, A.shape[1]), dtype=bool)
    if len(A):
        for pattern, (a, b), whole in zip(
            patterns, rng.integers(0, len(A), (count, 2)), rng.random(count) < WHOLE_ROW, strict=True
        ):
            first, second = (A.indices[A.indptr[r] : A.indptr[r + 1]] for r in (a, b))
            pattern[first if whole else np.intersect1d(first, second, assume_unique=True)] = True
    return patterns


# -- where patterns come from ----------------------------------------------------------------------------------------


class Pool(NamedTuple):
    """Patterns to draw from: those of summed co-occurrence, and those of rows where they may be used."""

    public: NDArray[np.bool_]
    rows: NDArray[np.bool_]


class Source(Protocol):
    """Where proposals get their patterns from."""

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The one task that clients must know."""
        ...

    def asks(self, n_proposals: int) -> Mapping[str, NDArray[Any]]:
        """Return what the broadcast says beyond the proposals."""
        ...

    def pool(self, known: Known, total: Mapping[str, NDArray[Any]], n_clients: int) -> Pool:
        """Return the patterns after a round."""
        ...

    def draw(self, pool: Pool, V: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
        """Return a pattern to replace a component of V by."""
        ...


@dataclass(frozen=True, slots=True)
class PublicSums:
    """Patterns of summed co-occurrence, parts of them, and mixtures of components; safe in any federation."""

    tasks: Mapping[str, Task] = field(default_factory=lambda: {TRY: try_task})

    def asks(self, n_proposals: int) -> Mapping[str, NDArray[Any]]:  # noqa: ARG002
        """Nothing more than gains."""
        return {}

    def pool(self, known: Known, total: Mapping[str, NDArray[Any]], n_clients: int) -> Pool:  # noqa: ARG002
        """Return the known patterns."""
        public = _public(known)
        return Pool(public, public[:0])

    def draw(self, pool: Pool, V: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw a pattern, the columns two patterns share, or the union or difference of two components."""
        kind = rng.random()
        if len(pool.public) and kind < 0.8:
            a, b = pool.public[rng.integers(0, len(pool.public), 2)]
            return np.asarray(a if kind < 0.4 else a & b)
        a, b = V[rng.integers(0, len(V), 2)]
        return np.asarray(a | b if kind < 0.9 else a & ~b)


@dataclass(frozen=True, slots=True)
class OwnRows:
    """Rows and intersections of two rows besides what is public; for a single owner of all data, not for a federation.

    Parameters
    ----------
    share : how often a pattern comes from rows
    """

    share: float = 0.5
    tasks: Mapping[str, Task] = field(default_factory=lambda: {TRY_ALONE: try_alone_task})

    def asks(self, n_proposals: int) -> Mapping[str, NDArray[Any]]:
        """Ask for as many patterns as the next proposals can need."""
        return {"patterns": np.asarray(2 * n_proposals)}

    def pool(self, known: Known, total: Mapping[str, NDArray[Any]], n_clients: int) -> Pool:
        """Return the patterns of this round and the known ones."""
        if n_clients != 1:
            raise FederationError("rows may be told only where one client holds all of them; use PublicSums")
        return Pool(_public(known), np.asarray(total["patterns"], dtype=bool))

    def draw(self, pool: Pool, V: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw a pattern of rows, or a public one."""
        if len(pool.rows) and rng.random() < self.share:
            return np.asarray(pool.rows[rng.integers(len(pool.rows))])
        return PublicSums().draw(pool, V, rng)


def _public(known: Known) -> NDArray[np.bool_]:
    return required(known.patterns, "patterns of columns")  # type: ignore[no-any-return]


# -- the phase -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchState:
    """The best so far, the V that the next proposals are made from, and the proposals being refined."""

    round: int
    seed: int
    known: Known = field(metadata=holding(Known))
    origin: NDArray[np.bool_]
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
    slack : proposals start from the last V whose objective was at most this share above the best
    source : where patterns come from
    """

    objective: Objective = field(default_factory=Cost)
    proposals: int = 6_000
    patience: int = 6_000
    work: float = 1e8
    least: int = 32
    rounds: int = 8
    batch: int = 16
    flips: float = 0.02
    slack: float = 0.02
    source: Source = field(default_factory=PublicSums)
    name: str = "search"
    state_type: type[Any] = SearchState

    def __post_init__(self) -> None:
        for name, least in (("proposals", 0), ("patience", 1), ("work", 0), ("least", 0), ("rounds", 0), ("batch", 1)):
            if not getattr(self, name) >= least:
                raise InputError(f"{name}={getattr(self, name)} of a search must be at least {least}")
        if not 0 <= self.flips < 1:
            raise InputError(f"flips={self.flips}: the share of flipped entries lies in [0, 1)")

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Counts and gains of several V."""
        return self.source.tasks

    def start(self, known: Known, seed: int) -> SearchState:
        """Measure the V to start from, in a round of its own."""
        V = required(known.components, "a Boolean V")
        return SearchState(0, seed, known, V, Stack.of(V[None]), over=self.proposals == 0)

    def broadcast(self, state: SearchState) -> Broadcast | None:
        """Ask for the gains of all proposals."""
        if state.over:
            return None
        (task,) = self.source.tasks
        values = {"candidates": state.stack.V, "weights": self._weights(state), **self.source.asks(self.batch)}
        return Broadcast(task, state.round, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: SearchState) -> SearchState:
        """Flip entries of all proposals; judge those that are done and put new ones in their place."""
        rng = stream(state.seed, self.name, state.round)
        pool = self.source.pool(state.known, total, n_clients)
        stack = state.stack.refined(total, self.objective, weights=self._weights(state), rng=rng)
        state = replace(state, round=state.round + 1, stack=stack)
        if state.limit == 0:
            return self._first(state, pool, rng)
        done = np.flatnonzero(stack.settled | (stack.ages > self.rounds))
        for place in done:
            state = self._judge(state, int(place))
        over = state.judged >= state.limit or state.failures >= self.patience
        if len(done) and not over:
            new = np.array([self._proposal(state, pool, rng) for _ in done])
            state = replace(state, stack=stack.with_new(done, new))
        return replace(state, over=over)

    def record(self, state: SearchState) -> Mapping[str, float]:
        """Return the smallest objective so far and the proposals that were judged."""
        value = state.known.value
        return {"loss": float(np.nan if value is None else value), "proposals": state.judged}

    def result(self, state: SearchState) -> Known:
        """Return the best that was found; proposals that are not done do not count."""
        return state.known

    def _first(self, state: SearchState, pool: Pool, rng: np.random.Generator) -> SearchState:
        """Keep the figures of the V to start from and make the first proposals."""
        known = state.stack.known(0, self.objective, before=state.known)
        counts = summed_counts(known.counts)
        limit = max(1, min(self.proposals, max(self.least, int(self.work / max(counts.tp + counts.fn, 1)))))
        state = replace(state, known=known, limit=limit)
        V = np.array([self._proposal(state, pool, rng) for _ in range(min(self.batch, limit))])
        return replace(state, stack=Stack.of(V))

    def _judge(self, state: SearchState, place: int) -> SearchState:
        """Keep a proposal if it is not worse than the best, and go on from it if it is hardly worse."""
        value, least = float(state.stack.values[place]), state.known.value
        assert least is not None
        state = replace(state, judged=state.judged + 1, failures=0 if value < least else state.failures + 1)
        if value <= least + self.slack * abs(least):
            state = replace(state, origin=state.stack.best[place])
        if value <= least:
            state = replace(state, known=state.stack.known(place, self.objective, before=state.known))
        return state

    def _proposal(self, state: SearchState, pool: Pool, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Replace one or two components of the best V and flip some entries."""
        V = state.origin.copy()
        count = min(len(V), int(rng.integers(1, 3)))
        for component in rng.choice(len(V), count, replace=False):
            V[component] = self.source.draw(pool, V, rng)
        return np.asarray(V ^ (rng.random(V.shape) < self.flips))

    def _weights(self, state: SearchState) -> NDArray[np.float64]:
        counts = state.known.counts
        return as_array(self.objective.weights(None if counts is None else summed_counts(counts)))
