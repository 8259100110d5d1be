"""What is kept of a run: named arrays as bytes, entries on disk, and the journal of the sums of its rounds."""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
import zlib
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from felb.errors import FederationError, InputError
from felb.federated.protocol import ClientStates, Sums
from felb.records import Natural, as_record, replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.federated.protocol import Request

    Array = NDArray[Any]
    Path_ = tuple[int, ...]


# -- Named arrays as bytes: safetensors, with limits on names and sizes ----------------------------------------------
#
# There is nothing to unpickle and nothing to decompress, so a hostile message can neither run code nor grow.

DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32,
    "I32": np.int32, "U64": np.uint64, "I64": np.int64, "F16": np.float16, "F32": np.float32, "F64": np.float64,
}  # fmt: skip
"""Booleans, integers and floats; no objects, no text, no dates."""
MAX_BYTES = 1 << 30
"""Of one message unless a tighter limit is given."""
MAX_ARRAYS, MAX_DIMENSIONS, MAX_NAME = 64, 4, 64


def pack(values: Mapping[str, Array], header: Mapping[str, str] | None = None) -> bytes:
    """Write named arrays as bytes, little-endian and in C order."""
    arrays = {}
    for name, value in values.items():
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise FederationError(f"{name} is of type {array.dtype}, and only numbers travel")
        arrays[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    return save(arrays, None if header is None else dict(header))


def unpack(data: Any, *, limit: int = MAX_BYTES) -> dict[str, Array]:
    """Read a message that `pack` wrote; raises on anything else."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise FederationError(f"a message of type {type(data).__name__} came where bytes were expected")
    if len(data) > limit:
        raise FederationError(f"a message of {len(data)} bytes came where at most {limit} are allowed")
    try:
        arrays = read_arrays(bytes(data))
        if len(arrays) > MAX_ARRAYS:
            raise ValueError(f"{len(arrays)} arrays")
        for name, array in arrays.items():
            if not all(word.isidentifier() for word in name.split(".")) or len(name) > MAX_NAME:
                raise ValueError("a name is not a name")
            if array.ndim > MAX_DIMENSIONS:
                raise ValueError(f"{name} has {array.ndim} dimensions")
    except (ValueError, TypeError, OverflowError) as error:
        raise FederationError(f"a message could not be read ({error}); it was not written by felb") from error
    return arrays


def read_arrays(data: bytes) -> dict[str, Array]:
    """Read the arrays of a safetensors file; raises a `ValueError` on anything else."""
    try:
        entries = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    arrays = {}
    for name, entry in sorted(entries, key=lambda named: named[0]):
        dtype, shape = DTYPES.get(entry["dtype"]), tuple(entry["shape"])
        if dtype is None:
            raise ValueError(f"{name} is no array of numbers")
        if math.prod(shape) * np.dtype(dtype).itemsize != len(entry["data"]):
            raise ValueError(f"{name} does not have its size")
        flat = np.frombuffer(entry["data"], dtype=np.uint8) if entry["data"] else np.zeros(0, np.uint8)
        arrays[name] = (flat != 0 if dtype is np.bool_ else flat.view(dtype)).reshape(shape)
    return arrays


def digest(request: Request) -> str:
    """Fingerprint a request, to distinguish a repeated one from a different one of the same round.

    It is asked for several times in a round, and a request may be large, so that the last one is remembered.
    """
    for known, name in _fingerprinted:
        if known is request:
            return name
    found = hashlib.sha256()
    for part in request.parts:
        found.update(
            part.task.encode() + b"\0" + (part.lane.encode() + b"\0" if part.lane else b"") + pack(part.values)
        )
    _fingerprinted[:] = [(request, found.hexdigest())]
    return found.hexdigest()


_fingerprinted: list[tuple[Request, str]] = []


# -- Entries of a journal: named arrays and a JSON header in one safetensors file, written atomically ----------------
#
# A checksum over names, types, shapes, numbers and header tells a damaged file from a whole one.

SUFFIX = ".safetensors"
_META, _HEADER, _CHECKSUM, _PART = "__metadata__", "felb", "checksum", "felb.part"


def write_entry(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write an entry, replacing an older one in one move; integers take the fewest bytes that hold them."""
    data = encode_entry(header, arrays)
    with replacing(path, clear=False) as partial:  # who opens a journal has cleared it
        partial.write_bytes(data)


def encode_entry(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Return an entry as bytes."""
    narrow = {name: narrow_integers(np.asarray(array)) for name, array in arrays.items()}
    wide = [name for name, array in narrow.items() if array.dtype != np.asarray(arrays[name]).dtype]
    text = json.dumps([header, wide])  # JSON's NaN and Infinity are read back by Python; only felb reads this
    return pack(narrow, {_HEADER: text, _CHECKSUM: _checksum(text, narrow)})


def read_entry(path: Path, *, advice: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read an entry back; a damaged one is an `InputError` that names the file and says `advice`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path} is damaged ({error}); {advice}") from error
    return decode_entry(data, source=str(path), advice=advice)


def decode_entry(data: bytes, *, source: str, advice: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read the bytes of an entry back."""
    try:
        arrays = read_arrays(data)
        meta = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])[_META]
        if meta[_CHECKSUM] != _checksum(meta[_HEADER], arrays):
            raise ValueError("wrong checksum")
        header, wide = json.loads(meta[_HEADER])
        if not isinstance(header, dict) or not isinstance(wide, list):
            raise ValueError("no header")
        arrays |= {name: arrays[name].astype(np.int64) for name in wide}
    except Exception as error:  # what the readers of JSON raise on damage is nearly anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{source} is damaged ({reason}); {advice}") from error
    return header, arrays


