"""The chain of an outbound log: each line holds the hash of the line before, so that a change of the past shows.

A line is a JSON object whose last two fields are ``previous``, the hash of the line before, and ``hash``, SHA-256 of
the line up to there. Beside the log, ``.NAME.head`` holds the number of lines and the last hash, so that lines missing
at the end show as well. Whoever may write both files can make both anew: keep the last hash elsewhere to notice that.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from felb.errors import InputError
from felb.safe_files import replacing

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


def chained(fields: Mapping[str, Any], head: Head) -> tuple[str, Head]:
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
        head = _followed(line, head, where=f"{log}, line {head.lines + 1}")
    known = read_head(log)
    if known is None and head.lines:
        raise InputError(f"{log}: the file beside it with its last hash is missing; lines at its end may be, too")
    if known is not None and known.lines > head.lines:
        raise InputError(f"{log}, line {head.lines + 1}: missing; {known.lines - head.lines} lines at the end are gone")
    if known is not None and known.lines == head.lines and known.hash != head.hash:
        raise InputError(f"{log}, line {head.lines}: not the line that was written last")
    return head


def _followed(line: bytes, head: Head, *, where: str) -> Head:
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
        return Head(int(said["lines"]), str(said["hash"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
    for fields in _fields(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        if kept(fields):
            line, head = chained({k: v for k, v in fields.items() if k not in ("previous", "hash")}, head)
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
    rounds = [int(fields["round"]) for fields in _fields(path.read_text(encoding="utf-8").splitlines())]
    if not rounds or rounds[-1] in answered:
        return
    last = rounds[-1]
    if max(answered, default=-1) < last and (answered or set(rounds) == {last}):
        keep_lines(path, lambda fields: int(fields["round"]) != last)


def _fields(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        try:
            fields = json.loads(line)
            _ = int(fields["round"])
        except (ValueError, KeyError, TypeError):
            continue
        yield fields


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.head")
