"""The protocol between the server and the clients of a federated algorithm.

The server is a generator. It yields a `Request`, receives the `Sums` of the clients' updates, and returns an
`Outcome`:

    def server(seed):
        V = start(seed)
        for t in range(rounds):
            sums = yield Request("local_factor", V=V, t=t)
            V = sums["V"] / sums.clients
        sums = yield Request("assign", components=V > 0.5, all_clients=True)
        return Outcome(components=V > 0.5, ...)

A client knows the tasks that the algorithm declares (`felb.federated.tasks.TaskSpec`). A task is a pure function of the
client's state, its rows, the values of the request and randomness; it returns the next state, which stays at the
client, and an `Update`, which may leave by the gate as a `Release`.

A request has one or more parts, each for one task, that are answered in one round. Independent steps of an algorithm
can so be played together. Every part has a lane, within which a client keeps its state, and arrays of a lane carry its
name: what leaves, is charged, logged and stored is ``lane.array``. The usual lane has no name.

Named arrays and the names of tasks travel, nothing that runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from felb.errors import FederationError, InputError
from felb.records import check_fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from felb.federated.tasks import Expected, Limits, TaskSpec
    from felb.metrics import Counts
    from felb.optim.belief import Belief
    from felb.privacy.mechanisms import RecordSum
    from felb.privacy.spec import PrivacyPlan

    Array = NDArray[Any]
    Values = Mapping[str, Array]

_T = TypeVar("_T")

MOST_SUM = (1 << 63) - 1
"""Of whole numbers in a sum."""


# -- what travels ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """What one task is asked in a round.

    Parameters
    ----------
    task : its name
    values : public arrays and numbers that the task reads, by name
    lane : within which the client's state goes from round to round
    """

    task: str
    values: Values
    lane: str = ""

    def qualify(self, name: str) -> str:
        """Return the name of an array of this part among those of all parts."""
        return f"{self.lane}.{name}" if self.lane else name

    def select(self, values: Values) -> dict[str, Array]:
        """Return the arrays of this part among those of all parts, by their own names."""
        if not self.lane and not any("." in name for name in values):
            return dict(values)
        prefix = self.qualify("")
        return {
            name[len(prefix) :]: value
            for name, value in values.items()
            if name.startswith(prefix) and "." not in name[len(prefix) :]
        }


@dataclass(frozen=True, slots=True, init=False)
class Request:
    """From the server to the clients: do a task, or several, with these public arrays.

    Parameters
    ----------
    task : a task of the algorithm, or its name
    all_clients : the request is for all clients, also where a sample of them plays the rounds
    **values : public arrays and numbers that the task reads, each as a keyword: ``Request(TASK, features=chosen)``

    Attributes
    ----------
    parts : what is asked; one part, if made as above
    round : number of the request in its run, from 0; set by the loop

    Examples
    --------
    >>> Request("assign", components=np.eye(2), all_clients=True).values["components"].shape
    (2, 2)
    """

    parts: tuple[Part, ...]
    all_clients: bool
    round: int

    def __init__(self, task: str | TaskSpec, /, *, all_clients: bool = False, **values: ArrayLike) -> None:
        name = task if isinstance(task, str) else task.name
        self._set((Part(name, {key: np.asarray(value) for key, value in values.items()}),), all_clients, 0)

    @classmethod
    def of(cls, parts: Iterable[Part], *, all_clients: bool = False, number: int = 0) -> Request:
        """Make a request of several parts, or one that has its number."""
        request = cls.__new__(cls)
        request._set(tuple(parts), all_clients, number)
        lanes = [part.lane for part in request.parts]
        if not lanes or len(set(lanes)) != len(lanes) or not all(lane.isidentifier() for lane in lanes if lane):
            raise FederationError("a request has at least one part, and each part has a lane of its own, with a name")
        return request

    @property
    def task(self) -> str:
        """The name of the task, or those of all parts."""
        return " + ".join(part.task for part in self.parts)

    @property
    def values(self) -> Values:
        """The values of the only part."""
        [part] = self.parts
        return part.values

    def _set(self, parts: tuple[Part, ...], all_clients: bool, number: int) -> None:
        for name, value in (("parts", parts), ("all_clients", all_clients), ("round", number)):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Update:
    """What a client's task computed: named arrays that mean something as a sum over clients.

    It stays at the client until the gate has made a `Release` of it.

    Parameters
    ----------
    values : the arrays by name
    record_sums : which of them are sums over records with a bounded part of each, as noise needs to know
    supports : for those whose declaration says so, how many records of the client make each of their numbers, as
        disclosure rules need to know; only where such rules apply
    n_records : of the client
    """

    values: Values
    record_sums: Mapping[str, RecordSum] = field(default_factory=dict)
    supports: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    n_records: int = 0

    @classmethod
    def of_records(cls, **sums: RecordSum) -> Update:
        """Tell sums over records, and nothing else."""
        return cls({name: part.values for name, part in sums.items()}, sums)

    @classmethod
    def of_parts(cls, updates: Iterable[tuple[Part, Update]], *, n_records: int = 0) -> Update:
        """Return the update of a request from those of its parts, of a client with so many records."""
        values: dict[str, Array] = {}
        sums: dict[str, RecordSum] = {}
        supports: dict[str, NDArray[np.int64]] = {}
        for part, update in updates:
            values |= {part.qualify(name): value for name, value in update.values.items()}
            sums |= {part.qualify(name): value for name, value in update.record_sums.items()}
            supports |= {part.qualify(name): value for name, value in update.supports.items()}
        return cls(values, sums, supports, n_records)

    def plus(self, other: Update) -> Update:
        """Return the update of one client that holds the rows of both."""
        _check_alike(self.values, other.values)
        if self.supports or other.supports:
            raise FederationError("supports cannot be added; under rules, a task is done on all rows at once")
        values = {name: np.asarray(value + other.values[name]) for name, value in self.values.items()}
        sums = {name: part.plus(other.record_sums[name]) for name, part in self.record_sums.items()}
        return Update(values, sums, n_records=self.n_records + other.n_records)


@dataclass(frozen=True, slots=True)
class Release:
    """An update that has passed the gate; the only thing a server accepts, and only the gate makes one."""

    values: Values


class Sums(Mapping[str, "Array"]):
    """The sum of the releases of a round: all that the server learns.

    Parameters
    ----------
    values : summed arrays by name, floats in float64 and integers in int64
    clients : number of clients in the sum
    missing : names of the sampled clients that are not in the sum
    round : number of the round
    """

    __slots__ = ("_metrics", "_values", "clients", "missing", "round")

    def __init__(self, values: Values, clients: int, *, missing: Iterable[str] = (), number: int = 0) -> None:
        self._values = dict(values)
        self._metrics: list[Callable[[], Mapping[str, float]]] = []
        self.clients, self.missing, self.round = clients, tuple(sorted(missing)), number

    @classmethod
    def of(cls, releases: Iterable[Release], *, missing: Iterable[str] = (), number: int = 0) -> Sums:
        """Add up releases, all of which must name the same arrays in the same shapes.

        They are added in pairs, so that any transport that adds up a part of them at a time gets the same bits.
        """
        total = add_in_pairs((cls.one(release) for release in releases), Sums.plus)
        return cls({}, 0, missing=missing, number=number) if total is None else total.of_round(number, missing=missing)

    @classmethod
    def one(cls, release: Release) -> Sums:
        """Begin a sum with one release."""
        return cls({name: _wide(value) for name, value in release.values.items()}, 1)

    @classmethod
    def merged(cls, parts: Iterable[Sums]) -> Sums:
        """Add up partial sums, which stay as they are; the same bits as `of` if all but the last are of 2^j clients."""
        copies = (cls({name: np.array(value) for name, value in part.items()}, part.clients) for part in parts)
        total = add_in_pairs(copies, Sums.plus)
        return cls({}, 0) if total is None else total

    def plus(self, other: Sums) -> Sums:
        """Return the sum of both; this one's arrays are reused for it."""
        _check_alike(self._values, other._values)
        for name, value in other._values.items():
            self._values[name] += value
        return Sums(self._values, self.clients + other.clients)

    def part(self, part: Part) -> Sums:
        """Return the sums of one part of the request."""
        return Sums(part.select(self._values), self.clients, missing=self.missing, number=self.round)

    def of_round(self, number: int, *, missing: Iterable[str] = ()) -> Sums:
        """Return the same sums as those of a round."""
        return Sums(self._values, self.clients, missing=missing, number=number)

    def __getitem__(self, name: str) -> Array:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def report(self, **metrics: float) -> None:
        """Put metrics into the history of the run, in the row of this round."""
        self._metrics.append(lambda: metrics)

    def report_at_end(self, metrics: Callable[[], Mapping[str, float]]) -> None:
        """Put metrics into the row of this round that are read when the next request is made."""
        self._metrics.append(metrics)

    @property
    def metrics(self) -> dict[str, float]:
        """What was reported."""
        return {name: value for read in self._metrics for name, value in read().items()}


