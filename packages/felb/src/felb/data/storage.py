"""The .felb format: one file per matrix, made to be memory-mapped; checked to the end once, then used from disk."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

import msgspec
import numpy as np

from felb.data.binary import BinaryMatrix, check_chunk, check_column_names, check_disjoint, index_dtype
from felb.errors import InputError
from felb.records import Natural, open_regular, parse_record, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from types import TracebackType

    from numpy.typing import NDArray


#     FELBMAT4                 the format and its version
#     uint64, uint64           length of the header in bytes, and its CRC-32
#     header                   JSON: shape, number of ones, index type, column names, number of unknown cells or null
#     indptr, indices          of the ones: int64, and uint16 or int32
#     indptr, indices          of the unknown cells, if there are any
#     uint32 ...               checksum of every block of 2²⁰ bytes of each of these arrays (`block_checksum`), then the
#                              CRC-32 of this list
#
# Arrays start at multiples of 64 bytes; all numbers are little-endian.

MAGIC = b"FELBMAT4"
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


def save_matrix(matrix: BinaryMatrix, path: str | PathLike[str]) -> None:
    """Write `matrix` to `path`, through a temporary file that is renamed when complete."""
    unknown = matrix.unknown
    header = Header(
        matrix.shape,
        matrix.nnz,
        index_dtype(matrix.shape[1]).name,
        matrix.columns,
        None if unknown is None else unknown.nnz,
    )
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
            dtype = index_dtype(self.shape[1]).name
            file = _ArrayFile(raw, Header(self.shape, self.nnz, dtype, columns, self._unknown.nnz or None))
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


def block_checksum(block: bytes | memoryview) -> int:
    """Return the checksum of a block: CRC-32 of Σ_r W_r, W its rows of 509 words, and of what is left.

    Adding words of 64 bits is several times as fast as a CRC of everything. A change of one word always shows; changes
    of several show unless they cancel in all sums.
    """
    whole = len(block) // ROW_BYTES * ROW_BYTES
    rows = np.frombuffer(block[:whole], "<u8").reshape(-1, FOLDED_WORDS)
    sums = rows.sum(axis=0, dtype=np.uint64).astype("<u8").tobytes() if whole else b""
    return zlib.crc32(block[whole:], zlib.crc32(sums))


class _ArrayFile:
    """Writes the header and arrays of a file, and at last the checksums of their blocks."""

    def __init__(self, file: IO[bytes], header: Header) -> None:
        self._file, self._block = file, bytearray()
        self._checksums: list[int] = []
        text = msgspec.json.encode(header)
        sizes = np.array([len(text), zlib.crc32(text)], dtype="<u8").tobytes()
        file.write(MAGIC + sizes + text)

    def begin_array(self) -> None:
        """End the array before, and go to where the next one starts."""
        self._end_block()
        self._file.write(b"\0" * (aligned(self._file.tell()) - self._file.tell()))

    def write(self, content: bytes) -> None:
        """Write more of an array."""
        view = memoryview(content)
        while view:
            part = view[: BLOCK_BYTES - len(self._block)]
            self._block += part
            view = view[len(part) :]
            if len(self._block) == BLOCK_BYTES:
                self._end_block()

    def finish(self) -> None:
        """Write the checksums."""
        self.begin_array()
        checksums = np.array(self._checksums, dtype="<u4").tobytes()
        self._file.write(checksums + zlib.crc32(checksums).to_bytes(4, "little"))

    def _end_block(self) -> None:
        if self._block:
            self._checksums.append(block_checksum(memoryview(self._block)))
            self._file.write(self._block)
            self._block = bytearray()


def _write_ones(file: IO[bytes] | _ArrayFile, matrix: BinaryMatrix) -> None:
    for ones in matrix.chunks_of_ones():
        file.write(ones.astype(ones.dtype.newbyteorder("<"), copy=False).tobytes())


def aligned(position: int) -> int:
    """Return the next position at which an array may start."""
    return -(-position // ALIGNMENT) * ALIGNMENT


# A file is known by device, number, size and both times of change. The time of the last change of its inode cannot be
# set by a program, so a file that was written to since is another file here. One that changed a moment ago is not
# remembered, because a second change within the same tick of the clock would not show.

CACHE = "FELB_CACHE"
"""Environment variable: folder for what may be forgotten; the user's cache folder if it is not set."""

