"""Phases one after the other, the best of several, and the server that plays them as one recipe."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.client import Client
from felb.federated.messages import Broadcast
from felb.federated.phases.base import ClientState, Known, Phase
from felb.federated.phases.belief import DECIDE
from felb.federated.phases.refine import same_cells
from felb.federated.recipes.assignment import ASSIGN, assign_exactly_task, summed_counts
from felb.federated.server import Outcome, Recipe
from felb.federated.state import holding

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from felb.federated.client import Task


def merged_tasks(phases: Sequence[Phase]) -> dict[str, Task]:
    """Return the tasks of all phases; two phases may share a word only if it means the same."""
    tasks: dict[str, Task] = {}
    for phase in phases:
        for word, task in phase.tasks.items():
            if tasks.setdefault(word, task) is not task:
                raise InputError(f"two phases mean different things by the task {word!r}")
    return tasks


class _Several:
    """What chains and portfolios have in common: they play several phases in turn.

    Their state holds which phase is being played (`at`), which one was played last, and the states of both.
    """

    def __init__(self, phases: Sequence[Phase], name: str) -> None:
        if not phases:
            raise InputError("at least one phase is needed")
        self.phases = tuple(phases)
        self.name = name
        self.tasks: Mapping[str, Task] = merged_tasks(self.phases)

    @cached_property
    def state_type(self) -> type[Any]:
        """The state: how far, what is known, and the states of the phases."""
        slots = [
            (f"phase_{i}", Any, field(default=None, metadata=holding(phase.state_type)))
            for i, phase in enumerate(self.phases)
        ]
        head: list[Any] = [("at", int), ("last", int), ("seed", int), ("known", Any, field(metadata=holding(Known)))]
        best: list[Any] = [("best", Any, field(default=None, metadata=holding(Known)))]
        return make_dataclass("State", [*head, *best, *slots], frozen=True)

    def start(self, known: Known, seed: int) -> Any:
        """Start the first phase that has something to ask."""
        return self._settle(self.state_type(at=-1, last=-1, seed=seed, known=known))

    def broadcast(self, state: Any) -> Broadcast | None:
        """Pass on what the present phase asks."""
        return None if self._over(state) else self.phases[state.at].broadcast(self._present(state))

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: Any) -> Any:
        """Let the present phase combine; when it is over, go on to the next."""
        at = state.at
        forgotten = {f"phase_{i}": None for i in range(len(self.phases)) if i != at}
        new = self.phases[at].combine(total, n_clients, self._present(state))
        state = replace(state, last=at, **{**forgotten, f"phase_{at}": new})
        return self._settle(state)

    def record(self, state: Any) -> Mapping[str, float]:
        """Return the figures of the phase that was played last."""
        return self.phases[state.last].record(getattr(state, f"phase_{state.last}")) if state.last >= 0 else {}

    def _over(self, state: Any) -> bool:
        return bool(state.at == len(self.phases))

    def _present(self, state: Any) -> Any:
        return getattr(state, f"phase_{state.at}")

    def _settle(self, state: Any) -> Any:
        """Move on until a phase asks something or all are over."""
        while not self._over(state):
            if state.at >= 0:
                if self.phases[state.at].broadcast(self._present(state)) is not None:
                    return state
                state = self._hand_over(state, self.phases[state.at].result(self._present(state)))
            at = state.at + 1
            state = replace(state, at=at)
            if at < len(self.phases):
                state = replace(state, **{f"phase_{at}": self.phases[at].start(state.known, state.seed)})
        return state

    def _hand_over(self, state: Any, found: Known) -> Any:
        raise NotImplementedError


class Chain(_Several):
    """Phases one after the other, each starting from what the one before has found; itself a phase."""

    def __init__(self, *phases: Phase, name: str = "chain") -> None:
        super().__init__(phases, name)

    def result(self, state: Any) -> Known:
        """Return what the present phase knows."""
        known: Known = state.known
        return known if self._over(state) else self.phases[state.at].result(self._present(state))

    def _hand_over(self, state: Any, found: Known) -> Any:
        # Nothing is left to do for the phases that would follow.
        return replace(state, known=found, at=len(self.phases) - 1 if found.exact else state.at)


class Best(_Several):
    """Phases that all start from the same knowledge, of which one is taken. Itself a phase.

    Parameters
    ----------
    phases : in the order they are played
    better : chooses between what was best so far (None at first) and what another phase found; the smaller objective,
        if not given
    """

    def __init__(
        self, *phases: Phase, name: str = "best", better: Callable[[Known | None, Known], Known] | None = None
    ) -> None:
        super().__init__(phases, name)
        self.better = better or _better

    def result(self, state: Any) -> Known:
        """Return the better of the best finished phase and the present one."""
        if self._over(state):
            return state.best  # type: ignore[no-any-return]
        return self.better(state.best, self.phases[state.at].result(self._present(state)))

    def _hand_over(self, state: Any, found: Known) -> Any:
        return replace(state, best=self.better(state.best, found))


def _better(old: Known | None, new: Known) -> Known:
    """Return the knowledge with the smaller objective, the older of equals; the newer, if they are of other cells."""
    if old is None:
        return new
    if new.value is None:
        return old
    better = old.value is None or new.value < old.value or not same_cells(old.counts, new.counts)
    return new if better else old


# -- the server ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PipelineServer:
    """Plays a phase to its end, then has everybody assign their rows: exactly, or by a belief if one was decided on.

    Parameters
    ----------
    phase : usually a `Chain`
    known : what is known before the first round
    node_cap : limit of the search for the best assignment of a row
    """

    phase: Phase
    known: Known = field(default_factory=Known)
    node_cap: int = 1_000

    @cached_property
    def state_type(self) -> type[Any]:
        """The round to play, the state of the phase, and the final counts."""
        return make_dataclass(
            "PipelineState",
            [
                ("round", int),
                ("phase", Any, field(metadata=holding(self.phase.state_type))),
                ("counts", Any, field(default=None)),
                ("supports", Any, field(default=None)),
                ("ended", bool, field(default=False)),
            ],
            frozen=True,
        )

    def start(self, seed: int) -> Any:
        """Start the phase."""
        return self.state_type(0, self.phase.start(self.known, seed))

    def broadcast(self, state: Any) -> Broadcast | None:
        """Ask what the phase asks, numbered through, and for the assignment when it is over."""
        if state.counts is not None:
            return None
        asked = None if state.ended else self.phase.broadcast(state.phase)
        if asked is not None:
            return replace(asked, round=state.round)
        known = self.phase.result(state.phase)
        if known.belief is not None and known.belief.threshold is not None:
            return Broadcast(DECIDE, state.round, known.belief.to_values(), everyone=True)
        values = {"components": known.boolean(), "weights": _weights(known), "node_cap": np.asarray(self.node_cap)}
        return Broadcast(ASSIGN, state.round, values, everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: Any) -> Any:
        """Let the phase combine, or keep the counts of the assignment."""
        if state.ended or self.phase.broadcast(state.phase) is None:
            counts, supports = (np.asarray(total[name]) for name in ("counts", "supports"))
            return replace(state, round=state.round + 1, counts=counts, supports=supports)
        return replace(state, round=state.round + 1, phase=self.phase.combine(total, n_clients, state.phase))

    def conclude(self, state: Any) -> Any:
        """Leave out what the phase would still ask and go on to the assignment."""
        return state if self.phase.broadcast(state.phase) is None else replace(state, ended=True)

    def record(self, state: Any) -> Mapping[str, float]:
        """Return the figures of the phase, or the scores of the assignment."""
        return self.phase.record(state.phase) if state.counts is None else summed_counts(state.counts).scores()

    def outcome(self, state: Any) -> Outcome:
        """Return the best Boolean V so far."""
        if state.round == 0 and self.phase.broadcast(state.phase) is not None:
            raise InputError("nothing was found yet: not a single round was completed")
        known = self.phase.result(state.phase)
        components = known.boolean()
        counts = known.counts if state.counts is None else state.counts
        supports = known.supports if state.supports is None else state.supports
        one, zero = (float(weight) for weight in _weights(known))
        return Outcome(
            components=components,
            relaxed=known.relaxed,
            integrality_gap=known.gap,
            converged=known.settled and not state.ended,
            n_iter=state.round - int(state.counts is not None),
            counts=summed_counts(counts),
            supports=np.zeros(len(components), np.int64) if supports is None else supports,
            weights=(one, zero),
            belief=None if known.belief is None or known.belief.threshold is None else known.belief,
            complete=not state.ended,
        )


def _weights(known: Known) -> NDArray[np.float64]:
    return np.array([1.0, -1.0]) if known.weights is None else known.weights


def pipeline(name: str, phase: Phase, *, known: Known | None = None, node_cap: int = 1_000) -> Recipe:
    """Return the recipe that plays a phase and then assigns all rows to the components it has found."""
    tasks = {**phase.tasks, ASSIGN: assign_exactly_task(_assigned)}
    client = Client(tasks=tasks, state_type=ClientState, assignment=lambda state: state.assigned)
    return Recipe(name, client, PipelineServer(phase, known or Known(), node_cap))


def _assigned(state: ClientState | None, broadcast: Broadcast, U: NDArray[np.bool_]) -> ClientState:  # noqa: ARG001
    return ClientState(broadcast.round, assigned=U)
