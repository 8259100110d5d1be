"""What a task is: declared once, beside its function; every check of a message is derived from the declaration.

A `TaskSpec` says what a request of the task holds (`Input`), what a response holds (`Output`), and what must hold
between the numbers of a response. Clients check requests by it, a server checks responses and sums by it, secure sums
read the fixed-point bits from it, disclosure rules which numbers count records, and people what leaves a client.

A server that has turned could ask a task something that the algorithm never asks: weights that make a sum a count of
the rows with a chosen set of items, a bound so large that noise overflows, a search without end. So every value of a
request has a type, a shape and a range, and a task that the algorithm does not declare is not done. The sum of a round
is as good as its worst part. So every response is held to what some rows can have: counts that are not negative,
entries of V in the box, pairs that occur no more often than either of two. All of it is linear, or a bound that grows
with the number of clients, so that a sum is held to it as well where nobody sees its parts. A client that lies can
still claim to have other rows than it has.

Sizes in shapes are numbers or letters: ``m`` is the number of features, which the algorithm fixes; ``k`` is at most its
number of components; other letters have limits in `TaskSpec.sizes`. A letter has one value in a request and in its
response. In the shape of an `Output` may also stand a function of the sizes and the values of a request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from felb.errors import FederationError
from felb.kernels import UPLOAD_BITS
from felb.kernels.belief import LEAST_RATE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Algorithm, Request, Sums, Update
    from felb.privacy.spec import PrivacyPlan

    Array = NDArray[Any]
    Values = Mapping[str, Array]
    Expected = Mapping[str, tuple["Output", tuple[int, ...]]]
    """The arrays of a response by name, as they are declared, with their shapes."""

Kind = Literal["b", "i", "f"]
"""Boolean, whole, real."""

Makers = Literal["all", "counted", "named"]
"""Which records of a client make a number of a response: all; those that it counts; those that the task names."""

Sizes = Mapping[str, int]

MOST_ROWS = 1 << 32
"""Of one client."""
MOST = 1 << 53
"""Of a number in a response: sums of five hundred of them stay within int64, and a whole one is exact as a double."""
MOST_STEPS, MOST_NODES = 100_000, 10_000
"""Rounds, or steps of a round, at most; nodes of the search for the best assignment of a row at most."""
LARGEST = 2.0**40
"""Of a real number that has no natural bound, such as an entry of a non-negative factor."""
LARGEST_RATIO = math.log((1 - LEAST_RATE) / LEAST_RATE) + 1e-9
"""Of the probabilities of a cell inside and outside of the components, as a logarithm."""
TINY = 1e-300
ROOM_FOR_NAMES = 1 << 14
"""Bytes of a message beside its numbers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an algorithm says about the size of its messages.

    Parameters
    ----------
    n_features, n_components : m, and the most components
    node_cap : limit of the search for the best assignment of a row
    rounds : rounds of local steps at most
    weights : what covering a one and covering a zero may be worth
    f1 : weights may also be those of the F1 objective, (1 − F/2, −F/2)
    belief : rows may also be assigned by log-likelihood ratios as weights
    privacy : bounds of private releases
    """

    n_features: int
    n_components: int
    node_cap: int = 1_000
    rounds: int = MOST_STEPS
    weights: frozenset[tuple[float, float]] = frozenset({(1.0, -1.0)})
    f1: bool = False
    belief: bool = False
    privacy: PrivacyPlan | None = None


Bound = float | Callable[[Limits], float]


@dataclass(frozen=True, slots=True)
class Input:
    """What one value of a request must be.

    Parameters
    ----------
    kind, shape : type and sizes
    low, high : range of its entries, ends included; a function of the limits where the algorithm decides
    optional : it may be left out
    unique : no entry twice
    allowed : says for a value in its range whether the algorithm may ask it
    """

    kind: Kind
    shape: tuple[str | int, ...] = ()
    low: Bound = -math.inf
    high: Bound = math.inf
    optional: bool = False
    unique: bool = False
    allowed: Callable[[Array, Limits], bool] | None = None

    def check(self, name: str, value: Array, limits: Limits) -> None:
        """Raise unless the entries of a value may be asked; the error names none of them."""
        if self.kind != "b" and value.size:
            low, high = (bound(limits) if callable(bound) else bound for bound in (self.low, self.high))
            least, most = _range_of(value)
            if not (low <= least and most <= high and math.isfinite(least) and math.isfinite(most)):
                raise FederationError(f"{name} of the request is out of the range that its task allows")
        if self.unique and len(np.unique(value)) != value.size:
            raise FederationError(f"{name} of the request holds an entry twice")
        if self.allowed is not None and not self.allowed(value, limits):
            raise FederationError(f"{name} of the request is not what the plan says")


@dataclass(frozen=True, slots=True)
class Output:
    """What one array of a response is.

    Parameters
    ----------
    kind, shape : type and sizes
    low : least entry of one client
    high : greatest entry of one client; "rows" or "cells" for numbers of rows and of cells
    bits : fractional bits of reals, which are multiples of a power of two, so that their sums are exact
    when : says for the values of a request whether the array is part of the response; always, if not given
    tells_rows : it is the client's number of rows, which stays the same in a run
    made_of : which of the client's records make each number, for disclosure rules; what does not say so never leaves
        under them. Of those that a task names (`Update.supports`) there is a number for each entry along the first
        `axes` of the array
    axes : see `made_of`; all of them, if not given
    record_sum : it is a sum over records with a bounded part of each (`Update.record_sums`), for noise
    """

    kind: Kind
    shape: tuple[str | int | Callable[[Sizes, Values], int], ...] = ()
    low: float = 0
    high: float | Literal["rows", "cells"] = MOST
    bits: int = UPLOAD_BITS
    when: Callable[[Values], bool] | None = None
    tells_rows: bool = False
    made_of: Makers | None = None
    axes: int | None = None
    record_sum: bool = False

    def sized(self, sizes: Sizes, values: Values) -> tuple[int, ...]:
        """Return the shape for the sizes and the values of a request."""
        return tuple(s(sizes, values) if callable(s) else s if isinstance(s, int) else sizes[s] for s in self.shape)


@dataclass(frozen=True, slots=True)
class Work:
    """What a task is given.

    Parameters
    ----------
    state : the client's private state after its last task, or None
    rows : the client's data
    values : of the request
    rng : the client's randomness for this task
    least : records that must make a number if it is to leave, see `felb.privacy.disclosure`; 1 without rules
    """

    state: Any
    rows: BinaryMatrix
    values: Values
    rng: np.random.Generator
    least: int = 1

    @property
    def components(self) -> NDArray[np.bool_]:
        """The requested Boolean V."""
        return np.asarray(self.values["components"], dtype=bool)

    @property
    def weights(self) -> tuple[float, float]:
        """(s₁, s₀): what covering a one and covering a zero is worth."""
        one, zero = (float(weight) for weight in self.values["weights"])
        return one, zero


Task = Callable[[Work], "tuple[Any, Update]"]
"""Returns the next state, or None, and the update; pure."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How large the numbers of a response, or of a sum over several clients, can be.

    Parameters
    ----------
    n_features : m
    clients : how many are added up
    rows : of these clients, if they were told, else the most there could be
    """

    n_features: int
    clients: int
    rows: int

    def greatest(self, high: float | Literal["rows", "cells"]) -> float:
        """Return the greatest entry of the sum."""
        if isinstance(high, str):
            return self.rows if high == "rows" else self.rows * self.n_features
        return high * self.clients


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task: what it does, what may be asked and told, and what people are told about it.

    Parameters
    ----------
    name : by which it is requested
    phase : of a run, as it is shown to people
    do : the task itself
    meaning : what leaves a client, in words
    inputs, outputs : the values of a request and the arrays of a response, by name
    sizes : the most that letters in shapes stand for, beside ``m`` and ``k``
    relations : raises a `FederationError` unless what must hold between the arrays of a response does; it is given
        these, the values of the request, and the bounds
    by_rows : the update is an exact sum over rows, so that a client may do the task in parts of its rows; then states
        have ``rows(start, stop)`` and ``joined(parts)``
    assigns : the task leaves the client's assignment in its state, which ends a run
    """

    name: str
    phase: str
    do: Task
    meaning: str = ""
    inputs: Mapping[str, Input] = field(default_factory=dict)
    outputs: Mapping[str, Output] = field(default_factory=dict)
    sizes: Mapping[str, Bound] = field(default_factory=dict)
    relations: Callable[[Values, Values, Bounds], None] | None = None
    by_rows: bool = False
    assigns: bool = False

    def check_request(self, values: Values, limits: Limits) -> None:
        """Raise unless an algorithm with these limits could ask the values; the error names no entry of them."""
        required = {name for name, rule in self.inputs.items() if not rule.optional}
        if not required <= values.keys() <= self.inputs.keys():
            raise FederationError("the request does not hold the values of its task")
        sizes = self._sizes_of(values, limits.n_features)
        most: dict[str, Bound] = {"m": limits.n_features, "k": limits.n_components, **self.sizes}
        for letter, size in sizes.items():
            bound = most[letter]
            if size > (bound(limits) if callable(bound) else bound):
                raise FederationError(f"the request of {self.name} is larger than the algorithm allows")
        for name, value in values.items():
            self.inputs[name].check(name, np.asarray(value), limits)

    def expected(self, values: Values, n_features: int) -> Expected:
        """Return the arrays of a response to these values, with their shapes."""
        sizes = self._sizes_of(values, n_features)
        return {
            name: (output, output.sized(sizes, values))
            for name, output in self.outputs.items()
            if output.when is None or output.when(values)
        }

    def _sizes_of(self, values: Values, n_features: int) -> dict[str, int]:
        """Return what letters stand for in a request; raises on a value of another type or shape than declared."""
        sizes = {"m": n_features}
        for name, value in values.items():
            rule, array = self.inputs[name], np.asarray(value)
            if array.dtype.kind not in {"b": "b", "i": "iu", "f": "fiu"}[rule.kind]:
                raise FederationError(f"{name} of the request is of another type than its task's")
            alike = array.ndim == len(rule.shape) and all(
                size == (sizes.setdefault(want, size) if isinstance(want, str) else want)
                for size, want in zip(array.shape, rule.shape, strict=True)
            )
            if not alike:
                raise FederationError(f"{name} of the request has another shape than its task's")
        return sizes