SMALLEST = 1 << 22
"""Bytes below which a file is simply checked every time."""

SETTLED = 2.0
"""Seconds since the last change after which a further one would show in the file's times."""

MOST_REMEMBERED = 1000

_known: set[str] = set()


def cache_folder() -> Path:
    """Return the folder for what may be forgotten at any time."""
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE])
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "felb" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "felb"


def make_key(status: os.stat_result, checksum: int) -> str | None:
    """Return by what a file is known; None for one that is not worth remembering, or too new to be told apart."""
    if status.st_size < SMALLEST or time.time() - max(status.st_ctime, status.st_mtime) < SETTLED:
        return None
    facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, checksum)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def is_known(key: str | None) -> bool:
    """Whether the file was checked before, by this process or by another of the same user."""
    if key is None:
        return False
    try:
        return key in _known or (cache_folder() / "verified" / key).is_file()
    except (OSError, RuntimeError):  # no home folder
        return False


def remember(key: str | None) -> None:
    """Keep that a file was checked; where nothing can be written, only for this process."""
    if key is None:
        return
    _known.add(key)
    try:
        folder = cache_folder() / "verified"
        folder.mkdir(parents=True, exist_ok=True)
        kept = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in kept[: max(0, len(kept) + 1 - MOST_REMEMBERED)]:
            old.unlink(missing_ok=True)
        (folder / key).touch()
    except (OSError, RuntimeError):
        pass


# Where the rows start is read and checked at every opening. The ones and the unknown cells stay on disk; at the first
# opening one pass compares every block with its checksum and looks whether its column numbers are those of sound rows.
# That a large file has passed is remembered (`felb.data.storage`), so the next opening costs nothing.

AGAIN = "write it again"
BLOCKS_OF_THREAD = 8
"""Blocks that are worth a thread."""
LARGEST_HEADER = 1 << 28
"""Bytes; the header holds the column names."""


class _Array(NamedTuple):
    """Where an array stands in a file."""

    what: str
    at: int
    length: int
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return self.length * self.dtype.itemsize

    @property
    def n_blocks(self) -> int:
        return -(-self.size // BLOCK_BYTES)


def open_matrix(path: str | PathLike[str]) -> BinaryMatrix:
    """Map a file written by `save_matrix`; a truncated, damaged or foreign file is refused.

    A block that does not match its checksum is named.
    """
    source = Path(path)
    try:
        with open_regular(source) as file:
            status = os.fstat(file.fileno())
            start = file.read(24)
            if start[:8] != MAGIC:
                raise InputError(f"{source} is not a felb matrix; write one with BinaryMatrix.save()")
            length, checksum = (int(number) for number in np.frombuffer(start[8:].ljust(16, b"\0"), "<u8"))
            text = file.read(min(length, status.st_size, LARGEST_HEADER))
            header = _parse_header(text, checksum, source)
            arrays = _layout(24 + length, header)
            at_checksums = aligned(arrays[-1].at + arrays[-1].size)
            expected = at_checksums + 4 * (sum(array.n_blocks for array in arrays) + 1)
            if status.st_size != expected:
                raise InputError(
                    f"{source} is truncated or damaged: {status.st_size} bytes instead of {expected}; {AGAIN}"
                )
            file.seek(at_checksums)
            checksums = _read_checksums(file.read(), source)
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}") from error
    content = np.memmap(source, dtype=np.uint8, mode="r")
    if content.size != expected:
        raise InputError(f"{source} has changed while it was opened; open it again")
    return _matrix(content, arrays, checksums, header, source, make_key(status, checksum))


def _layout(position: int, header: Header) -> list[_Array]:
    n_rows, dtype = header.shape[0], index_dtype(header.shape[1]).newbyteorder("<")
    arrays = []
    counts = [("ones", header.nnz)] + ([] if header.unknown is None else [("unknown cells", header.unknown)])
    for what, count in counts:
        starts = _Array(f"the starts of the rows of the {what}", aligned(position), n_rows + 1, np.dtype("<i8"))
        entries = _Array(f"the {what}", aligned(starts.at + starts.size), count, dtype)
        arrays += [starts, entries]
        position = entries.at + entries.size
    return arrays


