"""Dense blocks of what is left of a matrix: seeds, those who resemble them, and the removal of a block.

A *line* is a row or a column; everything here is written for the lines of a matrix M and the lines of its transpose, so
columns are the rows of Mᵀ. A line with b ones is a pattern B. Another line with c ones inside B resembles it if

    c >= min(t·b + 1, b),

and the block of all a lines that do, and of B, is worth

    (a − 1)(b − 1) − (zeros in the block) = Σ_{lines in the block} (c − 1) − (b − 1).

The second form has one term per line, which makes bounds on it cheap, and many seeds need not be looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from felb.data.binary import BinaryMatrix
from felb.kernels.bits import pack_binary, popcount, words_for
from felb.kernels.cooccurrence import cooccurrence

if TYPE_CHECKING:
    from numpy.typing import NDArray

PACKED_ADVANTAGE = 8.0
"""How many packed words are compared in the time in which one shared one is counted."""

BLOCK = 1024
"""Lines that are compared with a pattern at once; their counts stay in the fastest cache."""


CHUNKS = 8
"""Parts in which lines are compared with a pattern; after each of them the bound is asked whether to go on."""

MOST_PAIRED = 512
"""Up to this many columns, bounds use how often pairs of columns occur together."""


class Seed(NamedTuple):
    """A line whose pattern starts a block, and what the block is worth; line −1 if there is none."""

    line: int
    score: int


def transpose(M: BinaryMatrix) -> BinaryMatrix:
    """Return Mᵀ."""
    indptr = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(M.column_sums())))
    lines = np.empty(M.nnz, dtype=np.int32)
    transpose_into(lines, indptr[:-1].copy(), M.indptr, M.indices)
    return BinaryMatrix(indptr, lines, M.shape[0])


def without_block(M: BinaryMatrix, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> BinaryMatrix:
    """Return M with zeros in the block of the given rows and columns."""
    indptr = np.zeros(M.shape[0] + 1, dtype=np.int64)
    indices = np.empty(M.nnz, dtype=M.indices.dtype)
    remove_block_into(indptr, indices, M.indptr, M.indices, rows, columns)
    return BinaryMatrix.of_valid_rows(indptr, indices[: indptr[-1]].copy(), M.shape[1], M.columns)


def needed(size: int, threshold: float) -> float:
    """Return min(t·b + 1, b): how many ones of a pattern of `size` b a line needs to resemble it."""
    return min(threshold * size + 1, size)


def overlaps(transposed: BinaryMatrix, pattern: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return how many ones of each line lie inside a pattern, from the lines of the transpose that it names."""
    return transposed.take(pattern).column_sums()


def best_seed(M: BinaryMatrix, transposed: BinaryMatrix, seeds: NDArray[np.int64], *, threshold: float) -> Seed:
    """Return the first of the seeds, all of one size, whose block is worth most, if that is more than nothing.

    Seeds are tried from the highest bound down, until no bound guarantees more than was found. Shared ones are counted
    through the lines of the transpose or, where that is cheaper, from packed words.
    """
    if not seeds.size:
        return Seed(-1, 0)
    size = int(M.row_sums()[seeds[0]])
    need, common = needed(size, threshold), _common_ones(M, transposed, seeds)
    n, words = M.shape[0], words_for(M.shape[1])
    if PACKED_ADVANTAGE * float(common.sums.sum()) <= float(n) * words * seeds.size:
        bounds = common.simple_bounds() - (size - 1)
        order = np.argsort(-bounds, kind="stable")
        ones = M.indptr, M.indices, transposed.indptr, transposed.indices
        return Seed(*best_sparse_seed(seeds[order], bounds[order], *ones, n, need))
    starts = np.array([0, n])
    if M.shape[1] <= MOST_PAIRED and need >= 2:
        starts = np.unique(np.linspace(0, n, CHUNKS + 1).astype(np.int64))
    bounds = np.minimum(common.simple_bounds()[:, None], _paired_bounds(M, seeds, starts, need))
    order = np.argsort(-bounds[:, 0], kind="stable")
    packed = np.ascontiguousarray(pack_binary(M).T)
    return Seed(*best_packed_seed(seeds[order], bounds[order], packed, starts, int(np.ceil(need)), size))


class _Common(NamedTuple):
    """For every seed B, the sum and the largest of |line j of Mᵀ| over j in B."""

    sums: NDArray[np.int64]
    largest: NDArray[np.int64]

    def simple_bounds(self) -> NDArray[np.int64]:
        """Bound Σ (c − 1) over the lines that resemble B: every line that meets B counts one less than it shares."""
        return self.sums - self.largest