def _range_of(array: Array) -> tuple[float, float]:
    """Return the least and the greatest entry; NaN, if there is one, is both."""
    if array.ndim == 0:
        value = array.item()
        return value, value
    return (array.min().item(), array.max().item()) if array.size else (0, 0)


def declare(*specs: TaskSpec) -> dict[str, TaskSpec]:
    """Return tasks by their names, as an algorithm holds them."""
    return {spec.name: spec for spec in specs}


def require(holds: Any, otherwise: str) -> None:
    """Raise a `FederationError` unless something holds, for all entries of an array."""
    if not np.all(holds):
        raise FederationError(otherwise)


# -- values that several tasks share ---------------------------------------------------------------------------------


def _is_weight_of_objective(value: Array, limits: Limits) -> bool:
    """Other weights than the objective's would make a sum count the rows with a chosen set of items."""
    one, zero = (float(weight) for weight in value)
    return (one, zero) in limits.weights or (limits.f1 and 0.5 <= one < 1 and one - zero == 1)


def _is_weight_of_assignment(value: Array, limits: Limits) -> bool:
    one, zero = (float(weight) for weight in value)
    ratios = limits.belief and 0 < one <= LARGEST_RATIO and -LARGEST_RATIO <= zero < 0
    return ratios or _is_weight_of_objective(value, limits)