def add_in_pairs(parts: Iterable[_T], add: Callable[[_T, _T], _T]) -> _T | None:
    """Fold parts in a fixed order, ((a + b) + (c + d)) + (e + f); None without parts.

    The first half of the additions, up to a power of two, stands alone. So parts that were added up 2^j at a time give
    what all of them give at once, bit for bit, also where addition rounds. At most log₂ n sums wait for another.
    """
    waiting: list[tuple[int, _T]] = []
    for part in parts:
        size, total = 1, part
        while waiting and waiting[-1][0] == size:
            total, size = add(waiting.pop()[1], total), 2 * size
        waiting.append((size, total))
    if not waiting:
        return None
    total = waiting.pop()[1]
    while waiting:
        total = add(waiting.pop()[1], total)
    return total


def _check_alike(values: Values, other: Values) -> None:
    if other.keys() != values.keys():
        raise FederationError(f"a client sent {sorted(other)} where the others sent {sorted(values)}")
    for name, value in other.items():
        if np.shape(value) != values[name].shape:
            raise FederationError(
                f"a client sent {name} of shape {np.shape(value)} where the others sent {values[name].shape}"
            )
        if values[name].dtype.kind == "i" and value.size and _magnitude(values[name]) + _magnitude(value) > MOST_SUM:
            raise FederationError(f"the sum of {name} over clients leaves the range of whole numbers")


