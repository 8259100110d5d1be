"""Named arrays as bytes: safetensors, with limits on names and sizes.

There is nothing to unpickle and nothing to decompress, so a hostile message can neither run code nor grow.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from felb.errors import FederationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.protocol import Request

    Array = NDArray[Any]

DTYPES = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32,
    "I32": np.int32, "U64": np.uint64, "I64": np.int64, "F16": np.float16, "F32": np.float32, "F64": np.float64,
}  # fmt: skip
"""Booleans, integers and floats; no objects, no text, no dates."""
MAX_BYTES = 1 << 30
"""Of one message unless a tighter limit is given."""
MAX_ARRAYS, MAX_DIMENSIONS, MAX_NAME = 64, 4, 64


def pack(values: Mapping[str, Array], header: Mapping[str, str] | None = None) -> bytes:
    """Write named arrays as bytes, little-endian and in C order."""
    arrays = {}
    for name, value in values.items():
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise FederationError(f"{name} is of type {array.dtype}, and only numbers travel")
        arrays[name] = np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    return save(arrays, None if header is None else dict(header))


def unpack(data: Any, *, limit: int = MAX_BYTES) -> dict[str, Array]:
    """Read a message that `pack` wrote; raises on anything else."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise FederationError(f"a message of type {type(data).__name__} came where bytes were expected")
    if len(data) > limit:
        raise FederationError(f"a message of {len(data)} bytes came where at most {limit} are allowed")
    try:
        arrays = read_arrays(bytes(data))
        if len(arrays) > MAX_ARRAYS:
            raise ValueError(f"{len(arrays)} arrays")
        for name, array in arrays.items():
            if not name.isidentifier() or len(name) > MAX_NAME:
                raise ValueError("a name is not a name")
            if array.ndim > MAX_DIMENSIONS:
                raise ValueError(f"{name} has {array.ndim} dimensions")
    except (ValueError, TypeError, OverflowError) as error:
        raise FederationError(f"a message could not be read ({error}); it was not written by felb") from error
    return arrays


def read_arrays(data: bytes) -> dict[str, Array]:
    """Read the arrays of a safetensors file; raises a `ValueError` on anything else."""
    try:
        entries = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    arrays = {}
    for name, entry in sorted(entries, key=lambda named: named[0]):
        dtype, shape = DTYPES.get(entry["dtype"]), tuple(entry["shape"])
        if dtype is None:
            raise ValueError(f"{name} is no array of numbers")
        if math.prod(shape) * np.dtype(dtype).itemsize != len(entry["data"]):
            raise ValueError(f"{name} does not have its size")
        flat = np.frombuffer(entry["data"], dtype=np.uint8) if entry["data"] else np.zeros(0, np.uint8)
        arrays[name] = (flat != 0 if dtype is np.bool_ else flat.view(dtype)).reshape(shape)
    return arrays


def digest(request: Request) -> str:
    """Fingerprint a request, to distinguish a repeated one from a different one of the same round."""
    return hashlib.sha256(request.task.encode() + b"\0" + pack(request.values)).hexdigest()