COMPONENTS = Input("b", ("k", "m"))
WEIGHTS = Input("f", (2,), -LARGEST, LARGEST, allowed=_is_weight_of_objective)
ASSIGNMENT_WEIGHTS = Input("f", (2,), -LARGEST, LARGEST, allowed=_is_weight_of_assignment)
NODE_CAP = Input("i", (), 1, lambda limits: min(limits.node_cap, MOST_NODES))
RELAXED = Input("f", ("k", "m"), 0.0, LARGEST)
BOXED = Input("f", ("k", "m"), 0.0, 1.0)

COUNT_OF_ROWS = Output("i", (), high="rows", made_of="all")
ROWS = Output("i", (), high=MOST_ROWS, tells_rows=True, made_of="all")
CELLS = Output("i", (), high="cells", made_of="all")
COUNTS = Output("i", (4,), high="cells", made_of="named")
"""tp, fp, fn and cells."""
SUPPORTS = Output("i", ("k",), high="rows", made_of="counted")


def check_counts(told: Values, values: Values, bounds: Bounds) -> None:  # noqa: ARG001
    """tp, fp and fn are different cells."""
    counts = told["counts"]
    require(counts[..., :3].sum(axis=-1) <= counts[..., 3], "counts exceed the number of cells")


# -- the server's check of what comes --------------------------------------------------------------------------------


