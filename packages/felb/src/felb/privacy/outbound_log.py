"""The outbound log: one line for every array that left a client.

A line is a JSON object whose last two fields are ``previous``, the hash of the line before, and ``hash``, SHA-256 of
the line up to there, so that a change of the past shows. Beside the log, ``.NAME.head`` holds the number of lines and
the last hash, so that lines missing at the end show as well. Whoever may write both files can make both anew: keep the
last hash elsewhere to notice that.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import weakref
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec

from felb.errors import InputError
from felb.privacy.accounting import Cost  # noqa: TC001
from felb.records import Natural, as_record, read_bounded, replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


START = "0" * 64
"""What stands for the hash before the first line."""

_HEAD = '{{"lines": {lines:>20}, "hash": "{hash}"}}'


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain ends: how many lines, and the hash of the last."""

    lines: int = 0
    hash: str = START


def chain_line(fields: Mapping[str, Any], head: Head) -> tuple[str, Head]:
    """Return the line for some fields, and the head after it."""
    text = json.dumps({**fields, "previous": head.hash})
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{text[:-1]}, "hash": "{digest}"}}', Head(head.lines + 1, digest)


def verify(path: str | os.PathLike[str]) -> Head:
    """Return where the chain of a log ends, or raise an `InputError` that names its first wrong line.

    A last line that was cut short, when its process was killed, was never followed by what it tells of: it is left out.
    """
    log = Path(path)
    try:
        content = log.read_bytes()
    except OSError as error:
        raise InputError(f"{log} cannot be read ({error.strerror})") from error
    complete = content[: content.rfind(b"\n") + 1]
    head = Head()
    for line in complete.split(b"\n")[:-1]:
        head = _follow(line, head, where=f"{log}, line {head.lines + 1}")
    known = read_head(log)
    if known is None and (head.lines or not _beside(log).exists()):
        raise InputError(f"{log}: the file beside it with its last hash is missing; lines at its end may be, too")
    if known is not None and known.lines > head.lines:
        raise InputError(f"{log}, line {head.lines + 1}: missing; {known.lines - head.lines} lines at the end are gone")
    if known is not None and known.lines == head.lines and known.hash != head.hash:
        raise InputError(f"{log}, line {head.lines}: not the line that was written last")
    return head


