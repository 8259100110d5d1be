"""The gain of flipping each entry of V: the statistic that clients sum to refine the shared components.

A cell (r, j) is *left to* component l if no other component of row r covers column j. Switching V_lj on changes exactly
the cells (r, j) with U_rl = 1 that are left to l, whatever V_lj is now. Two counts describe them,

    ones_lj  = |{r : U_rl, A_rj, (r, j) left to l}|        cells_lj = |{r : U_rl, (r, j) known and left to l}|,

and both add up over blocks of rows, hence over clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.kernels.bit_vectors import COUNTERS, MOST_COUNTED, add_bits
from felb.kernels.bits import group_masks, lowest_bit, popcount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.kernels.boolean import FactorMasks

MAX_SUBSET_COMPONENTS = 22
"""Beyond this many components a table over all their subsets (8 · 2^k bytes) is not worth its memory."""


def switch_counts(A: BinaryMatrix, factors: FactorMasks) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (ones, cells), each k × m: what is left to component l in column j; see the head of this module.

    With weights w₁ >= 0 of a covered one and w₀ <= 0 of a covered zero, w₁·ones_lj + w₀·(cells_lj − ones_lj) is the
    gain of V_lj = 1 over V_lj = 0 given all other components.

    The ones take one pass over A. Whether a cell is left to a component depends on the masks of its row and column
    only, so cells are counted for pairs of distinct masks, without a look at the data; unknown ones are then taken out
    by a pass like that for the ones.
    """
    k, row_masks, column_masks = len(factors.packed), factors.rows, factors.columns
    ones = _ones_left(A, row_masks, column_masks, k)
    rows, _, row_counts = group_masks(row_masks)
    columns, column_class, _ = group_masks(column_masks)
    cells = np.zeros((columns.shape[0], k), dtype=np.int64)
    if k <= MAX_SUBSET_COMPONENTS and k << k < rows.shape[0] * columns.shape[0]:
        cells_left_by_subsets_into(cells, rows[:, 0], row_counts, columns[:, 0])
    else:
        cells_left_into(cells, rows, row_counts, columns)
    all_cells = cells[column_class]
    if A.unknown is not None:
        all_cells -= _ones_left(A.unknown, row_masks, column_masks, k)
    return np.ascontiguousarray(ones.T), np.ascontiguousarray(all_cells.T)


def _ones_left(
    A: BinaryMatrix, row_masks: NDArray[np.uint64], column_masks: NDArray[np.uint64], k: int
) -> NDArray[np.int64]:
    """Return how many ones of each column are left to each component, m × k."""
    ones = np.zeros((A.shape[1], k), dtype=np.int64)
    if row_masks.shape[1] == 1:
        counters = np.zeros((A.shape[1], COUNTERS * -(-max(1, k) // COUNTERS)), dtype=np.uint16)
        for first in range(0, A.shape[0], MOST_COUNTED):
            rows = slice(first, first + MOST_COUNTED)
            ones_left_one_word_into(
                counters, A.indptr[first : first + MOST_COUNTED + 1], A.indices, row_masks[rows, 0], column_masks[:, 0]
            )
            ones += counters[:, :k]
            counters[:] = 0
    else:
        ones_left_into(ones, A.indptr, A.indices, row_masks, column_masks)
    return ones


# -- kernels ---------------------------------------------------------------------------------------------------------


# A cell is left to all components of its row if it is uncovered, and to the one that covers it if there is only one.


@njit(cache=True, nogil=True)
def ones_left_into(ones: Any, indptr: Any, indices: Any, row_masks: Any, column_masks: Any) -> None:
    """Add, for every one (r, j) of the data, 1 to ``ones[j, l]`` of each component l of row r it is left to."""
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            covers = 0
            for w in range(row_masks.shape[1]):
                covers += popcount(row_masks[r, w] & column_masks[j, w])
            if covers > 1:
                continue
            for w in range(row_masks.shape[1]):
                left = row_masks[r, w] if covers == 0 else row_masks[r, w] & column_masks[j, w]
                while left != np.uint64(0):
                    ones[j, (w << 6) + lowest_bit(left)] += 1
                    left &= left - np.uint64(1)


@njit(cache=True, nogil=True)
def ones_left_one_word_into(counters: Any, indptr: Any, indices: Any, row_masks: Any, column_masks: Any) -> None:
    """Do the same for at most 64 components and `MOST_COUNTED` rows, in counters of 16 bits and without a branch."""
    for r in range(indptr.shape[0] - 1):
        mask = row_masks[r]
        if mask != np.uint64(0):
            for p in range(indptr[r], indptr[r + 1]):
                j = indices[p]
                covering = mask & column_masks[j]
                left = mask if covering == np.uint64(0) else covering
                add_bits(counters, j, np.uint64(0) if popcount(covering) > 1 else left)


@njit(cache=True, nogil=True)
def cells_left_into(cells: Any, rows: Any, row_counts: Any, columns: Any) -> None:
    """Add, for every distinct row mask and column mask j, its rows to ``cells[j, l]`` of the l they are left to."""
    for r in range(rows.shape[0]):
        for j in range(columns.shape[0]):
            covers = 0
            for w in range(rows.shape[1]):
                covers += popcount(rows[r, w] & columns[j, w])
            if covers > 1:
                continue
            for w in range(rows.shape[1]):
                left = rows[r, w] if covers == 0 else rows[r, w] & columns[j, w]
                while left != np.uint64(0):
                    cells[j, (w << 6) + lowest_bit(left)] += row_counts[r]
                    left &= left - np.uint64(1)


@njit(cache=True, nogil=True)
def cells_left_by_subsets_into(cells: Any, rows: Any, row_counts: Any, columns: Any) -> None:
    """Do the same for few components through a table over all subsets of them.

    Let F(S) be the number of rows whose components all lie in S. Rows with component l and no other component of
    column mask M number F(complement of M without l) − F(complement of M with l).
    """
    k = cells.shape[1]
    within = np.zeros(1 << k, dtype=np.int64)
    for g in range(rows.shape[0]):
        within[np.int64(rows[g])] = row_counts[g]
    for c in range(k):
        # Sum over subsets, one component at a time: pairs of sets that differ in c lie 2^c apart.
        step = 1 << c
        for start in range(0, 1 << k, 2 * step):
            for s in range(start, start + step):
                within[s + step] += within[s]
    everything = (1 << k) - 1
    for i in range(columns.shape[0]):
        outside = everything ^ np.int64(columns[i])
        for c in range(k):
            cells[i, c] = within[outside | (1 << c)] - within[outside & ~(1 << c)]