def narrow_integers(array: Array) -> Array:
    """Return whole numbers in the narrowest type that holds them, other arrays as they are."""
    if array.dtype != np.int64 or array.size == 0:
        return array
    low, high = int(array.min()), int(array.max())
    for dtype in (np.int8, np.int16, np.int32):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return array.astype(dtype)
    return array


def _checksum(header: str, arrays: Mapping[str, Array]) -> str:
    value = zlib.crc32(header.encode())
    for name, array in sorted(arrays.items()):
        value = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), value)
        value = zlib.crc32(np.ascontiguousarray(array).data, value) if array.size else value
    return f"{value:08x}"


# -- states and results as arrays ------------------------------------------------------------------------------------


def holding(state_type: type[Any]) -> Mapping[str, Any]:
    """Return the metadata of a field that holds another dataclass (or None), for `dataclasses.field`.

    The type stands in the declaration because it must be known to read a value back, where only arrays are left.
    """
    return {_PART: state_type}


def to_arrays(state: Any) -> dict[str, Array]:
    """Return the fields of a dataclass, or the items of a tuple, as named arrays; what is None is left out.

    The fields of a nested dataclass are named ``outer/inner``; ``outer/`` alone tells that it was there.
    """
    arrays = {}
    for name, value, part in _fields(state):
        if value is None:
            continue
        if part is not None:
            arrays[f"{name}/"] = np.asarray(True)
            arrays |= {f"{name}/{inner}": array for inner, array in to_arrays(value).items()}
            continue
        if is_dataclass(value):
            raise TypeError(f"field {name} of {type(state).__name__} is a state of its own: declare it with holding()")
        arrays[name] = np.asarray(value)
        if arrays[name].dtype.kind not in "biuf":
            raise TypeError(f"field {name} of {type(state).__name__} is neither an array nor a number")
    return arrays


