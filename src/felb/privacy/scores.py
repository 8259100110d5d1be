"""Noisy scores: counts of right and wrong cells with a bounded part of each record."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.kernels.boolean import boolean_product
from felb.metrics import Counts
from felb.privacy.bounds import GRID_BITS, RecordSum, capped_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


def clipped_counts(
    A: BinaryMatrix, U: NDArray[np.bool_], V: NDArray[np.bool_], bound: float, *, bits: int = GRID_BITS
) -> RecordSum:
    """Σ_r w_r (tp_r, fp_r, fn_r, 1) with w_r = min(1, D/‖(tp_r, fp_r, fn_r, 1)‖), D² = bound² + 1; Δ = 2^bits D.

    The last entry counts the records with their weights, so that the four together are counts of weighted records.
    """
    if not bound > 0:
        raise InputError(f"a record's part in the scores needs a positive bound, got {bound}")
    cover = boolean_product(U, V).to_scipy(np.int64)
    hits = np.asarray(A.to_scipy(np.int64).multiply(cover).sum(axis=1)).ravel()
    claimed = np.asarray(cover.sum(axis=1)).ravel()
    rows = np.stack([hits, claimed - hits, A.row_sums() - hits, np.ones_like(hits)], axis=1).astype(np.int64)
    largest = math.sqrt(bound**2 + 1)
    weights = capped_weights(np.sqrt((rows**2).sum(axis=1).astype(np.float64)), largest, bits)
    return RecordSum(
        (weights[:, None] * rows).sum(axis=0), math.ldexp(1.0, -bits), math.ldexp(largest, bits), signed=False
    )


def read_counts(values: NDArray[Any], n_columns: int) -> Counts:
    """Return the counts that a noisy sum lets expect; what noise made negative is zero."""
    tp, fp, fn, records = (max(0, round(float(value))) for value in values)
    return Counts(tp, fp, fn, max(records * n_columns, tp + fp + fn))
