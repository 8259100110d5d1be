"""Text formats: tables of cells (CSV, TSV), lists of items (FIMI), MatrixMarket."""

from __future__ import annotations

import csv
import io
import itertools
import math
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from felb.data.binary import MISSING, NOT_BINARY, SAY_MISSING, BinaryMatrix, check_column_names, where_one
from felb.data.tabular import Bounds, RowSorter, Table, find_client_column, open_bounded, split_columns
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


# -- Text into a `BinaryMatrix`, as a stream: tables of cells (CSV, TSV) and lists of items (FIMI) -------------------
#
# Only the ones are kept; the text itself is held a block at a time. Messages say the line, not the file, which the
# caller knows.

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


# -- MatrixMarket files into a `BinaryMatrix`, as a stream and with the line number of whatever is wrong -------------
#
# SciPy's reader ends the whole process on some damaged files, hence this one. The format: a banner line, comments that
# begin with ``%``, a line of sizes, then one entry a line: ``row column value`` (``coordinate``, counted from 1) or
# all values column by column (``array``).

FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")

LONGEST_LINE = 1 << 16
"""A banner, comment or size line longer than this means that the file is something else."""


class _Header(NamedTuple):
    n_rows: int
    n_columns: int
    n_entries: int
    coordinate: bool
    pattern: bool
    symmetric: bool
    first_line: int

    @property
    def words(self) -> int:
        """Words on the line of an entry."""
        return 1 if not self.coordinate else 2 if self.pattern else 3


def matrix_market_blocks(
    path: Path, *, bounds: Bounds, binarize_threshold: float | None = None, spill: Path | None = None
) -> Iterator[BinaryMatrix]:
    """Read a matrix of numbers or a pattern, general or symmetric; an entry that is given twice counts once.

    Entries come in any order. To bring them into that of rows, they wait in memory, or in files in the folder `spill`.
    """
    with ExitStack() as stack:
        file = stack.enter_context(open_bounded(path, bounds))
        header = _read_header(file)
        bounds.check_shape(header.n_rows, header.n_columns)
        _check_threshold(binarize_threshold, header)
        n_entries = header.n_entries * (2 if header.symmetric else 1)
        sorter = stack.enter_context(RowSorter((header.n_rows, header.n_columns), n_entries, spill=spill))
        line, n_read = header.first_line, 0
        for block in line_blocks(file, bounds):
            entries = _Entries(block, header, first_line=line, n_before=n_read)
            ones = entries.ones(binarize_threshold)
            sorter.add(entries.rows[ones], entries.columns[ones])
            if header.symmetric:
                sorter.add(entries.columns[ones], entries.rows[ones])
            line += block.count(b"\n")
            n_read += entries.rows.size
        if n_read != header.n_entries:
            raise InputError(f"the file is incomplete: {n_read} entries instead of {header.n_entries}; write it again")
        yield from sorter.blocks()


