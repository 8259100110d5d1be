"""Readers of data files, a format each: blocks of rows, and how much a file may ask for."""

from __future__ import annotations

import atexit
import csv
import gzip
import io
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from array import array
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from felb.data.binary import (
    MISSING,
    NOT_BINARY,
    SAY_MISSING,
    BinaryMatrix,
    check_column_names,
)
from felb.data.coercion import (
    check_sparse,
    convert_anndata,
    convert_csr,
    convert_dense,
    from_columns,
    from_csr,
    from_values,
    to_checked_csr,
)
from felb.data.isolated_reader import BYTES_A_SECOND
from felb.errors import CellError, InputError, missing_extra, shortened
from felb.records import open_regular, read_text, unguard_cell

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from felb.tables.apply import Applied


# A few bytes can announce a billion rows, and a small packed file can hold one line of a gigabyte. A reader compares
# what a file announces, and what it has unpacked so far, with limits before it makes room for it.

ALWAYS_ROWS, ALWAYS_COLUMNS, ALWAYS_BYTES = 10_000_000, 1_000_000, 1 << 27
"""What any file may have, however small it is."""


@dataclass(frozen=True)
class Limits:
    """Limits on what is read from a file; raise one where a file is meant to be that large.

    Parameters
    ----------
    max_rows : most rows; by default 10 million, or as many as the file has bytes
    max_columns : most columns; by default 1 million, or as many as the file has bytes
    max_line : longest line of a text file in bytes
    max_expansion : most bytes after unpacking, and of the ones in memory, for each byte of the file, beside 128 MiB
        that are always allowed

    Examples
    --------
    >>> Limits(max_rows=50_000_000).max_rows
    50000000
    >>> Limits(max_line=0)
    Traceback (most recent call last):
    ...
    felb.errors.InputError: max_line must be a positive number, got 0
    """

    max_rows: int | None = None
    max_columns: int | None = None
    max_line: int = 1 << 24
    max_expansion: float = 64.0

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            optional = value is None and entry.name in ("max_rows", "max_columns")
            number = isinstance(value, int | float) and not isinstance(value, bool) and value == value
            if not optional and not (number and value > 0):
                raise InputError(f"{entry.name} must be a positive number, got {value!r}")

    def of(self, size: int) -> Bounds:
        """Return the limits for a file of this many bytes."""
        return Bounds(
            rows=max(ALWAYS_ROWS, size) if self.max_rows is None else int(self.max_rows),
            columns=max(ALWAYS_COLUMNS, size) if self.max_columns is None else int(self.max_columns),
            line=int(min(self.max_line, 1 << 62)),
            bytes=int(min(ALWAYS_BYTES + size * self.max_expansion, 1 << 62)),
        )


@dataclass(frozen=True)
class Bounds:
    """The limits for one file."""

    rows: int
    columns: int
    line: int
    bytes: int

    def check_shape(self, n_rows: int, n_columns: int) -> None:
        """Raise if a matrix has, or announces, more rows or columns than the file may have."""
        for count, most, what in ((n_rows, self.rows, "rows"), (n_columns, self.columns, "columns")):
            if count > most:
                raise InputError(
                    f"the file has or announces {count} {what}, and at most {most} are read from a file of its size; "
                    f"if they are meant, allow them with limits=Limits(max_{what}={count})"
                )

    def check_bytes(self, count: int) -> None:
        """Raise if the file unpacks to, or announces, more bytes than it may."""
        if count > self.bytes:
            raise InputError(
                f"the file unpacks to {count} bytes or more, and at most {self.bytes} are read from a file of its "
                "size; if they are meant, allow them with limits=Limits(max_expansion=1000), or more"
            )

    def check_line(self, length: int) -> None:
        """Raise if a line has more bytes than a line may have."""
        if length > self.line:
            raise InputError(
                f"a line has more than {self.line} bytes; check the file, or allow it with limits=Limits(max_line=...)"
            )


