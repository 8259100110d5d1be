"""Entries of a journal: named arrays and a JSON header in one safetensors file, written atomically.

A checksum over names, types, shapes, numbers and header tells a damaged file from a whole one.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.wire import pack, read_arrays
from felb.safe_files import replacing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

SUFFIX = ".safetensors"
_META, _HEADER, _CHECKSUM, _PART = "__metadata__", "felb", "checksum", "felb.part"


def write_entry(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write an entry, replacing an older one in one move; integers take the fewest bytes that hold them."""
    narrow = {name: _narrow(np.asarray(array)) for name, array in arrays.items()}
    wide = [name for name, array in narrow.items() if array.dtype != np.asarray(arrays[name]).dtype]
    text = json.dumps([header, wide])  # JSON's NaN and Infinity are read back by Python; only felb reads this
    data = pack(narrow, {_HEADER: text, _CHECKSUM: _checksum(text, narrow)})
    with replacing(path, clear=False) as partial:  # who opens a journal has cleared it
        partial.write_bytes(data)


def read_entry(path: Path, *, advice: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read an entry back; a damaged one is an `InputError` that names the file and says `advice`."""
    try:
        data = path.read_bytes()
        arrays = read_arrays(data)
        meta = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])[_META]
        if meta[_CHECKSUM] != _checksum(meta[_HEADER], arrays):
            raise ValueError("wrong checksum")
        header, wide = json.loads(meta[_HEADER])
        if not isinstance(header, dict) or not isinstance(wide, list):
            raise ValueError("no header")
        arrays |= {name: arrays[name].astype(np.int64) for name in wide}
    except FileNotFoundError:
        raise
    except Exception as error:  # what the readers of files and JSON raise on damage is nearly anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"{path} is damaged ({reason}); {advice}") from error
    return header, arrays


def _narrow(array: Array) -> Array:
    if array.dtype != np.int64 or array.size == 0:
        return array
    low, high = int(array.min()), int(array.max())
    for dtype in (np.int8, np.int16, np.int32):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return array.astype(dtype)
    return array


def _checksum(header: str, arrays: Mapping[str, Array]) -> str:
    value = zlib.crc32(header.encode())
    for name, array in sorted(arrays.items()):
        value = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), value)
        value = zlib.crc32(np.ascontiguousarray(array).data, value) if array.size else value
    return f"{value:08x}"


# -- states and results as arrays ------------------------------------------------------------------------------------


def holding(state_type: type[Any]) -> Mapping[str, Any]:
    """Return the metadata of a field that holds another dataclass (or None), for `dataclasses.field`.

    The type stands in the declaration because it must be known to read a value back, where only arrays are left.
    """
    return {_PART: state_type}


def to_arrays(state: Any) -> dict[str, Array]:
    """Return the fields of a dataclass, or the items of a tuple, as named arrays; what is None is left out.

    The fields of a nested dataclass are named ``outer/inner``; ``outer/`` alone tells that it was there.
    """
    arrays = {}
    for name, value, part in _fields(state):
        if value is None:
            continue
        if part is not None:
            arrays[f"{name}/"] = np.asarray(True)
            arrays |= {f"{name}/{inner}": array for inner, array in to_arrays(value).items()}
            continue
        if is_dataclass(value):
            raise TypeError(f"field {name} of {type(state).__name__} is a state of its own: declare it with holding()")
        arrays[name] = np.asarray(value)
        if arrays[name].dtype.kind not in "biuf":
            raise TypeError(f"field {name} of {type(state).__name__} is neither an array nor a number")
    return arrays


def from_arrays(like: Any, arrays: Mapping[str, Array]) -> Any:
    """Rebuild what `to_arrays` took apart; `like` is the dataclass, or a tuple of values of the same types.

    Arrays of no dimension become Python numbers again.
    """
    values: dict[str, Any] = {}
    kinds = _declared(like)
    for name, live, part in _fields(like):
        if part is not None:
            inner = {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
            values[name] = from_arrays(part, inner) if inner else None
        else:
            array = arrays.get(name)
            values[name] = array.item() if array is not None and array.ndim == 0 else array
            if not isinstance(like, type):
                _check_like(name, values[name], live)
        if name in kinds and not _fits(values[name], kinds[name]):
            raise TypeError(f"field {name} is {_told(values[name])} where {kinds[name]} belongs")
    unknown = {key.partition("/")[0] for key in arrays if key} - values.keys()
    if unknown:
        kind = like.__name__ if isinstance(like, type) else type(like).__name__
        raise TypeError(f"{kind} has no field {min(unknown)}")
    return tuple(values.values()) if isinstance(like, tuple) else like(**values)


def _declared(like: Any) -> dict[str, str]:
    """Return the declared types of a dataclass as they are written, such as ``NDArray[np.bool_] | None``."""
    return {} if isinstance(like, tuple) else {f.name: str(f.type) for f in fields(like)}


def _fits(value: Any, kind: str) -> bool:
    """Whether a value that was read can be of a declared type; only what arrays can tell is looked at."""
    if value is None:
        return "None" in kind or kind == "Any"
    kind = kind.removesuffix(" | None")
    if kind in ("int", "float", "bool"):
        return isinstance(value, {"int": int, "float": int | float, "bool": bool}[kind])
    if kind.startswith("NDArray["):
        letters = {"bool": "b", "int": "iu", "uint": "iu", "float": "f", "double": "f"}
        wanted = next((letters[word] for word in letters if kind.startswith(f"NDArray[np.{word}")), "biuf")
        return isinstance(value, np.ndarray) and value.dtype.kind in wanted
    return True


def _check_like(name: str, value: Any, live: Any) -> None:
    """Raise unless a value has the type and the dimensions of the one that it replaces in a running loop."""
    if live is None:
        return
    one, other = np.asarray(live), np.asarray(value)
    if value is None or one.ndim != other.ndim or one.dtype.kind != other.dtype.kind:
        raise TypeError(f"item {name} is {_told(value)} where {_told(live)} belongs")


def _told(value: Any) -> str:
    array = np.asarray(value)
    return "missing" if value is None else f"{array.ndim}D of type {array.dtype}"


def _fields(state: Any) -> list[tuple[str, Any, Any]]:
    """Return name, value and declared dataclass of the parts of a dataclass (or its type) or of a tuple."""
    if isinstance(state, tuple):
        return [(str(i), item, type(item) if is_dataclass(item) else None) for i, item in enumerate(state)]
    return [(f.name, getattr(state, f.name, None), f.metadata.get(_PART)) for f in fields(state)]
