"""Co-occurrence of features: (AᵀA)_ij = |{r : A_ri ∧ A_rj}|, an additive statistic of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.kernels.bits import pack_binary_columns, popcount, words_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

PACKED_ADVANTAGE = 8.0
"""How many packed words are compared in the time in which one pair of ones is counted."""

PACKED_ROWS = 1 << 14
"""Rows packed at once: few enough for a block of columns to stay in cache, and for little memory."""


def cooccurrence(A: BinaryMatrix) -> NDArray[np.int64]:
    """Return AᵀA as a dense m × m array of counts; the diagonal holds the column sums.

    Counts every pair of ones within the rows, Σ_r |A_r|² / 2 steps, or, where that is cheaper, compares packed columns,
    m² n / 128 words.
    """
    n, m = A.shape
    counts = np.zeros((m, m), dtype=np.int64)
    lengths = A.row_sums()
    if PACKED_ADVANTAGE * float(lengths @ lengths) > float(m) * m * words_for(n):
        for block in A.row_blocks(PACKED_ROWS):
            count_column_pairs_into(counts, pack_binary_columns(block))
    else:
        count_row_pairs_into(counts, A.indptr, A.indices)
    mirror_into(counts)
    return counts


# -- kernels: each fills the upper triangle, `mirror_into` the lower one -----------------------------------------------


@njit(cache=True, nogil=True)
def count_row_pairs_into(counts: Any, indptr: Any, indices: Any) -> None:
    """Add 1 to ``counts[i, j]``, i <= j, for every pair of ones within a row."""
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            i = indices[p]
            for q in range(p, indptr[r + 1]):
                counts[i, indices[q]] += 1


@njit(cache=True, nogil=True)
def count_column_pairs_into(counts: Any, columns: Any) -> None:
    """Add |columns i ∧ j| to ``counts[i, j]``, i <= j, from packed columns."""
    for i in range(columns.shape[0]):
        for j in range(i, columns.shape[0]):
            common = 0
            for w in range(columns.shape[1]):
                common += popcount(columns[i, w] & columns[j, w])
            counts[i, j] += common


@njit(cache=True, nogil=True)
def mirror_into(counts: Any) -> None:
    """Copy the upper triangle to the lower one."""
    for i in range(counts.shape[0]):
        for j in range(i):
            counts[i, j] = counts[j, i]
