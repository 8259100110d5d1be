"""The matrix in a MATLAB file (``.mat`` of level 5, as ``save -v6`` and ``-v7`` and `scipy.io.savemat` write it).

A file is a header and elements, packed or not; an element has a tag with its type and its length. Nothing is made room
for before the bytes are there, and at most as many bytes are unpacked as the file may have. Text, cells, structures and
objects are passed over without being looked into.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.data.coercion import check_sparse, checked_csr, dense_blocks, sparse_rows
from felb.data.validation import check_parts
from felb.errors import InputError
from felb.safe_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.data.limits import Bounds

HEADER, TAG = 128, 8
HDF5 = b"\x89HDF"
VERSION = 0x0100
MATRIX, COMPRESSED = 14, 15
SPARSE = 5
NUMBERS = range(6, 16)
"""Classes of dense numbers: double, single, and integers of 8 to 64 bits."""
COMPLEX = 0x0800
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
PIECE_BYTES = 1 << 20
SHOWN = 10
DAMAGED = "the file is damaged or incomplete"


class _Element(NamedTuple):
    kind: int
    content: bytes


@dataclass(frozen=True, slots=True)
class _Variable:
    """A numeric variable: what its head says, and the elements that follow, not looked at yet."""

    name: str
    shape: tuple[int, ...]
    sparse: bool
    complex: bool
    parts: Iterator[_Element]


def mat_blocks(
    path: Path,
    names: Callable[[int], tuple[str, ...] | None],
    *,
    bounds: Bounds,
    binarize_threshold: float | None = None,
    missing: str = "error",
) -> Iterator[BinaryMatrix]:
    """Yield the rows of the only matrix in the file, dense or sparse; vectors and single numbers do not count as such.

    `names` gives the column names for a number of columns.
    """
    with open_regular(path) as file:
        order = _byte_order(file)
        found: list[_Variable] = []
        for content in _top_elements(file, order, bounds):
            variable = _variable(content, order)
            if variable is not None and len(variable.shape) == 2 and min(variable.shape) > 1:
                found.append(variable)
    if len(found) != 1:
        shown = ", ".join(f"{variable.name} ({'x'.join(map(str, variable.shape))})" for variable in found[:SHOWN])
        held = f"several matrices: {shown}" if found else "no matrix of numbers"
        raise InputError(f"the file holds {held}; save the one that is meant: save('data.mat', 'X', '-v7')")
    [chosen] = found
    if chosen.complex:
        raise InputError(f"{chosen.name} holds complex numbers; save 0 and 1")
    n, m = chosen.shape
    bounds.check_shape(n, m)
    if not chosen.sparse:
        values = _numbers(chosen.parts, order)
        if values.size != n * m:
            raise InputError(f"{DAMAGED}: {chosen.name} has {values.size} numbers for {n} x {m}; write it again")
        rows = values.reshape((m, n)).T  # stored column by column
        for block in dense_blocks(rows, binarize_threshold=binarize_threshold, missing=missing):
            yield block.with_columns(names(m))
        return
    matrix = _sparse(chosen.parts, (n, m), order)
    check_sparse(binarize_threshold, matrix.dtype, 2)
    yield sparse_rows(checked_csr(matrix), columns=names(m), binarize_threshold=binarize_threshold)


def _byte_order(file: IO[bytes]) -> str:
    head = file.read(HEADER)
    if head.startswith(HDF5) or b"MATLAB 7.3" in head[:20]:
        raise InputError("the file is of version 7.3 (HDF5), which is not read; save it with save('data.mat', '-v7')")
    order = {b"IM": "<", b"MI": ">"}.get(head[126:128])
    if len(head) < HEADER or order is None or struct.unpack(f"{order}H", head[124:126])[0] != VERSION:
        raise InputError("the file is no MATLAB file of level 5; save it with save('data.mat', '-v7')")
    return order


def _top_elements(file: IO[bytes], order: str, bounds: Bounds) -> Iterator[bytes]:
    """Yield the content of each matrix element, unpacked; all together no more bytes than the file may have."""
    total = 0
    while tag := file.read(TAG):
        if len(tag) < TAG:
            raise InputError(f"{DAMAGED}: it ends within a tag; write it again")
        kind, length = struct.unpack(f"{order}II", tag)
        content = _taken(file, length)
        if kind == COMPRESSED:
            content = _unpacked(content, bounds.bytes - total)
            total += len(content)
            bounds.check_bytes(total)
            kind, content = next(_elements(content, order), _Element(0, b""))
        if kind == MATRIX:
            yield content


def _taken(file: IO[bytes], length: int) -> bytes:
    """Return the next bytes, in small reads, so that room is made only for what is there."""
    pieces = bytearray()
    while len(pieces) < length:
        piece = file.read(min(length - len(pieces), PIECE_BYTES))
        if not piece:
            raise InputError(f"{DAMAGED}: an element ends early; write it again")
        pieces += piece
    return bytes(pieces)


def _unpacked(content: bytes, most: int) -> bytes:
    """Return what was packed, and at most a byte more than `most`."""
    unpack = zlib.decompressobj()
    try:
        return unpack.decompress(content, max(most, 0) + 1)
    except zlib.error as error:
        raise InputError(f"{DAMAGED} ({error}); write it again") from error


def _elements(content: bytes, order: str) -> Iterator[_Element]:
    """Yield the elements one after the other; a small one has its content in its tag."""
    at = 0
    while at < len(content):
        if at + TAG > len(content):
            raise InputError(f"{DAMAGED}: it ends within a tag; write it again")
        kind, length = struct.unpack_from(f"{order}II", content, at)
        start = at + TAG
        if kind >> 16:
            kind, length, start = kind & 0xFFFF, kind >> 16, at + 4
            if length > 4:
                raise InputError(f"{DAMAGED}: a small element has {length} bytes; write it again")
        if start + length > len(content):
            raise InputError(f"{DAMAGED}: an element is longer than what holds it; write it again")
        yield _Element(kind, content[start : start + length])
        at = at + TAG if start == at + 4 else start + length + -length % 8


def _variable(content: bytes, order: str) -> _Variable | None:
    """Return what the head of a matrix element says: class, shape and name; None if it holds no numbers."""
    parts = _elements(content, order)
    flags, shape, name = (next(parts, _Element(0, b"")) for _ in range(3))
    if len(flags.content) != 8 or len(shape.content) % 4 or not shape.content:
        return None  # such as an element of functions, which MATLAB adds without a name
    word = struct.unpack_from(f"{order}I", flags.content)[0]
    if word & 0xFF not in (SPARSE, *NUMBERS):
        return None
    sizes = np.frombuffer(shape.content, f"{order}i4").tolist()
    if min(sizes) < 0:
        raise InputError(f"{DAMAGED}: a matrix has a shape of {sizes[:5]}; write it again")
    text = name.content.decode("ascii", "replace")[:40]
    return _Variable(text, tuple(sizes), word & 0xFF == SPARSE, bool(word & COMPLEX), parts)


def _numbers(parts: Iterator[_Element], order: str) -> NDArray[Any]:
    """Return the numbers of the next element in the byte order of this machine."""
    kind, content = next(parts, _Element(0, b""))
    if kind not in TYPES:
        raise InputError(f"{DAMAGED}: numbers are missing; write it again")
    dtype = np.dtype(f"{order}{TYPES[kind]}")
    if len(content) % dtype.itemsize:
        raise InputError(f"{DAMAGED}: numbers end early; write it again")
    return np.frombuffer(content, dtype).astype(dtype.newbyteorder("="), copy=False)


def _sparse(parts: Iterator[_Element], shape: tuple[int, int], order: str) -> Any:
    """Return a matrix by its columns; numbers beyond what the columns say are room that MATLAB has kept."""
    import scipy.sparse as sp

    indices, indptr, values = (_numbers(parts, order) for _ in range(3))
    if "f" in (indices.dtype.kind, indptr.dtype.kind) or not indptr.size:
        raise InputError(f"{DAMAGED}: its indices are no whole numbers; write it again")
    count = max(0, int(indptr[-1]))
    indices, values = indices[:count], values[:count]
    check_parts(indptr, indices, values.size, shape, by_column=True)
    return sp.csc_array((values, indices, indptr), shape=shape)
