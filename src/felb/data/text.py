"""Text into a `BinaryMatrix`, as a stream: tables of cells (CSV, TSV) and lists of items (FIMI).

Only the ones are kept; the text itself is held a block at a time. Messages say the line, not the file, which the caller
knows.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from typing import IO, TYPE_CHECKING, Any, NoReturn

import numpy as np

from felb.data.binary import BinaryMatrix, check_column_names
from felb.data.cells import MISSING, NOT_BINARY, SAY_MISSING
from felb.data.limits import Bounds, open_bounded
from felb.data.table import Table, find_client_column, split_columns
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

BLOCK_CELLS = 1 << 22
"""Cells of a table that are held before their ones are taken out."""

BLOCK_BYTES = 1 << 22
"""Bytes of item lists that are read at once."""

REMEMBERED_CELLS = 1 << 16
"""Spellings of cells whose meaning is remembered; measurements may have as many spellings as cells."""

MISSING_WORDS = frozenset({"", "?", "n/a", "na", "nan", "none", "null"})
"""What files write where a value is missing, in lower case."""

MOST_EMPTY_LINES = 100_000
"""At the end of a table."""

UNKNOWN = 2
"""Stands for an unknown cell among zeros and ones."""

BLANKS = b" \t\r\n\v\f"
_IS_BLANK = np.isin(np.arange(256), list(BLANKS))


def table_blocks(
    path: Path,
    delimiter: str,
    *,
    bounds: Bounds,
    client_column: str | None = None,
    header: bool | None = None,
    binarize_threshold: float | None = None,
    missing: str = "error",
    columns: Collection[str] | None = None,
) -> Iterator[Table]:
    """Read a table with one record a line; yield blocks of rows and, if requested, the client of each row.

    With `columns`, columns of other names are left out, whatever they hold; a table without names is read as a whole.

    A cell is a number, or true/false in any case. Blanks around cells and names do not count, nor do empty lines at
    the end. Without `header`, the first line is one if any of its cells is neither a number nor a word for a missing
    value; an empty cell counts as a name there, since tables with row numbers begin so. Where cells may be missing
    (`missing` is not "error"), a first line of numbers and empty cells could be either, and is refused.
    """
    # utf-8-sig drops the byte order mark that spreadsheets write; csv wants the line ends untouched.
    with io.TextIOWrapper(open_bounded(path, bounds), encoding="utf-8-sig", newline="") as file:
        records = _records(file, delimiter, bounds)
        first = next(records, None)
        if first is None:
            raise InputError("the file is empty; it needs one line per record")
        width = len(first[1])
        bounds.check_shape(0, width)
        named = header if header is not None else any(_is_name(cell) for cell in first[1])
        if (
            named
            and header is None
            and missing != "error"
            and not any(cell.strip() and _is_name(cell) for cell in first[1])
        ):
            raise InputError(
                "line 1 holds numbers and empty cells; set header to true if they are column names, to false if the "
                "line is a record",
                parameter="header",
            )
        names = _header_names(first[1], header) if named else None
        client = None if client_column is None else find_client_column(client_column, names)
        kept, ignored = split_columns(names or width, columns, without=client)
        features = None if names is None else [names[i] for i in kept]
        rows = _Rows(len(kept), features, _Meanings(binarize_threshold, missing))
        rows.advice = "" if named or header is False else "; set header to true if the first line holds column names"
        clients: list[str] = []
        known: dict[str, str] = {}
        for line, cells in records if named else itertools.chain([first], records):
            if len(cells) != width:
                raise InputError(
                    f"line {line} has {len(cells)} cells, but {width} were expected as in the first line; "
                    f"check for missing or unquoted separators ({delimiter!r})"
                )
            if client is not None:
                label = cells[client].strip()
                if not label:
                    raise InputError(f"line {line} has no client in column {client_column!r}; fill it")
                clients.append(known.setdefault(label, label))  # one string per client, not per row
            rows.add(cells if len(kept) == width else [cells[i] for i in kept], line)
            if rows.full:
                yield Table(rows.take(), None if client is None else tuple(clients), ignored=ignored)
                clients = []
    if not rows.n_rows:
        raise InputError("the file holds no rows, only column names; it needs one line per record")
    yield Table(rows.take(), None if client is None else tuple(clients), ignored=ignored)


def item_blocks(path: Path, *, bounds: Bounds, hold: bool) -> Iterator[BinaryMatrix]:
    """Read item lists, one record a line: integers separated by blanks; an empty line is a record without items.

    The columns are the items in ascending order, named by their numbers. To know them all, the file is read twice,
    unless its content is held in memory.
    """
    lists: Iterable[tuple[NDArray[np.int64], NDArray[Any]]] = _ItemLists(path, bounds)
    if hold:
        lists = list(lists)
    names = np.zeros(0, np.int64)
    for _, items in lists:
        names = np.union1d(names, items)
        bounds.check_shape(0, names.size)
    if not names.size:
        raise InputError("the file holds no items; it needs one line per record: integers separated by blanks")
    columns = tuple(str(name) for name in names)
    for counts, items in lists:
        indices = np.searchsorted(names, items)
        if not np.array_equal(names[np.minimum(indices, names.size - 1)], items):
            raise InputError("the file has changed while it was read; read it again")
        yield BinaryMatrix(np.concatenate([[0], np.cumsum(counts)]), indices, names.size, columns)


def line_blocks(file: IO[bytes], bounds: Bounds | None = None) -> Iterator[bytes]:
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


def line_of_each_word(block: bytes) -> NDArray[np.int64]:
    """Return for each word of `block`, as `bytes.split` finds them, the line it stands in, counted from 0."""
    characters = np.frombuffer(block, dtype=np.uint8)
    blank = _IS_BLANK[characters]
    starts = ~blank
    starts[1:] &= blank[:-1]
    return np.searchsorted(np.flatnonzero(characters == ord("\n")), np.flatnonzero(starts))


# -- tables ----------------------------------------------------------------------------------------------------


def _lines(file: IO[str], bounds: Bounds) -> Iterator[str]:
    while line := file.readline(bounds.line + 1):
        bounds.check_line(len(line))
        yield line


def _records(file: IO[str], delimiter: str, bounds: Bounds) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its first line, cells) of every record; empty lines may only stand at the end."""
    reader = csv.reader(_lines(file, bounds), delimiter=delimiter, strict=True)
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
    names = [cell.strip() for cell in cells]
    try:
        return check_column_names(names, len(names)) or ()
    except InputError as error:
        advice = "" if header else "; if the first line is a record, set header to false"
        raise InputError(f"line 1, read as column names: {error}{advice}", parameter="header") from error


