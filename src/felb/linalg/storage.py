"""One file per matrix, made to be memory-mapped.

Layout: the eight bytes ``FELBMAT1``, the length of the header (little-endian uint64), the header (JSON: shape,
number of ones, index type, column names), then `indptr` (int64) and `indices`, each starting at a multiple of 64 bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.atomic import replacing
from felb.errors import InputError
from felb.linalg.binary import BinaryMatrix

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

MAGIC = b"FELBMAT1"
ALIGNMENT = 64


def save_matrix(matrix: BinaryMatrix, path: str | PathLike[str]) -> None:
    """Write `matrix` to `path`, through a temporary file that is renamed when complete."""
    header = {
        "shape": matrix.shape,
        "nnz": matrix.nnz,
        "index_dtype": matrix.indices.dtype.name,
        "columns": matrix.columns,
    }
    text = json.dumps(header).encode()
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(MAGIC + len(text).to_bytes(8, "little") + text)
        _pad(file)
        file.write((matrix.indptr - matrix.indptr[0]).astype("<i8").tobytes())
        _pad(file)
        for block in matrix.row_blocks(1 << 16):
            file.write(block.indices[block.indptr[0] : block.indptr[-1]].tobytes())


def open_matrix(path: str | PathLike[str]) -> BinaryMatrix:
    """Map a file written by `save_matrix`; a truncated or foreign file is refused."""
    source = Path(path)
    try:
        size = source.stat().st_size
        with source.open("rb") as file:
            if file.read(8) != MAGIC:
                raise InputError(f"{source} is not a felb matrix; write one with BinaryMatrix.save()")
            length = int.from_bytes(file.read(8), "little")
            text = file.read(min(length, size))
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}") from error
    try:
        header = json.loads(text)
        n, m = header["shape"]
        nnz, dtype, columns = header["nnz"], np.dtype(header["index_dtype"]), header["columns"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{source} is damaged: its header cannot be read") from error
    at_indptr = _aligned(16 + length)
    at_indices = _aligned(at_indptr + 8 * (n + 1))
    if size != at_indices + dtype.itemsize * nnz:
        raise InputError(
            f"{source} is truncated or damaged: {size} bytes instead of {at_indices + dtype.itemsize * nnz}"
        )
    indptr = np.fromfile(source, dtype="<i8", count=n + 1, offset=at_indptr)
    indices: NDArray[Any] = np.zeros(0, dtype)
    if nnz:
        indices = np.memmap(source, dtype=dtype, mode="r", offset=at_indices, shape=(nnz,))
    return BinaryMatrix(indptr, indices, m, columns)


def _aligned(position: int) -> int:
    return -(-position // ALIGNMENT) * ALIGNMENT


def _pad(file: Any) -> None:
    file.write(b"\0" * (_aligned(file.tell()) - file.tell()))
