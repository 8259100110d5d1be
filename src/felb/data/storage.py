"""One file per matrix, made to be memory-mapped.

Layout: the eight bytes ``FELBMAT1``, the length of the header (little-endian uint64), the header (JSON: shape,
number of ones, index type, column names), then `indptr` (int64) and `indices`, each starting at a multiple of 64 bytes.
All numbers are little-endian.

Where cells are unknown, the file begins with ``FELBMAT2``, so that no earlier reader takes them for zeros; the header
also has their number, and their `indptr` and `indices` follow those of the ones.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from felb.atomic import replacing
from felb.data.binary import BinaryMatrix, check_column_names, index_dtype
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from types import TracebackType

    from numpy.typing import NDArray

MAGIC = b"FELBMAT1"
MAGIC_UNKNOWN = b"FELBMAT2"
ALIGNMENT = 64
COPY_BYTES = 1 << 20


class _Header(NamedTuple):
    n_rows: int
    n_columns: int
    nnz: int
    columns: tuple[str, ...] | None
    unknown: int | None = None
    """Number of unknown cells, in files that may have some."""


def save_matrix(matrix: BinaryMatrix, path: str | PathLike[str]) -> None:
    """Write `matrix` to `path`, through a temporary file that is renamed when complete."""
    unknown = matrix.unknown
    header = _Header(*matrix.shape, matrix.nnz, matrix.columns, None if unknown is None else unknown.nnz)
    with _writing(path), replacing(path) as partial, partial.open("wb") as file:
        _write_header(file, header)
        for part in (matrix,) if unknown is None else (matrix, unknown):
            _pad(file)
            file.write((part.indptr - part.indptr[0]).astype("<i8").tobytes())
            _pad(file)
            for block in part.row_blocks(1 << 16):
                _write_ones(file, block)


class MatrixWriter:
    """Writes a matrix block of rows after block of rows, never holding more than a block of ones.

    A context manager: the file appears when the ``with`` block succeeds, complete, or not at all. Until then the ones
    wait in a nameless temporary file in the same folder, which thus needs room for them twice; in memory stay four
    bytes a row. Unknown cells are kept in the same way.

    Parameters
    ----------
    path : file to write, as `BinaryMatrix.open` reads it
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._like: BinaryMatrix | None = None
        self._n_rows = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(number of rows, number of columns) so far."""
        return self._n_rows, 0 if self._like is None else self._like.shape[1]

    @property
    def nnz(self) -> int:
        """Number of ones so far."""
        return self._ones.nnz

    def append(self, block: BinaryMatrix) -> None:
        """Write further rows; all blocks have the columns of the first one."""
        if self._like is None:
            self._like = block.rows(0, 0)
        if block.shape[1] != self.shape[1] or block.columns not in (None, self._like.columns):
            raise InputError(
                f"rows with other columns cannot be appended: {block.shape[1]} columns after {self.shape[1]}, "
                "or columns of other names; bring all blocks to the columns of the first"
            )
        with _writing(self._path):
            self._ones.append(block)
            if block.unknown is not None:
                self._unknown.append(block.unknown, after=self._n_rows)
        self._n_rows += block.shape[0]

    def __enter__(self) -> Self:
        with _writing(self._path):
            if self._path.is_dir():  # better said now than after hours of writing
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._ones, self._unknown = _Waiting(self._path.parent), _Waiting(self._path.parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._ones.file, self._unknown.file:
            if kind is None:
                self._finish()

    def _finish(self) -> None:
        columns = None if self._like is None else self._like.columns
        with _writing(self._path), replacing(self._path) as partial, partial.open("wb") as file:
            _write_header(file, _Header(*self.shape, self.nnz, columns, self._unknown.nnz or None))
            self._ones.move(file, self._n_rows)
            if self._unknown.nnz:
                self._unknown.move(file, self._n_rows)


class _Waiting:
    """The ones of rows, or their unknown cells, that wait in a temporary file until their number is known."""

    def __init__(self, folder: Path) -> None:
        self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed by who made it
        self.nnz = self._n_rows = 0
        self._counts: list[NDArray[np.uint32]] = []

    def append(self, block: BinaryMatrix, *, after: int | None = None) -> None:
        """Take further rows; those up to row `after` that were not given have none."""
        if after is not None:
            self._skip(after)
        _write_ones(self.file, block)
        self._counts.append(block.row_sums().astype(np.uint32))  # a row has less than 2^31 ones
        self._n_rows += block.shape[0]
        self.nnz += block.nnz

    def move(self, file: IO[bytes], n_rows: int) -> None:
        """Write where the rows start, and what waited."""
        self._skip(n_rows)
        _pad(file)
        position = np.zeros(1, dtype="<i8")
        file.write(position.tobytes())
        for counts in self._counts:
            if counts.size:
                ends = position[-1] + np.cumsum(counts, dtype=position.dtype)
                file.write(ends.tobytes())
                position = ends[-1:]
        _pad(file)
        self.file.seek(0)
        shutil.copyfileobj(self.file, file, COPY_BYTES)

    def _skip(self, n_rows: int) -> None:
        if n_rows > self._n_rows:
            self._counts.append(np.zeros(n_rows - self._n_rows, np.uint32))
            self._n_rows = n_rows


def open_matrix(path: str | PathLike[str]) -> BinaryMatrix:
    """Map a file written by `save_matrix`; a truncated or foreign file is refused.

    Where the rows start is read and checked at once; the ones stay on disk and are taken as they are.
    """
    source = Path(path)
    try:
        size = source.stat().st_size
        with source.open("rb") as file:
            magic = file.read(8)
            if magic not in (MAGIC, MAGIC_UNKNOWN):
                raise InputError(f"{source} is not a felb matrix; write one with BinaryMatrix.save()")
            length = int.from_bytes(file.read(8), "little")
            text = file.read(min(length, size))
        header = _parse_header(text, source, some_unknown=magic == MAGIC_UNKNOWN)
        ones = _Place.after(16 + length, header, header.nnz)
        unknown = None if header.unknown is None else _Place.after(ones.end, header, header.unknown)
        expected = ones.end if unknown is None else unknown.end
        if size != expected:
            raise InputError(f"{source} is truncated or damaged: {size} bytes instead of {expected}; write it again")
        matrix = BinaryMatrix(*_map(source, header, ones), header.n_columns, header.columns)
        if unknown is None:
            return matrix
        cells = BinaryMatrix(*_map(source, header, unknown), header.n_columns)
        return matrix._with_rows(matrix.indptr, matrix.indices, cells)
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}") from error


class _Place(NamedTuple):
    """Where the ones of a matrix, or its unknown cells, stand in a file."""

    at_indptr: int
    at_indices: int
    nnz: int
    end: int

    @classmethod
    def after(cls, position: int, header: _Header, nnz: int) -> _Place:
        at_indptr = _aligned(position)
        at_indices = _aligned(at_indptr + 8 * (header.n_rows + 1))
        return cls(at_indptr, at_indices, nnz, at_indices + index_dtype(header.n_columns).itemsize * nnz)


def _map(source: Path, header: _Header, place: _Place) -> tuple[NDArray[np.int64], NDArray[Any]]:
    dtype = index_dtype(header.n_columns).newbyteorder("<")
    indptr = np.fromfile(source, dtype="<i8", count=header.n_rows + 1, offset=place.at_indptr)
    indices: NDArray[Any] = np.zeros(0, dtype)
    if place.nnz:
        indices = np.memmap(source, dtype=dtype, mode="r", offset=place.at_indices, shape=(place.nnz,))
    if indptr[0] != 0 or indptr[-1] != place.nnz or np.any(np.diff(indptr) < 0):
        raise InputError(f"{source} is damaged: its rows do not follow each other; write it again")
    return indptr, indices


def _parse_header(text: bytes, source: Path, *, some_unknown: bool) -> _Header:
    try:
        header = json.loads(text)
        n, m = header["shape"]
        nnz, columns = header["nnz"], header["columns"]
        unknown = header["unknown"] if some_unknown else None
        if any(type(number) is not int or number < 0 for number in (n, m, nnz, unknown if some_unknown else 0)):
            raise ValueError("sizes are not whole numbers")
        if header["index_dtype"] != index_dtype(m).name or not isinstance(columns, list | None):
            raise ValueError("index type or column names do not fit")
        return _Header(n, m, nnz, check_column_names(columns, m), unknown)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{source} is damaged: its header cannot be read; write it again") from error


@contextmanager
def _writing(path: str | PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose a folder with free space") from error


def _write_header(file: IO[bytes], header: _Header) -> None:
    facts: dict[str, Any] = {
        "shape": (header.n_rows, header.n_columns),
        "nnz": header.nnz,
        "index_dtype": index_dtype(header.n_columns).name,
        "columns": header.columns,
    }
    if header.unknown is not None:
        facts["unknown"] = header.unknown
    text = json.dumps(facts).encode()
    file.write((MAGIC if header.unknown is None else MAGIC_UNKNOWN) + len(text).to_bytes(8, "little") + text)


def _write_ones(file: IO[bytes], matrix: BinaryMatrix) -> None:
    for ones in matrix.chunks_of_ones():
        file.write(ones.astype(ones.dtype.newbyteorder("<"), copy=False).tobytes())


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _pad(file: IO[bytes]) -> None:
    file.write(b"\0" * (_aligned(file.tell()) - file.tell()))
