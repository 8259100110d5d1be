"""Revival: replace the component of least use by one built from what the others leave uncovered.

A try drops a component, asks for the ones that are left in each column, draws seed columns from these sums, asks how
often other columns are left together with the seeds, and makes candidates of those that are so often enough. The
candidate with the largest summed gain takes the free place, some rounds of refinement follow, and the result is kept
if the summed objective has fallen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import ClientState, Known, required, stream
from felb.federated.phases.objective import Cost, Objective, as_array
from felb.federated.phases.refine import Refine, RefineState, same_cells
from felb.federated.recipes.assignment import summed_counts
from felb.federated.state import holding
from felb.linalg.assign import assign_rows
from felb.linalg.candidates import addition_counts, residual_pairs, residual_sums
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix

LEFT, TOGETHER, WEIGH = "left", "together", "weigh"

CONFIDENCES = (0.2, 0.4, 0.6, 0.8, 0.95)
"""A column joins a seed's candidate if it is left in this share of the rows that the seed is left in."""

SURPRISES = (3.0, 5.0)
"""Or if it is left together with the seed this many standard deviations more often than by chance."""


def left_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Ones of each column that the broadcast components leave."""
    U, V = _cover(shard, broadcast)
    update = {"left": residual_sums(shard, U, V), "rows": np.asarray(len(shard))}
    return ClientState.after(state, broadcast), Update(update)


def together_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """How often columns are left together with each seed column."""
    U, V = _cover(shard, broadcast)
    pairs = residual_pairs(shard, U, V, np.asarray(broadcast.values["seeds"]))
    return ClientState.after(state, broadcast), Update({"together": pairs})


def weigh_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Ones and zeros each candidate would add in the rows where it pays."""
    U, V = _cover(shard, broadcast)
    one, zero = (float(weight) for weight in broadcast.values["weights"])
    candidates = np.asarray(broadcast.values["candidates"], dtype=bool)
    ones, zeros = addition_counts(shard, U, V, candidates, weight_one=one, weight_zero=zero)
    return ClientState.after(state, broadcast), Update({"ones": ones, "zeros": zeros})


def _cover(shard: BinaryMatrix, broadcast: Broadcast) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    V = np.asarray(broadcast.values["components"], dtype=bool)
    one, zero = (float(weight) for weight in broadcast.values["weights"])
    return assign_rows(shard, V, weight_one=one, weight_zero=zero), V


def candidates_from(
    together: NDArray[np.int64], left: NDArray[np.int64], seeds: NDArray[np.int64], *, n_rows: int
) -> NDArray[np.bool_]:
    """Return the different candidates of all seeds, one per row, in a fixed order.

    For seed s and column j with p_j = left_j / n: confidence = together_sj / left_s, and surprise = (together_sj −
    left_s·p_j) / sqrt(left_s·p_j·(1 − p_j) + 1).
    """
    found = []
    share = left / max(n_rows, 1)
    for seed, pairs in zip(seeds, together, strict=True):
        size = max(int(left[seed]), 1)
        expected = size * share
        surprise = (pairs - expected) / np.sqrt(expected * (1 - share) + 1)
        for candidate in (
            *(pairs >= confidence * size for confidence in CONFIDENCES),
            *(surprise > threshold for threshold in SURPRISES),
        ):
            candidate[seed] = True
            found.append(candidate)
    return np.unique(np.array(found), axis=0)


@dataclass(frozen=True, slots=True)
class ReviveState:
    """The best so far, and how far the present try is: what it dropped, has learnt and is refining."""

    round: int
    seed: int
    known: Known = field(metadata=holding(Known))
    tries: int = 0
    failures: int = 0
    dropped: int = -1
    left: NDArray[np.int64] | None = None
    n_rows: int = 0
    seeds: NDArray[np.int64] | None = None
    candidates: NDArray[np.bool_] | None = None
    refining: RefineState | None = field(default=None, metadata=holding(RefineState))
    over: bool = False


