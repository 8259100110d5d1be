"""Raw files as their publishers hand them out, and lines of separated fields."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

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


# -- Lines of separated fields, a block at a time and without a Python object per field ------------------------------

LINE_END, QUOTE, MINUS, DOT, ZERO = b'\n"-.0'

MOST_DIGITS = 15
"""So many digits make a whole number that a float holds exactly; longer fields are read one by one."""


def field_blocks(file: IO[bytes], width: int, *, separator: bytes = b",", first_line: int = 1) -> Iterator[Fields]:
    """Yield the fields of all lines, `width` on each; an empty line is an error unless only empty ones follow."""
    empty = 0
    for block in read_lines(file):
        content = block.rstrip(b"\r\n")
        if content and empty:
            raise InputError(f"line {empty} is empty, but more lines follow; remove it")
        if content:
            yield Fields(content + b"\n", width, separators=separator, lines=first_line)
        here = block.count(b"\n")
        if content.count(b"\n") + 1 < here or not content:
            empty = empty or first_line + (content.count(b"\n") + 1 if content else 0)
        first_line += here


class Fields:
    """The fields of a block of lines that all have as many.

    Quotes are dropped: the raw files put them around numbers and plain words only, never around separators.

    Parameters
    ----------
    block : whole lines, each with its line end
    width : fields on each line
    separators : characters that separate fields
    lines : number of the first line, or those of all, for messages
    """

    def __init__(
        self, block: bytes, width: int, *, separators: bytes = b",", lines: int | NDArray[np.int64] = 1
    ) -> None:
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        if QUOTE in block:
            block = block.replace(b'"', b"")
        self._lines, self.width, self._separators = lines, width, separators
        self._block, self._chars = block, np.frombuffer(block, np.uint8)
        is_end = self._chars == LINE_END
        n_lines = int(np.count_nonzero(is_end))
        for separator in separators:
            is_end |= self._chars == separator
        ends = np.flatnonzero(is_end)
        if ends.size != n_lines * width or np.any(self._chars[ends[width - 1 :: width]] != LINE_END):
            self._refuse_width(block, separators)
        self._ends = ends.reshape(n_lines, width)

    def __len__(self) -> int:
        return len(self._ends)

    def number_of(self, line: int) -> int:
        """Return the number that a line of the block has in the file."""
        return int(self._lines + line if isinstance(self._lines, int) else self._lines[line])

    def only(self, kept: NDArray[np.bool_]) -> Fields:
        """Return the lines that are marked, with the numbers they have in the file."""
        if kept.all():
            return self
        lines = np.flatnonzero(kept)
        starts, ends = self._starts(0, 1)[lines, 0].tolist(), self._ends[lines, -1].tolist()
        block = b"".join(self._block[start : end + 1] for start, end in zip(starts, ends, strict=True))
        numbers = np.array([self.number_of(line) for line in lines.tolist()], np.int64)
        return Fields(block, self.width, separators=self._separators, lines=numbers)

    def numbers(self, column: int, name: str, *, missing: bool = False) -> NDArray[np.float64]:
        """Return the numbers in a column; with `missing`, NaN where there is none, else that is an error."""
        return self._numbers(self._starts(column, column + 1), self._ends[:, column : column + 1], name, missing)[:, 0]

    def integers(self, column: int, name: str) -> NDArray[np.int64]:
        """Return the whole numbers in a column."""
        values = self.numbers(column, name)
        whole = (np.floor(values) == values) & (np.abs(values) < 2.0**53)
        if not whole.all():
            self.refuse(int(np.argmin(whole)), column, f"{name} should be a whole number")
        return values.astype(np.int64)

    def table(self, first: int, *, missing: bool = False) -> NDArray[np.float64]:
        """Return the numbers in all columns from `first` on."""
        return self._numbers(self._starts(first, self.width), self._ends[:, first:], "a value", missing, first)

    def texts(self, column: int, lines: Iterable[int] | None = None) -> list[str]:
        """Return the fields of a column as text, of all lines or of those of the given positions."""
        starts, ends = self._starts(column, column + 1)[:, 0].tolist(), self._ends[:, column].tolist()
        found = []
        for line in range(len(self)) if lines is None else lines:
            try:
                found.append(self._block[starts[line] : ends[line]].decode("utf-8").strip())
            except UnicodeDecodeError as error:
                raise InputError(
                    f"line {self.number_of(line)} is not UTF-8 text; save the file in the encoding UTF-8"
                ) from error
        return found

    def refuse(self, line: int, column: int, what: str) -> NoReturn:
        """Raise, saying where and what is written there."""
        content = self._chars[self._starts(column, column + 1)[line, 0] : self._ends[line, column]].tobytes()
        shown = content[:60].decode("utf-8", errors="replace")
        raise InputError(f"line {self.number_of(line)} holds {shown!r} in field {column + 1}; {what}")

    def _refuse_width(self, block: bytes, separators: bytes) -> NoReturn:
        for k, line in enumerate(block.split(b"\n")[:-1]):
            found = 1 + sum(line.count(bytes([separator])) for separator in separators)
            if found != self.width:
                if not line.strip():
                    raise InputError(f"line {self.number_of(k)} is empty, but more lines follow; remove it")
                shown = line[:60].decode("utf-8", errors="replace") + ("..." if len(line) > 60 else "")
                raise InputError(
                    f"line {self.number_of(k)} has {found} fields, but {self.width} were expected: {shown!r}; "
                    "the file is damaged, incomplete or of another kind"
                )
        raise InputError(f"lines from {self.number_of(0)} on do not have {self.width} fields each; the file is damaged")

    def _starts(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return where the fields of the columns `first` to `stop` (exclusive) begin."""
        if first:
            return self._ends[:, first - 1 : stop - 1] + 1
        before = np.concatenate([[-1], self._ends[:-1, -1]])[:, None]
        return np.concatenate([before, self._ends[:, : stop - 1]], axis=1) + 1

    def _numbers(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64], name: str, missing: bool, first: int | None = None
    ) -> NDArray[np.float64]:
        values, odd = plain_decimals(self._chars, starts.ravel(), ends.ravel())
        for k in np.flatnonzero(odd):
            text = self._chars[starts.flat[k] : ends.flat[k]].tobytes().strip().decode("utf-8", errors="replace")
            if missing and text.lower() in MISSING_WORDS:
                values[k] = np.nan
                continue
            try:
                values[k] = float("no number" if "_" in text else text)  # Python alone reads 1_0 as ten
                if not np.isfinite(values[k]):
                    raise ValueError
            except ValueError:
                line, column = divmod(int(k), starts.shape[1])
                where = f"line {self.number_of(line)}" + ("" if first is None else f", field {first + column + 1},")
                raise InputError(f"{where} holds {text[:60]!r} where {name} should be, a number") from None
        return values.reshape(starts.shape)