def _common_ones(M: BinaryMatrix, transposed: BinaryMatrix, seeds: NDArray[np.int64]) -> _Common:
    common = _Common(np.zeros(seeds.size, dtype=np.int64), np.zeros(seeds.size, dtype=np.int64))
    seed_bounds_into(*common, seeds, M.indptr, M.indices, transposed.row_sums())
    return common


def _paired_bounds(
    M: BinaryMatrix, seeds: NDArray[np.int64], starts: NDArray[np.int64], need: float
) -> NDArray[np.int64]:
    """Bound Σ (c − 1) over the lines that resemble each seed, from each of `starts` (but the last, n) on.

    S₁ = Σ c and S₂ = Σ c² over N lines are sums of column sums and of pairs of columns. For 0 <= r < θ and θ >= 2, the
    parabola (θ − 1)((c − r) / (θ − r))² is nowhere below c − 1 from c = θ on and nowhere negative, so its sum,
    (θ − 1)(S₂ − 2rS₁ + r²N) / (θ − r)², is a bound; it is least at r = (θS₁ − S₂) / (θN − S₁).
    """
    bounds = np.full((seeds.size, starts.size - 1), np.iinfo(np.int64).max)
    if starts.size <= 2:
        return bounds
    theta, pairs = np.ceil(need), np.zeros((M.shape[1], M.shape[1]), dtype=np.int64)
    for chunk in range(starts.size - 2, -1, -1):
        pairs += cooccurrence(M.rows(int(starts[chunk]), int(starts[chunk + 1])))
        lines = float(starts[-1] - starts[chunk])
        moments = np.zeros((2, seeds.size), dtype=np.int64)
        seed_moments_into(moments, seeds, M.indptr, M.indices, pairs)
        first, second = moments.astype(np.float64)
        # Any r in this range gives a bound; that of the formula only if θ is above the mean.
        r = np.clip((theta * first - second) / np.maximum(theta * lines - first, 1), 0, theta - 1)
        bound = (theta - 1) * (second - 2 * r * first + r**2 * lines) / (theta - r) ** 2
        bounds[:, chunk] = np.ceil(bound * (1 + 1e-9))
    return bounds


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
def seed_moments_into(moments: Any, seeds: Any, indptr: Any, indices: Any, pairs: Any) -> None:
    """Write, for each seed B, the sums of ``pairs[j, j]`` over j in B and of ``pairs[i, j]`` over i and j in B."""
    for s in range(seeds.shape[0]):
        for p in range(indptr[seeds[s]], indptr[seeds[s] + 1]):
            i = indices[p]
            moments[0, s] += pairs[i, i]
            for q in range(indptr[seeds[s]], indptr[seeds[s] + 1]):
                moments[1, s] += pairs[i, indices[q]]


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
def best_packed_seed(seeds: Any, bounds: Any, packed: Any, starts: Any, least: int, size: int) -> Any:
    """Return (line, score) of the best seed; `packed` holds word w of all lines in its row w.

    ``bounds[i, q]`` bounds what seed i can still gain from line ``starts[q]`` on.
    """
    best, best_score = -1, 0
    counts = np.empty(BLOCK, dtype=np.int64)
    for i in range(seeds.shape[0]):
        seed = seeds[i]
        score = 1 - size
        if score + bounds[i, 0] < best_score:
            break
        complete = True
        for chunk in range(starts.shape[0] - 1):
            most = score + bounds[i, chunk]
            if most <= 0 or most < best_score or (most == best_score and seed > best):
                complete = False
                break
            for first in range(starts[chunk], starts[chunk + 1], BLOCK):
                score += _gain_of_lines(counts, packed, seed, first, min(BLOCK, starts[chunk + 1] - first), least)
        if complete and (score > best_score or (score == best_score and 0 <= seed < best)):
            best, best_score = seed, score
    return best, best_score


@njit(cache=True, nogil=True)
def _gain_of_lines(counts: Any, packed: Any, seed: int, first: int, length: int, least: int) -> Any:
    """Return Σ (c − 1) over those of `length` lines that share c >= least ones with the seed."""
    counts[:] = 0
    for w in range(packed.shape[0]):
        word = packed[w, seed]
        if word != np.uint64(0):
            lines = packed[w, first : first + length]
            for r in range(length):
                counts[r] += popcount(lines[r] & word)
    gain = 0
    for r in range(length):
        gain += counts[r] - 1 if counts[r] >= least else 0
    return gain
