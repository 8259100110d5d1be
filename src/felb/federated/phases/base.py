"""A phase: one named part of a method, usable alone.

It asks the clients for sums, one broadcast after the other, and hands on what is publicly known afterwards. All
methods are pure; the state is an explicit value that engines store.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from felb.errors import InputError
from felb.federated.state import holding
from felb.optim.belief import Belief

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.federated.messages import Broadcast


@dataclass(frozen=True, slots=True)
class Known:
    """What the server knows and may tell anybody; a phase reads what it needs and replaces what it improves.

    Parameters
    ----------
    relaxed : V before it was made Boolean, components × features
    scales : typical value Σu²/Σu of each column of U that goes with `relaxed`
    components : Boolean V, components × features
    counts : summed tp, fp, fn and cells for `components`
    supports : records that have each component
    exclusive : how much the objective would lose without each component
    value : the objective at `components`; smaller is better
    weights : (s₁, s₀), what a covered one gains and a covered zero gains (costs, if negative) in an assignment
    settled : refinement found nothing more to flip
    belief : a model of the noise and log-odds of V under it; if it has a threshold, rows are inferred from it
    patterns : sets of columns that often occur together, patterns × features
    gap : how far `relaxed` is from Boolean where `components` are its cut at ½; 0 for components found otherwise
    exact : the components reconstruct everything, so that no other phase has anything to do
    """

    relaxed: NDArray[np.floating[Any]] | None = None
    scales: NDArray[np.float64] | None = None
    components: NDArray[np.bool_] | None = None
    counts: NDArray[np.int64] | None = None
    supports: NDArray[np.int64] | None = None
    exclusive: NDArray[np.float64] | None = None
    value: float | None = None
    weights: NDArray[np.float64] | None = None
    settled: bool = False
    belief: Belief | None = field(default=None, metadata=holding(Belief))
    patterns: NDArray[np.bool_] | None = None
    gap: float = 0.0
    exact: bool = False

    def boolean(self) -> NDArray[np.bool_]:
        """Return the components; those of a relaxed V are cut at half of each row's largest entry."""
        if self.components is not None:
            return self.components
        V = required(self.relaxed, "a relaxed or Boolean V")
        return np.asarray((V.max(axis=1, keepdims=True, initial=0.0) / 2 < V) & (V > 0))


class Phase(Protocol):
    """The public side of a phase and the tasks it needs its clients to know."""

    @property
    def name(self) -> str:
        """The word for this phase."""
        ...

    @property
    def tasks(self) -> Mapping[str, Task]:
        """What a client must be able to do; a task reads all its parameters from the broadcast."""
        ...

    @property
    def state_type(self) -> type[Any]:
        """The frozen dataclass of the state."""
        ...

    def start(self, known: Known, seed: int) -> Any:
        """Return the state before the first broadcast."""
        ...

    def broadcast(self, state: Any) -> Broadcast | None:
        """Return what to tell the clients next; None when the phase is over."""
        ...

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: Any) -> Any:
        """Return the next state from a sum of updates and their number."""
        ...

    def record(self, state: Any) -> Mapping[str, float]:
        """Return the figures of the last combined round, for the history."""
        ...

    def result(self, state: Any) -> Known:
        """Return what is known now; also for a phase that was stopped early."""
        ...


@dataclass(frozen=True, slots=True)
class ClientState:
    """Private to a client.

    Parameters
    ----------
    round : the one it last played
    relaxed : its rows of the relaxed U
    assigned : its assignment to the last Boolean V
    log_odds : what it believes of its rows of U, see `felb.optim.belief`
    control : control variate of its steps of V, features × components, see `felb.federated.phases.local_steps`
    local : V at its last local step, features × components, and the step size, until the server's V is known
    step_size : see `local`
    """

    round: int
    relaxed: NDArray[np.floating[Any]] | None = None
    assigned: NDArray[np.bool_] | None = None
    log_odds: NDArray[np.float32] | None = None
    control: NDArray[np.floating[Any]] | None = None
    local: NDArray[np.floating[Any]] | None = None
    step_size: float | None = None

    @classmethod
    def after(cls, state: ClientState | None, broadcast: Broadcast) -> ClientState:
        """Return the state of a client that has played another round and keeps what it had."""
        return cls(broadcast.round) if state is None else replace(state, round=broadcast.round)


def required(value: Any, what: str) -> Any:
    """Return a piece of knowledge that must be there, or say that an earlier phase is missing."""
    if value is None:
        raise InputError(f"this phase needs {what}; put a phase that finds one before it")
    return value


def stream(seed: int, purpose: str, round_: int) -> np.random.Generator:
    """Return the server's randomness for a purpose and a round: the same for a run that was resumed."""
    key = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=4).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key, round_)))