def _matrix(
    content: NDArray[np.uint8],
    arrays: list[_Array],
    checksums: NDArray[np.uint32],
    header: Header,
    source: Path,
    key: str | None,
) -> BinaryMatrix:
    n_columns, known, parts, first = header.shape[1], is_known(key), [], 0
    for starts, entries in zip(arrays[::2], arrays[1::2], strict=True):
        indptr = np.array(_view(content, starts))
        if not known:
            _check_blocks(content, starts, checksums[first:], source)
        if indptr[0] != 0 or indptr[-1] != entries.length or np.any(indptr[1:] < indptr[:-1]):
            raise InputError(f"{source} is damaged: its rows do not follow each other; {AGAIN}")
        first += starts.n_blocks
        indices = _view(content, entries)
        if not known:
            _check_blocks(content, entries, checksums[first:], source, rows=(indptr, indices, n_columns))
        first += entries.n_blocks
        parts.append((indptr, indices))
    matrix = BinaryMatrix.of_valid_rows(*parts[0], n_columns, header.columns)
    if len(parts) == 2:
        unknown = BinaryMatrix.of_valid_rows(*parts[1], n_columns)
        if not known:
            try:
                check_disjoint(matrix, unknown)
            except InputError as error:
                _refuse(source, error)
        matrix = matrix._with_rows(*parts[0], unknown)
    remember(None if known else key)
    return matrix


def _view(content: NDArray[np.uint8], array: _Array) -> NDArray[Any]:
    return np.asarray(content[array.at : array.at + array.size]).view(array.dtype)


def _check_blocks(
    content: NDArray[np.uint8],
    array: _Array,
    checksums: NDArray[np.uint32],
    source: Path,
    *,
    rows: tuple[NDArray[np.int64], NDArray[Any], int] | None = None,
) -> None:
    """Compare the blocks of an array with their checksums, and their column numbers with what rows may have.

    Blocks are looked at by several threads, since checksums and comparisons let go of the interpreter; the error is
    that of the first bad block.
    """
    per_block = BLOCK_BYTES // array.dtype.itemsize

    def check(block: int) -> None:
        at = array.at + block * BLOCK_BYTES
        stop = min(at + BLOCK_BYTES, array.at + array.size)
        if block_checksum(content[at:stop].data) != checksums[block]:
            raise InputError(
                f"{source} is damaged: block {block + 1} of {array.n_blocks} of {array.what} "
                f"(bytes {at} to {stop - 1}) does not match its checksum; {AGAIN}"
            )
        if rows is not None:
            indptr, indices, n_columns = rows
            try:
                first = block * per_block
                check_chunk(indptr, indices, first, min(first + per_block, array.length), n_columns)
            except InputError as error:
                _refuse(source, error)

    with ThreadPoolExecutor(max(1, min(os.cpu_count() or 1, array.n_blocks // BLOCKS_OF_THREAD))) as pool:
        try:
            for _ in pool.map(check, range(array.n_blocks)):
                pass
        except InputError:
            pool.shutdown(cancel_futures=True)
            raise


def _refuse(source: Path, error: InputError) -> NoReturn:
    raise InputError(f"{source} is damaged: {error}; {AGAIN}") from error


def _read_checksums(content: bytes, source: Path) -> NDArray[np.uint32]:
    checksums, own = content[:-4], int.from_bytes(content[-4:], "little")
    if zlib.crc32(checksums) != own:
        raise InputError(f"{source} is damaged: its list of checksums does not match its own; {AGAIN}")
    return np.frombuffer(checksums, "<u4")


def _parse_header(text: bytes, checksum: int, source: Path) -> Header:
    try:
        if zlib.crc32(text) != checksum:
            raise InputError("it does not match its checksum")
        header = parse_record(text, Header, source="it", advice=AGAIN)
        if header.index_dtype != index_dtype(header.shape[1]).name:
            raise InputError(f"index type {header.index_dtype[:20]!r} does not fit its shape")
        check_column_names(header.columns, header.shape[1])
    except InputError as error:
        raise InputError(f"{source} is damaged: its header cannot be read ({error}); {AGAIN}") from error
    return header
