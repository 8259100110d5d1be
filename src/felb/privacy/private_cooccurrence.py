"""Co-occurrence of features as a bounded sum over records.

Three statistics, each additive over records and clients, with a bound on what one record contributes:

    sizes          how many records have how many ones                              Δ = 1
    co-occurrence  the upper triangle of Σ_r w_r a_r a_rᵀ, and N = Σ_r w_r          Δ = √(B(B+1)/2 + 1)
    columns        Σ_r w_r a_r, for data too wide for all pairs                     Δ = √B

A record with r ones has the weight w = min(1, Δ/‖its part‖): records with more ones than the bound B count for less.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.privacy.bounds import GRID_BITS, RecordSum, capped_weights, check_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

ROWS_AT_A_TIME = 1 << 14
DEFAULT_ROW_BOUND = 20
"""B where the histogram of sizes drowns in its noise."""

MOST_RECORDS = 0.8
"""Share of the records that must be in bins of sizes that stand out from the noise, for these to stand for all."""

LEAST_PAIRED = 200
"""Columns of wide data whose pairs are counted, at least."""


# -- sizes of records --------------------------------------------------------------------------------------------------


def size_edges(n_columns: int) -> NDArray[np.int64]:
    """Upper ends of the bins of sizes: 0, 1, … 32, then growing by a tenth, up to `n_columns`; they are public."""
    edges = list(range(min(32, n_columns) + 1))
    while edges[-1] < n_columns:
        edges.append(min(n_columns, max(edges[-1] + 1, round(edges[-1] * 1.1))))
    return np.asarray(edges, dtype=np.int64)


def row_size_histogram(A: BinaryMatrix, *, bits: int = GRID_BITS) -> RecordSum:
    """Count the records per bin of `size_edges`, in steps of 2^−bits; a record counts once in one bin: Δ = 2^bits."""
    edges = size_edges(A.shape[1])
    bins = np.searchsorted(edges, A.row_sums())
    counts = np.bincount(bins, minlength=edges.size).astype(np.int64)
    return RecordSum(counts << bits, math.ldexp(1.0, -bits), math.ldexp(1.0, bits))


def row_bound_from_histogram(noisy: NDArray[Any], n_columns: int, *, sigma: float) -> int:
    """Return B, the median size by a noisy histogram; bins below two standard deviations are taken as empty.

    The median, since a bound that suits the largest records would make the noise too large for all. Where the bins that
    stand out hold too few of the records, but all bins together stand out, it is the smallest size that may halve their
    sum, within a standard deviation: a bound too small costs little, since records above
    it keep their ratio to the noise, and one too large drowns all of them.
    """
    edges = size_edges(n_columns)
    counts = np.asarray(noisy, dtype=np.float64)
    if counts.shape != edges.shape:
        raise InputError(f"a histogram of sizes over {n_columns} columns has {edges.size} bins, not {counts.shape}")
    kept, total = np.where(counts > 2 * sigma, counts, 0.0), float(counts.sum())
    noise = sigma * math.sqrt(counts.size)
    # Bins that stand out do so partly by their noise, which must not pass for records.
    surely = kept.sum() - sigma * np.count_nonzero(kept)
    if surely < MOST_RECORDS * total and total > 2 * noise:
        middle = int(np.argmax(2 * np.cumsum(counts) - total > -noise))
    elif kept.sum() <= 0:
        return min(DEFAULT_ROW_BOUND, max(1, n_columns))
    else:
        middle = int(np.searchsorted(np.cumsum(kept) / kept.sum(), 0.5))
    return max(1, int(edges[min(middle, edges.size - 1)]))


# -- co-occurrence -----------------------------------------------------------------------------------------------------


def cooccurrence_sensitivity(row_bound: float) -> float:
    """D = √(B(B+1)/2 + 1): the norm of triu(a aᵀ) of a record with B ones together with its 1 in N."""
    return math.sqrt(row_bound * (row_bound + 1) / 2 + 1)


def weighted_cooccurrence(A: BinaryMatrix, row_bound: float, *, bits: int = GRID_BITS) -> RecordSum:
    """Return [triu(Σ_r w_r a_r a_rᵀ), Σ_r w_r] as m(m+1)/2 + 1 integers, in steps of 2^−bits.

    A record with r ones has w = ⌊2^bits min(1, D/√(r(r+1)/2 + 1))⌋, so its part is never longer than 2^bits D.
    """
    bound = cooccurrence_sensitivity(check_bound("row_bound", row_bound))
    sizes = A.row_sums().astype(np.float64)
    weights = capped_weights(np.sqrt(sizes * (sizes + 1) / 2 + 1), bound, bits)
    m = A.shape[1]
    sums = np.zeros((m, m), dtype=np.int64)
    for start in range(0, A.shape[0], ROWS_AT_A_TIME):
        rows = A.rows(start, start + ROWS_AT_A_TIME).to_scipy(np.int64)
        weighted = rows.copy()
        weighted.data = np.repeat(weights[start : start + ROWS_AT_A_TIME], np.diff(rows.indptr))
        sums += np.asarray((weighted.T @ rows).todense())
    values = np.append(sums[np.triu_indices(m)], weights.sum())
    return RecordSum(values, math.ldexp(1.0, -bits), math.ldexp(bound, bits))


@dataclass(frozen=True, slots=True)
class NoisyCooccurrence:
    """What the server has of the data: M ≈ AᵀWA, symmetric, N ≈ the sum of weights, and σ, the noise of each entry."""

    M: NDArray[np.float64]
    N: float
    sigma: float

    @classmethod
    def of(cls, total: NDArray[Any], n_columns: int, *, grid: float, sigma: float) -> NoisyCooccurrence:
        """Read the sum of releases of `weighted_cooccurrence`; `sigma` is its noise in units of the data, not steps."""
        values = np.asarray(total, dtype=np.float64) * grid
        if values.shape != (n_columns * (n_columns + 1) // 2 + 1,):
            raise InputError(f"{values.size} numbers are no co-occurrence of {n_columns} columns")
        M = np.zeros((n_columns, n_columns))
        M[np.triu_indices(n_columns)] = values[:-1]
        return cls(M + np.triu(M, 1).T, float(values[-1]), float(sigma))

    def of_columns(self, columns: NDArray[np.integer[Any]]) -> NoisyCooccurrence:
        """Restrict to some columns."""
        return NoisyCooccurrence(self.M[np.ix_(columns, columns)], self.N, self.sigma)


# -- columns -----------------------------------------------------------------------------------------------------------


def weighted_column_counts(A: BinaryMatrix, row_bound: float, *, bits: int = GRID_BITS) -> RecordSum:
    """Return Σ_r w_r a_r in steps of 2^−bits, w = ⌊2^bits min(1, √(B/r))⌋ for r ones; Δ = 2^bits √B."""
    bound = math.sqrt(check_bound("row_bound", row_bound))
    weights = capped_weights(np.sqrt(A.row_sums().astype(np.float64)), bound, bits)
    counts = np.zeros(A.shape[1], dtype=np.int64)
    for start in range(0, A.shape[0], ROWS_AT_A_TIME):
        rows = A.rows(start, start + ROWS_AT_A_TIME).to_scipy(np.int64)
        counts += rows.T @ weights[start : start + ROWS_AT_A_TIME]
    return RecordSum(counts, math.ldexp(1.0, -bits), math.ldexp(bound, bits))


def heavy_columns(
    noisy: NDArray[Any], *, sigma: float, z: float = 3.0, most: int = 1000, least: int = 5
) -> NDArray[np.int64]:
    """Return the columns whose noisy count exceeds zσ and 1, ascending: at most `most`, at least `least`."""
    counts = np.asarray(noisy, dtype=np.float64)
    heavy = int((counts > max(z * sigma, 1.0)).sum())
    keep = min(max(heavy, least), most, counts.size)
    return np.sort(np.argsort(-counts, kind="stable")[:keep]).astype(np.int64)


def columns_to_pair(
    noisy: NDArray[Any], *, sigma: float, row_bound: int, least: int = LEAST_PAIRED
) -> tuple[NDArray[np.int64], int]:
    """Return the columns of wide data whose pairs are counted next, and B for records restricted to these.

    At least `least` columns, since one that is lost in the noise here may still stand out among pairs, where records
    with few ones among few columns need little noise: B' = ⌈B s⌉, at least 2, where s is the share of all ones that lie
    in these columns. Counts are soft-thresholded at 2σ for it, so that columns that were kept for their noise do not
    make the bound larger.
    """
    columns = heavy_columns(noisy, sigma=sigma, least=least)
    counts = np.asarray(noisy, dtype=np.float64)
    kept, total = np.maximum(counts[columns] - 2 * sigma, 0.0).sum(), float(counts.sum())
    share = min(1.0, float(kept) / total) if total > 0 else 1.0
    return columns, min(row_bound, max(2, math.ceil(row_bound * share)))


def select_columns(A: BinaryMatrix, columns: NDArray[np.integer[Any]]) -> BinaryMatrix:
    """Return A restricted to public columns, in their order."""
    from felb.data.binary import BinaryMatrix as Matrix

    return Matrix.of(A.to_scipy()[:, np.asarray(columns)])