class ResponseValidator:
    """Checks every response before it enters a sum, and sums where nobody sees their parts.

    Parameters
    ----------
    algorithm : declares the tasks
    noisy : gates add noise that the algorithm does not know of; of noisy numbers only the size is checked

    It remembers how many rows each client has told, which cannot change in a run.
    """

    def __init__(self, algorithm: Algorithm, *, noisy: bool = False) -> None:
        self._algorithm = algorithm
        self._noisy = noisy or algorithm.privacy is not None
        self._rows: dict[str, int] = {}

    def most_bytes(self, request: Request) -> int:
        """Return the size that a response may have on its way."""
        shapes = (shape for _, shape in self._algorithm.expected(request).values())
        return ROOM_FOR_NAMES + sum(8 * math.prod(shape) for shape in shapes)

    def check(self, told: Values, request: Request, *, client: str, expected: Expected | None = None) -> None:
        """Raise an error that names the client unless its response may enter the sum.

        Parameters
        ----------
        told, request : the response, and what was asked
        client : who tells it
        expected : what the algorithm declares for the request, where that is at hand
        """
        try:
            self._check(told, request, expected, clients=1, client=client)
        except FederationError as error:
            raise FederationError(f"the response of {client} to round {request.round} was rejected: {error}") from error

    def check_sum(self, sums: Sums, request: Request, *, own: Values | None = None) -> None:
        """Raise unless a sum can be that of so many clients.

        Parameters
        ----------
        sums, request : the sum, and what was asked
        own : the part that the caller has in it; what is left without it must be possible for the others
        """
        try:
            self._check(sums, request, None, clients=sums.clients, client=None)
            if own is not None and not self._noisy:
                others = {name: value - own[name] for name, value in sums.items()}
                self._check(others, request, None, clients=sums.clients - 1, client=None)
        except FederationError as error:
            raise FederationError(f"the sum of round {request.round} was rejected: {error}") from error

    def _check(
        self, told: Values, request: Request, expected: Expected | None, *, clients: int, client: str | None
    ) -> None:
        expected = self._algorithm.expected(request) if expected is None else expected
        if told.keys() != expected.keys():
            raise FederationError(f"it holds {sorted(told)} instead of {sorted(expected)}")
        rows = None if client is None else self._rows.get(client)
        ranges = {}
        for name, (output, shape) in expected.items():
            array = told[name]
            if array.shape != shape:
                raise FederationError(f"{name} has shape {array.shape} instead of {shape}")
            if (array.dtype.kind == "f") != (output.kind == "f") and not self._noisy:
                raise FederationError(f"{name} is of type {array.dtype}")
            ranges[name] = least, most = _range_of(array)
            if not (-MOST * clients <= least and most <= MOST * clients):
                raise FederationError(f"{name} holds NaN, infinity or a number that no data can have")
            if output.tells_rows and not self._noisy:
                if rows is not None and array != rows:
                    raise FederationError("the number of rows has changed")
                rows = int(array)
        if self._noisy:
            return  # of noisy numbers only the size is known
        bounds = Bounds(self._algorithm.limits.n_features, clients, MOST_ROWS * clients if rows is None else rows)
        for name, (least, most) in ranges.items():
            output = expected[name][0]
            if least < output.low * clients:
                raise FederationError(f"{name} holds a number below {output.low:g}")
            if most > bounds.greatest(output.high):
                raise FederationError(f"{name} holds more than {bounds.greatest(output.high):g}")
        for part in request.parts:
            relations = self._algorithm.tasks[part.task].relations
            if relations is not None:
                relations(part.select(told), part.values, bounds)
        if client is not None and rows is not None:
            self._rows[client] = rows
