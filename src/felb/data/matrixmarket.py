"""MatrixMarket files into a `BinaryMatrix`, as a stream and with the line number of whatever is wrong.

SciPy's reader ends the whole process on some damaged files, hence this one. The format: a banner line, comments that
begin with ``%``, a line of sizes, then one entry a line: ``row column value`` (``coordinate``, counted from 1) or
all values column by column (``array``).
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from felb.data.cells import where_one
from felb.data.limits import Bounds, open_bounded
from felb.data.sorting import RowSorter
from felb.data.text import line_blocks, line_of_each_word
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

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
