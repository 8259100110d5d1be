"""Dense blocks of what is left of a matrix: seeds, those who resemble them, and the removal of a block.

A *line* is a row or a column; everything here is written for the lines of a matrix M and the lines of its transpose, so
columns are the rows of Mᵀ. A line with b ones is a pattern B. Another line with c ones inside B resembles it if

    c >= min(t·b + 1, b),

and the block of all a lines that do, and of B, is worth

    (a − 1)(b − 1) − (zeros in the block) = Σ_{lines in the block} (c − 1) − (b − 1).

The second form has one term per line, which makes a bound on it cheap and many seeds need not be looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from felb.linalg.binary import BinaryMatrix
from felb.linalg.bits import pack_binary, popcount, words_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

PACKED_ADVANTAGE = 8.0
"""How many packed words are compared in the time in which one shared one is counted."""

BLOCK = 1024
"""Lines that are compared with a pattern at once; their counts stay in the fastest cache."""


class Seed(NamedTuple):
    """A line whose pattern starts a block, and what the block is worth; line −1 if there is none."""

    line: int
    score: int


def transpose(M: BinaryMatrix) -> BinaryMatrix:
    """Return Mᵀ."""
    n, m = M.shape
    indptr = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(M.column_sums())))
    lines = np.empty(M.nnz, dtype=np.int32)
    transpose_into(lines, indptr[:-1].copy(), M.indptr, M.indices)
    return BinaryMatrix(indptr, lines, n)


def without_block(M: BinaryMatrix, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> BinaryMatrix:
    """Return M with zeros in the block of the given rows and columns."""
    indptr = np.zeros(M.shape[0] + 1, dtype=np.int64)
    indices = np.empty(M.nnz, dtype=M.indices.dtype)
    remove_block_into(indptr, indices, M.indptr, M.indices, rows, columns)
    return BinaryMatrix(indptr, indices[: indptr[-1]].copy(), M.shape[1], M.columns)


def needed(size: int, threshold: float) -> float:
    """Return min(t·b + 1, b): how many ones of a pattern of `size` b a line needs to resemble it."""
    return min(threshold * size + 1, size)


def overlaps(transposed: BinaryMatrix, pattern: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return how many ones of each line lie inside a pattern, from the lines of the transpose that it names."""
    return transposed.take(pattern).column_sums()


def best_seed(M: BinaryMatrix, transposed: BinaryMatrix, seeds: NDArray[np.int64], *, threshold: float) -> Seed:
    """Return the first of the seeds, all of one size, whose block is worth most, if that is more than nothing.

    A block is worth at most Σ_{j ∈ B} |line j of Mᵀ| − (largest of these) − (b − 1), because every line that meets B
    counts one less than it shares. Seeds are tried from the highest bound down, until no bound promises more.
    Shared ones are counted through the lines of the transpose or, where that is cheaper, from packed words.
    """
    if not seeds.size:
        return Seed(-1, 0)
    sizes = transposed.row_sums()
    sums, largest = np.zeros((2, seeds.size), dtype=np.int64)
    seed_bounds_into(sums, largest, seeds, M.indptr, M.indices, sizes)
    size = int(M.row_sums()[seeds[0]])
    bounds = sums - largest - (size - 1)
    order = np.argsort(-bounds, kind="stable")
    seeds, bounds, need = seeds[order], bounds[order], needed(size, threshold)
    n, words = M.shape[0], words_for(M.shape[1])
    if PACKED_ADVANTAGE * float(sums.sum()) > float(n) * words * seeds.size:
        packed = np.ascontiguousarray(pack_binary(M).T)
        return Seed(*best_packed_seed(seeds, bounds, packed, n, need, size))
    return Seed(*best_sparse_seed(seeds, bounds, M.indptr, M.indices, transposed.indptr, transposed.indices, n, need))


# -- kernels ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def transpose_into(lines: Any, position: Any, indptr: Any, indices: Any) -> None:
    """Write the row of every one to the next free place of its column; `position` is used up."""
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            lines[position[j]] = r
            position[j] += 1


@njit(cache=True, nogil=True)
def remove_block_into(kept_indptr: Any, kept: Any, indptr: Any, indices: Any, rows: Any, columns: Any) -> None:
    """Copy the ones outside of the block."""
    position = 0
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            kept[position] = indices[p]
            position += int(not (rows[r] and columns[indices[p]]))
        kept_indptr[r + 1] = position


@njit(cache=True, nogil=True)
def seed_bounds_into(sums: Any, largest: Any, seeds: Any, indptr: Any, indices: Any, sizes: Any) -> None:
    """Write the sum and the largest of `sizes` over the ones of each seed."""
    for i in range(seeds.shape[0]):
        for p in range(indptr[seeds[i]], indptr[seeds[i] + 1]):
            sums[i] += sizes[indices[p]]
            largest[i] = max(largest[i], sizes[indices[p]])


# Both searches take seeds by descending bound. Of equally good seeds the first line wins, so an equal bound is worth
# a look only for a line before the best one.


@njit(cache=True, nogil=True)
def best_sparse_seed(
    seeds: Any, bounds: Any, indptr: Any, indices: Any, t_indptr: Any, t_indices: Any, n: int, need: float
) -> Any:
    """Return (line, score) of the best seed, counting through the transpose."""
    best, best_score = -1, 0
    counts = np.zeros(n, dtype=np.int64)
    touched = np.empty(n, dtype=np.int64)
    for i in range(seeds.shape[0]):
        seed = seeds[i]
        if bounds[i] < best_score or bounds[i] <= 0:
            break
        if bounds[i] == best_score and seed > best:
            continue
        length = 0
        for p in range(indptr[seed], indptr[seed + 1]):
            j = indices[p]
            for q in range(t_indptr[j], t_indptr[j + 1]):
                r = t_indices[q]
                if counts[r] == 0:
                    touched[length] = r
                    length += 1
                counts[r] += 1
        score = 1 - (indptr[seed + 1] - indptr[seed])
        for q in range(length):
            if counts[touched[q]] >= need:
                score += counts[touched[q]] - 1
            counts[touched[q]] = 0
        if score > best_score or (score == best_score and 0 <= seed < best):
            best, best_score = seed, score
    return best, best_score


@njit(cache=True, nogil=True)
def best_packed_seed(seeds: Any, bounds: Any, packed: Any, n: int, need: float, size: int) -> Any:
    """Return (line, score) of the best seed; `packed` holds word w of all lines in its row w."""
    best, best_score = -1, 0
    counts = np.empty(BLOCK, dtype=np.int64)
    least = np.int64(np.ceil(need))
    for i in range(seeds.shape[0]):
        seed = seeds[i]
        if bounds[i] < best_score or bounds[i] <= 0:
            break
        if bounds[i] == best_score and seed > best:
            continue
        score = np.int64(1 - size)
        for first in range(0, n, BLOCK):
            length = min(BLOCK, n - first)
            counts[:] = 0
            for w in range(packed.shape[0]):
                word = packed[w, seed]
                if word != np.uint64(0):
                    line = packed[w, first : first + length]
                    for r in range(length):
                        counts[r] += popcount(line[r] & word)
            for r in range(length):
                score += counts[r] - 1 if counts[r] >= least else 0
        if score > best_score or (score == best_score and 0 <= seed < best):
            best, best_score = seed, score
    return best, best_score
