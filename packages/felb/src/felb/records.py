"""Files that are read and written safely, and records in JSON and TOML read back as typed values."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import functools
import hashlib
import math
import numbers
import os
import platform
import re
import shutil
import stat
import sys
import time
import tomllib
import types
from collections.abc import Collection, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from felb.errors import FelbError, InputError, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# A pipe would keep its reader for ever, and a device has no end.
#
# What is being written stands beside its place under a hidden name that tells the process and the machine. A process
# that is killed leaves it there; the next one that writes in the same folder finds that its writer is dead, and removes
# it. Locks let one process at a time work on a folder.

if sys.platform != "win32":
    import fcntl


PARTIAL, NEW, OLD = "partial", "new", "old"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def replacing(path: str | os.PathLike[str], *, clear: bool = True) -> Iterator[Path]:
    """Give a temporary path beside `path`; what was written there takes its place if the block succeeds.

    With `clear`, what killed processes left in the folder is removed before.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"cannot write {target}: there is no folder {target.parent}; make it, or give another one")
    if clear:
        clear_leftovers(target.parent)
    partial = beside(target, PARTIAL)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def beside(target: Path, role: str) -> Path:
    """Return a hidden name beside `target` for what this process makes for it: `PARTIAL`, `NEW` or `OLD`."""
    return target.with_name(f".{target.name}.{os.getpid()}-{_machine()}.{role}")


def replace_folder(complete: Path, target: Path) -> None:
    """Put the finished folder `complete` where `target` is, and delete an old `target`.

    Where the system can exchange two names in one step, there is no moment without the old folder or the new one.
    Elsewhere the old one is moved aside first; a process that is killed then leaves it for `clear_leftovers`, which
    puts it back.
    """
    _sync_content(complete)
    old = beside(target, OLD)
    if target.exists() and _exchange(complete, target):
        complete.rename(old)
    else:
        _move_aside(complete, target, old)
    sync_folder(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _move_aside(complete: Path, target: Path, old: Path) -> None:
    if target.exists():
        target.rename(old)
    try:
        complete.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise


def remove_folder(folder: Path) -> None:
    """Delete a folder that is no longer valid: it loses its name first, so that no half is taken for the whole."""
    doomed = beside(folder, OLD)
    shutil.rmtree(doomed, ignore_errors=True)
    with suppress(FileNotFoundError):
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def clear_leftovers(folder: Path) -> None:
    """Remove what dead processes of this machine left half-made in a folder; put back what they moved aside."""
    pattern = re.compile(rf"\.(.+)\.(\d+)-{_machine()}\.({PARTIAL}|{NEW}|{OLD})")
    try:
        entries = sorted(path for path in folder.iterdir() if path.name.startswith("."))
    except OSError:
        return
    for path in entries:
        found = pattern.fullmatch(path.name)
        if found is None or _is_alive(int(found[2])):
            continue
        place = path.with_name(found[1])
        with suppress(OSError):
            if found[3] == OLD and path.is_dir() and not place.exists() and not place.name.endswith(".unfinished"):
                path.rename(place)
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def try_lock(path: Path) -> IO[bytes] | None:
    """Open `path` and hold it until it is closed or the process ends, however it ends; None if another holds it."""
    file = path.open("ab")
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError:  # some network file systems have no locks; then it is up to the user
            pass
    return file


def wait_for_lock(path: Path, *, seconds: float) -> IO[bytes]:
    """Open `path` and hold it like `try_lock`, as soon as nobody else does."""
    end = time.monotonic() + seconds
    while (held := try_lock(path)) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"{path} is in use by another process")
        time.sleep(0.05)
    return held


def _machine() -> str:
    """Return a word for this machine: on a shared file system, another one's processes are not known here."""
    return hashlib.blake2b(platform.node().encode(), digest_size=3).hexdigest()


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":
        return process == os.getpid() or _windows_knows(process)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # somebody else's
    return True


def _windows_knows(process: int) -> bool:
    """Whether a process runs; `os.kill` would end it there."""
    kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    handle = kernel.OpenProcess(0x1000, False, process)
    if handle:
        kernel.CloseHandle(handle)
    return bool(handle)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where system or file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(one), None, str(other))


def _sync_content(folder: Path) -> None:
    """Bring the files of a folder to disk, so that a name never stands for less than was written."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        elif path.is_dir():
            sync_folder(path)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder written to the disk."""
    if sys.platform == "win32":
        return
    with suppress(OSError):  # some file systems cannot
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_url(data: Any) -> bool:
    """Return whether data is named by a URL rather than by a path."""
    return isinstance(data, str) and "://" in data and not Path(data).exists()


