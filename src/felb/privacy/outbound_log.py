"""The outbound log: one line for every array that left a client."""

from __future__ import annotations

import math
import weakref
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec

from felb.errors import InputError, shortened
from felb.privacy.cost import Cost
from felb.privacy.log_chain import Head, chained, open_chain, open_head, write_head
from felb.records import Natural, as_record, read_bounded

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

UNPROTECTED = "none"
"""The word for the cost of what leaves without noise: nothing was spent, and nothing is guaranteed."""

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
    """Appends records as JSON lines, each with the time it was written; opened once and flushed line by line.

    The lines are chained, see `felb.privacy.log_chain`.
    """

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
        line, self._head = chained({"time": now, **asdict(record)}, self._head)
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


# -- reading it back -------------------------------------------------------------------------------------------------


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
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for line in lines:
        try:
            key = (
                line.get("run"),
                *(str(line[name]) for name in ("client", "task", "what")),
                tuple(int(side) for side in line["shape"]),
                *(str(line[name]) for name in ("dtype", "mechanism")),
            )
            _ = int(line["round"]), int(line["bytes"]), line["cost"]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{shortened(dict(line))} is no line of an outbound log ({error}); give the log of a client"
            ) from error
        groups.setdefault(key, []).append(line)
    return [_left(*key, same=same) for key, same in groups.items()]


def _left(*key: Any, same: list[Mapping[str, Any]]) -> Left:
    run, client, task, what, shape, dtype, mechanism = key
    rounds = [int(line["round"]) for line in same]
    return Left(
        run=run,
        client=client,
        task=task,
        what=what,
        shape=shape,
        dtype=dtype,
        mechanism=mechanism,
        rounds=(min(rounds), max(rounds)),
        count=len(same),
        bytes=sum(int(line["bytes"]) for line in same),
        cost=_together([line["cost"] for line in same]),
        total=same[-1].get("total"),
    )


def _together(costs: list[Any]) -> dict[str, float] | None:
    """Return √Σμ² of Gaussian releases and Σε of others, as an accountant would bound them from above."""
    if any(cost is None for cost in costs):
        return None
    read = [Cost.from_json(cost) for cost in costs]
    squares = sum(cost.count * cost.loss**2 for cost in read if cost.kind == "gaussian")
    pure = sum(cost.pure_epsilon for cost in read if cost.kind != "gaussian")
    return {name: value for name, value in (("mu", math.sqrt(squares)), ("epsilon", pure)) if value}
