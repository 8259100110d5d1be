"""The gain of flipping an entry of V, and of adding a candidate component: the statistics that clients sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.kernels.assign import check_assignment
from felb.kernels.bits import (
    COUNTERS,
    GROUP,
    MOST_COUNTED,
    add_bits,
    add_overlaps,
    add_paying,
    group_masks,
    grouped_words,
    lowest_bit,
    order_by_group,
    pack,
    places_among,
    popcount,
    union_into,
    unpack,
    words_of_row,
)
from felb.kernels.boolean import unknown_arrays
from felb.kernels.compiler import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.kernels.boolean import FactorMasks


# -- The gain of flipping each entry of V: the statistic that clients sum to refine the shared components ------------
#
# A cell (r, j) is *left to* component l if no other component of row r covers column j. Switching V_lj on changes
# exactly the cells (r, j) with U_rl = 1 that are left to l, whatever V_lj is now. Two counts describe them,
#
#     ones_lj  = |{r : U_rl, A_rj, (r, j) left to l}|        cells_lj = |{r : U_rl, (r, j) known and left to l}|,
#
# and both add up over blocks of rows, hence over clients.

MAX_SUBSET_COMPONENTS = 22
"""Beyond this many components a table over all their subsets (8 · 2^k bytes) is not worth its memory."""


COLUMNS_AT_ONCE = 256
"""Columns whose counters are transposed together, in the first-level cache."""


def count_switches(A: BinaryMatrix, factors: FactorMasks) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (ones, cells), each k × m: what is left to component l in column j; see above.

    With weights w₁ >= 0 of a covered one and w₀ <= 0 of a covered zero, w₁·ones_lj + w₀·(cells_lj − ones_lj) is the
    gain of V_lj = 1 over V_lj = 0 given all other components.

    The ones take one pass over A. Whether a cell is left to a component depends on the masks of its row and column
    only, so cells are counted for pairs of distinct masks, without a look at the data; unknown ones are then taken out
    by a pass like that for the ones.
    """
    k, row_masks, column_masks = len(factors.packed), factors.rows, factors.columns
    rows, _, row_counts = group_masks(row_masks)
    columns, column_class, _ = group_masks(column_masks)
    cells = np.zeros((columns.shape[0], k), dtype=np.int64)
    if k <= MAX_SUBSET_COMPONENTS and k << k < rows.shape[0] * columns.shape[0]:
        cells_left_by_subsets_into(cells, rows[:, 0], row_counts, columns[:, 0])
    else:
        cells_left_into(cells, rows, row_counts, columns)
    all_cells = np.ascontiguousarray(cells.T)[:, column_class]
    if A.unknown is not None:
        all_cells -= _ones_left(A.unknown, row_masks, column_masks, k)
    return _ones_left(A, row_masks, column_masks, k), all_cells


