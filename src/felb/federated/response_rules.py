"""What a response of each task may hold: bounds on its values, and what must hold between them.

The sum of a round is as good as its worst part. Shapes and types are known from a rehearsal of the task (see the
engine's response validation); here are the values: counts that no rows can have, entries of V outside of the box, pairs
that occur more often than either of two. All of it is linear, or a bound that grows with the number of sites, so that a
sum over sites is held to it as well, where nobody sees its parts. What is left to a site that lies is to have other
rows than it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import FederationError
from felb.federated.algorithms.aligned import ALIGNED_COMPONENTS
from felb.federated.algorithms.felb import LOCAL_FACTOR
from felb.federated.algorithms.post_hoc import LOCAL_COMPONENTS
from felb.federated.steps.fedprox import FEDPROX
from felb.federated.steps.rank_selection import SHARED_COUNTS
from felb.federated.steps.reseed import PAIR_COUNTS
from felb.federated.steps.threshold_search import THRESHOLD_COUNTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.protocol import Request

    Values = Mapping[str, NDArray[Any]]

MOST_ROWS = 1 << 32
"""Of one site."""
MOST = 1 << 53
"""Of a number in a response: sums of five hundred of them stay within int64, and a whole one is exact as a double."""
MOST_ENTRY = 1000
"""Of a factor that is not kept in the box, as in the literal setting of FELB."""
ROUNDING = 1e-4
"""Entries of V are rounded to a grid, and averages of them weighed; so the box is this much wider."""
COUNTS = frozenset(
    {
        "counts", "supports", "residual", "rows", "pairs", "ones", "zeros", "covered", "claimed", "members", "cells",
        "shared", "tp", "fp", "positive", "negative", "unfinished", "filled",
    }
)  # fmt: skip
"""Values that count something and so are never negative."""
BY_ROW = frozenset({"supports", "residual", "pairs", "shared"})
"""Counts of rows: at most as many as a site has."""


def check_response(
    values: Values, request: Request, *, n_features: int, noisy: bool, rows: int | None = None, sites: int = 1
) -> None:
    """Raise unless the values can be those of some rows: of a response, or of the sum over a number of `sites`.

    `rows` is what the site has told before. Of `noisy` values only the size is known.
    """
    for name, value in values.items():
        if not value.size:
            continue
        if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
            raise FederationError(f"{name} holds NaN or infinity")
        if max(abs(value.max().item()), abs(value.min().item())) > MOST * sites:
            raise FederationError(f"{name} holds a number that no data can have")
        if not noisy and name in COUNTS and value.min() < 0:
            raise FederationError(f"{name} holds a negative count")
    if not noisy:
        _check_factors(values, request, sites)
        _check_counts(values, request, (n_features, sites), rows)


def rows_told(values: Values) -> int | None:
    """Return how many rows a response says its site has, if it does."""
    return int(values["rows"]) if "rows" in values and values["rows"].size == 1 else None


def _check_factors(values: Values, request: Request, sites: int) -> None:
    V = values.get("V")
    if V is None:
        return
    low, high = -ROUNDING * sites, (1 + ROUNDING) * sites
    if request.task in (LOCAL_COMPONENTS, ALIGNED_COMPONENTS):
        _require(bool(((V >= 0) & (sites >= V) & (np.rint(V) == V)).all()), "V holds other values than 0 and 1")
    elif request.task == LOCAL_FACTOR and "curvature" in values:
        curvature = values["curvature"].astype(np.float64)
        _require(bool((curvature >= 0).all()), "curvature is negative")
        top = curvature[:, None] * (1 + ROUNDING) + sites
        _require(bool(((V >= 0) & (top >= V)).all()), "V lies outside of [0, 1]")
    elif request.task == LOCAL_FACTOR:
        _require(bool(((low <= V) & (MOST_ENTRY * sites >= V)).all()), f"V lies outside of [0, {MOST_ENTRY}]")
    elif request.task == FEDPROX:
        _require(bool(((low <= V) & (high >= V)).all()), "V lies outside of [0, 1]")
    if "loss" in values:
        _require(bool((values["loss"] >= -sites).all()), "a sum of squares is negative")


def _check_counts(values: Values, request: Request, size: tuple[int, int], rows: int | None) -> None:
    n_features, sites = size
    told = rows_told(values)
    if told is not None:
        _require(0 <= told <= MOST_ROWS * sites, "rows is no number of rows")
        _require(rows is None or told == rows, "the number of rows has changed")
        rows = told
    most = MOST_ROWS * sites if rows is None else rows
    for name in BY_ROW & values.keys():
        _require(bool((values[name] <= most).all()), f"{name} exceeds the number of rows")
    if "counts" in values and values["counts"].shape[-1] == 4:
        tp, fp, fn, cells = np.moveaxis(values["counts"], -1, 0)
        _require(bool((tp + fp + fn <= cells).all()), "counts exceed the number of cells")
        _require(bool((cells <= most * n_features).all()), "cells exceed rows times features")
    if request.task == PAIR_COUNTS:
        pairs, seeds = values["pairs"], np.asarray(request.values["seeds"])
        own = pairs[np.arange(len(seeds)), seeds]
        _require(bool((pairs <= own[:, None]).all()), "pairs occur more often than one of them")
    if request.task == SHARED_COUNTS:
        shared = values["shared"]
        own = np.diagonal(shared)
        _require(bool((shared <= np.minimum(own[:, None], own)).all()), "pairs occur more often than one of them")
        _require(bool((shared == shared.T).all()), "shared is not symmetric")
    if request.task == THRESHOLD_COUNTS:
        _require(bool((values["covered"] <= values["claimed"]).all()), "covered exceeds claimed")
        _require(bool((values["covered"] <= values["ones"]).all()), "covered exceeds the number of ones")
        _require(bool((values["claimed"] <= values["cells"]).all()), "claimed exceeds the number of cells")
        _require(bool(values["ones"] <= values["cells"]), "ones exceed the number of cells")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise FederationError(otherwise)