@dataclass(frozen=True, slots=True)
class Revive:
    """Try to replace components; everybody is asked, because losses are compared.

    Parameters
    ----------
    objective : what to minimise
    tries : at most this many
    patience : stop after this many in a row that did not help; the first of them drop the component whose loss would
        matter least, later ones a random one of the lesser half
    rounds : rounds of refinement in a try
    n_seeds : seed columns in a try
    """

    objective: Objective = field(default_factory=Cost)
    tries: int = 15
    patience: int = 4
    rounds: int = 3
    n_seeds: int = 8
    name: str = "revive"
    state_type: type[Any] = ReviveState

    def __post_init__(self) -> None:
        check_weights(
            tries=(self.tries, 0),
            patience=(self.patience, 1),
            rounds=(self.rounds, 0),
            n_seeds=(self.n_seeds, 1),
        )

    @property
    def refine(self) -> Refine:
        """The refinement within a try."""
        return Refine(self.objective, self.rounds)

    @property
    def tasks(self) -> Mapping[str, Task]:
        """What is left, what is left together, what candidates would gain, and the tasks of refinement."""
        return {LEFT: left_task, TOGETHER: together_task, WEIGH: weigh_task, **self.refine.tasks}

    def start(self, known: Known, seed: int) -> ReviveState:
        """Take what a refinement has found."""
        required(known.exclusive, "components with their exclusive gains")
        return self._next_try(ReviveState(0, seed, known))

    def broadcast(self, state: ReviveState) -> Broadcast | None:
        """Ask for what the present step of the try needs."""
        if state.over:
            return None
        if state.refining is not None:
            asked = self.refine.broadcast(state.refining)
            assert asked is not None  # a refinement that is over has ended its try
            return replace(asked, everyone=True)
        values = {"components": self._without_dropped(state), "weights": self._weights(state)}
        if state.candidates is not None:
            return Broadcast(WEIGH, state.round, {**values, "candidates": state.candidates}, everyone=True)
        if state.seeds is not None:
            return Broadcast(TOGETHER, state.round, {**values, "seeds": state.seeds}, everyone=True)
        return Broadcast(LEFT, state.round, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: ReviveState) -> ReviveState:
        """Go on with the try."""
        state = replace(state, round=state.round + 1)
        if state.refining is not None:
            refining = self.refine.combine(total, n_clients, state.refining)
            state = replace(state, refining=refining)
            return self._judge(state) if refining.over else state
        if state.candidates is not None:
            return self._plant(total, state)
        if state.seeds is not None:
            assert state.left is not None
            found = candidates_from(total["together"], state.left, state.seeds, n_rows=state.n_rows)
            return replace(state, candidates=found)
        left = np.asarray(total["left"])
        if not left.any():
            return replace(state, over=True)
        return replace(state, left=left, n_rows=int(total["rows"]), seeds=self._seeds(left, state))

    def record(self, state: ReviveState) -> Mapping[str, float]:
        """Return the smallest objective so far and the number of tries."""
        return {"loss": float(np.nan if state.known.value is None else state.known.value), "tries": state.tries}

    def result(self, state: ReviveState) -> Known:
        """Return the best that was found; a try that is not finished does not count."""
        return state.known

    def _next_try(self, state: ReviveState) -> ReviveState:
        """Choose the component to drop, or end."""
        if state.tries == self.tries or state.failures >= self.patience:
            return replace(state, over=True)
        assert state.known.exclusive is not None
        order = np.argsort(state.known.exclusive, kind="stable")
        place = 0
        if state.failures:
            place = int(stream(state.seed, f"{self.name} drop", state.tries).integers(0, max(1, len(order) // 2)))
        return replace(
            state,
            tries=state.tries + 1,
            dropped=int(order[place]),
            left=None,
            seeds=None,
            candidates=None,
            refining=None,
        )

    def _seeds(self, left: NDArray[np.int64], state: ReviveState) -> NDArray[np.int64]:
        """Half of the seeds are the columns with the most ones left, the others are drawn by how many are left."""
        heaviest = np.argsort(-left, kind="stable")[: max(1, self.n_seeds // 2)]
        rng = stream(state.seed, f"{self.name} seeds", state.tries)
        drawn = rng.choice(len(left), self.n_seeds - len(heaviest), p=left / left.sum())
        seeds = np.unique(np.concatenate([heaviest, drawn]))
        return np.asarray(seeds[left[seeds] > 0])

    def _plant(self, total: Mapping[str, NDArray[Any]], state: ReviveState) -> ReviveState:
        """Put the best candidate into the free place and start to refine."""
        assert state.candidates is not None
        one, zero = self._weights(state)
        V = self._without_dropped(state)
        V[state.dropped] = state.candidates[int(np.argmax(one * total["ones"] + zero * total["zeros"]))]
        planted = replace(state.known, components=V)
        return replace(state, refining=self.refine.start(planted, state.seed + state.tries))

    def _judge(self, state: ReviveState) -> ReviveState:
        """Keep what refinement has found if it is better than the best."""
        assert state.refining is not None
        found, best = self.refine.result(state.refining), state.known
        assert found.value is not None
        if best.value is None or found.value < best.value or not same_cells(best.counts, found.counts):
            # Whether a better place was reached does not depend on the few rounds here having ended by themselves.
            return self._next_try(replace(state, known=found, failures=0))
        return self._next_try(replace(state, failures=state.failures + 1))

    def _without_dropped(self, state: ReviveState) -> NDArray[np.bool_]:
        V = required(state.known.components, "a Boolean V").copy()
        V[state.dropped] = False
        return V  # type: ignore[no-any-return]

    def _weights(self, state: ReviveState) -> NDArray[np.float64]:
        counts = state.known.counts
        return as_array(self.objective.weights(None if counts is None else summed_counts(counts)))
