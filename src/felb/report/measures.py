"""Scores with intervals: over records if the data is available, otherwise over cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from felb.kernels.boolean import boolean_product_dense
from felb.metrics import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

    Interval = tuple[float, float]

LEVEL, Z = 0.95, 1.959963984540054
"""Of every interval, and how many standard deviations that is."""

RESAMPLES, FEWER_RESAMPLES, MANY_KINDS = 2000, 400, 20_000
"""Of the bootstrap; fewer where records differ in so many ways that each resample takes long."""

BLOCK = 4096
"""Rows at a time."""


def row_counts(A: BinaryMatrix, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return tp, fp, fn and known cells of every row of U∘V against A, n × 4.

    Their sums are `felb.metrics.confusion`; unknown cells count nowhere.
    """
    n, m = A.shape
    found = np.empty((n, 4), dtype=np.int64)
    for start in range(0, n, BLOCK):
        rows = A.rows(start, min(start + BLOCK, n))
        # Rows with the same components have the same reconstruction.
        patterns, which = np.unique(U[start : start + len(rows)], axis=0, return_inverse=True)
        product, which = boolean_product_dense(patterns, V), which.reshape(-1)
        ones = rows.row_sums()
        tp = _hits(rows, product, which)
        claimed, known = product.sum(axis=1)[which], np.full(len(rows), m)
        if rows.unknown is not None:
            claimed, known = claimed - _hits(rows.unknown, product, which), known - rows.unknown.row_sums()
        found[start : start + len(rows)] = np.column_stack([tp, claimed - tp, ones - tp, known])
    return found


def _hits(rows: BinaryMatrix, product: NDArray[np.bool_], which: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many ones of each row are ones of its reconstruction ``product[which]``."""
    owner = np.repeat(np.arange(len(rows)), rows.row_sums())
    first, last = rows.indptr[0], rows.indptr[-1]  # a slice shares the places of all ones
    hit = product[which[owner], rows.indices[first:last]]
    return np.bincount(owner, weights=hit, minlength=len(rows)).astype(np.int64)


def total(rows: NDArray[np.int64]) -> Counts:
    """Return the counts of all rows together."""
    tp, fp, fn, cells = (int(count) for count in rows.sum(axis=0))
    return Counts(tp, fp, fn, cells)


def bootstrap(rows: NDArray[np.int64], *, seed: int = 0) -> tuple[dict[str, Interval], int]:
    """Return the percentile interval of every score under resampling of records, and the number of resamples.

    Records with equal counts are drawn together by a multinomial, which is the same as drawing them one by one.
    """
    kinds, times = np.unique(rows, axis=0, return_counts=True)
    resamples = RESAMPLES if len(kinds) <= MANY_KINDS else FEWER_RESAMPLES
    rng, drawn = np.random.default_rng(seed), np.empty((resamples, 4), dtype=np.int64)
    batch = max(1, 2_000_000 // len(kinds))
    for start in range(0, resamples, batch):
        size = min(batch, resamples - start)
        drawn[start : start + size] = rng.multinomial(len(rows), times / len(rows), size=size) @ kinds
    scores = [total(sums[None]).scores() for sums in drawn]
    tails = (50 * (1 - LEVEL), 50 * (1 + LEVEL))
    ends = {name: np.percentile([score[name] for score in scores], tails) for name in scores[0]}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}, resamples


def wilson(successes: float, trials: float) -> Interval:
    """Return Wilson's interval of a share, (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n).

    Examples
    --------
    >>> [round(end, 3) for end in wilson(5, 10)]
    [0.237, 0.763]
    """
    if trials <= 0:
        return 0.0, 1.0
    p, z2 = successes / trials, Z * Z
    centre = p + z2 / (2 * trials)
    half = Z * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials * trials))
    scale = 1 + z2 / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def cell_intervals(counts: Counts) -> dict[str, Interval]:
    """Return an interval of every score as if cells were independent, from Wilson's of the share behind it.

    Precision and recall are shares; F1 = 2J/(1 + J) is increasing in the share J = tp/(tp + fp + fn); errors, RMSD and
    coverage are monotone in the share of wrong cells.
    """
    tp, fp, fn, cells = counts.tp, counts.fp, counts.fn, counts.cells
    low, high = wilson(counts.errors, cells)
    same_low, same_high = wilson(tp, tp + fp + fn)
    ones = tp + fn
    found = {
        "f1": (2 * same_low / (1 + same_low), 2 * same_high / (1 + same_high)),
        "precision": wilson(tp, tp + fp),
        "recall": wilson(tp, ones),
        "rmsd": (math.sqrt(low), math.sqrt(high)),
        "rmsd_table": (50 * math.sqrt(low), 50 * math.sqrt(high)),
        "errors": (low * cells, high * cells),
    }
    if ones:
        found["coverage"] = (1 - high * cells / ones, 1 - low * cells / ones)
    return found


def jaccard(members: NDArray[np.bool_] | Mapping[str, NDArray[np.bool_]]) -> NDArray[np.float64]:
    """Return |a ∩ b| / |a ∪ b| of every two columns, over the rows of one matrix or several; 0 for empty ones."""
    parts = [members] if isinstance(members, np.ndarray) else list(members.values())
    both = sum((part.astype(np.float64).T @ part.astype(np.float64) for part in parts), start=np.zeros(()))
    sizes = np.diag(both)
    either = sizes[:, None] + sizes[None, :] - both
    return np.divide(both, either, out=np.zeros_like(both), where=either > 0)
