"""What steps pass to each other: the objective, the state of a search and of a client, composition of steps."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from felb.errors import InputError
from felb.federated.journal import holding
from felb.federated.protocol import Checkpoint, Request, Step, Sums, TimeUp
from felb.optim.belief import Belief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from felb.metrics import Counts


# -- Objectives of the Boolean steps: functions of the summed counts, and the weights of cells -----------------------

LEAST_F1 = 0.02
"""Below it, covering would cost next to nothing and everything would be covered."""

WEIGHT_BITS = 20
"""Weights are rounded to this many fractional bits, so that a fixed point is reached exactly."""


class Objective(Protocol):
    """A function of summed counts to be made small by switching cells on and off."""

    @property
    def name(self) -> str:
        """The word for this objective."""
        ...

    def value(self, counts: Counts) -> float:
        """Return what is minimised."""
        ...

    def weights(self, counts: Counts | None) -> tuple[float, float]:
        """Return (s₁, s₀): what covering a one and covering a zero is worth at these counts, if any are known."""
        ...


@dataclass(frozen=True, slots=True)
class Cost:
    """c₊·fp + c₋·fn; with both costs 1, the Hamming loss |A ⊕ U∘V|."""

    false_positive: float = 1.0
    false_negative: float = 1.0
    name: str = "hamming"

    def __post_init__(self) -> None:
        for name in ("false_positive", "false_negative"):
            cost = getattr(self, name)
            if not (np.isfinite(cost) and cost > 0):
                raise InputError(f"{name}_cost must be a positive number, or inf for one of the two, got {cost}")

    @classmethod
    def of(cls, false_positive: float, false_negative: float, n_features: int) -> Cost:
        """Return costs of which one may be infinite, for data of so many columns.

        An infinite cost is (m + 1) times the other one. As a row has m cells, a row that is assigned by gains never
        pays for a single false positive (factorization from below) or false negative (from above).
        """
        if np.isinf(false_positive) and np.isinf(false_negative):
            raise InputError("false_positive_cost and false_negative_cost cannot both be infinite; give one a number")
        if false_positive == np.inf:
            false_positive = (n_features + 1) * false_negative
        elif false_negative == np.inf:
            false_negative = (n_features + 1) * false_positive
        return cls(false_positive, false_negative)

    def value(self, counts: Counts) -> float:
        """Return the cost of all wrong cells."""
        return self.false_positive * counts.fp + self.false_negative * counts.fn

    def weights(self, counts: Counts | None) -> tuple[float, float]:  # noqa: ARG002
        """A covered one is no false negative, a covered zero is a false positive."""
        return self.false_negative, -self.false_positive


@dataclass(frozen=True, slots=True)
class NegativeF1:
    """−F1 by Dinkelbach's method: at F = F1, more of (1 − F/2)·tp − (F/2)·fp means a larger F1."""

    name: str = "f1"

    def value(self, counts: Counts) -> float:
        """Return −F1."""
        return -counts.f1

    def weights(self, counts: Counts | None) -> tuple[float, float]:
        """Return (1 − F/2, −F/2), or the weights of the Hamming loss where no F is known."""
        if counts is None:
            return 1.0, -1.0
        half = np.ldexp(np.rint(np.ldexp(max(counts.f1, LEAST_F1) / 2, WEIGHT_BITS)), -WEIGHT_BITS)
        return float(1 - half), float(-half)


@dataclass(frozen=True, slots=True)
class NegativeLogLikelihood:
    """−log P(A | U∘V) where cells are one with the density a inside of U∘V and b outside, both as counted."""

    name: str = "likelihood"

    def value(self, counts: Counts) -> float:
        """Return −Σ (ones·log p + zeros·log (1 − p)) over the two densities p."""
        covered = counts.tp + counts.fp
        total = 0.0
        for ones, cells in ((counts.tp, covered), (counts.fn, counts.cells - covered)):
            density = (ones + 1) / (cells + 2)
            total -= ones * np.log(density) + (cells - ones) * np.log1p(-density)
        return float(total)

    def weights(self, counts: Counts | None) -> tuple[float, float]:
        """Return (log a/b, log (1−a)/(1−b)), or the weights of the Hamming loss where a > b is not known."""
        if counts is None:
            return 1.0, -1.0
        inside = (counts.tp + 1) / (counts.tp + counts.fp + 2)
        outside = (counts.fn + 1) / (counts.cells - counts.tp - counts.fp + 2)
        if inside <= outside:
            return 1.0, -1.0
        return float(np.log(inside / outside)), float(np.log1p(-inside) - np.log1p(-outside))


def as_array(weights: tuple[float, float]) -> NDArray[np.float64]:
    """Return weights as they are requested."""
    return np.asarray(weights, dtype=np.float64)


# -- The state that steps pass to each other, and the state of a client between rounds -------------------------------


@dataclass(frozen=True, slots=True)
class Solution:
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


Steps = Generator[Request | Step | Checkpoint, Any, Solution]
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
    control : control variate of its steps of V, features × components, see `felb.federated.algorithms.competitors`
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
def best_so_far(found: Callable[[], Solution]) -> Iterator[None]:
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


# -- Composition of steps: a named step, the best of several, one whose rounds report for another --------------------


def step(name: str, generator: Steps, *, interruptible: bool = False) -> Steps:
    """Play a step; the journal keeps its result."""
    solution: Solution = yield Step(name, generator, Solution, interruptible)
    return solution


def best_of(first: Steps, *others: Steps) -> Steps:
    """Play steps that start from the same knowledge and return the result with the smallest objective."""
    return (yield from better_of((yield from first), *others))


def better_of(best: Solution, *others: Steps, better: Callable[[Solution, Solution], Solution] | None = None) -> Steps:
    """Play steps and return the best of their results and of what is known already.

    Parameters
    ----------
    better : chooses between the best so far and another one; that with the smaller objective, if not given
    """
    choose = better or choose_smaller
    for other in others:
        try:
            best = choose(best, (yield from other))
        except TimeUp as up:
            up.found = best if up.found is None else choose(best, up.found)
            raise
    return best


def all_of(*steps: Steps) -> Generator[Request | Step | Checkpoint, Any, list[Solution]]:
    """Play steps that start from the same knowledge and return all results; a time limit ends with the best so far."""
    found: list[Solution] = []
    for one in steps:
        try:
            found.append((yield from one))
        except TimeUp as up:
            up.found = reduce(choose_smaller, [*found, *([] if up.found is None else [up.found])])
            raise
    return found


def choose_smaller(old: Solution, new: Solution) -> Solution:
    """Return the knowledge with the smaller objective, the older of equals; the newer, if they are of other cells."""
    if new.value is None:
        return old
    better = old.value is None or new.value < old.value or not have_same_cells(old.counts, new.counts)
    return new if better else old


def have_same_cells(old: NDArray[np.int64] | None, new: NDArray[np.int64] | None) -> bool:
    """Tell whether two counts are of the same cells: where a client has come in meanwhile, they cannot be compared."""
    return old is None or new is None or bool(old[3] == new[3])


def reporting(
    generator: Generator[Request, Sums, Solution], metrics: Callable[[], Mapping[str, float]]
) -> Generator[Request, Sums, Solution]:
    """Play a step whose rounds report metrics of its caller in place of their own."""
    value: Any = None
    try:
        while True:
            sums = yield generator.send(value)
            sums.report_at_end(metrics)
            value = Sums(sums, sums.clients, missing=sums.missing, number=sums.round)
    except StopIteration as end:
        solution: Solution = end.value
        return solution
