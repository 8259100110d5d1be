"""Refinement: flip entries of a Boolean V by what all clients together would gain.

Clients assign their rows to V and send, for every entry V_lj, what switching it on instead of off would gain given all
else (see `felb.linalg.gains`). Given U, columns do not interact, and within a column a single flip of positive gain
always helps. So the best flip of every column is made, and each further improving one with probability ½, since two of
them may cover the same cells. What is kept is the V with the smallest summed objective that was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import ClientState, Known, required, stream
from felb.federated.phases.objective import Cost, Objective, as_array
from felb.federated.phases.relaxed import check_memory
from felb.federated.recipes.assignment import assignment_counts, summed_counts
from felb.linalg.assign import assign_rows
from felb.linalg.gains import switch_counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix

GAINS = "gains"


def gains_task(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Counts for the broadcast V, and the gains of its entries.

    The rows are assigned anew, so that the answer depends on the broadcast and the rows alone. Gains are one integer
    each for whole weights; otherwise the ones and the zeros that would be covered are sent apart and weighed by the
    server, so that sums stay exact.
    """
    V = np.asarray(broadcast.values["components"], dtype=bool)
    U, update = assigned_gains(shard, V, broadcast.values["weights"])
    return ClientState(broadcast.round, assigned=U), Update(update)


def assigned_gains(
    shard: BinaryMatrix, V: NDArray[np.bool_], weights: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], dict[str, NDArray[Any]]]:
    """Return the rows' assignment to V and what may be told of it: counts, and gains of the entries of V."""
    one, zero = (float(weight) for weight in weights)
    U = assign_rows(shard, V, weight_one=one, weight_zero=zero)
    ones, cells = switch_counts(shard, U, V)
    update = assignment_counts(shard, U, V)
    if one.is_integer() and zero.is_integer():
        update["gains"] = int(one) * ones + int(zero) * (cells - ones)
    else:
        update |= {"ones": ones, "zeros": cells - ones}
    return U, update


def weighed(total: Mapping[str, NDArray[Any]], weights: tuple[float, float]) -> NDArray[np.float64]:
    """Return summed gains from either form of the message."""
    if "gains" in total:
        return total["gains"].astype(np.float64)
    return weights[0] * total["ones"] + weights[1] * total["zeros"]


def safe_flips(gains: NDArray[np.float64], V: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which entries to flip: the best improving one of every column, any other improving one with chance ½."""
    improving = np.where(V, gains < 0, gains > 0)
    best = np.where(improving, np.abs(gains), 0).argmax(axis=0)
    flips = improving & (rng.random(V.shape) < 0.5)
    columns = np.arange(V.shape[1])
    flips[best, columns] = improving[best, columns]
    return flips


def same_cells(old: NDArray[np.int64] | None, new: NDArray[np.int64] | None) -> bool:
    """Tell whether two counts are of the same cells: where a client has come in meanwhile, they cannot be compared."""
    return old is None or new is None or bool(old[3] == new[3])


@dataclass(frozen=True, slots=True)
class RefineState:
    """The V to be measured next, the best one so far, and the gains that are remembered."""

    round: int
    seed: int
    V: NDArray[np.bool_]
    weights: NDArray[np.float64]
    best: NDArray[np.bool_]
    counts: NDArray[np.int64] | None = None
    supports: NDArray[np.int64] | None = None
    exclusive: NDArray[np.float64] | None = None
    best_weights: NDArray[np.float64] | None = None
    value: float = np.inf
    measured: float = np.nan
    flips: int = 0
    gains: NDArray[np.float64] | None = None
    over: bool = False
    settled: bool = False
    relaxed: NDArray[np.floating[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Refine:
    """Refine any Boolean V, such as the outcome of another method.

    Parameters
    ----------
    objective : what to minimise
    rounds : rounds of flips at most; one more measures the last flips
    memory : share of earlier rounds in the gains; 0 where all clients play every round. With a sample of clients,
        about ½: then the figures of rounds are of different clients and cannot be compared, and the last V is kept
    """

    objective: Objective = field(default_factory=Cost)
    rounds: int = 10
    memory: float = 0.0
    name: str = "refine"
    state_type: type[Any] = RefineState

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise InputError(f"refinement cannot have {self.rounds} rounds")
        check_memory(self.memory)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Gains of single entries."""
        return {GAINS: gains_task}

    def start(self, known: Known, seed: int) -> RefineState:
        """Start from the Boolean V; its counts, if known, say what cells are worth."""
        required(known.components if known.components is not None else known.relaxed, "a V")
        V = known.boolean()
        counts = None if known.counts is None else summed_counts(known.counts)
        return RefineState(0, seed, V, as_array(self.objective.weights(counts)), best=V, relaxed=known.relaxed)

    def broadcast(self, state: RefineState) -> Broadcast | None:
        """Ask for the gains at V."""
        if state.over:
            return None
        return Broadcast(GAINS, state.round, {"components": state.V, "weights": state.weights})

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: RefineState) -> RefineState:
        """Keep V if it is the best so far, and flip its improving entries."""
        counts = summed_counts(total["counts"])
        weights = self.objective.weights(counts)
        gains = weighed(total, weights)
        value = self.objective.value(counts)
        better = value < state.value or self.memory > 0 or not same_cells(state.counts, total["counts"])
        state = replace(state, round=state.round + 1, measured=value)
        if better:
            state = replace(
                state,
                best=state.V,
                value=value,
                counts=np.asarray(total["counts"]),
                supports=np.asarray(total["supports"]),
                exclusive=np.where(state.V, gains, 0.0).sum(axis=1),
                best_weights=as_array(weights),
            )
        if self.memory:
            gains = gains / n_clients
            if state.gains is not None:
                gains = self.memory * state.gains + (1 - self.memory) * gains
        flips = safe_flips(gains, state.V, stream(state.seed, self.name, state.round))
        settled = not flips.any() and tuple(state.weights) == weights
        return replace(
            state,
            V=state.V ^ flips,
            weights=as_array(weights),
            flips=int(np.count_nonzero(flips)),
            gains=gains if self.memory else None,
            settled=settled,
            over=settled or state.round > self.rounds,
        )

    def record(self, state: RefineState) -> Mapping[str, float]:
        """Return the smallest objective so far, that of the round, and the flips that followed."""
        return {"loss": state.value, "measured": state.measured, "flips": state.flips}

    def result(self, state: RefineState) -> Known:
        """Return the best V with its figures."""
        return Known(
            relaxed=state.relaxed,
            components=state.best,
            counts=state.counts,
            supports=state.supports,
            exclusive=state.exclusive,
            value=None if state.counts is None else state.value,
            weights=state.weights if state.best_weights is None else state.best_weights,
            settled=state.settled,
        )
