"""Opening a `.felb` file: checked to the end once, then used from disk.

Where the rows start is read and checked at every opening. The ones and the unknown cells stay on disk; at the first
opening one pass compares every block with its checksum and looks whether its column numbers are those of sound rows.
That a large file has passed is remembered (`felb.data.verified`), so the next opening costs nothing.
"""

from __future__ import annotations

import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from felb.data import verified
from felb.data.binary import BinaryMatrix, check_column_names, index_dtype
from felb.data.storage import BLOCK_BYTES, MAGIC, OLD_MAGIC, Header, aligned, block_checksum
from felb.data.validation import check_chunk, check_disjoint
from felb.errors import InputError
from felb.records import parse_record
from felb.safe_files import open_regular

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

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
            if start[:8] in OLD_MAGIC:
                raise InputError(
                    f"{source} is of an earlier version of the format, which is no longer read; "
                    "write it again with felb convert or BinaryMatrix.save()"
                )
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
    return _matrix(content, arrays, checksums, header, source, verified.key_of(status, checksum))


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
    n_columns, known, parts, first = header.shape[1], verified.is_known(key), [], 0
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
    if len(parts) == 2 and not known:
        try:
            check_disjoint(parts[0], parts[1], n_columns)
        except InputError as error:
            _refuse(source, error)
    verified.remember(None if known else key)
    matrix = BinaryMatrix.of_valid_rows(*parts[0], n_columns, header.columns)
    if len(parts) == 1:
        return matrix
    return matrix._with_rows(*parts[0], BinaryMatrix.of_valid_rows(*parts[1], n_columns))


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

    threads = min(os.cpu_count() or 1, array.n_blocks // BLOCKS_OF_THREAD)
    if threads < 2:
        for block in range(array.n_blocks):
            check(block)
        return
    with ThreadPoolExecutor(threads) as pool:
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
    advice = AGAIN
    try:
        if zlib.crc32(text) != checksum:
            raise InputError("it does not match its checksum")
        header = parse_record(text, Header, source="it", advice=advice)
        if header.index_dtype != index_dtype(header.shape[1]).name:
            raise InputError(f"index type {header.index_dtype[:20]!r} does not fit its shape")
        check_column_names(header.columns, header.shape[1])
    except InputError as error:
        raise InputError(f"{source} is damaged: its header cannot be read ({error}); {advice}") from error
    return header
