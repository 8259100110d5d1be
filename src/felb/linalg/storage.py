"""One file per matrix, made to be memory-mapped.

Layout: the eight bytes ``FELBMAT1``, the length of the header (little-endian uint64), the header (JSON: shape,
number of ones, index type, column names), then `indptr` (int64) and `indices`, each starting at a multiple of 64 bytes.
All numbers are little-endian.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.atomic import replacing
from felb.errors import InputError
from felb.linalg.binary import BinaryMatrix, check_column_names, index_dtype

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

MAGIC = b"FELBMAT1"
ALIGNMENT = 64


class _Header(NamedTuple):
    n_rows: int
    n_columns: int
    nnz: int
    columns: tuple[str, ...] | None


def save_matrix(matrix: BinaryMatrix, path: str | PathLike[str]) -> None:
    """Write `matrix` to `path`, through a temporary file that is renamed when complete."""
    header = {
        "shape": matrix.shape,
        "nnz": matrix.nnz,
        "index_dtype": matrix.indices.dtype.name,
        "columns": matrix.columns,
    }
    text = json.dumps(header).encode()
    try:
        with replacing(path) as partial, partial.open("wb") as file:
            file.write(MAGIC + len(text).to_bytes(8, "little") + text)
            _pad(file)
            file.write((matrix.indptr - matrix.indptr[0]).astype("<i8").tobytes())
            _pad(file)
            for block in matrix.row_blocks(1 << 16):
                ones = block.indices[block.indptr[0] : block.indptr[-1]]
                file.write(ones.astype(ones.dtype.newbyteorder("<"), copy=False).tobytes())
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; name a file in a folder that has room") from error


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


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _pad(file: Any) -> None:
    file.write(b"\0" * (_aligned(file.tell()) - file.tell()))
