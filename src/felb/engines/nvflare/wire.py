"""Arrays as bytes that cannot hold anything but numbers: a JSON head that names them, then the numbers themselves.

There is nothing to unpickle and nothing to decompress, so a hostile message can neither run code nor grow.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import FederationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MAGIC = b"felb-arrays-1\n"
HEAD_BYTES = 4
KINDS = "biuf"
"""Booleans, integers and floats; no objects, no text, no dates."""
MAX_BYTES = 1 << 30
"""Of one message unless a tighter limit is given."""
MAX_ARRAYS, MAX_DIMENSIONS, MAX_NAME = 64, 4, 64


def pack(values: Mapping[str, NDArray[Any]]) -> bytes:
    """Write named arrays as bytes, little-endian and in C order."""
    arrays = {}
    for name, value in values.items():
        array = np.asarray(value)
        if array.dtype.kind not in KINDS:
            raise FederationError(f"{name} is of type {array.dtype}, and only numbers travel")
        arrays[name] = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    head = json.dumps([[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]).encode()
    return b"".join([MAGIC, len(head).to_bytes(HEAD_BYTES, "little"), head, *(a.tobytes() for a in arrays.values())])


def unpack(data: Any, *, limit: int = MAX_BYTES) -> dict[str, NDArray[Any]]:
    """Read what `pack` wrote; raises on anything else, before memory is taken for it."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise FederationError(f"a message of type {type(data).__name__} came where bytes were expected")
    if len(data) > limit:
        raise FederationError(f"a message of {len(data)} bytes came where at most {limit} are allowed")
    raw = bytes(data)
    try:
        entries, offset = _head(raw)
        arrays = {}
        for name, dtype, shape in entries:
            count = math.prod(shape)
            size = count * dtype.itemsize
            if offset + size > len(raw):
                raise ValueError(f"{name} is cut short")
            flat = np.frombuffer(raw, dtype=dtype, count=count, offset=offset)
            arrays[name] = flat.reshape(shape).astype(dtype.newbyteorder("="))
            offset += size
        if offset != len(raw) or len(arrays) != len(entries):
            raise ValueError("it holds more than it names")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FederationError(f"a message could not be read ({error}); it was not written by felb") from error
    return arrays


def digest(task: str, values: Mapping[str, NDArray[Any]]) -> str:
    """Fingerprint a question, to tell a repeated one from a different one under the same number."""
    return hashlib.sha256(task.encode() + b"\0" + pack(values)).hexdigest()


def _head(raw: bytes) -> tuple[list[tuple[str, np.dtype[Any], tuple[int, ...]]], int]:
    start = len(MAGIC) + HEAD_BYTES
    if raw[: len(MAGIC)] != MAGIC or len(raw) < start:
        raise ValueError("unknown format")
    end = start + int.from_bytes(raw[len(MAGIC) : start], "little")
    entries = json.loads(raw[start:end])
    if not isinstance(entries, list) or len(entries) > MAX_ARRAYS:
        raise ValueError("no list of arrays")
    return [_entry(*entry) for entry in entries], end


def _entry(name: Any, dtype: Any, shape: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    if not isinstance(name, str) or not name.isidentifier() or len(name) > MAX_NAME:
        raise ValueError("a name is not a name")
    if not isinstance(dtype, str) or len(dtype) > 4 or dtype[1:2] not in KINDS:
        raise ValueError(f"{name} is no array of numbers")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"{name} has no shape")
    if not all(type(side) is int and side >= 0 for side in shape):
        raise ValueError(f"{name} has an impossible shape")
    return name, np.dtype(dtype), tuple(shape)