def plain_decimals(
    chars: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Read decimals such as ``12``, ``-3.5`` at ``chars[start:end]``, all at once; return them and which are others.

    With digits d₁…dₙ of which f stand behind the dot, a number is (Σ dᵢ 10ⁿ⁻ⁱ) / 10ᶠ. Both parts are exact in a float,
    so that the quotient is the float nearest to what is written, as Python's own.
    """
    negative = (ends > starts) & (chars[starts] == MINUS)
    position = starts + negative
    remaining = ends - position
    odd = (remaining > MOST_DIGITS + 1) | (remaining == 0)
    whole = np.zeros(starts.size)
    n_digits, n_decimals = np.zeros(starts.size, np.int8), np.zeros(starts.size, np.int8)
    dotted = np.zeros(starts.size, bool)
    for at in range(min(MOST_DIGITS + 1, int(remaining.max(initial=0)))):
        longer = remaining > at
        here: Any = slice(None) if longer.all() else np.flatnonzero(longer)
        char = chars[position[here] + at]
        digit = char - np.uint8(ZERO)  # wraps round below zero
        is_digit, is_dot = digit < 10, char == DOT
        plain = is_digit.all()
        whole[here] = whole[here] * 10 + digit if plain else np.where(is_digit, whole[here] * 10 + digit, whole[here])
        n_digits[here] += is_digit
        n_decimals[here] += is_digit & dotted[here]
        if not plain:
            odd[here] |= ~is_digit & (~is_dot | dotted[here])
            dotted[here] |= is_dot
    odd |= (n_digits == 0) | (n_digits > MOST_DIGITS)
    if dotted.any():
        whole /= 10.0 ** np.arange(MOST_DIGITS + 2)[n_decimals]
    return np.where(negative, -whole, whole), odd
