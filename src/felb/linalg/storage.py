"""One file per matrix, made to be memory-mapped.

Layout: the eight bytes ``FELBMAT1``, the length of the header (little-endian uint64), the header (JSON: shape,
number of ones, index type, column names), then `indptr` (int64) and `indices`, each starting at a multiple of 64 bytes.
All numbers are little-endian.
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
from felb.errors import InputError
from felb.linalg.binary import BinaryMatrix, check_column_names, index_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from types import TracebackType

    from numpy.typing import NDArray

MAGIC = b"FELBMAT1"
ALIGNMENT = 64
COPY_BYTES = 1 << 20


class _Header(NamedTuple):
    n_rows: int
    n_columns: int
    nnz: int
    columns: tuple[str, ...] | None


def save_matrix(matrix: BinaryMatrix, path: str | PathLike[str]) -> None:
    """Write `matrix` to `path`, through a temporary file that is renamed when complete."""
    if matrix.unknown is not None:
        raise InputError("a file holds ones only; save the unknown cells (matrix.unknown) as a matrix of their own")
    header = _Header(*matrix.shape, matrix.nnz, matrix.columns)
    with _writing(path), replacing(path) as partial, partial.open("wb") as file:
        _write_header(file, header)
        file.write((matrix.indptr - matrix.indptr[0]).astype("<i8").tobytes())
        _pad(file)
        for block in matrix.row_blocks(1 << 16):
            _write_ones(file, block)


class MatrixWriter:
    """Writes a matrix block of rows after block of rows, never holding more than a block of ones.

    A context manager: the file appears when the ``with`` block succeeds, complete, or not at all. Until then the ones
    wait in a nameless temporary file in the same folder, which thus needs room for them twice; in memory stay four
    bytes a row.

    Parameters
    ----------
    path : file to write, as `BinaryMatrix.open` reads it
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._counts: list[NDArray[np.uint32]] = []
        self._like: BinaryMatrix | None = None
        self._n_rows = self._nnz = 0

    @property
    def shape(self) -> tuple[int, int]:
        """(number of rows, number of columns) so far."""
        return self._n_rows, 0 if self._like is None else self._like.shape[1]

    @property
    def nnz(self) -> int:
        """Number of ones so far."""
        return self._nnz

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
            _write_ones(self._ones, block)
        self._counts.append(block.row_sums().astype(np.uint32))  # a row has less than 2^31 ones
        self._n_rows += block.shape[0]
        self._nnz += block.nnz

    def __enter__(self) -> Self:
        with _writing(self._path):
            if self._path.is_dir():  # better said now than after hours of writing
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._ones = tempfile.TemporaryFile(dir=self._path.parent)  # closed by __exit__
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._ones:
            if kind is None:
                self._finish()

    def _finish(self) -> None:
        columns = None if self._like is None else self._like.columns
        with _writing(self._path), replacing(self._path) as partial, partial.open("wb") as file:
            _write_header(file, _Header(*self.shape, self._nnz, columns))
            position = np.zeros(1, dtype="<i8")
            file.write(position.tobytes())
            for counts in self._counts:
                if counts.size:
                    ends = position[-1] + np.cumsum(counts, dtype=position.dtype)
                    file.write(ends.tobytes())
                    position = ends[-1:]
            _pad(file)
            self._ones.seek(0)
            shutil.copyfileobj(self._ones, file, COPY_BYTES)


def open_matrix(path: str | PathLike[str]) -> BinaryMatrix:
    """Map a file written by `save_matrix`; a truncated or foreign file is refused.

    Where the rows start is read and checked at once; the ones stay on disk and are taken as they are.
    """
    source = Path(path)
    try:
        size = source.stat().st_size
        with source.open("rb") as file:
            if file.read(8) != MAGIC:
                raise InputError(f"{source} is not a felb matrix; write one with BinaryMatrix.save()")
            length = int.from_bytes(file.read(8), "little")
            text = file.read(min(length, size))
        header = _parse_header(text, source)
        dtype = index_dtype(header.n_columns).newbyteorder("<")
        at_indptr = _aligned(16 + length)
        at_indices = _aligned(at_indptr + 8 * (header.n_rows + 1))
        expected = at_indices + dtype.itemsize * header.nnz
        if size != expected:
            raise InputError(f"{source} is truncated or damaged: {size} bytes instead of {expected}; write it again")
        indptr = np.fromfile(source, dtype="<i8", count=header.n_rows + 1, offset=at_indptr)
        indices: NDArray[Any] = np.zeros(0, dtype)
        if header.nnz:
            indices = np.memmap(source, dtype=dtype, mode="r", offset=at_indices, shape=(header.nnz,))
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}") from error
    if indptr[0] != 0 or indptr[-1] != header.nnz or np.any(np.diff(indptr) < 0):
        raise InputError(f"{source} is damaged: its rows do not follow each other; write it again")
    return BinaryMatrix(indptr, indices, header.n_columns, header.columns)


def _parse_header(text: bytes, source: Path) -> _Header:
    try:
        header = json.loads(text)
        n, m = header["shape"]
        nnz, columns = header["nnz"], header["columns"]
        if any(type(number) is not int or number < 0 for number in (n, m, nnz)):
            raise ValueError("sizes are not whole numbers")
        if header["index_dtype"] != index_dtype(m).name or not isinstance(columns, list | None):
            raise ValueError("index type or column names do not fit")
        return _Header(n, m, nnz, check_column_names(columns, m))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{source} is damaged: its header cannot be read; write it again") from error


@contextmanager
def _writing(path: str | PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; name a file in a folder that has room") from error


def _write_header(file: IO[bytes], header: _Header) -> None:
    facts = {
        "shape": (header.n_rows, header.n_columns),
        "nnz": header.nnz,
        "index_dtype": index_dtype(header.n_columns).name,
        "columns": header.columns,
    }
    text = json.dumps(facts).encode()
    file.write(MAGIC + len(text).to_bytes(8, "little") + text)
    _pad(file)


def _write_ones(file: IO[bytes], matrix: BinaryMatrix) -> None:
    for ones in matrix.chunks_of_ones():
        file.write(ones.astype(ones.dtype.newbyteorder("<"), copy=False).tobytes())


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _pad(file: IO[bytes]) -> None:
    file.write(b"\0" * (_aligned(file.tell()) - file.tell()))