def _magnitude(value: Array) -> int:
    """Return the largest absolute value of whole numbers, which their own type may not hold."""
    return max(abs(int(value.max())), abs(int(value.min()))) if value.size else 0


def _wide(value: Array) -> Array:
    array = np.asarray(value)
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


# -- what a server yields beside requests ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """A named part of an algorithm, with a result that the journal keeps in place of the sums it was found from.

    ``result = yield Step("refine", refine(...), Solution)`` runs the generator to its end; a run that is resumed after
    it gets the stored result at once.

    Parameters
    ----------
    name : for the journal
    generator : yields requests, steps and checkpoints like a server
    result_type : frozen dataclass of the result
    interruptible : where a time limit may end it, by a `TimeUp` that is raised at its next request
    """

    name: str
    generator: Generator[Any, Any, Any]
    result_type: type[Any]
    interruptible: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The whole state of a loop: ``state = yield Checkpoint(state)`` at its head is where a resumed run goes on.

    The expression has the given state as its value, or, first thing in a run that is resumed, the last one that the
    journal has kept. A generator has at most one such place.

    Parameters
    ----------
    state : frozen dataclass of arrays and numbers, or a tuple of these
    """

    state: Any


class TimeUp(Exception):
    """The time limit has passed; raised at a request inside of an interruptible step.

    Attributes
    ----------
    found : the best result so far of the step that was ended, if it had one
    """

    def __init__(self, found: Any = None) -> None:
        super().__init__("the time limit has passed")
        self.found = found


# -- algorithms ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished run found.

    Parameters
    ----------
    components : Boolean V̂, components × features
    relaxed : V̂ before it was made Boolean, or None for methods that are Boolean throughout
    integrality_gap : how far `relaxed` was from Boolean
    converged : V̂ is Boolean, or near enough for the cut at ½ to be unambiguous
    n_iter : rounds before the assignment
    counts : summed confusion counts of all clients for their final assignments; None if clients keep them to themselves
    supports : records of all clients that were assigned each component; None likewise
    weights : what covering a one and covering a zero was worth in the assignment
    complete : False if a time limit ended the search of a client or of the run
    belief : the model that rows were inferred under, for methods that have one; others assign by `weights`
    """

    components: NDArray[np.bool_]
    n_iter: int
    relaxed: NDArray[np.floating[Any]] | None = None
    integrality_gap: float = 0.0
    converged: bool = True
    counts: Counts | None = None
    supports: NDArray[np.int64] | None = None
    weights: tuple[float, float] = (1.0, -1.0)
    complete: bool = True
    belief: Belief | None = None


Server = Generator[Request | Step | Checkpoint, Any, Outcome]
"""Yields what to ask, is sent what came back, returns what was found. Deterministic: no clock, no files, no other
randomness than its seed, so that it can be replayed over the journal."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A federated algorithm: the tasks that its clients know, and the server that asks for them.

    Parameters
    ----------
    name : for messages
    tasks : what a request may ask for, see `felb.federated.tasks.declare`
    state_type : frozen dataclass of a client's private state, so that it can be stored. All its fields have defaults,
        and one of them is `assigned`, the Boolean U_i once it is known
    server : makes the server of a run from its seed
    limits : how large its messages can be
    privacy : nothing leaves a client except by noise that this plan calibrates, charged to an accountant of its own
    interruptible : the server has a step that a time limit may end
    """

    name: str
    tasks: Mapping[str, TaskSpec]
    state_type: type[Any]
    server: Callable[[int], Server]
    limits: Limits
    privacy: PrivacyPlan | None = None
    interruptible: bool = False

    def check_request(self, request: Request) -> Expected:
        """Raise unless the request is one that this algorithm could make; return what a response holds."""
        for part in request.parts:
            if part.task not in self.tasks:
                raise FederationError(f"unknown task {part.task!r}; this client knows {', '.join(sorted(self.tasks))}")
            self.tasks[part.task].check_request(part.values, self.limits)
        return self.expected(request)

    def expected(self, request: Request) -> Expected:
        """Return the arrays that a response to a request holds, as they are declared, and their shapes."""
        return {
            part.qualify(name): found
            for part in request.parts
            for name, found in self.tasks[part.task].expected(part.values, self.limits.n_features).items()
        }


# -- transports ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientStates:
    """Private states of clients by name and lane, as they are after a round; -1 before the first."""

    round: int = -1
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Transport(Protocol):
    """Knows how to ask the clients."""

    def ask(self, request: Request) -> Sums:
        """Return the sum of the clients' releases; raises a `FederationError` if too few answered."""
        ...

    @property
    def states(self) -> ClientStates | None:
        """States to keep with the journal; None where clients keep their own."""
        ...

    def restore(self, states: ClientStates) -> None:
        """Restore stored states."""
        ...


