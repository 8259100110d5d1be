"""Two results side by side: which components correspond, and in what they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import InputError
from felb.metrics.matching import NO_MATCH, match_components

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.runs.result import Component, Result


@dataclass(frozen=True, slots=True)
class Pair:
    """A component of each result that correspond, or one of either that has no match.

    Parameters
    ----------
    first, second : the components; None if there is no match
    jaccard : |v ∩ w| / |v ∪ w| of their features
    shared, only_first, only_second : features of both, and of one alone
    """

    first: Component | None
    second: Component | None
    jaccard: float
    shared: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


def pair_components(first: Result, second: Result) -> list[Pair]:
    """Match the components of two results one to one by the Jaccard index of their features (Hungarian algorithm).

    Features are those of the same name; without names, of the same number. The pairs come in the order of their
    similarity, then what is left over of the first and of the second result.
    """
    ours, theirs = ([c for c in result.described() if c.features] for result in (first, second))
    known = tuple(dict.fromkeys(_names(first) + _names(second)))
    if first.columns is None or second.columns is None:
        n, m = first.components.shape[1], second.components.shape[1]
        if n != m:
            raise InputError(
                f"the results have {n} and {m} features without names, so their components cannot be compared"
            )
    elif not set(first.columns) & set(second.columns):
        raise InputError("the results have no feature in common, so their components cannot be compared")
    places, alike = match_components(_matrix(ours, known), _matrix(theirs, known))
    matched = [_pair(c, theirs[j], value) for c, j, value in zip(ours, places, alike, strict=True) if j != NO_MATCH]
    used = set(places.tolist())
    left = [_pair(c, None, 0.0) for c, j in zip(ours, places, strict=True) if j == NO_MATCH]
    right = [_pair(None, c, 0.0) for j, c in enumerate(theirs) if j not in used]
    return [*sorted(matched, key=lambda pair: -pair.jaccard), *left, *right]


def _names(result: Result) -> tuple[str, ...]:
    return result.columns or tuple(f"x{i}" for i in range(result.components.shape[1]))


def _matrix(components: list[Component], names: tuple[str, ...]) -> NDArray[np.bool_]:
    number = {name: j for j, name in enumerate(names)}
    V = np.zeros((len(components), len(names)), dtype=bool)
    for row, component in enumerate(components):
        V[row, [number[name] for name in component.features]] = True
    return V


def _pair(first: Component | None, second: Component | None, jaccard: float) -> Pair:
    ours, theirs = (() if component is None else component.features for component in (first, second))
    both = set(ours) & set(theirs)
    return Pair(
        first,
        second,
        float(jaccard),
        tuple(name for name in ours if name in both),
        tuple(name for name in ours if name not in both),
        tuple(name for name in theirs if name not in both),
    )
