"""Patterns of columns from summed co-occurrence, and components chosen from them one after the other.

For a seed column s and a confidence τ, the candidate of Asso (Miettinen, Mielikäinen, Gionis, Das, Mannila) is the set
of columns j with |A_s ∩ A_j| >= τ·|A_s|. The co-occurrence of seeds with all columns is a sum over rows, hence over
clients, and so is what a candidate would gain on top of a cover; all of these are integers, the same for any split.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.messages import Broadcast
from felb.federated.phases.base import Known, required
from felb.federated.phases.objective import Cost, Objective, as_array
from felb.federated.phases.revive import LEFT, TOGETHER, WEIGH, left_task, together_task, weigh_task
from felb.federated.state import holding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task

CONFIDENCES = (0.3, 0.5, 0.7, 0.9, 1.0)
"""A column joins a seed's pattern if it is in this share of the records that have the seed."""


def patterns_from(
    together: NDArray[np.int64],
    sizes: NDArray[np.int64],
    seeds: NDArray[np.int64],
    *,
    confidences: tuple[float, ...] = CONFIDENCES,
) -> NDArray[np.bool_]:
    """Return the different patterns of all seeds and confidences, one per row, in a fixed order."""
    found = []
    for seed, pairs in zip(seeds, together, strict=True):
        for confidence in confidences:
            pattern = pairs >= confidence * max(int(sizes[seed]), 1)
            pattern[seed] = True
            found.append(pattern)
    return np.unique(np.array(found), axis=0) if found else np.zeros((0, len(sizes)), dtype=bool)


@dataclass(frozen=True, slots=True)
class PatternState:
    """What was known before, the ones of each column, the seeds, and the patterns once they are there."""

    round: int
    known: Known = field(metadata=holding(Known))
    sizes: NDArray[np.int64] | None = None
    seeds: NDArray[np.int64] | None = None
    patterns: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class Patterns:
    """Find columns that often occur together, in two rounds of everybody.

    Parameters
    ----------
    n_features : columns of the data
    n_seeds : the columns with the most ones are seeds, this many
    confidences : see `patterns_from`
    """

    n_features: int
    n_seeds: int = 256
    confidences: tuple[float, ...] = CONFIDENCES
    name: str = "patterns"
    state_type: type[Any] = PatternState

    def __post_init__(self) -> None:
        if self.n_seeds < 1:
            raise InputError(f"at least one seed is needed, got {self.n_seeds}")
        if not all(0 < confidence <= 1 for confidence in self.confidences):
            raise InputError(f"confidences lie in (0, 1], got {self.confidences}")

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Ones of columns and co-occurrence with seeds; both of all ones, since nothing is covered yet."""
        return {LEFT: left_task, TOGETHER: together_task}

    def start(self, known: Known, seed: int) -> PatternState:  # noqa: ARG002
        """Keep what is known; it is handed on."""
        return PatternState(0, known)

    def broadcast(self, state: PatternState) -> Broadcast | None:
        """Ask for the ones of each column, then for those of pairs."""
        if state.patterns is not None:
            return None
        values = {"components": np.zeros((1, self.n_features), dtype=bool), "weights": np.array([1.0, -1.0])}
        if state.seeds is None:
            return Broadcast(LEFT, state.round, values, everyone=True)
        return Broadcast(TOGETHER, state.round, {**values, "seeds": state.seeds}, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: PatternState) -> PatternState:  # noqa: ARG002
        """Choose the seeds, then make the patterns."""
        state = replace(state, round=state.round + 1)
        if state.seeds is None:
            sizes = np.asarray(total["left"])
            seeds = np.argsort(-sizes, kind="stable")[: self.n_seeds]
            return replace(state, sizes=sizes, seeds=np.sort(seeds[sizes[seeds] > 0]))
        assert state.sizes is not None
        found = patterns_from(total["together"], state.sizes, state.seeds, confidences=self.confidences)
        return replace(state, patterns=found)

    def record(self, state: PatternState) -> Mapping[str, float]:
        """Return how many patterns there are."""
        return {} if state.patterns is None else {"patterns": len(state.patterns)}

    def result(self, state: PatternState) -> Known:
        """Return what was known, with the patterns."""
        return replace(state.known, patterns=state.patterns)


@dataclass(frozen=True, slots=True)
class CoverState:
    """The components chosen so far (rows of zeros for those to come) and what the last one gains."""

    round: int
    V: NDArray[np.bool_]
    patterns: NDArray[np.bool_]
    gain: float = np.nan
    over: bool = False


@dataclass(frozen=True, slots=True)
class Cover:
    """Choose components among known patterns: each time the one with the largest summed gain, as long as there is one.

    Parameters
    ----------
    n_components : rounds at most
    objective : what cells are worth
    """

    n_components: int
    objective: Objective = field(default_factory=Cost)
    name: str = "cover"
    state_type: type[Any] = CoverState

    @property
    def tasks(self) -> Mapping[str, Task]:
        """What candidates would gain."""
        return {WEIGH: weigh_task}

    def start(self, known: Known, seed: int) -> CoverState:  # noqa: ARG002
        """Start without a component."""
        patterns = required(known.patterns, "patterns of columns")
        V = np.zeros((self.n_components, patterns.shape[1]), dtype=bool)
        return CoverState(0, V, patterns, over=len(patterns) == 0)

    def broadcast(self, state: CoverState) -> Broadcast | None:
        """Ask what each pattern would gain on top of the components so far."""
        if state.over:
            return None
        values = {"components": state.V, "weights": self._weights(), "candidates": state.patterns}
        return Broadcast(WEIGH, state.round, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: CoverState) -> CoverState:  # noqa: ARG002
        """Take the best pattern, the first of equals."""
        one, zero = self._weights()
        gains = one * total["ones"] + zero * total["zeros"]
        best = int(np.argmax(gains))
        taken = state.round
        state = replace(state, round=taken + 1, gain=float(gains[best]))
        if not gains[best] > 0:
            return replace(state, over=True)
        V = state.V.copy()
        V[taken] = state.patterns[best]
        return replace(state, V=V, over=state.round == self.n_components)

    def record(self, state: CoverState) -> Mapping[str, float]:
        """Return what the component gains that was chosen last."""
        return {"gain": state.gain}

    def result(self, state: CoverState) -> Known:
        """Return the components chosen so far."""
        return Known(components=state.V, weights=self._weights())

    def _weights(self) -> NDArray[np.float64]:
        return as_array(self.objective.weights(None))
