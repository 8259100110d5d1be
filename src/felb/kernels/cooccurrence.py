"""Co-occurrence of features: (AᵀA)_ij = |{r : A_ri ∧ A_rj}|, an additive statistic of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.errors import InputError
from felb.kernels.bits import pack_binary_columns, popcount, words_for

if TYPE_CHECKING:
    import scipy.sparse as sp
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

PACKED_ADVANTAGE = 8.0
"""How many packed words are compared in the time in which one pair of ones is counted."""

PACKED_ROWS = 1 << 14
"""Rows packed at once: few enough for a block of columns to stay in cache, and for little memory."""

SPARSE_BLOCK_CELLS = 1 << 24
"""Upper limit on the cells of AᵀA that exist before pairs below the minimum are dropped."""


def cooccurrence(A: BinaryMatrix) -> NDArray[np.int64]:
    """Return AᵀA as a dense m × m array of counts; the diagonal holds the column sums.

    Counts every pair of ones within the rows, Σ_r |A_r|² / 2 steps, or, where that is cheaper, compares packed columns,
    m² n / 128 words. For so many columns that m × m counts do not fit into memory, use `cooccurrence_sparse`.
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


def cooccurrence_sparse(A: BinaryMatrix, *, minimum: int = 1) -> sp.csr_array:
    """Return the entries of AᵀA that are at least `minimum` as a SciPy CSR array of int64, columns ascending.

    Works through blocks of columns, so that with a larger `minimum` the many rare pairs of wide data never exist
    all at once.
    """
    import scipy.sparse as sp

    if minimum < 1:
        raise InputError(f"minimum={minimum}: a pair is stored only if it occurs, so the minimum is at least 1")
    m = A.shape[1]
    rows = A.to_scipy(np.int64)
    columns = rows.T.tocsr()
    step = max(1, SPARSE_BLOCK_CELLS // max(1, m))
    blocks = []
    for start in range(0, m, step):
        block = sp.csr_array(columns[start : start + step] @ rows)
        block.data[block.data < minimum] = 0
        block.eliminate_zeros()
        block.sort_indices()
        blocks.append(block)
    return sp.csr_array(sp.vstack(blocks, format="csr")) if blocks else sp.csr_array((m, m), dtype=np.int64)


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
