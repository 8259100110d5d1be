"""Raw files as their publishers hand them out, and lines of separated fields."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NoReturn, cast

import numpy as np

from felb.data.readers import MISSING_WORDS, read_lines
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

    from numpy.typing import NDArray


# -- Raw files as their publishers hand them out: plain, packed (``.gz``), or inside a ``.zip``; alone or in a folder

DEPTH = 3
"""Folders below the one that was named in which files are looked for; archives unpack into a folder or two."""

LONGEST_HEADER = 1 << 26
"""Bytes of a header line, which names every cell or sample of a table."""


@dataclass(frozen=True, slots=True)
class RawFile:
    """A file, or a member of a zip archive."""

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        """How messages name it."""
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

    @property
    def base(self) -> str:
        """The name of the file itself, without folders and without ``.gz``."""
        return _unpacked_name(self.path.name if self.member is None else PurePosixPath(self.member).name)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open for reading, unpacked; whatever is wrong with the file in the ``with`` block is said with its name."""
        with _naming(self.name), ExitStack() as stack:
            if self.member is None:
                file: IO[bytes] = stack.enter_context(self.path.open("rb"))
            else:
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                try:
                    file = stack.enter_context(archive.open(self.member))
                except (RuntimeError, NotImplementedError) as error:  # a password, or a way of packing Python lacks
                    raise InputError(f"cannot be unpacked ({error}); unpack the archive yourself") from error
            if self.name.lower().endswith(".gz"):
                file = stack.enter_context(cast("IO[bytes]", gzip.GzipFile(fileobj=file)))
            yield file

    def beside(self, *names: str) -> RawFile | None:
        """Return the first of the files `names` (or ``NAME.gz``) in the same folder or archive, if there is one."""
        if self.member is None:
            siblings = [RawFile(path) for path in sorted(self.path.parent.iterdir()) if path.is_file()]
        else:
            siblings = _members(self.path)
        return next((file for name in names for file in siblings if file.base.lower() == name.lower()), None)


def find_files(path: str | PathLike[str], patterns: Sequence[str]) -> list[RawFile]:
    """Return the raw files at `path`, in the order of their names.

    A plain or packed file is taken whatever its name is. In a folder (or in the zip archives there, if it has no such
    files itself) and in an archive, those are taken whose name fits the first of the `patterns` that any name fits.
    """
    source = Path(path)
    try:
        if source.is_dir():
            below = [p for depth in range(1, DEPTH + 1) for p in source.glob("/".join(["*"] * depth)) if p.is_file()]
            found = _fitting([RawFile(p) for p in sorted(below)], patterns)
            archives = [p for p in sorted(below) if p.suffix.lower() == ".zip"]
            found = found or _fitting([member for archive in archives for member in _members(archive)], patterns)
        elif source.suffix.lower() == ".zip":
            found = _fitting(_members(source), patterns)
        else:
            with source.open("rb"):
                return [RawFile(source)]
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror}; check the path") from error
    if not found:
        raise InputError(f"{source}: holds no {' or '.join(patterns)} (plain, .gz, or in a .zip); name the raw file")
    return found


def read_header(file: IO[bytes], delimiter: str) -> list[str]:
    """Take the first line off the file and return its cells, without quotes around them."""
    line = file.readline(LONGEST_HEADER).removeprefix(b"\xef\xbb\xbf")
    if not line.strip():
        raise InputError("line 1 is empty; it should hold the column names")
    if line.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in line:
        raise InputError("line 1 is not UTF-8 text (UTF-16, or no text at all); save the file in the encoding UTF-8")
    return [cell.strip().strip('"').strip() for cell in decode(line, 1).rstrip("\r\n").split(delimiter)]


