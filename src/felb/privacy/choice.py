"""Private choice among public candidates for V: one small release."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import boolean_product
from felb.privacy.bounds import GRID_BITS, RecordSum, check_bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


def row_gains(A: BinaryMatrix, V: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return each row's covered ones minus covered zeros under its own best components of V."""
    cover = boolean_product(assign_rows(A, V), V).to_scipy(np.int64)
    hits = A.to_scipy(np.int64).multiply(cover)
    return np.asarray(2 * hits.sum(axis=1) - cover.sum(axis=1), dtype=np.int64).ravel()


def gain_differences(A: BinaryMatrix, candidates: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Return for each row how much more it gains by each candidate than by the first one, the default."""
    if len(candidates) < 2:
        raise InputError("there is nothing to choose: give the default and at least one other candidate")
    base = row_gains(A, candidates[0])
    return np.stack([row_gains(A, V) - base for V in candidates[1:]], axis=1)


def gain_bound(synthetic: BinaryMatrix, candidates: Sequence[NDArray[np.bool_]], *, quantile: float = 0.98) -> float:
    """Return G, the length of the vector of differences that few synthetic rows exceed; public, since they are."""
    lengths = np.linalg.norm(gain_differences(synthetic, candidates), axis=1)
    return max(1.0, float(np.quantile(lengths, quantile))) if lengths.size else 1.0


def clipped_gains(
    A: BinaryMatrix, candidates: Sequence[NDArray[np.bool_]], bound: float, *, bits: int = GRID_BITS
) -> RecordSum:
    """Σ_r d_r min(1, G/‖d_r‖) over the rows' vectors of differences d_r, in steps of 2^−bits; Δ = 2^bits G.

    Rounded towards zero row by row. Differences have signs: exchanging a record can move the sum by 2Δ.
    """
    check_bound("bound", bound)
    differences = gain_differences(A, candidates).astype(np.float64)
    lengths = np.linalg.norm(differences, axis=1)
    clipped = differences * np.minimum(1.0, (1 - 1e-12) * bound / np.maximum(lengths, 1e-300))[:, None]
    steps = np.trunc(np.ldexp(clipped, bits)).astype(np.int64)
    return RecordSum(steps.sum(axis=0), math.ldexp(1.0, -bits), math.ldexp(bound, bits), signed=True)


def choose(noisy_sums: NDArray[Any], *, sigma: float, z: float = 1.0) -> int:
    """Return the number of the chosen candidate: the default (0) unless the best other one gains more than zσ."""
    sums = np.asarray(noisy_sums, dtype=np.float64)
    best = int(np.argmax(sums))
    return best + 1 if sums[best] > z * sigma else 0