# -- Who plays a round: a sample of the clients, dropouts, late joiners; and the random numbers of each of them ------

SAMPLING_STREAM, CLIENT_STREAM, NOISE_STREAM, RESAMPLE_STREAM = 1, 2, 3, 4
"""Purposes of streams: client sampling, the steps of a client, the noise of its gate, bootstrap samples of its rows."""

MAX_ATTEMPTS = 20
"""How often a round is called again when too few clients answer."""


@dataclass(frozen=True, slots=True)
class Participation:
    """Who plays a round.

    Parameters
    ----------
    fraction : share of the clients asked in a round (at least one)
    dropout : probability that a client that was asked does not answer
    quorum : a round counts if at least this many answer, or all that were asked if these are fewer; with it, a client
        that raises an error is left out of the round (with a warning) instead of ending the run
    joins : first round of each client that is not there from the start, by its name; until then it is not asked for
        anything, from then on it is one of all, with a state that starts there

    Examples
    --------
    >>> import felb
    >>> some = felb.Participation(0.5, dropout=0.1, quorum=2)
    >>> felb.FELB(n_components=5, participation=some).sampled
    True
    """

    fraction: float = 1.0
    dropout: float = 0.0
    quorum: int | None = None
    joins: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 < self.fraction <= 1:
            raise InputError(f"fraction of clients must lie in (0, 1], got {self.fraction}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must lie in [0, 1), got {self.dropout}")
        if self.quorum is not None and self.quorum < 1:
            raise InputError(f"quorum must be at least 1, got {self.quorum}")
        for name, first in self.joins.items():
            if not isinstance(first, int) or first < 0:
                raise InputError(f"{name} must join in a round, counted from 0, got {first!r}")

    def check_names(self, names: list[str]) -> None:
        """Raise if clients are to join that do not exist, or if none is there at the start."""
        strangers = sorted(set(self.joins) - set(names))
        if strangers:
            raise InputError(f"there is no client {strangers[0]!r} that could join; the clients are {', '.join(names)}")
        if names and min(self.joins.get(name, 0) for name in names) > 0:
            raise InputError("all clients join later; a run needs at least one from round 0 on")

    def answering(self, names: list[str], request: Request, *, seed: int) -> tuple[list[str], list[str]]:
        """Draw who answers a request and who was asked in vain; repeated until a quorum answers."""
        names = [name for name in names if self.joins.get(name, 0) <= request.round]
        if request.all_clients:
            return names, []
        rng = random_stream(seed, SAMPLING_STREAM, request.round)
        count = max(1, round(self.fraction * len(names)))
        needed = min(self.quorum or 1, count)
        for _ in range(MAX_ATTEMPTS):
            asked = sorted(rng.choice(len(names), count, replace=False))
            lost = rng.random(count) < self.dropout
            if count - lost.sum() >= needed:
                return (
                    [names[i] for i, gone in zip(asked, lost, strict=True) if not gone],
                    [names[i] for i, gone in zip(asked, lost, strict=True) if gone],
                )
        raise FederationError(
            f"round {request.round}: fewer than {needed} of {count} clients answered, {MAX_ATTEMPTS} times in a row; "
            "lower the quorum or the dropout"
        )


def random_stream(seed: int, purpose: int, round_: int, name: str = "") -> np.random.Generator:
    """Return the random stream of a purpose, round and client.

    It is the same on every transport, and a round that is played again draws the same numbers.
    """
    client = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, round_, client)))