class _Entries:
    """The entries of a block of lines: rows and columns from 0, the line of each, and the values unless a pattern."""

    def __init__(self, block: bytes, header: _Header, *, first_line: int, n_before: int) -> None:
        self._block, self._first_line, self._header = block, first_line, header
        words = block.split()
        lines = line_of_each_word(block)
        per_line = np.bincount(lines, minlength=1)
        if b"_" in block or np.any((per_line != 0) & (per_line != header.words)):  # Python reads 1_0 as ten
            self._refuse()
        self.lines = lines[:: header.words] + first_line
        if n_before + self.lines.size > header.n_entries:
            line = self.lines[header.n_entries - n_before]
            raise InputError(f"line {line} is one more than the {header.n_entries} entries that were announced")
        self.values = None if header.pattern else self._numbers(words[header.words - 1 :: header.words], float)
        if header.coordinate:
            self.rows = self._numbers(words[0 :: header.words], int) - 1
            self.columns = self._numbers(words[1 :: header.words], int) - 1
        else:
            self.rows, self.columns = _cells_in_order(np.arange(n_before, n_before + self.lines.size), header)
        outside = (self.rows < 0) | (self.rows >= header.n_rows)
        outside |= (self.columns < 0) | (self.columns >= header.n_columns)
        if outside.any():
            k = int(np.argmax(outside))
            raise InputError(
                f"line {self.lines[k]} names row {self.rows[k] + 1} and column {self.columns[k] + 1}, "
                f"but the matrix is {header.n_rows} x {header.n_columns}, counted from 1"
            )

    def ones(self, threshold: float | None) -> NDArray[np.bool_]:
        if self.values is None:
            return np.ones(self.rows.size, dtype=bool)
        return where_one(self.values, threshold, locate=self._locate)

    def _locate(self, position: tuple[int, ...]) -> str:
        k = position[0]
        return f"row {self.rows[k]} (line {self.lines[k]}), column {self.columns[k]}"

    def _numbers(self, words: Sequence[bytes], kind: type[int] | type[float]) -> NDArray[Any]:
        try:
            return np.array(list(map(kind, words)), dtype=np.int64 if kind is int else np.float64)
        except (ValueError, OverflowError):
            self._refuse()

    def _refuse(self) -> NoReturn:
        """Raise for the first line that is not an entry."""
        wanted = {1: "a value", 2: "row and column", 3: "row, column and value"}[self._header.words]
        for line, text in enumerate(self._block.split(b"\n"), self._first_line):
            if text.strip() and not self._is_entry(text.split()):
                shown = text[:60].decode("utf-8", errors="replace").strip()
                raise InputError(f"line {line} holds {shown!r}; expected {wanted}")
        raise InputError(f"lines from {self._first_line} on cannot be read; expected {wanted} on each")

    def _is_entry(self, words: list[bytes]) -> bool:
        places = 2 if self._header.coordinate else 0
        try:
            np.array([int(word) for word in words[:places]], dtype=np.int64)
            np.array([float(word) for word in words[places:]])
        except (ValueError, OverflowError):
            return False
        return len(words) == self._header.words and not any(b"_" in word for word in words)


def _cells_in_order(numbers: NDArray[np.int64], header: _Header) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (rows, columns) of the values of an array: column by column, of a symmetric one from the diagonal down."""
    if not header.symmetric:
        return numbers % header.n_rows, numbers // header.n_rows
    lengths = np.arange(header.n_rows, 0, -1)
    starts = np.cumsum(lengths) - lengths
    columns = np.searchsorted(starts, numbers, side="right") - 1
    return numbers - starts[columns] + columns, columns


def _check_threshold(threshold: float | None, header: _Header) -> None:
    if threshold is None:
        return
    if header.pattern and not 0 <= threshold < 1:
        raise InputError(
            f"binarize_threshold={threshold} makes all cells of 0/1 data equal; omit it", parameter="binarize_threshold"
        )
    if header.coordinate and threshold < 0:
        raise InputError(
            f"binarize_threshold={threshold} would turn every zero of sparse data into a one",
            parameter="binarize_threshold",
        )


def _read_header(file: IO[bytes]) -> _Header:
    banner = file.readline(LONGEST_LINE).decode("utf-8", errors="replace").lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"] or banner[2] not in ("coordinate", "array"):
        raise InputError("line 1 is not the banner of a MatrixMarket matrix (%%MatrixMarket matrix coordinate ...)")
    layout, field, symmetry = banner[2:]
    if field not in FIELDS or (layout == "array" and field == "pattern"):
        raise InputError(
            f"line 1 announces {field} values ({layout}); felb reads real, integer and sparse pattern data"
        )
    if symmetry not in ("general", "symmetric"):
        raise InputError(f"line 1 announces a {symmetry} matrix; write it as general 0/1 data")
    line, text = 2, file.readline(LONGEST_LINE)
    while text.startswith(b"%") or (text and not text.strip()):
        line, text = line + 1, file.readline(LONGEST_LINE)
    coordinate = layout == "coordinate"
    words = text.split()
    if len(words) != (3 if coordinate else 2) or not all(word.isdigit() and len(word) < 19 for word in words):
        wanted = "rows, columns and entries" if coordinate else "rows and columns"
        raise InputError(f"line {line} does not give the numbers of {wanted}; the file is damaged or incomplete")
    n, m = int(words[0]), int(words[1])
    if symmetry == "symmetric" and n != m:
        raise InputError(f"line {line} gives {n} rows and {m} columns for a symmetric matrix; they must be equal")
    in_array = n * (n + 1) // 2 if symmetry == "symmetric" else n * m
    entries = int(words[2]) if coordinate else in_array
    return _Header(n, m, entries, coordinate, field == "pattern", symmetry == "symmetric", line + 1)