def check_storable(text: str) -> None:
    """Raise unless a name can stand in a record, which is UTF-8 text; names of files may hold other bytes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        shown = text.encode("utf-8", "replace").decode("utf-8")
        raise InputError(f"the name {shown!r} is not UTF-8, so that no record can hold it; rename the file") from error


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading, by its name or through links; anything else is an `InputError`."""
    return open(path, "rb", opener=_opener)  # Path.open takes no opener


def file_size(path: str | os.PathLike[str]) -> int:
    """Return the size of a regular file that is not empty; for anything else an `InputError` says what it is."""
    try:
        if os.path.isdir(path):  # noqa: PTH112
            raise InputError("is a folder; give a file")
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}; check the path") from error
    except ValueError as error:  # a name with a zero byte, or a felb error
        raise error if isinstance(error, InputError) else InputError("is no name of a file; check the path") from error
    if not size:
        raise InputError("the file is empty; it needs at least one record")
    return size


def _opener(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe without a writer is not waited for
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # opening a folder fails by itself, with its own reason
        return descriptor
    os.close(descriptor)
    raise InputError(f"{path} is no regular file but a pipe or a device; copy its content to a file first")


# Values that a caller gives are compared with declared types before anything is done with them.

_WORDS: dict[Any, str] = {
    int: "a whole number of at most 63 bits",
    float: "a number",
    str: "text",
    bool: "True or False",
    type(None): "None",
}


def check_fields(record: Any, *, of: str = "") -> None:
    """Raise unless every field of a dataclass has a value of its declared type; `of` begins the message."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    check_types(values, _hints(type(record)), of=of)  # type: ignore[arg-type]


def check_types(values: Mapping[str, Any], hints: Mapping[str, Any], *, of: str = "") -> None:
    """Raise an `InputError` that names the first value that is not of its declared type.

    Whole numbers have at most 63 bits. Words of a `Literal` are compared by whoever knows what they mean.
    """
    for name, value in values.items():
        if name in hints and not _fits(value, hints[name]):
            raise InputError(f"{of}{name} must be {_describe(hints[name])}, got {shortened(repr(value), 60)}")


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, part) for part in inner)
    if origin is Literal:
        return isinstance(value, str)
    if hint in (int, float):
        number = isinstance(value, numbers.Integral if hint is int else numbers.Real) and not isinstance(value, bool)
        return number and (not isinstance(value, numbers.Integral) or -(1 << 63) <= int(value) < 1 << 63)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(item, inner[1]) for key, item in value.items()
        )
    if isinstance(origin, type) and issubclass(origin, Collection):
        return isinstance(value, list | tuple) and all(_fits(item, inner[0]) for item in value)
    return isinstance(value, origin or hint)


def _describe(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_describe, inner))
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a table in which every value is {_describe(inner[1])}"
    if isinstance(origin, type) and issubclass(origin, Collection):
        return f"a list in which every value is {_describe(inner[0])}"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


# A record is a frozen dataclass or a `msgspec.Struct`. What is read has no more bytes, no deeper nesting and no other
# keys than the record allows, every value has its type, and numbers are finite. Whatever is wrong is an `InputError`
# that names the file and the key.

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


def replace_nonfinite(value: Any) -> Any:
    """Replace NaN and infinities by None, which JSON can say, and NumPy's numbers by Python's."""
    if isinstance(value, Mapping):
        return {key: replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(item) for item in value]
    if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


# -- Tables that spreadsheets open ----------------------------------------------------------------------------------
#
# A spreadsheet takes a cell that begins with one of these characters for a formula, and names come from others.

FORMULA = frozenset("=+-@\t\r")


def write_csv(file: IO[str], rows: Iterable[Iterable[Any]], **options: Any) -> None:
    """Write rows as CSV; a text that a spreadsheet would take for a formula begins with an apostrophe."""
    import csv

    csv.writer(file, **options).writerows([guard_cell(cell) for cell in row] for row in rows)


def guard_cell(cell: Any) -> Any:
    """Return a cell with an apostrophe before it if it is a text that would be a formula; `unguard_cell` removes it."""
    if not isinstance(cell, str) or cell.lstrip("'")[:1] not in FORMULA:
        return cell
    with suppress(ValueError):
        float(cell)
        return cell
    return f"'{cell}"


def unguard_cell(text: str) -> str:
    """Return a text as it was before `guard_cell`."""
    return text[1:] if text.startswith("'") and text.lstrip("'")[:1] in FORMULA else text
