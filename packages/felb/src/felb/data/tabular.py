"""What a data file holds, block of rows after block of rows, and how much it may ask for."""

from __future__ import annotations

import gzip
import io
import math
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from typing import IO, TYPE_CHECKING, Any, Self, cast

import numpy as np

from felb.data.binary import BinaryMatrix, check_column_names
from felb.errors import InputError
from felb.records import open_regular, read_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from felb.tables.apply import Applied


# -- How much a file may ask for: limits that keep memory in proportion to what is really there ----------------------
#
# A few bytes can announce a billion rows, and a small packed file can hold one line of a gigabyte. A reader compares
# what a file announces, and what it has unpacked so far, with these limits before it makes room for it.

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
            number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
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


def open_bounded(path: Path, bounds: Bounds) -> IO[bytes]:
    """Open a regular file for reading, unpacked if its name ends in .gz and up to as many bytes as it may have."""
    file = open_regular(path)
    if path.suffix.lower() != ".gz":
        return file
    unpacked = cast("io.RawIOBase", gzip.GzipFile(fileobj=file))
    return io.BufferedReader(_Counted(file, unpacked, bounds), 1 << 16)


class _Counted(io.RawIOBase):
    """Reads what another file unpacks, and counts it."""

    def __init__(self, packed: IO[bytes], unpacked: io.RawIOBase, bounds: Bounds) -> None:
        self._packed, self._unpacked, self._bounds = packed, unpacked, bounds
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        content = self._unpacked.read(len(buffer)) or b""
        self._count += len(content)
        self._bounds.check_bytes(self._count)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._unpacked.close()
            self._packed.close()
        super().close()


# -- What a data file holds, as a whole or block of rows after block of rows -----------------------------------------
#
# Some of its columns may be left out, one may say to which client a row belongs, and files beside it may add column
# names and a missing mask.

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
    """

    matrix: BinaryMatrix
    clients: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = field(default=None, repr=False)
    applied: Applied | None = None
    ignored: tuple[str, ...] = ()


def marked(tables: Iterable[Table], marks: BinaryMatrix, name: str) -> Iterator[Table]:
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


def names_beside(source: Path, n_columns: int) -> tuple[str, ...] | None:
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


def find_client_column(name: str, columns: Sequence[str] | None) -> int:
    """Return where the column that names each row's client stands, or raise and say which columns there are."""
    if columns is None:
        raise InputError(
            f"client_column={name!r} needs column names, but the file has no header line", parameter="client_column"
        )
    if name not in columns:
        shown = ", ".join(repr(column) for column in columns[:10])
        more = f" and {len(columns) - 10} more" if len(columns) > 10 else ""
        raise InputError(
            f"client_column={name!r} is not a column; the columns are {shown or 'none'}{more}",
            parameter="client_column",
        )
    return list(columns).index(name)


def client_labels(values: Iterable[Any], first_row: int) -> list[str]:
    """Return the values as text, one string per client; a missing one is an error."""
    known: dict[str, str] = {}
    labels = []
    for row, value in enumerate(values, first_row):
        if value is None or value != value or value == "":
            raise InputError(f"row {row} has no client in the client column; fill it")
        text = str(value)
        labels.append(known.setdefault(text, text))
    return labels


def split_columns(
    names: Sequence[str] | int, wanted: Collection[str] | None, *, without: int | None = None
) -> tuple[list[int], tuple[str, ...]]:
    """Return the numbers of the columns to read, and the names of those that are left out because of `wanted`.

    Parameters
    ----------
    names : of all columns, or their number if they have none; then all are read
    wanted : names of the columns to read; None for all
    without : number of a column that is no feature
    """
    if isinstance(names, int) or wanted is None:
        count = names if isinstance(names, int) else len(names)
        return [i for i in range(count) if i != without], ()
    kept = [i for i, name in enumerate(names) if i != without and name in wanted]
    if not kept:
        raise InputError(f"none of the {len(names)} columns is a feature of the model, such as {min(wanted)!r}")
    return kept, tuple(name for i, name in enumerate(names) if i != without and name not in wanted)


# -- Sorts unordered entries into the order of rows, in memory or with temporary files -------------------------------

ENTRIES_AT_A_TIME = 1 << 21
"""Ones that are sorted at once, if the rows have about the same number of them."""

MOST_FILES = 64
"""Some systems let a process have few files open."""


class RowSorter:
    """Takes (row, column) pairs of ones in any order and gives them back as blocks of rows; repeated ones count once.

    Each part of the rows has its own nameless file, so that a part can be sorted in memory when all pairs are there.

    Parameters
    ----------
    shape : of the whole matrix
    n_entries : how many pairs will come at most
    spill : folder for the files; without it, or if the pairs are few, they stay in memory
    """

    def __init__(self, shape: tuple[int, int], n_entries: int, *, spill: Path | None) -> None:
        self._shape, self._spill = shape, spill
        wanted = 1 if spill is None else min(MOST_FILES, -(-n_entries // ENTRIES_AT_A_TIME))
        self._rows_per_part = max(1, -(-shape[0] // max(1, wanted)))
        self._n_parts = max(1, -(-shape[0] // self._rows_per_part))
        self._held: list[NDArray[Any]] = []
        self._files: list[IO[bytes]] = []
        self._stack = ExitStack()
        self._dtype = np.dtype(np.int32 if max(shape) <= np.iinfo(np.int32).max else np.int64)

    def __enter__(self) -> Self:
        if self._n_parts > 1:
            with ExitStack() as stack:
                for _ in range(self._n_parts):
                    self._files.append(stack.enter_context(tempfile.TemporaryFile(dir=self._spill)))
                self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def add(self, rows: NDArray[Any], columns: NDArray[Any]) -> None:
        """Take the ones at these places."""
        pairs = np.stack([rows, columns], axis=1).astype(self._dtype)
        if not self._files:
            self._held.append(pairs)
            return
        parts = rows // self._rows_per_part
        order = np.argsort(parts, kind="stable")
        ends = np.cumsum(np.bincount(parts, minlength=self._n_parts))
        for file, part in zip(self._files, np.split(pairs[order], ends[:-1]), strict=True):
            file.write(part.tobytes())

    def blocks(self) -> Iterator[BinaryMatrix]:
        """Yield the rows of the matrix in order, at least one block."""
        for part in range(self._n_parts):
            first = part * self._rows_per_part
            yield self._sorted(self._pairs(part), first, min(self._rows_per_part, self._shape[0] - first))

    def _pairs(self, part: int) -> NDArray[Any]:
        if not self._files:
            return np.concatenate([np.zeros((0, 2), self._dtype), *self._held])
        self._files[part].seek(0)
        return np.frombuffer(self._files[part].read(), dtype=self._dtype).reshape(-1, 2)

    def _sorted(self, pairs: NDArray[Any], first_row: int, n_rows: int) -> BinaryMatrix:
        import scipy.sparse as sp

        m = self._shape[1]
        places = (pairs[:, 0] - first_row, pairs[:, 1])
        # Through Booleans, whose sum is or: any number of repetitions is a one.
        csr = sp.coo_array((np.ones(len(pairs), bool), places), shape=(n_rows, m)).tocsr()
        csr.sum_duplicates()
        return BinaryMatrix(csr.indptr.astype(np.int64), csr.indices, m)