def _ones_left(
    A: BinaryMatrix, row_masks: NDArray[np.uint64], column_masks: NDArray[np.uint64], k: int
) -> NDArray[np.int64]:
    """Return how many ones of each column are left to each component, k × m."""
    n, m = A.shape
    if row_masks.shape[1] > 1:
        by_column = np.zeros((m, k), dtype=np.int64)
        ones_left_into(by_column, A.indptr, A.indices, row_masks, column_masks)
        return np.ascontiguousarray(by_column.T)
    ones = np.zeros((k, m), dtype=np.int64)
    counters = np.zeros((m, COUNTERS * -(-max(1, k) // COUNTERS)), dtype=np.uint16)
    for first in range(0, n, MOST_COUNTED):
        last = min(first + MOST_COUNTED, n)
        rows = A.indptr[first : last + 1], A.indices, row_masks[first:last, 0]
        ones_left_one_word_into(counters, *rows, column_masks[:, 0])
        move_counters_into(ones, counters)
    return ones


# A cell is left to all components of its row if it is uncovered, and to the one that covers it if there is only one.
# The same loop stands in two kernels: as a function of its own it takes twice the time.


@kernel
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


@kernel
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


@kernel
def move_counters_into(ones: Any, counters: Any) -> None:
    """Add ``counters[j, l]`` to ``ones[l, j]`` and empty the counters."""
    k, m = ones.shape
    for first in range(0, m, COLUMNS_AT_ONCE):
        last = min(first + COLUMNS_AT_ONCE, m)
        for c in range(k):
            for j in range(first, last):
                ones[c, j] += counters[j, c]
    counters[:] = np.uint16(0)


@kernel
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


@kernel
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


# -- The gain of candidate components and the residual of a cover: sums for replacing a component --------------------
#
# All counts add up over blocks of rows, hence over clients.


def sum_residual(A: BinaryMatrix, factors: FactorMasks) -> NDArray[np.int64]:
    """Return, for every column, the ones of A that U∘V does not cover."""
    sums = np.zeros(A.shape[1], dtype=np.int64)
    residual_sums_into(sums, A.indptr, A.indices, factors.rows, factors.columns)
    return sums


def count_residual_pairs(A: BinaryMatrix, factors: FactorMasks, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the co-occurrence of each seed column with all columns among the ones that U∘V leaves, seeds × m."""
    seeds = np.asarray(seeds, dtype=np.int64)
    if seeds.ndim != 1 or len(np.unique(seeds)) != len(seeds) or not np.all((seeds >= 0) & (seeds < A.shape[1])):
        raise InputError(f"seeds must be different columns between 0 and {A.shape[1] - 1}")
    place = np.full(A.shape[1], -1, dtype=np.int64)
    place[seeds] = np.arange(len(seeds))
    pairs = np.zeros((len(seeds), A.shape[1]), dtype=np.int64)
    residual_pairs_into(pairs, place, A.indptr, A.indices, factors.rows, factors.columns)
    return pairs


def count_additions(
    A: BinaryMatrix,
    factors: FactorMasks,
    candidates: Any,
    *,
    weight_one: float = 1.0,
    weight_zero: float = -1.0,
    count_rows: bool = False,
) -> NDArray[np.int64]:
    """Return, for each candidate row set, the ones and known zeros it would add to U∘V in the rows where it pays.

    A candidate c pays in row r if w₁·ones + w₀·zeros > 0 over the columns of c that the row's components leave
    open. Summed over those rows, w₁·ones_c + w₀·zeros_c is what c would gain as one more component.

    With `count_rows`, two more rows of the result tell in how many rows it pays, and in how many it adds zeros.
    """
    height = 4 if count_rows else 2
    candidates = check_assignment(A, candidates, weight_one, weight_zero)
    rows, row_class, sizes = group_masks(factors.rows)
    used = candidates.any(axis=0)
    if not used.any():
        return np.zeros((height, len(candidates)), dtype=np.int64)
    table = grouped_words(candidates[:, used])
    added = np.zeros((height, GROUP * len(table)), dtype=np.int64)
    # Rows of one class are visited together, because what is open in a row depends on its mask alone.
    order = order_by_group(row_class, sizes)
    additions_into(
        added,
        A.indptr,
        A.indices,
        *unknown_arrays(A),
        order,
        row_class,
        rows,
        places_among(used),
        pack(unpack(factors.packed, A.shape[1])[:, used]),
        table,
        float(weight_one),
        float(weight_zero),
    )
    return added[:, : len(candidates)]


@kernel
def _is_covered(row_mask: Any, column_mask: Any) -> bool:
    common = np.uint64(0)
    for w in range(row_mask.shape[0]):
        common |= row_mask[w] & column_mask[w]
    return bool(common != np.uint64(0))


@kernel
def residual_sums_into(sums: Any, indptr: Any, indices: Any, row_masks: Any, column_masks: Any) -> None:
    """Add 1 to ``sums[j]`` for every one (r, j) that is not covered."""
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            if not _is_covered(row_masks[r], column_masks[j]):
                sums[j] += 1


@kernel
def residual_pairs_into(pairs: Any, place: Any, indptr: Any, indices: Any, row_masks: Any, column_masks: Any) -> None:
    """Add 1 to ``pairs[place[i], j]`` for all ones (r, i), (r, j) that are not covered and where i is a seed."""
    open_columns = np.empty(place.shape[0], dtype=np.int64)
    for r in range(indptr.shape[0] - 1):
        length = 0
        seeded = False
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            if not _is_covered(row_masks[r], column_masks[j]):
                open_columns[length] = j
                length += 1
                seeded = seeded or place[j] >= 0
        if seeded:
            for i in range(length):
                s = place[open_columns[i]]
                if s >= 0:
                    for q in range(length):
                        pairs[s, open_columns[q]] += 1


@kernel
def additions_into(
    added: Any,
    indptr: Any,
    indices: Any,
    unknown_indptr: Any,
    unknown_indices: Any,
    order: Any,
    row_class: Any,
    rows: Any,
    places: Any,
    packed: Any,
    table: Any,
    weight_one: float,
    weight_zero: float,
) -> None:
    """Add the ones and zeros of the candidates that pay, row by row, to ``added[0]`` and ``added[1]``.

    If there is more of it, ``added[2]`` counts the rows that pay and ``added[3]`` those of them with zeros.
    """
    n_words = packed.shape[1]
    every = np.arange(n_words)
    union = np.empty(n_words, dtype=np.uint64)
    which = np.empty(n_words + 1, dtype=np.int64)
    words = np.empty(n_words + 1, dtype=np.uint64)
    cells = np.zeros(added.shape[1], dtype=np.int64)
    ones = np.zeros(added.shape[1], dtype=np.int64)
    known = np.zeros(added.shape[1], dtype=np.int64)
    last = -1
    for i in range(order.shape[0]):
        r = order[i]
        if row_class[r] != last:
            last = row_class[r]
            union_into(union, rows[last], packed)
            cells[:] = 0
            add_overlaps(cells, table, every, ~union, n_words, 1)
        length = _open_words(which, words, indices[indptr[r] : indptr[r + 1]], places, union)
        if length == 0:
            continue
        ones[:] = 0
        add_overlaps(ones, table, which, words, length, 1)
        sizes = cells
        if unknown_indptr.shape[0] > 1 and unknown_indptr[r] < unknown_indptr[r + 1]:
            unknown = unknown_indices[unknown_indptr[r] : unknown_indptr[r + 1]]
            known[:] = cells
            length = _open_words(which, words, unknown, places, union)
            add_overlaps(known, table, which, words, length, -1)
            sizes = known
        add_paying(added, ones, sizes, weight_one, weight_zero)
        if added.shape[0] > 2:
            for c in range(ones.shape[0]):
                if weight_one * ones[c] + weight_zero * (sizes[c] - ones[c]) > 0.0:
                    added[2, c] += 1
                    added[3, c] += int(sizes[c] > ones[c])


@kernel
def _open_words(which: Any, words: Any, row: Any, places: Any, union: Any) -> int:
    """Write the words of a row that have open columns, and their numbers; return how many there are."""
    length = 0
    for i in range(words_of_row(which, words, row, places)):
        w = which[i]
        left = words[i] & ~union[w]
        which[length] = w
        words[length] = left
        length += int(left != np.uint64(0))
    return length
