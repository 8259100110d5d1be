"""One file per matrix, made to be memory-mapped: the layout, and how it is written. `mapping` reads it.

    FELBMAT4                 the format and its version
    uint64, uint64           length of the header in bytes, and its CRC-32
    header                   JSON: shape, number of ones, index type, column names, number of unknown cells or null
    indptr, indices          of the ones: int64, and uint16 or int32
    indptr, indices          of the unknown cells, if there are any
    uint32 ...               checksum of every block of 2²⁰ bytes of each of these arrays (`block_checksum`), then the
                             CRC-32 of this list

Arrays start at multiples of 64 bytes; all numbers are little-endian. Earlier versions are no longer read: `felb
convert` writes the file again from its source.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import msgspec
import numpy as np

from felb.data.binary import BinaryMatrix, index_dtype
from felb.errors import InputError
from felb.records import Natural  # noqa: TC001  # msgspec reads the types of a struct
from felb.safe_files import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from types import TracebackType

    from numpy.typing import NDArray

MAGIC = b"FELBMAT4"
OLD_MAGIC = (b"FELBMAT1", b"FELBMAT2", b"FELBMAT3")
ALIGNMENT = 64
COPY_BYTES = 1 << 20
BLOCK_BYTES = 1 << 20
"""Bytes of an array that have a checksum of their own."""

FOLDED_WORDS = 509
"""Words of a block that are added up side by side. A prime number, so that pages or sectors that are exchanged do not
meet the same sums again."""
ROW_BYTES = 8 * FOLDED_WORDS


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands before the arrays; `unknown` is the number of unknown cells, in files that have some."""

    shape: tuple[Natural, Natural]
    nnz: Natural
    index_dtype: str
    columns: tuple[str, ...] | None
    unknown: Natural | None = None

    @classmethod
    def of(
        cls, shape: tuple[int, int], nnz: int, columns: tuple[str, ...] | None, unknown: int | None = None
    ) -> Header:
        """Return the header of a matrix."""
        return cls(shape, nnz, index_dtype(shape[1]).name, columns, unknown)


def save_matrix(matrix: BinaryMatrix, path: str | PathLike[str]) -> None:
    """Write `matrix` to `path`, through a temporary file that is renamed when complete."""
    unknown = matrix.unknown
    header = Header.of(matrix.shape, matrix.nnz, matrix.columns, None if unknown is None else unknown.nnz)
    with _writing(path), replacing(path) as partial, partial.open("wb") as raw:
        file = _ArrayFile(raw, header)
        for part in (matrix,) if unknown is None else (matrix, unknown):
            file.begin_array()
            file.write((part.indptr - part.indptr[0]).astype("<i8").tobytes())
            file.begin_array()
            for block in part.row_blocks(1 << 16):
                _write_ones(file, block)
        file.finish()


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
        with _writing(self._path), replacing(self._path) as partial, partial.open("wb") as raw:
            file = _ArrayFile(raw, Header.of(self.shape, self.nnz, columns, self._unknown.nnz or None))
            self._ones.move(file, self._n_rows)
            if self._unknown.nnz:
                self._unknown.move(file, self._n_rows)
            file.finish()


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

    def move(self, file: _ArrayFile, n_rows: int) -> None:
        """Write where the rows start, and what waited."""
        self._skip(n_rows)
        file.begin_array()
        position = np.zeros(1, dtype="<i8")
        file.write(position.tobytes())
        for counts in self._counts:
            if counts.size:
                ends = position[-1] + np.cumsum(counts, dtype=position.dtype)
                file.write(ends.tobytes())
                position = ends[-1:]
        file.begin_array()
        self.file.seek(0)
        shutil.copyfileobj(self.file, file, COPY_BYTES)

    def _skip(self, n_rows: int) -> None:
        if n_rows > self._n_rows:
            self._counts.append(np.zeros(n_rows - self._n_rows, np.uint32))
            self._n_rows = n_rows


@contextmanager
def _writing(path: str | PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; check the folder and its free space") from error


class BlockChecksum:
    """The checksum of a block that comes in parts: CRC-32 of Σ_r W_r and of what is left, W its rows of 509 words.

    Adding words of 64 bits is several times as fast as a CRC of everything. A change of one word always shows; changes
    of several show unless they cancel in all sums.
    """

    def __init__(self) -> None:
        self._sums: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._rest = b""

    def add(self, part: bytes | memoryview) -> None:
        """Read on."""
        view = memoryview(part)
        if self._rest:
            missing = ROW_BYTES - len(self._rest)
            self._rest += view[:missing]
            view = view[missing:]
            if len(self._rest) < ROW_BYTES:
                return
            self._fold(self._rest)
        whole = len(view) // ROW_BYTES * ROW_BYTES
        if whole:
            self._fold(view[:whole])
        self._rest = bytes(view[whole:])

    def _fold(self, rows: bytes | memoryview) -> None:
        sums = np.frombuffer(rows, "<u8").reshape(-1, FOLDED_WORDS).sum(axis=0, dtype=np.uint64)
        self._sums = self._sums + sums if self._sums.size else sums

    @property
    def value(self) -> int:
        """The checksum of what was read."""
        return zlib.crc32(self._rest, zlib.crc32(self._sums.astype("<u8").tobytes()))


def block_checksum(block: bytes | memoryview) -> int:
    """Return the checksum of a whole block."""
    checksum = BlockChecksum()
    checksum.add(block)
    return checksum.value


class _ArrayFile:
    """Writes the header and arrays of a file, and at last the checksums of their blocks."""

    def __init__(self, file: IO[bytes], header: Header) -> None:
        self._file = file
        self._checksums: list[int] = []
        self._filled, self._checksum = 0, BlockChecksum()
        text = msgspec.json.encode(header)
        sizes = np.array([len(text), zlib.crc32(text)], dtype="<u8").tobytes()
        file.write(MAGIC + sizes + text)

    def begin_array(self) -> None:
        """End the array before, and go to where the next one starts."""
        self._end_block()
        self._file.write(b"\0" * (aligned(self._file.tell()) - self._file.tell()))

    def write(self, content: bytes) -> int:
        """Write more of an array."""
        view = memoryview(content)
        while view:
            part = view[: BLOCK_BYTES - self._filled]
            self._checksum.add(part)
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == BLOCK_BYTES:
                self._end_block()
        return self._file.write(content)

    def finish(self) -> None:
        """Write the checksums."""
        self.begin_array()
        checksums = np.array(self._checksums, dtype="<u4").tobytes()
        self._file.write(checksums + zlib.crc32(checksums).to_bytes(4, "little"))

    def _end_block(self) -> None:
        if self._filled:
            self._checksums.append(self._checksum.value)
        self._filled, self._checksum = 0, BlockChecksum()


def _write_ones(file: IO[bytes] | _ArrayFile, matrix: BinaryMatrix) -> None:
    for ones in matrix.chunks_of_ones():
        file.write(ones.astype(ones.dtype.newbyteorder("<"), copy=False).tobytes())


def aligned(position: int) -> int:
    """Return the next position at which an array may start."""
    return -(-position // ALIGNMENT) * ALIGNMENT
