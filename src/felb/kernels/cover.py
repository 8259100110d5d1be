"""Greedy cover by candidates: the gain of each candidate row pattern, updated while cells get covered.

With Q_rj = 1 for the covered cells, candidate C and row r have

    ones_r = |A_r ∧ C ∧ ¬Q_r|      cells_r = |C ∧ ¬Q_r|      gain_r = w₁·ones_r − w₀·(cells_r − ones_r),

and C is worth Σ_r max(0, gain_r). Covering cells changes the gains of the rows in question only: their old share is
taken out of the sums and their new one put in. The sums count ones and zeros apart, so nothing is ever rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.kernels.bits import lowest_bit, pack_binary, popcount, words_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

PACKED_ADVANTAGE = 4.0
"""How many packed words are compared in the time in which one candidate of one column is counted."""

STEPS_AT_A_TIME = 1 << 26
"""Counts made before the caller hears about it, about a tenth of a second."""


class GreedyCover:
    """Candidates for covering the ones of A, and how much each of them is worth at the moment.

    Nothing is counted until `begin` has run; `begin` and `cover` are generators that pause between blocks of rows, so
    that a caller can stop in between. The worth of the candidates holds once they are exhausted.

    Parameters
    ----------
    A : data, n × m
    candidates : sets of columns, ascending and distinct
    bonus, penalty : what a covered one gains (w₁) and what a covered zero costs (w₀)
    """

    def __init__(
        self, A: BinaryMatrix, candidates: list[NDArray[np.int32]], *, bonus: float = 1.0, penalty: float = 1.0
    ) -> None:
        n, m = A.shape
        self._A = A
        self._candidates = candidates
        self._weights = (float(bonus), float(penalty))
        self._sizes = np.array([len(c) for c in candidates], dtype=np.int32)
        self._totals = np.zeros((2, len(candidates)), dtype=np.int64)
        self._covered = np.zeros((n, words_for(m)), dtype=np.uint64)
        self._by_column = _by_column(candidates, m)
        memberships = np.diff(self._by_column[0])
        counted = float(sum(int(memberships[ones].sum()) for ones in A.chunks_of_ones()))
        compared = float(n) * len(candidates) * words_for(m)
        self._packed: NDArray[np.uint64] | None = None
        self._rows_at_a_time = max(1, int(STEPS_AT_A_TIME * n / max(1.0, counted + n * len(candidates))))
        if PACKED_ADVANTAGE * counted > compared:
            self._packed = _packed(candidates, m)
            self._rows_at_a_time = max(1, int(STEPS_AT_A_TIME * n / max(1.0, compared)))

    def begin(self) -> Iterator[None]:
        """Count what the candidates are worth while nothing is covered."""
        for first in range(0, self._A.shape[0], self._rows_at_a_time):
            block = self._A.rows(first, first + self._rows_at_a_time)
            if self._packed is None:
                add_rows_into(self._totals, block.indptr, block.indices, self._by_column, self._sizes, self._weights)
            else:
                add_packed_rows_into(self._totals, pack_binary(block), self._packed, self._sizes, self._weights)
            yield

    def worth(self) -> NDArray[np.float64]:
        """Σ_r max(0, gain_r) of every candidate."""
        bonus, penalty = self._weights
        worth: NDArray[np.float64] = bonus * self._totals[0] - penalty * self._totals[1]
        return worth

    def users(self, candidate: int) -> NDArray[np.bool_]:
        """Return the rows with a positive gain."""
        uses: NDArray[np.bool_] = np.zeros(self._A.shape[0], dtype=bool)
        pattern = self._pattern(candidate)
        words = np.flatnonzero(pattern)
        users_into(uses, pattern, words, self._covered, self._A.indptr, self._A.indices, self._weights)
        return uses

    def cover(self, candidate: int, users: NDArray[np.bool_]) -> Iterator[None]:
        """Cover the cells of a candidate in the given rows and bring the worth of all candidates up to date."""
        rows, pattern = np.flatnonzero(users), self._pattern(candidate)
        A, step = self._A, max(1, self._rows_at_a_time // 4)  # old and new share, ones and cells
        for first in range(0, rows.size, step):
            block = rows[first : first + step]
            state = (self._totals, self._covered)
            if self._packed is None:
                cover_rows_into(state, block, pattern, A.indptr, A.indices, self._by_column, self._sizes, self._weights)
            else:
                cover_packed_rows_into(state, block, pattern, A.indptr, A.indices, self._packed, self._weights)
            yield

    def _pattern(self, candidate: int) -> NDArray[np.uint64]:
        pattern: NDArray[np.uint64] = _packed([self._candidates[candidate]], self._A.shape[1])[0]
        return pattern


def _joined(candidates: list[NDArray[np.int32]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return where each candidate starts and the columns of all, one after another."""
    starts = np.concatenate(([0], np.cumsum([len(c) for c in candidates], dtype=np.int64))).astype(np.int64)
    return starts, np.concatenate(candidates) if candidates else np.zeros(0, dtype=np.int32)