def split_suffix(path: Path) -> tuple[str, bool]:
    """Return the end of a name that tells the format, in lower case, and whether the file is packed (.gz)."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    packed = suffixes[-1:] == [".gz"]
    return "".join(suffixes[-2:-1] if packed else suffixes[-1:]), packed


def open_bounded(path: Path, bounds: Bounds) -> IO[bytes]:
    """Open a regular file for reading, unpacked if its name ends in .gz and up to as many bytes as it may have."""
    file = open_regular(path)
    if path.suffix.lower() != ".gz":
        return file
    return io.BufferedReader(cast("io.RawIOBase", _BoundedGzip(file, bounds)), 1 << 16)


class _BoundedGzip(gzip.GzipFile):
    """Unpacks a file, which it closes, up to as many bytes as it may have."""

    def __init__(self, file: IO[bytes], bounds: Bounds) -> None:
        super().__init__(fileobj=file)
        self.myfileobj, self._bounds = file, bounds  # type: ignore[assignment]

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self._bounds.check_bytes(self.tell())
        return content


SAME = "mark each unknown cell by a 1 in a matrix of the same shape"


@dataclass(frozen=True)
class Table:
    """What a data file holds.

    Parameters
    ----------
    matrix : the 0/1 data, one row per record
    clients : the client each row belongs to, if the file says so
    rows : the name of each row, if the file says so and the loader keeps it
    applied : what the schema met, if the data was read by one
    ignored : names of the columns that were left out because they were not asked for
    labels : the label of each row, None where it has none, if they were asked for
    """

    matrix: BinaryMatrix
    clients: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = field(default=None, repr=False)
    applied: Applied | None = None
    ignored: tuple[str, ...] = ()
    labels: tuple[str | None, ...] | None = field(default=None, repr=False)

    @classmethod
    def join(cls, blocks: Sequence[Table]) -> Table:
        """Return blocks of rows as one table."""

        def joined(part: str) -> tuple[Any, ...] | None:
            found = [getattr(block, part) for block in blocks if len(block.matrix)]
            return None if not found or found[0] is None else tuple(itertools.chain.from_iterable(found))

        first, last = blocks[0], blocks[-1]
        matrix = BinaryMatrix.vstack([block.matrix for block in blocks])
        return cls(matrix, joined("clients"), joined("rows"), first.applied, last.ignored, joined("labels"))


def mark_blocks(tables: Iterable[Table], marks: BinaryMatrix, name: str) -> Iterator[Table]:
    """Yield blocks of rows with the missing mask `marks`, which was read from the file `name`."""
    n = 0
    for table in tables:
        rows, columns = table.matrix.shape
        if columns != marks.shape[1]:
            raise InputError(f"{name} has {marks.shape[1]} columns, but the data has {columns}; {SAME}")
        if None not in (table.matrix.columns, marks.columns) and table.matrix.columns != marks.columns:
            raise InputError(f"{name} has other column names than the data; bring its columns into the same order")
        if n + rows <= len(marks):
            yield replace(table, matrix=table.matrix.with_unknown(marks.rows(n, n + rows)))
        n += rows
    if n != len(marks):
        raise InputError(f"{name} has {len(marks)} rows, but the data has {n}; {SAME}")


def read_names_beside(source: Path, n_columns: int) -> tuple[str, ...] | None:
    """Return the column names in NAME.columns.txt beside NAME.npz or NAME.mat, if that file is there and fits."""
    beside = source.with_suffix(".columns.txt")
    if not beside.is_file():
        return None
    try:
        names = read_text(beside, advice="it holds one name per line").removesuffix("\n").split("\n")
        return check_column_names(names, n_columns) if len(names) == n_columns else None
    except InputError as error:
        raise InputError(
            f"column names in {beside.name}: {error}; correct that file or move it to another folder"
        ) from error


INDEX = "(row names)"
"""Name of a first column without a name, as pandas and R write the names of rows."""
TEXT_COLUMNS = {"clients": "client_column", "rows": "record_column", "labels": "label_column"}
"""Columns that are no features: which part of a `Table` they give, and the option that names them."""


def find_text_columns(options: ReadOptions, columns: Sequence[str] | None) -> dict[str, int]:
    """Return where the columns of clients, record names and labels stand, by the part of a `Table` that they give."""
    found = {}
    for part, option in TEXT_COLUMNS.items():
        name = getattr(options, option)
        if name is None:
            continue
        if columns is None:
            raise InputError(f"{option}={name!r} needs column names, but the file has no header line", parameter=option)
        if name == "" and columns[0] == INDEX:
            name = INDEX
        if name not in columns:
            shown = ", ".join(repr(column) for column in columns[:10])
            more = f" and {len(columns) - 10} more" if len(columns) > 10 else ""
            raise InputError(
                f"{option}={name!r} is not a column; the columns are {shown or 'none'}{more}", parameter=option
            )
        found[part] = list(columns).index(name)
    return found


NEEDED_TEXTS = {"clients": "client", "rows": "name"}
"""Texts that every row must have; a label may be missing."""


class RowTexts:
    """Texts of rows, one string for each different text; a missing label is None, another missing text an error."""

    def __init__(self, part: str, column: str) -> None:
        self._part, self._column = part, column
        self._known: dict[str, str] = {}

    def read(self, value: Any, place: str) -> str | None:
        """Return the text of a value, whose place an error names."""
        if value is None or value != value or (text := str(value)) == "":
            if self._part in NEEDED_TEXTS:
                what = f"no {NEEDED_TEXTS[self._part]} in column {self._column!r}"
                raise InputError(f"{place} has {what}; fill it", parameter=TEXT_COLUMNS[self._part])
            return None
        return text if self._part == "rows" else self._known.setdefault(text, text)

    def read_all(self, values: Iterable[Any], first_row: int = 0) -> tuple[Any, ...]:
        """Return the texts of the values of consecutive rows."""
        return tuple(self.read(value, f"row {row}") for row, value in enumerate(values, first_row))


def split_columns(
    names: Sequence[str] | int, wanted: Collection[str] | None, *, texts: Mapping[str, int]
) -> tuple[list[int], tuple[str, ...]]:
    """Return the numbers of the columns to read, and the names of those that are left out because of `wanted`.

    Parameters
    ----------
    names : of all columns, or their number if they have none; then all are read
    wanted : names of the columns to read; None for all
    texts : numbers of the columns that are no features; the column of labels is one if it is among those to read
    """
    without = {at for part, at in texts.items() if part != "labels" or wanted is None or names[at] not in wanted}  # type: ignore[index]
    if isinstance(names, int) or wanted is None:
        count = names if isinstance(names, int) else len(names)
        return [i for i in range(count) if i not in without], ()
    kept = [i for i, name in enumerate(names) if i not in without and name in wanted]
    if not kept:
        raise InputError(f"none of the {len(names)} columns is a feature of the model, such as {min(wanted)!r}")
    return kept, tuple(name for i, name in enumerate(names) if i not in without and name not in wanted)


@dataclass(frozen=True)
class ReadOptions:
    """How a file is read: the parameters of `felb.data.read` that its format takes.

    `hold` says whether all of the content may be held in memory, which spares reading item lists twice.
    """

    client_column: str | None = None
    header: bool | None = None
    binarize_threshold: float | None = None
    missing: str = "error"
    columns: Collection[str] | None = None
    record_column: str | None = None
    label_column: str | None = None
    hold: bool = True


# Python's reader of CSV gives the line of every record, needs no extra, and is not slower on tables of thousands of
# columns than DuckDB or Arrow, which would have to split them into texts all the same.

BLOCK_CELLS = 1 << 22
"""Cells of a table that are held before their ones are taken out."""

REMEMBERED_CELLS = 1 << 16
"""Spellings of cells whose meaning is remembered; measurements may have as many spellings as cells."""

MISSING_WORDS = frozenset({"", "?", "n/a", "na", "nan", "none", "null"})
"""What files write where a value is missing, in lower case."""

MOST_EMPTY_LINES = 100_000
"""At the end of a table."""

UNKNOWN, UNCLEAR = 2, 3
"""Stand for an unknown cell, and for one that is neither 0 nor 1, among zeros and ones."""


def read_table(path: Path, bounds: Bounds, options: ReadOptions, delimiter: str) -> Generator[Table]:
    """Read a table with one record a line.

    A cell is a number, or true/false in any case. Blanks around cells and names do not count, nor do empty lines at
    the end. Without `header`, the first line is one if any of its cells is neither a number nor a word for a missing
    value; an empty cell counts as a name there, since tables with row numbers begin so. Where cells may be missing
    (`missing` is not "error"), a first line of numbers and empty cells could be either, and is refused. Columns that
    are not asked for are left out, whatever they hold; a table without names is read as a whole.
    """
    header = options.header
    with open_text(path, bounds) as file:
        line_1 = next(_lines(file, bounds), "")
        delimiter = choose_separator(line_1, delimiter)
        records = text_records(file, delimiter, bounds, line_1)
        first = next(records, None)
        if first is None:
            raise InputError("the file is empty; it needs one line per record")
        width = len(first[1])
        bounds.check_shape(0, width)
        named = header if header is not None else any(map(_is_name, first[1]))
        if (
            named
            and header is None
            and options.missing != "error"
            and not any(map(_is_name, filter(str.strip, first[1])))
        ):
            raise InputError(
                "line 1 holds numbers and empty cells; set header to true if they are column names, to false if the "
                "line is a record",
                parameter="header",
            )
        names = _header_names(first[1], header) if named else None
        texts = find_text_columns(options, names)
        if names is not None and names[0] == INDEX and "rows" not in texts:
            texts["rows"] = 0  # pandas and R write the names of rows under an empty heading
        kept, ignored = split_columns(names or width, options.columns, texts=texts)
        if not kept:
            others = " and the ".join(TEXT_COLUMNS[part].replace("_", " ") for part in texts)
            raise InputError(f"the file has no columns besides the {others}; it needs 0/1 columns")
        block = _CellBlock(len(kept), None if names is None else [names[i] for i in kept], options)
        block.advice = "" if named or header is False else "; set header to true if the first line holds column names"
        readers = [(part, at, RowTexts(part, str(cast("Sequence[str]", names)[at]))) for part, at in texts.items()]
        read: dict[str, list[Any]] = {part: [] for part in texts}

        def take() -> Table:
            given: dict[str, Any] = {part: tuple(values) for part, values in read.items()}
            for values in read.values():
                values.clear()
            return Table(block.take(), ignored=ignored, **given)

        for line, cells in records if named else itertools.chain([first], records):
            if len(cells) != width:
                raise InputError(
                    f"line {line} has {len(cells)} cells, but {width} were expected as in the first line; "
                    f"check for missing or unquoted separators ({delimiter!r})"
                )
            for part, at, texts_of in readers:
                read[part].append(texts_of.read(unguard_cell(cells[at].strip()), f"line {line}"))
            block.add(cells if len(kept) == width else [cells[i] for i in kept], line)
            if block.is_full:
                yield take()
    if not block.n_rows:
        raise InputError("the file holds no rows, only column names; it needs one line per record")
    yield take()


def open_text(path: Path, bounds: Bounds) -> io.TextIOWrapper:
    """Open a text file in UTF-8, with or without the byte order mark that spreadsheets write; line ends stay."""
    return io.TextIOWrapper(open_bounded(path, bounds), encoding="utf-8-sig", newline="")


def _lines(file: IO[str], bounds: Bounds) -> Iterator[str]:
    while line := file.readline(bounds.line + 1):
        bounds.check_line(len(line))
        yield line


SEPARATORS = (";", "\t", "|")
"""What separates cells in text files of other programs than the suffix says, in the order in which they are tried."""


def find_separator(path: Path, bounds: Bounds, usual: str) -> str:
    """Return what separates the cells of the first line: `usual`, or another separator if the line has none of it."""
    try:
        with open_text(path, bounds) as file:
            line = file.readline(bounds.line + 1)
    except (OSError, EOFError, UnicodeDecodeError):  # reading the file says what is wrong with it
        return usual
    return choose_separator(line, usual)


def choose_separator(line: str, usual: str) -> str:
    """Return what separates the cells of a line: `usual`, or another separator if the line has none of it."""
    return usual if usual in line else next((mark for mark in SEPARATORS if mark in line), usual)


def text_records(file: IO[str], delimiter: str, bounds: Bounds, line_1: str = "") -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its first line, cells) of every record; empty lines may only stand at the end."""
    lines = itertools.chain([line_1] if line_1 else [], _lines(file, bounds))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    line, empty = 1, 0
    try:
        for cells in reader:
            if not cells or (len(cells) == 1 and cells[0].isspace()):
                empty = empty or line
                if line - empty >= MOST_EMPTY_LINES:
                    raise InputError(f"line {empty} and {MOST_EMPTY_LINES} lines after it are empty; remove them")
            elif empty:
                raise InputError(f"line {empty} is empty, but more lines follow; remove it or fill in its cells")
            else:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"line {line} cannot be split into cells ({error}); check its quotes") from error