def _follow(line: bytes, head: Head, *, where: str) -> Head:
    try:
        text = line.decode("utf-8")
        fields = json.loads(text)
        digest, previous = fields["hash"], fields["previous"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{where}: not a line of a chained log") from error
    suffix = f', "hash": "{digest}"}}'
    if not text.endswith(suffix) or hashlib.sha256(f"{text.removesuffix(suffix)}}}".encode()).hexdigest() != digest:
        raise InputError(f"{where}: was changed after it was written")
    if previous != head.hash:
        raise InputError(f"{where}: does not follow the line before it; lines were removed, put in or exchanged")
    return Head(head.lines + 1, digest)


def open_chain(path: Path) -> Head:
    """Return the head to go on from; a line that was cut short is cleared away, since nothing followed it."""
    if not path.is_file():
        return Head()
    with path.open("rb+") as file:
        content = file.read()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            file.truncate(end)
    lines = content[:end].split(b"\n")[:-1]
    if not lines:
        return Head()
    try:
        return Head(len(lines), str(json.loads(lines[-1])["hash"]))
    except (ValueError, KeyError, TypeError):  # a damaged or older log goes on, and `verify` says from where it is none
        return Head(len(lines), hashlib.sha256(lines[-1]).hexdigest())


def read_head(path: Path) -> Head | None:
    """Return the head that is kept beside a log."""
    try:
        said = json.loads(_beside(path).read_text(encoding="utf-8"))
        lines, digest = said["lines"], said["hash"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return Head(lines, digest) if type(lines) is int and lines >= 0 and isinstance(digest, str) else None


def open_head(path: Path) -> IO[bytes]:
    """Open the file beside a log that holds its head, for `write_head` after each line."""
    return os.fdopen(os.open(_beside(path), os.O_WRONLY | os.O_CREAT, 0o666), "wb", buffering=0)


def write_head(file: IO[bytes], head: Head) -> None:
    """Put a head in the place of the one before; after its line, so that a crash leaves a log that is longer.

    All heads have the same length, so one write replaces the whole of it.
    """
    file.seek(0)
    file.write(_HEAD.format(lines=head.lines, hash=head.hash).encode())


def keep_lines(path: Path, kept: Callable[[Mapping[str, Any]], bool]) -> None:
    """Write a log again with the lines that are kept alone, in a new chain; rounds that are played again go."""
    lines: list[str] = []
    head = Head()
    for fields in _of_rounds(path):
        if kept(fields):
            line, head = chain_line({k: v for k, v in fields.items() if k not in ("previous", "hash")}, head)
            lines.append(f"{line}\n")
    with replacing(path) as partial:
        partial.write_text("".join(lines), encoding="utf-8")
    with open_head(path) as file:
        write_head(file, head)


def drop_unsent(path: Path, answered: set[int]) -> None:
    """Drop the lines of a last round that was logged and then broken off, before its response was kept and had left.

    It will be answered, and logged, again. Lines of earlier rounds are never touched.
    """
    if not path.is_file():
        return
    open_chain(path)
    rounds = [int(fields["round"]) for fields in _of_rounds(path)]
    if not rounds or rounds[-1] in answered:
        return
    last = rounds[-1]
    if max(answered, default=-1) < last and (answered or set(rounds) == {last}):
        keep_lines(path, lambda fields: int(fields["round"]) != last)


def _of_rounds(path: Path) -> list[dict[str, Any]]:
    return [fields for fields in read_log(path) if isinstance(fields.get("round"), int)]


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.head")


UNPROTECTED = "none"
"""The word for the cost of what leaves without noise: nothing was spent, and nothing is guaranteed."""

SYNTHETIC = "synthetic rows"
"""The mechanism of lines of a rehearsal: nothing of a record has left."""

ADVICE = "give the outbound log of a client as felb wrote it"
MAX_LOG_BYTES = 1 << 31

_SYMBOLS = {"mu": "μ", "epsilon": "ε"}


@dataclass(frozen=True, slots=True)
class OutboundRecord:
    """One array that left: which round and task, what, how large, under which mechanism, at what cost.

    A cost of None means unprotected, not free. `total` is what the client has spent so far, including all arrays of the
    same round, if it keeps an accountant.
    """

    client: str
    round: int
    task: str
    what: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    mechanism: str
    cost: Cost | None
    total: Mapping[str, Any] | None = None


class OutboundLog:
    """Appends records as JSON lines, each with the time it was written; opened once and flushed line by line."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._files: tuple[IO[str], IO[bytes]] | None = None
        self._close: Callable[[], object] = lambda: None
        self._head = Head()

    def __call__(self, record: OutboundRecord) -> None:
        """Write one line."""
        lines, head_file = self._files or self._open()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line, self._head = chain_line({"time": now, **asdict(record)}, self._head)
        lines.write(line + "\n")
        write_head(head_file, self._head)

    def _open(self) -> tuple[IO[str], IO[bytes]]:
        self._head = open_chain(self.path)
        with ExitStack() as opened:
            lines = opened.enter_context(self.path.open("a", encoding="utf-8", buffering=1))
            head_file = opened.enter_context(open_head(self.path))
            self._close = weakref.finalize(self, opened.pop_all().close)
        self._files = lines, head_file
        return self._files

    def close(self) -> None:
        """Close the files; the next record opens them again."""
        self._close()
        self._files = None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of an outbound log."""

    time: str
    client: str
    round: Natural
    task: str
    what: str
    shape: Annotated[list[Natural], msgspec.Meta(max_length=16)]
    dtype: str
    bytes: Natural
    mechanism: str
    cost: Cost | None
    total: _Total | None = None
    run: str | None = None
    masked: bool | None = None
    roster: str | None = None
    rehearsal: bool | None = None
    previous: str | None = None
    hash: str | None = None


class _Total(msgspec.Struct):
    """What a client had spent after a line; further facts may stand beside."""

    epsilon: float


def read_log(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the lines of a log; one that was cut short, when its process was killed, is left out."""
    lines = []
    for line in read_bounded(path, advice=ADVICE, limit=MAX_LOG_BYTES).splitlines():
        try:
            fields = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        if isinstance(fields, dict):
            lines.append(fields)
    return lines


def read_outbound_log(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the lines of an outbound log; a line that is whole and yet not one of such a log is an error."""
    lines = read_log(path)
    for number, line in enumerate(lines, 1):
        as_record(line, _Line, source=f"{path}, line {number},", advice=ADVICE)
    return lines


@dataclass(frozen=True, slots=True)
class Left:
    """Arrays of one kind that left one client over some rounds.

    Parameters
    ----------
    run : name of the run, where a log is one of several of a site
    client, task, what, shape, dtype, mechanism : as in the log
    rounds : first and last round
    count, bytes : arrays, and their bytes together
    cost : ``mu`` and ``epsilon`` that they cost together; None if at least one of them was unprotected
    total : what the client had spent in all after the last of them, if it keeps an accountant
    """

    run: str | None
    client: str
    task: str
    what: str
    shape: tuple[int, ...]
    dtype: str
    mechanism: str
    rounds: tuple[int, int]
    count: int
    bytes: int
    cost: Mapping[str, float] | None
    total: Mapping[str, Any] | None

    @property
    def cost_in_words(self) -> str:
        """The cost for a table: μ of Gaussian noise, ε of other noise."""
        if self.cost is None:
            return UNPROTECTED
        return " + ".join(f"{_SYMBOLS[name]} {value:.3g}" for name, value in self.cost.items())

    @property
    def total_in_words(self) -> str:
        """The running total for a table."""
        return "" if self.total is None else f"ε {self.total['epsilon']:.4g}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def summarize(lines: Iterable[Mapping[str, Any]]) -> list[Left]:
    """Put together the lines of a log that differ only in their round; in the order in which each kind first left."""
    groups: dict[tuple[Any, ...], list[tuple[_Line, Any]]] = {}
    for raw in lines:
        line = as_record(dict(raw), _Line, source="a line of an outbound log", advice=ADVICE)
        kind = (line.run, line.client, line.task, line.what, tuple(line.shape), line.dtype, line.mechanism)
        groups.setdefault(kind, []).append((line, raw.get("total")))
    found = []
    for kind, same in groups.items():
        rounds, size = [line.round for line, _ in same], sum(line.bytes for line, _ in same)
        cost = _add_up([line.cost for line, _ in same])
        found.append(Left(*kind, (min(rounds), max(rounds)), len(same), size, cost, total=same[-1][1]))
    return found


def _add_up(costs: list[Cost | None]) -> dict[str, float] | None:
    """Return √Σμ² of Gaussian releases and Σε of others, as an accountant would bound them from above."""
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    squares = sum(cost.count * cost.loss**2 for cost in known if cost.kind == "gaussian")
    pure = sum(cost.pure_epsilon for cost in known if cost.kind != "gaussian")
    return {name: value for name, value in (("mu", math.sqrt(squares)), ("epsilon", pure)) if value}