def _packed(candidates: list[NDArray[np.int32]], n_columns: int) -> NDArray[np.uint64]:
    """Return the candidates as packed rows."""
    from felb.data.binary import BinaryMatrix

    starts, columns = _joined(candidates)
    return pack_binary(BinaryMatrix(starts, columns, n_columns))


def _by_column(candidates: list[NDArray[np.int32]], n_columns: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return where each column starts and the candidates it belongs to, ascending."""
    starts, columns = _joined(candidates)
    memberships = np.bincount(columns, minlength=n_columns)
    by_column = np.concatenate(([0], np.cumsum(memberships))).astype(np.int64)
    members = np.empty(columns.size, dtype=np.int32)
    transpose_into(members, by_column[:-1].copy(), starts, columns)
    return by_column, members


# -- kernels ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def transpose_into(members: Any, position: Any, starts: Any, columns: Any) -> None:
    """Write the sets that hold each column to its place in `members`, which `position` names and is moved on."""
    for c in range(starts.shape[0] - 1):
        for p in range(starts[c], starts[c + 1]):
            j = columns[p]
            members[position[j]] = c
            position[j] += 1


@njit(cache=True, nogil=True)
def pays(ones: int, cells: int, weights: Any) -> bool:
    """Tell whether covering so many cells with so many ones has a positive gain."""
    return bool(weights[0] * ones - weights[1] * (cells - ones) > 0.0)


@njit(cache=True, nogil=True)
def tally_into(totals: Any, sign: int, ones: Any, cells: Any, weights: Any) -> None:
    """Add the share of a row to the ones and zeros of all candidates, or take it out."""
    for c in range(ones.shape[0]):
        # Without a branch, which could not be foreseen: half of the candidates may pay.
        share = sign * int(pays(ones[c], cells[c], weights))
        totals[0, c] += share * ones[c]
        totals[1, c] += share * (cells[c] - ones[c])


@njit(cache=True, nogil=True)
def shift_into(counts: Any, by: int, j: int, by_column: Any) -> None:
    """Change the counts of the candidates of column j."""
    starts, members = by_column
    for p in range(starts[j], starts[j + 1]):
        counts[members[p]] += by


@njit(cache=True, nogil=True)
def add_rows_into(totals: Any, indptr: Any, indices: Any, by_column: Any, sizes: Any, weights: Any) -> None:
    """Add the shares of rows in which nothing is covered."""
    ones = np.empty(sizes.shape[0], dtype=np.int32)
    for r in range(indptr.shape[0] - 1):
        ones[:] = 0
        for p in range(indptr[r], indptr[r + 1]):
            shift_into(ones, 1, indices[p], by_column)
        tally_into(totals, 1, ones, sizes, weights)


@njit(cache=True, nogil=True)
def add_packed_rows_into(totals: Any, rows: Any, packed: Any, sizes: Any, weights: Any) -> None:
    """Do the same by comparing packed rows."""
    for r in range(rows.shape[0]):
        for c in range(packed.shape[0]):
            ones = 0
            for w in range(packed.shape[1]):
                ones += popcount(packed[c, w] & rows[r, w])
            if pays(ones, sizes[c], weights):
                totals[0, c] += ones
                totals[1, c] += sizes[c] - ones


@njit(cache=True, nogil=True)
def users_into(uses: Any, pattern: Any, words: Any, covered: Any, indptr: Any, indices: Any, weights: Any) -> None:
    """Mark the rows that gain by a pattern; `words` are the words of it that are not zero."""
    one = np.uint64(1)
    for r in range(uses.shape[0]):
        ones = 0
        for p in range(indptr[r], indptr[r + 1]):
            j = np.int64(indices[p])
            left = pattern[j >> 6] & ~covered[r, j >> 6]
            ones += int((left >> np.uint64(j & 63)) & one)
        if ones > 0:
            cells = 0
            for w in words:
                cells += popcount(pattern[w] & ~covered[r, w])
            uses[r] = pays(ones, cells, weights)


@njit(cache=True, nogil=True)
def cover_rows_into(
    state: Any, rows: Any, pattern: Any, indptr: Any, indices: Any, by_column: Any, sizes: Any, weights: Any
) -> None:
    """Cover the cells of a pattern in some rows and exchange what they add to the totals."""
    totals, covered = state
    one = np.uint64(1)
    ones = np.empty(sizes.shape[0], dtype=np.int32)
    cells = np.empty(sizes.shape[0], dtype=np.int32)
    for r in rows:
        ones[:] = 0
        cells[:] = sizes
        for p in range(indptr[r], indptr[r + 1]):
            j = np.int64(indices[p])
            if (covered[r, j >> 6] >> np.uint64(j & 63)) & one == np.uint64(0):
                shift_into(ones, 1, j, by_column)
        shift_cells_into(cells, covered[r], by_column)
        tally_into(totals, -1, ones, cells, weights)
        for p in range(indptr[r], indptr[r + 1]):
            j = np.int64(indices[p])
            if ((pattern[j >> 6] & ~covered[r, j >> 6]) >> np.uint64(j & 63)) & one != np.uint64(0):
                shift_into(ones, -1, j, by_column)
        shift_cells_into(cells, pattern & ~covered[r], by_column)
        tally_into(totals, 1, ones, cells, weights)
        covered[r] |= pattern


@njit(cache=True, nogil=True)
def shift_cells_into(cells: Any, columns: Any, by_column: Any) -> None:
    """Take packed columns out of the cells of their candidates."""
    for w in range(columns.shape[0]):
        left = columns[w]
        while left != np.uint64(0):
            shift_into(cells, -1, (w << 6) + lowest_bit(left), by_column)
            left &= left - np.uint64(1)


@njit(cache=True, nogil=True)
def cover_packed_rows_into(
    state: Any, rows: Any, pattern: Any, indptr: Any, indices: Any, packed: Any, weights: Any
) -> None:
    """Do the same by comparing packed rows."""
    totals, covered = state
    n_words = pattern.shape[0]
    bits = np.empty(n_words, dtype=np.uint64)
    before = np.empty(n_words, dtype=np.uint64)
    fresh = np.empty(n_words, dtype=np.uint64)
    for r in rows:
        bits[:] = np.uint64(0)
        for p in range(indptr[r], indptr[r + 1]):
            j = np.int64(indices[p])
            bits[j >> 6] |= np.uint64(1) << np.uint64(j & 63)
        for w in range(n_words):
            before[w] = ~covered[r, w]
            fresh[w] = pattern[w] & before[w]
            covered[r, w] |= pattern[w]
        for c in range(packed.shape[0]):
            ones, cells, fresh_ones, fresh_cells = 0, 0, 0, 0
            for w in range(n_words):
                left, taken = packed[c, w] & before[w], packed[c, w] & fresh[w]
                ones += popcount(left & bits[w])
                cells += popcount(left)
                fresh_ones += popcount(taken & bits[w])
                fresh_cells += popcount(taken)
            if fresh_cells == 0:
                continue
            if pays(ones, cells, weights):
                totals[0, c] -= ones
                totals[1, c] -= cells - ones
            ones, cells = ones - fresh_ones, cells - fresh_cells
            if pays(ones, cells, weights):
                totals[0, c] += ones
                totals[1, c] += cells - ones