def _header_names(cells: list[str], header: bool | None) -> tuple[str, ...]:
    names = [unguard_cell(cell.strip()) for cell in cells]
    if len(names) > 1 and not names[0] and INDEX not in names:
        names[0] = INDEX
    try:
        return check_column_names(names, len(names)) or ()
    except InputError as error:
        advice = "" if header else "; if the first line is a record, set header to false"
        raise InputError(f"line 1, read as column names: {error}{advice}", parameter="header") from error


class _CellBlock:
    """Takes the cells of one record after the other and gives their ones, a block of rows at a time."""

    def __init__(self, n_columns: int, columns: Sequence[str] | None, options: ReadOptions) -> None:
        self.advice, self.n_rows = "", 0
        self._n_columns, self._columns = n_columns, columns
        self._meanings = _Meanings(options)
        self._cells = bytearray()

    def add(self, cells: list[str], line: int) -> None:
        row = bytes(map(self._meanings.__getitem__, cells))
        if UNCLEAR in row:
            raise self._describe(cells, row.index(UNCLEAR), line)
        self._cells += row
        self.n_rows += 1

    @property
    def is_full(self) -> bool:
        return len(self._cells) >= BLOCK_CELLS

    def take(self) -> BinaryMatrix:
        cells = np.frombuffer(self._cells, dtype=np.uint8).reshape(-1, self._n_columns)
        self._cells = bytearray()
        matrix = BinaryMatrix.of(cells == 1, columns=self._columns)
        unknown = cells == UNKNOWN
        return matrix.with_unknown(unknown) if unknown.any() else matrix

    def _describe(self, cells: list[str], column: int, line: int) -> InputError:
        """Return the error for a cell that is not 0 or 1."""
        cell = cells[column].strip()
        name = f" ({self._columns[column]!r})" if self._columns is not None else ""
        place = f"line {line}, column {column + 1}"
        where = f"{place}{name}"
        advice = self.advice if self.n_rows == 0 else ""
        if cell.lower() in MISSING_WORDS:
            return CellError(f"{where} {MISSING}{SAY_MISSING}{advice}", place=place, parameter="missing")
        number = _number(cell)
        if number is not None and math.isinf(number):
            return CellError(f"{where} is infinite (inf); clip it, felb does not guess{advice}", place=place)
        if number is not None:
            said = f"{where} holds {cell}; {NOT_BINARY}{advice}"
            return CellError(said, place=place, parameter="binarize_threshold")
        if len(cells) == 1 and any(mark in cell for mark in ";,\t|"):
            advice = "; .csv files are separated by commas and .tsv files by tabs"
        else:
            advice += "; a raw table needs a schema, which `felb schema infer` proposes"
        shown = cell if len(cell) <= 60 else cell[:60] + "..."
        said = f"{where} holds {shown!r}, which is not a number; values must be 0 or 1{advice}"
        return CellError(said, place=place)


