"""From relaxed to Boolean by V alone: rows of V cut at shares of their greatest entry, and records assigned anew.

Thresholds for both factors take the columns of U for comparable. Where a few records have most of the ones they are
not, and what U says is best forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import ClientState, Known, required
from felb.federated.phases.objective import Cost, Objective, as_array
from felb.federated.recipes.assignment import summed_counts, told_counts
from felb.federated.state import holding
from felb.linalg.assign import assign_rows
from felb.metrics import confusion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix

MEASURE = "measure"
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)


def cut_at(V: NDArray[Any], share: float) -> NDArray[np.bool_]:
    """Return the entries of V above a share of the greatest entry of their row."""
    return np.asarray(np.float32(share) * V.max(axis=1, keepdims=True, initial=0.0) < V)


def measure_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Confusion counts of the rows, assigned anew, for each cut."""
    V, shares = (np.asarray(broadcast.values[name]) for name in ("V", "shares"))
    one, zero = (float(weight) for weight in broadcast.values["weights"])
    found = []
    for share in shares:
        components = cut_at(V, share)
        U = assign_rows(shard, components, weight_one=one, weight_zero=zero)
        found.append(told_counts(confusion(shard, U, components)))
    return ClientState.after(state, broadcast), Update({"counts": np.stack(found)})


@dataclass(frozen=True, slots=True)
class CutState:
    """What was known, and the counts of all cuts once they are in."""

    known: Known = field(metadata=holding(Known))
    counts: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class Cuts:
    """Make a relaxed V Boolean, in one round of everybody.

    Parameters
    ----------
    objective : what decides between the cuts
    shares : of the greatest entry of a row of V, at which it is cut
    """

    objective: Objective = field(default_factory=Cost)
    shares: tuple[float, ...] = SHARES
    name: str = "cuts"
    state_type: type[Any] = CutState

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Counts for several cuts."""
        return {MEASURE: measure_task}

    def start(self, known: Known, seed: int) -> CutState:  # noqa: ARG002
        """Take the relaxed V."""
        required(known.relaxed, "a relaxed V")
        return CutState(known)

    def broadcast(self, state: CutState) -> Broadcast | None:
        """Ask for all cuts, once."""
        if state.counts is not None:
            return None
        values = {
            "V": self._relaxed(state),
            "shares": np.asarray(self.shares),
            "weights": as_array(self.objective.weights(None)),
        }
        return Broadcast(MEASURE, 0, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: CutState) -> CutState:  # noqa: ARG002
        """Keep the summed counts."""
        return replace(state, counts=np.asarray(total["counts"]))

    def record(self, state: CutState) -> Mapping[str, float]:
        """Return the loss at the best cut."""
        value = self.result(state).value
        return {} if value is None else {"loss": value}

    def result(self, state: CutState) -> Known:
        """Return V at the best cut, the first of equals."""
        if state.counts is None:
            return state.known
        values = [self.objective.value(summed_counts(counts)) for counts in state.counts]
        at = int(np.argmin(values))
        return replace(
            state.known,
            components=cut_at(self._relaxed(state), self.shares[at]),
            counts=state.counts[at],
            supports=None,
            exclusive=None,
            value=values[at],
            weights=as_array(self.objective.weights(summed_counts(state.counts[at]))),
            settled=False,
        )

    @staticmethod
    def _relaxed(state: CutState) -> NDArray[np.float32]:
        return np.asarray(state.known.relaxed, dtype=np.float32)
