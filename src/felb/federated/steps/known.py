"""The state that steps pass to each other, and the state of a client between rounds."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.entries import holding
from felb.federated.protocol import Checkpoint, Request, Step, TimeUp
from felb.optim.belief import Belief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Known:
    """The public state of the server; a step reads what it needs and replaces what it improves.

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
    exact : the components reconstruct everything, so that no other step has anything to do
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


Steps = Generator[Request | Step | Checkpoint, Any, Known]
"""A step: asks for sums and returns what is known afterwards."""


@dataclass(frozen=True, slots=True)
class Cover:
    """Rows that were assigned to some V for some weights of cells, as long as requests ask for these.

    Parameters
    ----------
    components, weights : V and (s₁, s₀)
    assigned : U, rows × components
    """

    components: NDArray[np.bool_]
    weights: NDArray[np.float64]
    assigned: NDArray[np.bool_]

    def is_of(self, components: NDArray[np.bool_], weights: NDArray[np.float64]) -> bool:
        """Tell whether the rows were assigned to this V for these weights."""
        return np.array_equal(self.components, components) and np.array_equal(self.weights, weights)


@dataclass(frozen=True, slots=True)
class ClientState:
    """Private to a client.

    Parameters
    ----------
    relaxed : its rows of the relaxed U
    assigned : its assignment to the final V
    log_odds : what it believes of its rows of U, see `felb.optim.belief`
    control : control variate of its steps of V, features × components, see `felb.federated.steps.local_steps`
    local : V at its last local step, features × components, until the server's V is known
    step_size : of its last local step
    t : round of local steps that `local` is from
    cover : its rows as they were assigned for the last request of a residual
    """

    relaxed: NDArray[np.floating[Any]] | None = None
    assigned: NDArray[np.bool_] | None = None
    log_odds: NDArray[np.float32] | None = None
    control: NDArray[np.floating[Any]] | None = None
    local: NDArray[np.floating[Any]] | None = None
    step_size: float | None = None
    t: int | None = None
    cover: Cover | None = field(default=None, metadata=holding(Cover))

    def rows(self, start: int, stop: int) -> ClientState:
        """Return the state of some of the rows; what is not of rows is left out."""
        parts: dict[str, Any] = {
            name: None if (x := getattr(self, name)) is None else x[start:stop] for name in ROW_ARRAYS
        }
        cover = None if self.cover is None else replace(self.cover, assigned=self.cover.assigned[start:stop])
        return ClientState(**parts, cover=cover)

    @classmethod
    def joined(cls, parts: Sequence[ClientState]) -> ClientState:
        """Return the state of all rows from states of parts of them."""
        found: dict[str, Any] = {
            name: None if getattr(parts[0], name) is None else np.concatenate([getattr(part, name) for part in parts])
            for name in ROW_ARRAYS
        }
        covers = [part.cover for part in parts if part.cover is not None]
        assigned = [cover.assigned for cover in covers]
        cover = replace(covers[0], assigned=np.concatenate(assigned)) if covers else None
        return cls(**found, cover=cover)


ROW_ARRAYS = ("relaxed", "assigned", "log_odds")
"""Fields of a state with a row for each row of the client."""


def required(value: Any, what: str) -> Any:
    """Return a piece of knowledge that must be there, or say that an earlier step is missing."""
    if value is None:
        raise InputError(f"this step needs {what}; put a step that finds one before it")
    return value


@contextmanager
def best_so_far(found: Callable[[], Known]) -> Iterator[None]:
    """Hand on what a step has found when the time limit ends it within this block."""
    try:
        yield
    except TimeUp as up:
        up.found = found()
        raise


def stream(seed: int, purpose: str, number: int) -> np.random.Generator:
    """Return the server's randomness for a purpose and a round of it: the same for a run that was resumed."""
    key = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=4).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key, number)))