def from_arrays(like: Any, arrays: Mapping[str, Array]) -> Any:
    """Rebuild what `to_arrays` took apart; `like` is the dataclass, or a tuple of values of the same types.

    Arrays of no dimension become Python numbers again.
    """
    values: dict[str, Any] = {}
    kinds = _declared(like)
    for name, live, part in _fields(like):
        if part is not None:
            inner = {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
            values[name] = from_arrays(part, inner) if inner else None
        else:
            array = arrays.get(name)
            values[name] = array.item() if array is not None and array.ndim == 0 else array
            if not isinstance(like, type):
                _check_like(name, values[name], live)
        if name in kinds and not _fits(values[name], kinds[name]):
            raise TypeError(f"field {name} is {_told(values[name])} where {kinds[name]} belongs")
    unknown = {key.partition("/")[0] for key in arrays if key} - values.keys()
    if unknown:
        kind = like.__name__ if isinstance(like, type) else type(like).__name__
        raise TypeError(f"{kind} has no field {min(unknown)}")
    return tuple(values.values()) if isinstance(like, tuple) else like(**values)


def states_to_arrays(states: Mapping[str, Any]) -> dict[str, Array]:
    """Return the states of a client in its lanes as arrays named ``lane:field``; lanes without a state are left out."""
    return {
        f"{lane}:{name}": array
        for lane, state in states.items()
        if state is not None
        for name, array in {"": np.asarray(True), **to_arrays(state)}.items()
    }


def states_from_arrays(state_type: Any, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Rebuild what `states_to_arrays` took apart."""
    lanes: dict[str, dict[str, Array]] = {}
    for key, array in arrays.items():
        lane, _, name = key.partition(":")
        lanes.setdefault(lane, {})[name] = array
    return {
        lane: from_arrays(state_type, {name: array for name, array in found.items() if name})
        for lane, found in lanes.items()
    }


def _declared(like: Any) -> dict[str, str]:
    """Return the declared types of a dataclass as they are written, such as ``NDArray[np.bool_] | None``."""
    return {} if isinstance(like, tuple) else {f.name: str(f.type) for f in fields(like)}


def _fits(value: Any, kind: str) -> bool:
    """Whether a value that was read can be of a declared type; only what arrays can tell is looked at."""
    if value is None:
        return "None" in kind or kind == "Any"
    kind = kind.removesuffix(" | None")
    if kind in ("int", "float", "bool"):
        return isinstance(value, {"int": int, "float": int | float, "bool": bool}[kind])
    if kind.startswith("NDArray["):
        letters = {"bool": "b", "int": "iu", "uint": "iu", "float": "f", "double": "f"}
        wanted = next((letters[word] for word in letters if kind.startswith(f"NDArray[np.{word}")), "biuf")
        return isinstance(value, np.ndarray) and value.dtype.kind in wanted
    return True


def _check_like(name: str, value: Any, live: Any) -> None:
    """Raise unless a value has the type and the dimensions of the one that it replaces in a running loop."""
    if live is None:
        return
    one, other = np.asarray(live), np.asarray(value)
    if value is None or one.ndim != other.ndim or one.dtype.kind != other.dtype.kind:
        raise TypeError(f"item {name} is {_told(value)} where {_told(live)} belongs")


def _told(value: Any) -> str:
    array = np.asarray(value)
    return "missing" if value is None else f"{array.ndim}D of type {array.dtype}"


def _fields(state: Any) -> list[tuple[str, Any, Any]]:
    """Return name, value and declared dataclass of the parts of a dataclass (or its type) or of a tuple."""
    if isinstance(state, tuple):
        return [(str(i), item, type(item) if is_dataclass(item) else None) for i, item in enumerate(state)]
    return [(f.name, getattr(state, f.name, None), f.metadata.get(_PART)) for f in fields(state)]


# -- The journal of a run: the sums that the server has received, so that an interrupted run can be replayed ---------
#
# One entry a file, each complete or not there at all:
#
#     round-0000012         the sums of a round
#     step-0-2              the result of a finished step; the sums of its rounds are dropped
#     checkpoint-0-2        the last state of a loop; the sums of the rounds before are dropped
#     time-up               the round at which the time limit ended the search
#     states                private states of clients, where the transport holds them
#
# A step is named by its path: ``0-2`` is the third step within the first. What a finished step or a checkpoint stands
# for is deleted once its own file is there, so the journal stays small and replaying it is quick.

T = TypeVar("T")

COMPACT_BYTES = 16 << 20
"""Of sums in a loop that has checkpoints, before one of them is kept instead."""

SECONDS_BETWEEN_SAVES, MOST_TIME_FOR_SAVES = 5.0, 0.05
"""Pace of a journal with states; where they are large, they are saved less often."""

_ROUND, _STEP, _CHECKPOINT, _TIME_UP, _STATES = "round", "step", "checkpoint", "time-up", "states"


@dataclass(frozen=True, slots=True)
class Covered:
    """What stands for rounds whose sums were dropped.

    Parameters
    ----------
    first, end : the rounds, from `first` to before `end`
    arrays : the result of a step, or the state of a loop
    rows : history of these rounds
    steps : steps that the loop had begun
    """

    first: int
    end: int
    arrays: Mapping[str, Array]
    rows: Sequence[Mapping[str, Any]]
    steps: int = 0


@dataclass(frozen=True, slots=True)
class _Round:
    task: str
    sums: Sums
    size: int = 0


class _TimeUpHeader(msgspec.Struct, forbid_unknown_fields=True):
    round: Natural


class _StatesHeader(msgspec.Struct, forbid_unknown_fields=True):
    round: Natural
    clients: list[str]


class _RoundHeader(msgspec.Struct, forbid_unknown_fields=True):
    round: Natural
    task: str
    clients: Natural
    missing: list[str]


class _CoveredHeader(msgspec.Struct, forbid_unknown_fields=True):
    path: tuple[Natural, ...]
    first: Natural
    end: Natural
    steps: Natural
    rows: list[dict[str, Any]]


@dataclass
class Journal:
    """The entries of one run in a folder, all of them also in memory; without a folder, in memory only.

    Parameters
    ----------
    folder : where they are kept
    advice : what to do about a damaged entry, for the error that names it
    pace : save as often as takes little of a run's time, not after every round
    may_lose_last : a damaged last round is dropped with a warning, since it can be requested again
    on_rewind : called with the round that is played next when a run begins or goes on
    """

    folder: Path | None = None
    advice: str = "delete the journal, then the run is played again from its start"
    pace: bool = False
    may_lose_last: bool = False
    on_rewind: Callable[[int], None] = lambda _: None
    _rounds: dict[int, _Round] = field(default_factory=dict, init=False)
    _covered: dict[tuple[str, Path_], Covered] = field(default_factory=dict, init=False)
    _time_up: int | None = field(default=None, init=False)
    _states: tuple[int, list[str], dict[str, Array]] | None = field(default=None, init=False)
    _unsaved: set[str] = field(default_factory=set, init=False)
    _dropped: set[str] = field(default_factory=set, init=False)
    _next_save: float = field(default=float("-inf"), init=False)
    _waiting: ClientStates | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.folder is not None and self.folder.is_dir():
            paths = sorted(self.folder.glob(f"*{SUFFIX}"))
            rounds = [path for path in paths if path.name.startswith(f"{_ROUND}-")]
            for path in paths:
                try:
                    self._read(path)
                except InputError as error:
                    if not self.may_lose_last or path not in rounds[-1:]:
                        raise
                    warnings.warn(f"{error.args[0]}; the round before is used instead", RuntimeWarning, stacklevel=3)
                    path.unlink(missing_ok=True)
            self._drop_remains()

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def next_round(self) -> int:
        """The first round without an entry."""
        return max([0, *(number + 1 for number in self._rounds), *(c.end for c in self._covered.values())])

    def sums(self, number: int, task: str) -> Sums | None:
        """Return the sums of a round, if they are kept; they must belong to the given task."""
        if number not in self._rounds:
            if number < self.next_round:
                raise InputError(f"the journal {self.folder} does not hold round {number}; {self.advice}")
            return None
        entry = self._rounds[number]
        if entry.task != task:
            raise InputError(
                f"round {number} in the journal {self.folder} is of task {entry.task!r}, not of {task!r}: another "
                f"algorithm wrote it; {self.advice}"
            )
        sums = entry.sums
        return Sums(sums, sums.clients, missing=sums.missing, number=number)

    def step(self, path: Path_) -> Covered | None:
        """Return a finished step."""
        return self._covered.get((_STEP, path))

    def checkpoint(self, path: Path_) -> Covered | None:
        """Return the last state of the loop of a step, if one is kept."""
        return self._covered.get((_CHECKPOINT, path))

    @property
    def time_up(self) -> int | None:
        """The round that was not requested because the time limit had passed."""
        return self._time_up

    def rewind_to_states(self, state_type: type[Any]) -> ClientStates:
        """Return the stored states of clients, and forget the rounds after theirs, which clients cannot go on from.

        Without stored states, as in a journal that is in memory only, all rounds are forgotten.
        """
        if self._states is None:
            self.clear()
            return ClientStates()
        number, names, arrays = self._states
        try:
            states = {name: states_from_arrays(state_type, _under(arrays, f"{i}/")) for i, name in enumerate(names)}
        except TypeError as error:
            raise InputError(f"{self._path(_STATES)} is damaged ({error}); {self.advice}") from error
        if any(c.end > number + 1 for c in self._covered.values()) or self.next_round < number + 1:
            self.clear()  # interrupted between two entries that belong together
            return ClientStates()
        for later in [r for r in self._rounds if r > number]:
            self._drop_round(later)
        return ClientStates(number, states)

    # -- what happens ------------------------------------------------------------------------------------------------

    def received(self, number: int, task: str, sums: Sums) -> None:
        """Keep the sums of a round."""
        self._rounds[number] = _Round(task, sums, sum(array.nbytes for array in sums.values()))
        self._add(_round_name(number))

    def finished(self, path: Path_, result: Any, *, first: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the result of a step in place of what it was found from."""
        self._cover(_STEP, path, Covered(first, first + len(rows), to_arrays(result), rows))

    def reached(self, path: Path_, state: Any, *, first: int, rows: Sequence[Mapping[str, Any]], steps: int) -> None:
        """Keep the state of a loop in place of the sums before it, once these are large."""
        end = first + len(rows)
        if sum(entry.size for number, entry in self._rounds.items() if first <= number < end) >= COMPACT_BYTES:
            self._cover(_CHECKPOINT, path, Covered(first, end, to_arrays(state), rows, steps))

    def ended_early(self, number: int) -> None:
        """Keep that the time limit had passed before a round."""
        self._time_up = number
        self._add(_TIME_UP)

    def forget_last_round(self) -> None:
        """Remove the last round, so that it is requested again."""
        number = self.next_round - 1
        if number not in self._rounds:
            raise InputError(f"the last round in the journal {self.folder} is not kept by itself")
        self._drop_round(number)

    def clear(self) -> None:
        """Forget everything."""
        for number in list(self._rounds):
            self._drop_round(number)
        for key in list(self._covered):
            self._drop_covered(key)
        self._time_up, self._states = None, None
        self._dropped |= {_TIME_UP, _STATES}
        self._unsaved.clear()

    # -- on disk -----------------------------------------------------------------------------------------------------

    def keep(self, states: ClientStates | None) -> None:
        """Save after a round, if the pace of this journal says so; otherwise the states wait for the next `save`."""
        self._waiting = states
        begun = time.monotonic()
        if self.folder is None or begun < self._next_save:
            return
        self.save()
        if self.pace:
            saved = time.monotonic()
            self._next_save = saved + max(SECONDS_BETWEEN_SAVES, (saved - begun) / MOST_TIME_FOR_SAVES)

    def save(self, states: ClientStates | None = None) -> None:
        """Write what is new, with these states or those of the last round, then delete what it stands for."""
        states = self._waiting if states is None else states
        if self.folder is None or (states is not None and states.round + 1 < self.next_round):
            return  # states of an earlier round were saved with it, and clients could not go on from a later one
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in sorted(self._unsaved):
            write_entry(self._path(name), *self._entry(name))
        if states is not None and states.round >= 0:
            _write_states(self._path(_STATES), states)
            self._dropped.discard(_STATES)
        self._unsaved.clear()
        for name in self._dropped:
            self._path(name).unlink(missing_ok=True)
        self._dropped.clear()

    def take_changes(self) -> tuple[dict[str, bytes], list[str]]:
        """Return the entries that are new, as bytes, and the names of those that they stand for, for another store."""
        new = {name: encode_entry(*self._entry(name)) for name in sorted(self._unsaved)}
        dropped = sorted(self._dropped)
        self._unsaved.clear()
        self._dropped.clear()
        return new, dropped

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}{SUFFIX}"

    def _entry(self, name: str) -> tuple[dict[str, Any], Mapping[str, Array]]:
        kind, _, place = name.partition("-")
        if name == _TIME_UP:
            return {"round": self._time_up}, {}
        if kind == _ROUND:
            number = int(place)
            entry = self._rounds[number]
            head = {"round": number, "task": entry.task, "clients": entry.sums.clients}
            return {**head, "missing": list(entry.sums.missing)}, dict(entry.sums)
        path = _steps(place)
        found = self._covered[kind, path]
        head = {"path": path, "first": found.first, "end": found.end, "steps": found.steps}
        return {**head, "rows": [dict(row) for row in found.rows]}, found.arrays

    def _read(self, path: Path) -> None:
        self.take(path.name.removesuffix(SUFFIX), *read_entry(path, advice=self.advice), source=str(path))

    def take(self, name: str, header: dict[str, Any], arrays: dict[str, Array], *, source: str) -> None:
        """Add an entry that was stored; `source` is where, for the error that names it."""
        kind = name.partition("-")[0]

        def read(record: type[T]) -> T:
            return as_record(header, record, source=source, advice=self.advice)

        if name == _TIME_UP:
            self._time_up = read(_TimeUpHeader).round
        elif name == _STATES:
            states = read(_StatesHeader)
            self._states = states.round, states.clients, arrays
        elif kind == _ROUND:
            entry = read(_RoundHeader)
            sums = Sums(arrays, entry.clients, missing=entry.missing, number=entry.round)
            self._rounds[entry.round] = _Round(entry.task, sums, sum(a.nbytes for a in arrays.values()))
            self._check_name(source, name, _round_name(entry.round))
        elif kind in (_STEP, _CHECKPOINT):
            covered = read(_CoveredHeader)
            found = Covered(covered.first, covered.end, arrays, covered.rows, covered.steps)
            self._covered[kind, covered.path] = found
            self._check_name(source, name, _covered_name(kind, covered.path))
        else:
            raise InputError(f"{source} is no entry of a journal; {self.advice}")

    def _check_name(self, source: str, name: str, stored: str) -> None:
        if name != stored:
            raise InputError(f"{source} is damaged (it is the entry {stored[:60]}); {self.advice}")

    # -- compaction --------------------------------------------------------------------------------------------------

    def _cover(self, kind: str, path: Path_, found: Covered) -> None:
        self._covered[kind, path] = found
        self._add(_covered_name(kind, path))
        self._drop_covered_by(kind, path)

    def _drop_covered_by(self, kind: str, path: Path_) -> None:
        found = self._covered[kind, path]
        for number in [r for r in self._rounds if found.first <= r < found.end]:
            self._drop_round(number)
        for other, part in list(self._covered.items()):
            inside = other[1][: len(path)] == path and len(other[1]) > len(path) and part.first >= found.first
            if inside or (kind == _STEP and other == (_CHECKPOINT, path)):
                self._drop_covered(other)

    def _drop_remains(self) -> None:
        """Drop what a process that was killed had no time to delete."""
        for key in list(self._covered):
            if key in self._covered:
                self._drop_covered_by(*key)

    def _drop_round(self, number: int) -> None:
        del self._rounds[number]
        self._drop(_round_name(number))

    def _drop_covered(self, key: tuple[str, Path_]) -> None:
        del self._covered[key]
        self._drop(_covered_name(*key))

    def _add(self, name: str) -> None:
        self._unsaved.add(name)
        self._dropped.discard(name)

    def _drop(self, name: str) -> None:
        self._unsaved.discard(name)
        self._dropped.add(name)


def _write_states(path: Path, kept: ClientStates) -> None:
    arrays = {
        f"{i}/{key}": array
        for i, states in enumerate(kept.states.values())
        for key, array in states_to_arrays(states).items()
    }
    write_entry(path, {"round": kept.round, "clients": list(kept.states)}, arrays)


def _round_name(number: int) -> str:
    return f"{_ROUND}-{number:07}"


def _covered_name(kind: str, path: Path_) -> str:
    return f"{kind}-{'-'.join(map(str, path))}"


def _steps(place: str) -> Path_:
    return tuple(int(at) for at in place.split("-") if at)


def _under(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