def decode(line: bytes, number: int) -> str:
    """Return the text of a line."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"line {number} is not UTF-8 text (byte {error.start} of the line); save the file in the encoding UTF-8"
        ) from error


def text_lines(file: IO[bytes]) -> Iterator[str]:
    """Yield the lines as text; one that is not UTF-8 is an error that says its number."""
    for number, line in enumerate(file, 1):
        yield decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, number)


def find_columns(header: Sequence[str], wanted: Iterable[str]) -> list[int]:
    """Return where the wanted columns stand in the header line, or raise and say which are missing."""
    wanted = list(wanted)
    missing = [name for name in wanted if name not in header]
    if missing:
        shown = ", ".join(header[:10]) + (f" and {len(header) - 10} more" if len(header) > 10 else "")
        raise InputError(f"line 1 lacks the column{'s'[: len(missing) - 1]} {', '.join(missing)}; it holds {shown}")
    return [header.index(name) for name in wanted]


def unique_names(names: Iterable[str], ids: Iterable[object]) -> list[str]:
    """Return the names; what stands in brackets behind a name that occurs more than once tells its bearers apart."""
    names = list(names)
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    taken: set[str] = set()
    unique = []
    for name, key in zip(names, ids, strict=True):
        label = name if counts[name] == 1 else f"{name} [{key}]"
        while label in taken:
            label += "'"
        taken.add(label)
        unique.append(label)
    return unique


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        message = str(error)
        raise InputError(message if name in message else f"{name}: {message}", parameter=error.parameter) from error
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile) as error:
        raise InputError(f"{name}: the packed file is damaged or incomplete ({error}); download it again") from error
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}; check the path") from error


def _members(archive: Path) -> list[RawFile]:
    with _naming(str(archive)), zipfile.ZipFile(archive) as opened:
        names = [info.filename for info in opened.infolist() if not info.is_dir()]
    return [RawFile(archive, name) for name in sorted(names) if not name.startswith("__MACOSX/")]


def _fitting(files: list[RawFile], patterns: Sequence[str]) -> list[RawFile]:
    for pattern in patterns:
        fitting: dict[str, RawFile] = {}
        for file in files:
            if fnmatchcase(file.base.lower(), pattern.lower()):
                fitting.setdefault(_unpacked_name(file.name), file)  # the same file plain and packed counts once
        if fitting:
            return list(fitting.values())
    return []


def _unpacked_name(name: str) -> str:
    return name[:-3] if name.lower().endswith(".gz") else name


# -- Lines of separated fields, a block at a time ----------------------------------------------------------------------


def field_blocks(file: IO[bytes], width: int, *, separator: bytes = b",", first_line: int = 1) -> Iterator[Fields]:
    """Yield the fields of all lines, `width` on each; an empty line is an error unless only empty ones follow."""
    empty = 0
    for block in read_lines(file):
        content = block.rstrip(b"\r\n")
        if content and empty:
            raise InputError(f"line {empty} is empty, but more lines follow; remove it")
        if content:
            yield Fields.of(content + b"\n", width, separator=separator, lines=first_line)
        here = block.count(b"\n")
        if content.count(b"\n") + 1 < here or not content:
            empty = empty or first_line + (content.count(b"\n") + 1 if content else 0)
        first_line += here


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of some lines that all have as many.

    Parameters
    ----------
    cells : bytes, lines × fields
    lines : number of each line in the file, for messages
    """

    cells: NDArray[np.object_]
    lines: NDArray[np.int64]

    @classmethod
    def of(cls, block: bytes, width: int, *, separator: bytes = b",", lines: int | NDArray[np.int64] = 1) -> Fields:
        """Split whole lines, each with its line end; `lines` is the number of the first, or those of all.

        Quotes are dropped: the raw files put them around numbers and plain words only, never around separators.
        """
        plain = block.replace(b"\r\n", b"\n").replace(b'"', b"")
        rows = [line.split(separator) for line in plain.split(b"\n")[:-1]]
        numbers = lines + np.arange(len(rows)) if isinstance(lines, int) else lines
        for number, row in zip(numbers.tolist(), rows, strict=True):
            if len(row) != width:
                line = separator.join(row)
                if not line.strip():
                    raise InputError(f"line {number} is empty, but more lines follow; remove it")
                shown = line[:60].decode("utf-8", errors="replace") + ("..." if len(line) > 60 else "")
                raise InputError(
                    f"line {number} has {len(row)} fields, but {width} were expected: {shown!r}; "
                    "the file is damaged, incomplete or of another kind"
                )
        return cls(np.array(rows, dtype=object).reshape(len(rows), width), numbers)

    def __len__(self) -> int:
        return len(self.cells)

    def only(self, kept: NDArray[np.bool_]) -> Fields:
        """Return the lines that are marked, with the numbers they have in the file."""
        return Fields(self.cells[kept], self.lines[kept])

    def numbers(self, column: int, name: str, *, missing: bool = False) -> NDArray[np.float64]:
        """Return the numbers in a column; with `missing`, NaN where there is none, else that is an error."""
        return self._numbers(slice(column, column + 1), name, missing)[:, 0]

    def integers(self, column: int, name: str) -> NDArray[np.int64]:
        """Return the whole numbers in a column."""
        values = self.numbers(column, name)
        whole = (np.floor(values) == values) & (np.abs(values) < 2.0**53)
        if not whole.all():
            self.refuse(int(np.argmin(whole)), column, f"{name} should be a whole number")
        return values.astype(np.int64)

    def table(self, first: int, *, missing: bool = False) -> NDArray[np.float64]:
        """Return the numbers in all columns from `first` on."""
        return self._numbers(slice(first, None), "a value", missing)

    def texts(self, column: int, lines: Iterable[int] | None = None) -> list[str]:
        """Return the fields of a column as text, of all lines or of those of the given positions."""
        chosen = range(len(self)) if lines is None else lines
        return [decode(self.cells[line, column], int(self.lines[line])).strip() for line in chosen]

    def refuse(self, line: int, column: int, what: str) -> NoReturn:
        """Raise, saying where and what is written there."""
        shown = self.cells[line, column][:60].decode("utf-8", errors="replace")
        raise InputError(f"line {self.lines[line]} holds {shown!r} in field {column + 1}; {what}")

    def _numbers(self, columns: slice, name: str, missing: bool) -> NDArray[np.float64]:
        cells = self.cells[:, columns]
        with suppress(ValueError):
            values = cells.astype(np.float64)
            if np.isfinite(values).all() and b"_" not in b"".join(cells.ravel()):  # Python alone reads 1_0 as ten
                return values
        values = np.empty(cells.shape)
        for (line, column), cell in np.ndenumerate(cells):
            text = cell.decode("utf-8", errors="replace").strip()
            if missing and text.lower() in MISSING_WORDS:
                values[line, column] = np.nan
                continue
            try:
                values[line, column] = float("no number" if "_" in text else text)
                if not np.isfinite(values[line, column]):
                    raise ValueError
            except ValueError:
                where = "" if columns.stop is not None else f", field {columns.start + column + 1},"
                raise InputError(
                    f"line {self.lines[line]}{where} holds {text[:60]!r} where {name} should be, a number"
                ) from None
        return values