class _Rows:
    """Takes the cells of one record after the other and gives their ones, a block of rows at a time."""

    def __init__(self, n_columns: int, columns: Sequence[str] | None, meanings: _Meanings) -> None:
        if n_columns < 1:
            raise InputError("the file has no columns besides the client column; it needs 0/1 columns")
        self.advice = ""
        self._n_columns, self._columns = n_columns, columns
        self._meanings = meanings
        self._block, self.n_rows = bytearray(), 0

    def add(self, cells: list[str], line: int) -> None:
        try:
            self._block += bytes(map(self._meanings.__getitem__, cells))
        except _UnclearError:
            raise self._unclear(cells, line) from None
        self.n_rows += 1

    @property
    def full(self) -> bool:
        return len(self._block) >= BLOCK_CELLS

    def take(self) -> BinaryMatrix:
        cells = np.frombuffer(self._block, dtype=np.uint8).reshape(-1, self._n_columns)
        self._block = bytearray()
        matrix = BinaryMatrix.of(cells == 1, columns=self._columns)
        unknown = cells == UNKNOWN
        return matrix.with_unknown(unknown) if unknown.any() else matrix

    def _unclear(self, cells: list[str], line: int) -> InputError:
        """Return the error for the first of the cells that is not 0 or 1."""
        column = next(i for i, cell in enumerate(cells) if self._meanings.is_unclear(cell))
        cell = cells[column].strip()
        name = f" ({self._columns[column]!r})" if self._columns is not None else ""
        where = f"row {self.n_rows} (line {line}), column {column}{name}"
        advice = self.advice if self.n_rows == 0 else ""
        if cell.lower() in MISSING_WORDS:
            return InputError(f"{where} {MISSING}{SAY_MISSING}{advice}", parameter="missing")
        number = _number(cell)
        if number is not None and math.isinf(number):
            return InputError(f"{where} is infinite (inf); clip it, felb does not guess{advice}")
        if number is not None:
            return InputError(f"{where} holds {cell}; {NOT_BINARY}{advice}", parameter="binarize_threshold")
        if len(cells) == 1 and any(mark in cell for mark in ";,\t|"):
            advice = "; .csv files are separated by commas and .tsv files by tabs"
        else:
            advice += "; a raw table needs a schema, which `felb schema infer` proposes"
        shown = cell if len(cell) <= 60 else cell[:60] + "..."
        return InputError(f"{where} holds {shown!r}, which is not a number; values must be 0 or 1{advice}")


