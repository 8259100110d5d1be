"""States as plain arrays, so that any engine can store and send them without pickling."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_PART = "felb.part"


def holding(state_type: type[Any]) -> Mapping[str, Any]:
    """Return the metadata of a field that holds another state (or None), for `dataclasses.field`.

    The type stands in the declaration because it must be known to read a state back, where only arrays are left.
    """
    return {_PART: state_type}


def to_arrays(state: Any) -> dict[str, NDArray[Any]]:
    """Return the fields of a dataclass of arrays and scalars as named arrays; a field that is None is left out.

    The fields of a nested state are named ``outer/inner``; ``outer/`` alone tells that it was there.
    """
    arrays = {}
    for entry in fields(state):
        name, value = entry.name, getattr(state, entry.name)
        if value is None:
            continue
        if _PART in entry.metadata:
            arrays[f"{name}/"] = np.asarray(True)
            arrays |= {f"{name}/{inner}": array for inner, array in to_arrays(value).items()}
            continue
        if is_dataclass(value):
            raise TypeError(f"field {name} of {type(state).__name__} is a state of its own: declare it with holding()")
        arrays[name] = np.asarray(value)
        if arrays[name].dtype.hasobject:
            raise TypeError(f"field {name} of {type(state).__name__} is neither an array nor a number")
    return arrays


def from_arrays(state_type: type[Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Rebuild what `to_arrays` took apart; 0-dimensional arrays become Python numbers again."""
    values: dict[str, Any] = {}
    for entry in fields(state_type):
        name = entry.name
        if _PART in entry.metadata:
            inner = {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
            values[name] = from_arrays(entry.metadata[_PART], inner) if inner else None
        else:
            array = arrays.get(name)
            values[name] = array.item() if array is not None and array.ndim == 0 else array
    unknown = {key.partition("/")[0] for key in arrays if key} - values.keys()
    if unknown:
        raise TypeError(f"{state_type.__name__} has no field {min(unknown)}")
    return state_type(**values)