class _Meanings(dict[str, int]):
    """Cell text to 0, 1, UNKNOWN or UNCLEAR, worked out once per spelling, since a table of 0 and 1 has very few."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__()
        self._threshold = options.binarize_threshold
        self._absent = {"error": UNCLEAR, "zero": 0, "unknown": UNKNOWN}[options.missing]

    def __missing__(self, text: str) -> int:
        number, meaning = _number(text), UNCLEAR
        if text.strip().lower() in MISSING_WORDS or (number is not None and math.isnan(number)):
            meaning = self._absent
        elif number is not None and not math.isinf(number) and (self._threshold is not None or number in (0, 1)):
            meaning = int(number == 1 if self._threshold is None else number > self._threshold)
        if len(self) >= REMEMBERED_CELLS:
            self.clear()
        self[text] = meaning
        return meaning


def _number(text: str) -> float | None:
    word = text.strip().lower()
    if word in ("true", "false"):
        return float(word == "true")
    try:
        return None if "_" in word else float(word)  # Python alone reads 1_0 as ten
    except ValueError:
        return None


def _is_name(text: str) -> bool:
    return _number(text) is None and (text.strip() == "" or text.strip().lower() not in MISSING_WORDS)


BLOCK_BYTES = 1 << 22
"""Bytes of item lists that are read at once."""

IN_ITEMS = b"0123456789- \t\r\n\v\f"


def read_items(path: Path, bounds: Bounds, options: ReadOptions) -> Generator[Table]:
    """Read item lists, one record a line: integers separated by blanks; an empty line is a record without items.

    The columns are the items in ascending order, named by their numbers. To know them all, the file is read twice,
    unless its content is held in memory.
    """
    held = list(_item_lists(path, bounds)) if options.hold else None
    names = np.zeros(0, np.int64)
    for _, items in held or _item_lists(path, bounds):
        names = np.union1d(names, items)
        bounds.check_shape(0, names.size)
    if not names.size:
        raise InputError("the file holds no items; it needs one line per record: integers separated by blanks")
    columns = tuple(str(name) for name in names)
    for counts, items in held or _item_lists(path, bounds):
        indices = np.searchsorted(names, items)
        if not np.array_equal(names[np.minimum(indices, names.size - 1)], items):
            raise InputError("the file has changed while it was read; read it again")
        matrix = BinaryMatrix(np.concatenate([[0], np.cumsum(counts)]), indices, names.size, columns)
        yield Table(BinaryMatrix.of(matrix, binarize_threshold=options.binarize_threshold))


def _item_lists(path: Path, bounds: Bounds) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Yield, block by block, how many items each line has, and the items."""
    n_lines = 0
    with open_bounded(path, bounds) as file:
        for block in read_lines(file, bounds):
            counts, items = _parse_items(block, n_lines + 1)
            n_lines += counts.size
            bounds.check_shape(n_lines, 0)
            yield counts, items