class _UnclearError(Exception):
    """A cell is neither 0 nor 1."""


class _Meanings(dict[str, int]):
    """Cell text to 0, 1 or UNKNOWN, worked out once per spelling, since a table of ones and zeros has very few."""

    def __init__(self, threshold: float | None, missing: str) -> None:
        super().__init__()
        self._threshold = threshold
        self._absent = {"error": None, "zero": 0, "unknown": UNKNOWN}[missing]

    def __missing__(self, text: str) -> int:
        number = _number(text)
        meaning: int | None = None
        if text.strip().lower() in MISSING_WORDS or (number is not None and math.isnan(number)):
            meaning = self._absent
        elif number is not None and not math.isinf(number) and (self._threshold is not None or number in (0, 1)):
            meaning = int(number == 1 if self._threshold is None else number > self._threshold)
        if meaning is None:
            raise _UnclearError
        if len(self) >= REMEMBERED_CELLS:
            self.clear()
        self[text] = meaning
        return meaning

    def is_unclear(self, text: str) -> bool:
        try:
            self[text]
        except _UnclearError:
            return True
        return False


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


# -- lists of items --------------------------------------------------------------------------------------------


class _ItemLists:
    """The item lists of a file, block by block: how many items each line has, and the items; read at every turn."""

    def __init__(self, path: Path, bounds: Bounds) -> None:
        self._path, self._bounds = path, bounds

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        n_lines = 0
        with open_bounded(self._path, self._bounds) as file:
            for block in line_blocks(file, self._bounds):
                counts, items = _parse_items(block, n_lines + 1)
                n_lines += counts.size
                self._bounds.check_shape(n_lines, 0)
                yield counts, items


def _parse_items(block: bytes, first_line: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return how many different items each line has, and the items, ascending within each line."""
    if block.translate(None, b"0123456789-" + BLANKS):
        _refuse_items(block, first_line)
    try:
        items = np.array(list(map(int, block.split())), dtype=np.int64)
    except (ValueError, OverflowError):
        _refuse_items(block, first_line)
    lines = line_of_each_word(block)
    order = np.lexsort((items, lines))
    lines, items = lines[order], items[order]
    fresh = np.ones(items.size, dtype=bool)
    fresh[1:] = (lines[1:] != lines[:-1]) | (items[1:] != items[:-1])
    counts = np.bincount(lines[fresh], minlength=block.count(b"\n")).astype(np.int64)
    items = items[fresh]
    narrow = items.size == 0 or (items.min() >= np.iinfo(np.int32).min and items.max() <= np.iinfo(np.int32).max)
    return counts, items.astype(np.int32) if narrow else items


def _refuse_items(block: bytes, first_line: int) -> NoReturn:
    """Raise for the first item of `block` that is not an integer of ordinary size."""
    for line, text in enumerate(block.split(b"\n"), first_line):
        for item in text.split():
            if not item.removeprefix(b"-").isdigit() or abs(int(item[:30])) > np.iinfo(np.int64).max:
                shown = item[:60].decode("utf-8", errors="replace")
                raise InputError(
                    f"line {line} holds {shown!r}; items must be integers separated by blanks; items with names need a "
                    "schema, which `felb schema infer` proposes"
                )
    raise InputError(f"lines from {first_line} on cannot be read; items must be integers separated by blanks")
