"""The number of components: the one with the shortest description of all data, from summed counts alone.

With n records, m features, r = |U∘V| covered cells, of which fp are zeros, and fn ones left, the data is described in

    Σ_l ( log₂(n+1) + log₂ C(n, |U_l|) + log₂(m+1) + log₂ C(m, |V_l|) )
        + log₂(r+1) + log₂ C(r, fp) + log₂(nm−r+1) + log₂ C(nm−r, fn)

bits: which records and features each component has, and which cells of either kind are wrong. Starting from more
components than are needed, one after the other is dropped and the rest is refined.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import lgamma, log
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.phases.base import Known, required
from felb.federated.phases.objective import Cost, Objective
from felb.federated.phases.refine import Refine, RefineState
from felb.federated.recipes.assignment import summed_counts
from felb.federated.state import holding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.federated.messages import Broadcast
    from felb.metrics import Counts


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


def description_length(V: NDArray[np.bool_], supports: NDArray[np.int64], counts: Counts) -> float:
    """Return the bits that describe the data by U and V and the cells where U∘V is wrong."""
    n_rows = counts.cells // max(V.shape[1], 1)
    covered = counts.tp + counts.fp
    wrong = subset_bits(covered, counts.fp) + subset_bits(counts.cells - covered, counts.fn)
    return float(component_bits(V, supports, n_rows=n_rows).sum() + wrong)


@dataclass(frozen=True, slots=True)
class RankState:
    """The components at the present number of them, being refined; the shortest description so far."""

    round: int
    seed: int
    known: Known = field(metadata=holding(Known))
    refining: RefineState | None = field(default=None, metadata=holding(RefineState))
    length: float = np.inf
    sizes: NDArray[np.int64] | None = None
    lengths: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class Rank:
    """Drop components, the least useful first, and keep the number with the shortest description.

    Parameters
    ----------
    objective : what refinement minimises
    rounds : rounds of refinement after each drop
    """

    objective: Objective = field(default_factory=Cost)
    rounds: int = 3
    name: str = "rank"
    state_type: type[Any] = RankState

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise InputError(f"refinement cannot have {self.rounds} rounds")

    @property
    def refine(self) -> Refine:
        """The refinement after a drop."""
        return Refine(self.objective, self.rounds)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Those of refinement."""
        return self.refine.tasks

    def start(self, known: Known, seed: int) -> RankState:
        """Refine the components as they are, without those of no feature."""
        V = required(known.components, "a Boolean V")
        return self._refine(RankState(0, seed, known), replace(known, components=V[V.any(axis=1)]))

    def broadcast(self, state: RankState) -> Broadcast | None:
        """Ask what refinement asks, of everybody."""
        if state.refining is None:
            return None
        asked = self.refine.broadcast(state.refining)
        return None if asked is None else replace(asked, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: RankState) -> RankState:
        """Refine; when that is over, note the description length and drop a component."""
        assert state.refining is not None
        refining = self.refine.combine(total, n_clients, state.refining)
        state = replace(state, round=state.round + 1, refining=refining)
        return self._shorten(state) if refining.over else state

    def record(self, state: RankState) -> Mapping[str, float]:
        """Return the last number of components with its description length, where a refinement has just ended."""
        assert state.refining is None or state.refining.V is not None
        if state.lengths is None or state.sizes is None or (state.refining is not None and state.refining.round > 0):
            return {}
        return {"n_components": int(state.sizes[-1]), "description_length": float(state.lengths[-1])}

    def result(self, state: RankState) -> Known:
        """Return the components with the shortest description."""
        return state.known

    def _refine(self, state: RankState, known: Known) -> RankState:
        V = required(known.components, "a Boolean V")
        return replace(state, refining=self.refine.start(known, state.seed) if len(V) else None)

    def _shorten(self, state: RankState) -> RankState:
        """Keep what was refined if its description is the shortest, and go on with one component less."""
        assert state.refining is not None
        found = self.refine.result(state.refining)
        V, supports, exclusive = (
            required(value, "refined components") for value in (found.components, found.supports, found.exclusive)
        )
        counts = summed_counts(found.counts)
        length = description_length(V, supports, counts)
        sizes = np.array([], dtype=np.int64) if state.sizes is None else state.sizes
        lengths = np.array([]) if state.lengths is None else state.lengths
        state = replace(state, sizes=np.append(sizes, len(V)), lengths=np.append(lengths, length))
        if length <= state.length:
            state = replace(state, known=found, length=length)
        if len(V) == 1:
            return replace(state, refining=None)
        # A wrong cell costs about the logarithm of the odds that a cell is right.
        share = min(max((counts.fp + counts.fn) / max(counts.cells, 1), 1e-6), 0.4)
        use = exclusive * (log((1 - share) / share) / log(2)) - component_bits(
            V, supports, n_rows=counts.cells // V.shape[1]
        )
        rest = np.delete(V, int(np.argmin(use)), axis=0)
        return self._refine(state, replace(found, components=rest))
