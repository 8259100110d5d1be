"""States as plain arrays, so that any engine can store and send them without pickling."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


def to_arrays(state: Any) -> dict[str, NDArray[Any]]:
    """Return the fields of a dataclass of arrays and scalars as named arrays; a field that is None is left out."""
    values = ((field.name, getattr(state, field.name)) for field in fields(state))
    arrays = {name: np.asarray(value) for name, value in values if value is not None}
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise TypeError(f"field {name} of {type(state).__name__} is neither an array nor a number")
    return arrays


def from_arrays(state_type: type[Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Rebuild what `to_arrays` took apart; 0-dimensional arrays become Python numbers again."""
    values = {name: array.item() if array.ndim == 0 else array for name, array in arrays.items()}
    return state_type(**{field.name: None for field in fields(state_type) if field.name not in values}, **values)
