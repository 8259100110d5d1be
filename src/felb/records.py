"""Records that were stored as JSON, read back as typed values, and settings in TOML: one bounded parser for all.

A record is a frozen dataclass or a `msgspec.Struct`. What is read has no more bytes, no deeper nesting and no other
keys than the record allows, every value has its type, and numbers are finite. Whatever is wrong is an `InputError` that
names the file and the key.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec

from felb.errors import FelbError, InputError, shortened
from felb.safe_files import open_regular

if TYPE_CHECKING:
    import os

T = TypeVar("T")

MAX_BYTES = 1 << 28
"""Of one record; a result with its history and the names of its columns stays far below."""
MAX_TEXT = 1 << 26
"""Bytes of one file of settings, names or a query that people write."""
MAX_DEPTH = 32
MAX_KEYS = 1 << 16
"""Of one object inside of a record that takes any keys."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


def read_record(path: str | os.PathLike[str], kind: type[T], *, advice: str, limit: int = MAX_BYTES) -> T:
    """Read a record from a file; a missing file is left to the caller as a `FileNotFoundError`.

    Parameters
    ----------
    path : a regular file
    kind : type of the record
    advice : what to do about a damaged one, for the error
    limit : largest size in bytes
    """
    return parse_record(read_bounded(path, advice=advice, limit=limit), kind, source=str(path), advice=advice)


def read_bounded(path: str | os.PathLike[str], *, advice: str, limit: int = MAX_BYTES) -> bytes:
    """Read a regular file of at most `limit` bytes."""
    source = Path(path)
    try:
        with open_regular(source) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise InputError(f"{source} has more than the {limit} bytes that are expected; {advice}")
        return content
    except FileNotFoundError:
        raise
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{shortened(source)} is no name of a file; {advice}") from error
    except OSError as error:
        raise InputError(f"{source} cannot be read ({error.strerror}); {advice}") from error


def read_text(path: str | os.PathLike[str], *, advice: str, limit: int = MAX_TEXT) -> str:
    """Read a regular text file in UTF-8, with or without a byte order mark, of at most `limit` bytes.

    Lines end with a line feed, whatever system the file comes from.
    """
    try:
        text = read_bounded(path, advice=advice, limit=limit).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {advice}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}); {advice}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: str | os.PathLike[str], *, advice: str) -> dict[str, Any]:
    """Read the tables of a TOML file; whole numbers have 64 bits, as TOML asks for."""
    try:
        found = tomllib.loads(read_text(path, advice=advice))
        _check_whole_numbers(found)
    except FelbError:
        raise
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else shortened(error)
        raise InputError(f"{path} is no TOML file ({reason}); {advice}") from error
    return found


def _check_whole_numbers(value: Any) -> None:
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a whole number has more than 64 bits")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_whole_numbers(item)


def parse_record(data: bytes | str, kind: type[T], *, source: str, advice: str) -> T:
    """Read a record from its JSON text; `source` names it in the error."""
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else shortened(error)
        raise InputError(f"{source} is damaged ({reason}); {advice}") from error
    return as_record(raw, kind, source=source, advice=advice)


def as_record(raw: Any, kind: type[T], *, source: str, advice: str) -> T:
    """Make a record of plain values that JSON can hold."""
    try:
        _check_bounds(raw, "$", 0)
        _check_keys(raw, kind, "$")
        return msgspec.convert(raw, kind)
    except (msgspec.ValidationError, InputError) as error:
        raise InputError(f"{source} is damaged ({shortened(error)}); {advice}") from error


def _check_bounds(value: Any, at: str, depth: int) -> None:
    """Raise for what is nested too deeply, has too many keys, or is no finite number."""
    if depth > MAX_DEPTH:
        raise InputError(f"nested more than {MAX_DEPTH} deep - at `{at[:60]}`")
    if isinstance(value, dict):
        if len(value) > MAX_KEYS:
            raise InputError(f"more than {MAX_KEYS} keys - at `{at}`")
        for key, item in value.items():
            _check_bounds(item, f"{at}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            if not isinstance(item, str | int | None):  # most items of long lists; a path for each would be slow
                _check_bounds(item, f"{at}[{i}]", depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{value} is no finite number - at `{at}`")


def _check_keys(raw: Any, kind: Any, at: str) -> None:
    """Raise for a key that a dataclass does not have; `msgspec` itself checks this only for its own structs."""
    if not dataclasses.is_dataclass(kind):
        inner = [part for part in get_args(kind) if dataclasses.is_dataclass(part)]
        if len(inner) != 1:
            return
        kind = inner[0]
    if not isinstance(raw, dict):
        return
    known = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(set(map(str, raw)) - known)
    if unknown:
        raise InputError(f"unknown key `{unknown[0]}` - at `{at}`; known are {', '.join(sorted(known))}")
    hints = get_type_hints(kind)
    for name, value in raw.items():
        _check_keys(value, hints[name], f"{at}.{name}")