def read_lines(file: IO[bytes], bounds: Bounds | None = None) -> Iterator[bytes]:
    """Yield blocks of whole lines, each ending with a line end; with `bounds`, no line is longer than they say."""
    rest = file.read(3)
    if rest == b"\xef\xbb\xbf":  # the byte order mark that some editors put before UTF-8
        rest = b""
    while read := file.read(BLOCK_BYTES):
        lines, line_end, last = read.rpartition(b"\n")
        if line_end:
            yield rest + lines + line_end
            rest = last
        else:
            rest += read
        if bounds is not None:
            bounds.check_line(len(rest))
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"


def _parse_items(block: bytes, first_line: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many different items each line has, and the items, ascending within each line."""
    counts, items = array("q"), array("q")
    for number, line in enumerate(block[:-1].split(b"\n"), first_line):
        if not line:  # a file may hold millions of these
            counts.append(0)
            continue
        words = line.split()
        try:
            if line.translate(None, IN_ITEMS):
                raise ValueError
            row = sorted(set(map(int, words)))
            items.extend(row)
        except (ValueError, OverflowError):
            wrong = (w for w in words if not re.fullmatch(rb"-?\d+", w) or abs(int(w[:30])) > np.iinfo(np.int64).max)
            shown = next(wrong, line)[:60].decode("utf-8", errors="replace")
            raise CellError(
                f"line {number} holds {shown!r}; items must be integers separated by blanks; items with names need a "
                "schema, which `felb schema infer` proposes",
                place=f"line {number}",
            ) from None
        counts.append(len(row))
    return np.array(counts, np.int64), np.array(items, np.int64)


DAMAGED = "the file is damaged or incomplete"


def read_npy(path: Path, bounds: Bounds, options: ReadOptions) -> Generator[Table]:
    """Read a dense array, mapped, so that only the block of rows that is being looked at takes memory."""
    with open_regular(path) as file:
        if file.read(6) != b"\x93NUMPY":
            raise InputError("the file is no NumPy array; write it again with numpy.save")
    values = np.load(path, mmap_mode="r", allow_pickle=False)
    if values.ndim == 2:
        bounds.check_shape(*values.shape)
    yield from map(Table, convert_dense(values, binarize_threshold=options.binarize_threshold, missing=options.missing))


def read_npz(path: Path, bounds: Bounds, options: ReadOptions) -> Generator[Table]:
    """Read a sparse matrix as `scipy.sparse.save_npz` writes it; one in CSR form is unpacked and mapped."""
    threshold = options.binarize_threshold
    with open_regular(path) as file, tempfile.TemporaryDirectory(prefix="felb-", ignore_cleanup_errors=True) as folder:
        archive, form, shape = _open_npz(file, bounds)
        columns = read_names_beside(path, shape[1])
        if form == "csr":
            names = [f"{name}.npy" for name in ("data", "indices", "indptr")]
            archive.extractall(folder, names)
            parts = {Path(name).stem: np.load(Path(folder, name), mmap_mode="r", allow_pickle=False) for name in names}
            yield from map(Table, convert_csr(parts, shape, columns=columns, binarize_threshold=threshold))
        else:
            matrix = _load_npz(file)
            check_sparse(threshold, matrix.dtype, matrix.ndim)
            yield Table(from_csr(to_checked_csr(matrix), columns=columns, binarize_threshold=threshold))


def read_sparse(path: Path) -> Any:
    """Read a small sparse matrix as a whole, in CSR form; damage is an `InputError` that does not name the file."""
    try:
        with open_regular(path) as file:
            _open_npz(file, Limits(max_expansion=1100).of(path.stat().st_size))
            return to_checked_csr(_load_npz(file))
    except InputError:
        raise
    except Exception as error:  # what the readers of ZIP and NumPy raise on damage is nearly anything
        raise InputError(f"{DAMAGED} ({shortened(error)})") from error


def _open_npz(file: IO[bytes], bounds: Bounds) -> tuple[zipfile.ZipFile, str, tuple[int, int]]:
    """Return an archive that unpacks to no more than it may, and the format and shape of the matrix in it."""
    if not zipfile.is_zipfile(file):
        raise InputError("the file is incomplete or no NumPy archive; write it again with scipy.sparse.save_npz")
    archive = zipfile.ZipFile(file)
    held = [name.removesuffix(".npy") for name in archive.namelist()]
    if "format" not in held:
        raise InputError(
            f"the file holds {', '.join(held[:10]) or 'nothing'}, but no SciPy sparse matrix; write it with "
            "scipy.sparse.save_npz, or one array with numpy.save to .npy"
        )
    bounds.check_bytes(sum(part.file_size for part in archive.infolist()))
    with archive.open("format.npy") as part:
        word = np.lib.format.read_array(part, allow_pickle=False).astype(str).item()
    with archive.open("shape.npy") as part:
        shape = np.lib.format.read_array(part, allow_pickle=False)
    if shape.shape != (2,) or shape.dtype.kind not in "ui" or shape.min() < 0:
        raise InputError(f"expected 2D data (records x features), got a shape of {shape.tolist()[:5]}")
    bounds.check_shape(*shape.tolist())
    return archive, word, (int(shape[0]), int(shape[1]))


def _load_npz(file: IO[bytes]) -> Any:
    """Load a matrix of any format; NumPy's room for what an array announces costs nothing until it is filled."""
    import scipy.sparse as sp

    file.seek(0)
    return sp.load_npz(file)


PROGRAM = Path(__file__).with_name("isolated_reader.py")
PATIENCE = 60.0
"""Seconds by the clock that a file may take, beside those that its size adds. Where the system can limit the processor
time of the other process, it ends earlier."""


class IsolatedReader:
    """A process that reads files; it is started when it is needed, and again when a file has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def read(self, path: Path, file_format: str, **given: Any) -> dict[str, Any]:
        """Return what a file announces; raise if reading it ends the process, takes too much memory or does not end."""
        request = {"path": str(path.absolute()), "format": file_format, **given}
        with self._lock:
            line = self._ask(json.dumps(request), PATIENCE + path.stat().st_size / BYTES_A_SECOND)
        if line is None:
            raise InputError(f"{path}: {DAMAGED}: a process that read it was ended by it; write it again")
        answer: dict[str, Any] = json.loads(line)
        if "damaged" in answer:
            raise InputError(f"{path}: {DAMAGED}, or of another format ({answer['damaged']}); write it again")
        if "refused" in answer:
            raise InputError(answer["refused"])
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, request: str, seconds: float) -> str | None:
        """Return the answer to a request, None if there was none."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                env={**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"},
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(f"{request}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if not answer.endswith("\n"):
            self.close()
            return None
        return answer


_isolated = IsolatedReader()
atexit.register(_isolated.close)


def read_isolated(path: Path, bounds: Bounds, options: ReadOptions, file_format: str) -> Generator[Table]:
    """Have another process write the only matrix of a MATLAB or MatrixMarket file as plain arrays, and map them."""
    with open_regular(path) as file:
        head = file.read(20)
    if file_format == "mat" and (head.startswith(b"\x89HDF") or b"MATLAB 7.3" in head):
        raise InputError("the file is of version 7.3 (HDF5), which is not read; save it with save('data.mat', '-v7')")
    threshold = options.binarize_threshold
    with tempfile.TemporaryDirectory(prefix="felb-", ignore_cleanup_errors=True) as folder:
        given = {"folder": folder, "rows": bounds.rows, "columns": bounds.columns, "bytes": bounds.bytes}
        announced = _isolated.read(path, file_format, **given)
        bounds.check_shape(*announced["shape"])
        bounds.check_bytes(announced["bytes"])
        parts = {file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in Path(folder).iterdir()}
        columns = read_names_beside(path, announced["shape"][1]) if file_format == "mat" else None
        if "dense" in parts:
            blocks = convert_dense(
                parts["dense"], columns=columns, binarize_threshold=threshold, missing=options.missing
            )
        else:
            blocks = convert_csr(parts, tuple(announced["shape"]), columns=columns, binarize_threshold=threshold)
        yield from map(Table, blocks)


def open_anndata(path: Path, bounds: Bounds | None = None) -> Any:
    """Open an ``.h5ad`` file whose `X` stays on disk, after another process could read it; who opens it closes it."""
    try:
        import anndata
    except ImportError as error:
        missing_extra("reading .h5ad files", "anndata", error)
    _isolated.read(path, "hdf5")
    if bounds is not None:
        _check_announced(path, bounds)
    try:
        return anndata.read_h5ad(path, backed="r")
    except Exception as error:  # what the readers of HDF5 raise on damage is nearly anything
        raise InputError(
            f"{path}: the file is damaged or no AnnData file ({shortened(error)}); write it again"
        ) from error


def read_h5ad(path: Path, bounds: Bounds, options: ReadOptions) -> Generator[Table]:
    """Read `X` of AnnData with its names; the client of each row is a column of `obs`.

    If only some of the variables are asked for, `X` is read as a whole.
    """
    data = open_anndata(path, bounds)
    try:
        found = find_text_columns(options, [str(name) for name in data.obs.columns])
        texts = {
            part: RowTexts(part, str(data.obs.columns[at])).read_all(to_objects(data.obs.iloc[:, at]))
            for part, at in found.items()
        }
        texts = {"rows": tuple(map(str, data.obs_names)), **texts}
        first = 0
        kept, ignored = split_columns([str(name) for name in data.var_names], options.columns, texts={})
        chosen = data[:, kept] if ignored else data
        for matrix in convert_anndata(chosen, binarize_threshold=options.binarize_threshold, missing=options.missing):
            at = slice(first, first + len(matrix))
            given: dict[str, Any] = {part: values[at] for part, values in texts.items()}
            yield Table(matrix, ignored=ignored, **given)
            first += len(matrix)
    finally:
        data.file.close()


def to_objects(column: Any) -> NDArray[Any]:
    """Return a column of annotations as Python's values, None where it has none."""
    return np.asarray(column.astype(object).where(column.notna(), None), dtype=object)


def _check_announced(path: Path, bounds: Bounds) -> None:
    """Raise if the arrays of the file, written or not, are larger than the file may unpack to, or lie elsewhere."""
    import h5py

    announced = 0

    def visit(name: str, item: Any) -> None:
        nonlocal announced
        if isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                raise InputError(f"{name[:60]} is stored in another file; copy it into this one")
            announced += item.size * item.dtype.itemsize if item.shape is not None else 0

    with h5py.File(os.fspath(path), "r") as file:
        file.visititems(visit)
        X = file.get("X")
        if isinstance(X, h5py.Dataset) and X.ndim == 2:
            bounds.check_shape(*X.shape)
        elif isinstance(X, h5py.Group) and "shape" in X.attrs and len(X.attrs["shape"]) == 2:
            bounds.check_shape(*(int(size) for size in X.attrs["shape"]))
    bounds.check_bytes(announced)


BATCH_CELLS = 1 << 22
"""Cells that are decoded at once."""

MOST_NAMES = 1 << 20
"""Different client labels, or spellings of cells, in one part of a file."""


def read_parquet(path: Path, bounds: Bounds, options: ReadOptions) -> Generator[Table]:
    """Read a Parquet file; what it announces is compared with the bounds before anything is decoded.

    Text stays coded by its dictionary, so that a long text that stands in every row is held once.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        missing_extra("reading .parquet files", "parquet", error)
    announced = pq.read_metadata(path)
    bounds.check_shape(announced.num_rows, announced.num_columns)
    bounds.check_bytes(sum(max(0, announced.row_group(i).total_byte_size) for i in range(announced.num_row_groups)))
    texts = [field.name for field in announced.schema.to_arrow_schema() if _is_text(pa, field.type)]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        schema = file.schema_arrow
        texts_at = find_text_columns(options, schema.names)
        # pandas stores the row labels of a frame among its columns.
        index = {name for name in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)}
        kept, left_out = split_columns(schema.names, options.columns, texts=texts_at)
        kept = [i for i in kept if schema.names[i] not in index]
        ignored = tuple(name for name in left_out if name not in index)
        names = check_column_names([schema.names[i] for i in kept], len(kept))
        for i in kept:
            if pa.types.is_nested(schema.field(i).type):
                raise InputError(f"column {schema.names[i][:60]!r} holds lists or tables, not 0/1 cells")
        yield Table(from_columns([np.zeros(0, np.int64)] * len(kept), 0, columns=names), ignored=ignored)  # perhaps all
        first_row = 0
        wanted = [schema.names[i] for i in sorted({*kept, *texts_at.values()})]
        readers = [(part, schema.names[at], RowTexts(part, schema.names[at])) for part, at in texts_at.items()]
        size = max(1, BATCH_CELLS // max(1, len(schema.names)))
        for batch in file.iter_batches(batch_size=size, columns=wanted):
            given: dict[str, Any] = {
                part: texts_of.read_all(_values(batch.column(name)), first_row) for part, name, texts_of in readers
            }
            matrix = from_values(
                (_values(batch.column(schema.names[i])) for i in kept),
                batch.num_rows,
                names,
                binarize_threshold=options.binarize_threshold,
                missing=options.missing,
                first_row=first_row,
            )
            yield Table(matrix, ignored=ignored, **given)
            first_row += batch.num_rows


def _values(column: Any) -> NDArray[Any]:
    """Return a column as an array; one that is coded by a dictionary refers to its entries without copying them."""
    if not hasattr(column, "dictionary"):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if len(column.dictionary) > MOST_NAMES:
        raise InputError(f"a column of text holds more than {MOST_NAMES} different texts; felb wants 0/1 data")
    entries = np.array([*column.dictionary.to_pylist(), None], dtype=object)
    return entries[
        np.asarray(column.indices.fill_null(len(entries) - 1).to_numpy(zero_copy_only=False), dtype=np.int64)
    ]


def _is_text(pa: Any, kind: Any) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)
