"""The gain of candidate components and the residual of a cover: sums for replacing a component.

All counts add up over blocks of rows, hence over clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.errors import InputError
from felb.kernels.assign import cell_gain, check_assignment
from felb.kernels.bit_vectors import GROUP, add_overlaps, grouped_words, places_among, words_of_row
from felb.kernels.bits import group_masks, pack, union_into, unpack
from felb.kernels.boolean import unknown_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.kernels.boolean import FactorMasks


def residual_sums(A: BinaryMatrix, factors: FactorMasks) -> NDArray[np.int64]:
    """Return, for every column, the ones of A that U∘V does not cover."""
    sums = np.zeros(A.shape[1], dtype=np.int64)
    residual_sums_into(sums, A.indptr, A.indices, factors.rows, factors.columns)
    return sums


def residual_pairs(A: BinaryMatrix, factors: FactorMasks, seeds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the co-occurrence of each seed column with all columns among the ones that U∘V leaves, seeds × m."""
    seeds = np.asarray(seeds, dtype=np.int64)
    if seeds.ndim != 1 or len(np.unique(seeds)) != len(seeds) or not np.all((seeds >= 0) & (seeds < A.shape[1])):
        raise InputError(f"seeds must be different columns between 0 and {A.shape[1] - 1}")
    place = np.full(A.shape[1], -1, dtype=np.int64)
    place[seeds] = np.arange(len(seeds))
    pairs = np.zeros((len(seeds), A.shape[1]), dtype=np.int64)
    residual_pairs_into(pairs, place, A.indptr, A.indices, factors.rows, factors.columns)
    return pairs


def addition_counts(
    A: BinaryMatrix, factors: FactorMasks, candidates: Any, *, weight_one: float = 1.0, weight_zero: float = -1.0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, for each candidate row set, the ones and known zeros it would add to U∘V in the rows where it pays.

    A candidate c pays in row r if w₁·ones + w₀·zeros > 0 over the columns of c that the row's components leave
    open. Summed over those rows, w₁·ones_c + w₀·zeros_c is what c would gain as one more component.
    """
    candidates = check_assignment(A, candidates, weight_one, weight_zero)
    rows, row_class, _ = group_masks(factors.rows)
    used = candidates.any(axis=0)
    if not used.any():
        return np.zeros(len(candidates), dtype=np.int64), np.zeros(len(candidates), dtype=np.int64)
    table = grouped_words(candidates[:, used])
    added = np.zeros((2, GROUP * len(table)), dtype=np.int64)
    # Rows of one class are visited together, because what is open in a row depends on its mask alone.
    order = np.argsort(row_class, kind="stable")
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
    return added[0, : len(candidates)], added[1, : len(candidates)]


# -- kernels ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _is_covered(row_mask: Any, column_mask: Any) -> bool:
    common = np.uint64(0)
    for w in range(row_mask.shape[0]):
        common |= row_mask[w] & column_mask[w]
    return bool(common != np.uint64(0))


@njit(cache=True, nogil=True)
def residual_sums_into(sums: Any, indptr: Any, indices: Any, row_masks: Any, column_masks: Any) -> None:
    """Add 1 to ``sums[j]`` for every one (r, j) that is not covered."""
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            if not _is_covered(row_masks[r], column_masks[j]):
                sums[j] += 1


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
    """Add the ones and zeros of the candidates that pay, row by row, to ``added[0]`` and ``added[1]``."""
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
        for c in range(ones.shape[0]):
            # Without a one, a candidate never pays.
            if cell_gain(ones[c], sizes[c], weight_one, weight_zero) > 0.0:
                added[0, c] += ones[c]
                added[1, c] += sizes[c] - ones[c]


@njit(cache=True, nogil=True)
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
