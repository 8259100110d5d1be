"""Features of a schema in words: those of one column together, and those that no record should have both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.data.schema import Schema


def grouped(schema: Schema, features: Sequence[str]) -> list[str]:
    """Return feature names with those of one column joined by a bar, in the order of their first feature.

    Examples
    --------
    >>> from felb.data import Feature, Schema
    >>> rules = [Feature(name=f"sex: {v}", column="sex", values=(v,)) for v in "FM"]
    >>> grouped(Schema((*rules, Feature(name="old", column="age", lower=60))), ["sex: F", "old", "sex: M"])
    ['sex: F | sex: M', 'old']
    """
    column_of = {feature.name: feature.column for feature in schema.features}
    groups: dict[Any, list[str]] = {}
    for name in features:
        column = column_of.get(name)
        groups.setdefault(("alone", name) if column is None else column, []).append(name)
    return [" | ".join(names) for names in groups.values()]


def conflicts(schema: Schema, components: NDArray[np.bool_]) -> list[str]:
    """Return a sentence for every component that holds features of one column that exclude each other."""
    if components.shape[1] != len(schema.features):
        return []
    found = []
    for number, row in enumerate(components):
        pairs = list(schema.exclusive(tuple(np.flatnonzero(row).tolist())))
        if pairs:
            a, b = (schema.names[i] for i in pairs[0])
            more = f", and {len(pairs) - 1} more such pairs" if len(pairs) > 1 else ""
            found.append(f"component {number} holds {a!r} and {b!r}, which exclude each other{more}")
    return found
