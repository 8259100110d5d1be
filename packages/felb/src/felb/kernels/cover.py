"""Greedy covers of the ones: by candidate patterns, by formal concepts, by dense blocks of what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.kernels.bits import (
    count_bits,
    group_masks,
    lowest_bit,
    pack,
    pack_binary,
    pack_row_into,
    popcount,
    unpack,
    words_for,
)
from felb.kernels.compiler import kernel
from felb.kernels.cooccurrence import cooccurrence, split_work, transpose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


# -- Greedy cover by candidates: the gain of each candidate row pattern, updated while cells get covered -------------
#
# With Q_rj = 1 for the covered cells, candidate C and row r have
#
#     ones_r = |A_r ∧ C ∧ ¬Q_r|      cells_r = |C ∧ ¬Q_r|      gain_r = w₁·ones_r − w₀·(cells_r − ones_r),
#
# and C is worth Σ_r max(0, gain_r). Covering cells changes the gains of the rows in question only: their old share is
# taken out of the sums and their new one put in. The sums count ones and zeros apart, so nothing is ever rounded.

PACKED_ADVANTAGE = 4.0
"""How many packed words are compared in the time in which one candidate of one column is counted."""

STEPS_AT_A_TIME = 1 << 26
"""Counts made, or words compared, before the caller hears about it, about a tenth of a second."""


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
        patterns = _as_matrix(candidates, m)
        columns = transpose(patterns)
        self._by_column = columns.indptr, columns.indices
        memberships = np.diff(self._by_column[0])
        counted = float(sum(int(memberships[ones].sum()) for ones in A.chunks_of_ones()))
        compared = float(n) * len(candidates) * words_for(m)
        self._packed: NDArray[np.uint64] | None = None
        self._rows_at_a_time = max(1, int(STEPS_AT_A_TIME * n / max(1.0, counted + n * len(candidates))))
        if PACKED_ADVANTAGE * counted > compared:
            self._packed = pack_binary(patterns)
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
        pattern: NDArray[np.uint64] = pack_binary(_as_matrix([self._candidates[candidate]], self._A.shape[1]))[0]
        return pattern


def _as_matrix(candidates: list[NDArray[np.int32]], n_columns: int) -> BinaryMatrix:
    """Return a matrix with a row for each candidate."""
    starts = np.concatenate(([0], np.cumsum([len(c) for c in candidates], dtype=np.int64))).astype(np.int64)
    columns = np.concatenate(candidates) if candidates else np.zeros(0, dtype=np.int32)
    return BinaryMatrix(starts, columns, n_columns)


@kernel
def pays(ones: int, cells: int, weights: Any) -> bool:
    """Tell whether covering so many cells with so many ones has a positive gain."""
    return bool(weights[0] * ones - weights[1] * (cells - ones) > 0.0)


@kernel
def tally_into(totals: Any, sign: int, ones: Any, cells: Any, weights: Any) -> None:
    """Add the share of a row to the ones and zeros of all candidates, or take it out."""
    for c in range(ones.shape[0]):
        # Without a branch, which could not be foreseen: half of the candidates may pay.
        share = sign * int(pays(ones[c], cells[c], weights))
        totals[0, c] += share * ones[c]
        totals[1, c] += share * (cells[c] - ones[c])


@kernel
def shift_into(counts: Any, by: int, j: int, by_column: Any) -> None:
    """Change the counts of the candidates of column j."""
    starts, members = by_column
    for p in range(starts[j], starts[j + 1]):
        counts[members[p]] += by


@kernel
def add_rows_into(totals: Any, indptr: Any, indices: Any, by_column: Any, sizes: Any, weights: Any) -> None:
    """Add the shares of rows in which nothing is covered."""
    ones = np.empty(sizes.shape[0], dtype=np.int32)
    for r in range(indptr.shape[0] - 1):
        ones[:] = 0
        for p in range(indptr[r], indptr[r + 1]):
            shift_into(ones, 1, indices[p], by_column)
        tally_into(totals, 1, ones, sizes, weights)


@kernel
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


@kernel
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


@kernel
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


@kernel
def shift_cells_into(cells: Any, columns: Any, by_column: Any) -> None:
    """Take packed columns out of the cells of their candidates."""
    for w in range(columns.shape[0]):
        left = columns[w]
        while left != np.uint64(0):
            shift_into(cells, -1, (w << 6) + lowest_bit(left), by_column)
            left &= left - np.uint64(1)


@kernel
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
        pack_row_into(bits, indices[indptr[r] : indptr[r + 1]])
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


# -- Formal concepts that cover what is left of the ones, grown column by column on packed bits ----------------------
#
# A concept is a block of ones that cannot be made larger: its rows are all that hold its columns, and its columns are
# all that its rows share. Adding column j to a concept with rows e gives the rows a = e ∧ A_j and the columns
# b = ⋂_{r ∈ a} A_r.


class ConceptCover:
    """Concepts of A and the ones that none of those taken so far covers.

    A concept is looked for by `grow`, a generator that pauses between blocks of columns, so that a caller can stop in
    between; `rows` and `columns` are then the best concept until then. `take` covers its ones.

    Attributes
    ----------
    left : ones that are not covered
    rows, columns : the concept at hand, Boolean
    value : how many ones it would cover that are not covered
    """

    def __init__(self, A: BinaryMatrix) -> None:
        n, m = A.shape
        self._shape = n, m
        self._A = pack_binary(A)
        self._uncovered = self._A.copy()
        by_column = transpose(A)
        self._starts, self._members = by_column.indptr, by_column.indices
        # A column on its own is worth less and less while ones get covered, so an old value bounds the present one.
        self._bounds = np.full(m, np.iinfo(np.int64).max)
        self.left = A.nnz
        self._forget()

    def _forget(self) -> None:
        self.value = 0
        self.rows: NDArray[np.bool_] = np.ones(self._shape[0], dtype=bool)
        self._intent = np.zeros(self._A.shape[1], dtype=np.uint64)

    @property
    def columns(self) -> NDArray[np.bool_]:
        """The columns of the concept at hand."""
        columns: NDArray[np.bool_] = unpack(self._intent[None], self._shape[1])[0]
        return columns

    def grow(self, *, every_column: bool = False) -> Iterator[None]:
        """Look for a concept that covers many of the ones that are left.

        In every round the column is added after which the concept covers most, the first of equals, until no column
        makes it cover more. Columns without uncovered ones at the beginning are considered with `every_column` only.
        """
        self._forget()
        words = self._A if every_column else self._uncovered
        holds = unpack(np.bitwise_or.reduce(words, axis=0)[None], self._shape[1])[0]
        candidates = np.flatnonzero(holds)
        row_left = count_bits(self._uncovered)
        on_their_own = True
        improved = candidates.size > 0
        while improved:
            extent, intent, improved = self.rows, self._intent.copy(), False
            if on_their_own:
                # What is likely the best shows that most others need no look. One before it may be as good: it wins.
                likely = candidates[[np.argmax(self._bounds[candidates])]]
                j, self.value = self._best(likely, (extent, intent), row_left, 0, on_their_own)
                self.rows = self._extent(extent, j)
            beat = self.value - 1 if on_their_own else self.value
            for block in self._blocks(candidates, extent):
                j, value = self._best(block, (extent, intent), row_left, beat, on_their_own)
                if j >= 0:
                    improved, beat = True, value
                    self.value, self.rows = value, self._extent(extent, j)
                yield
            on_their_own = False

    def _best(
        self,
        columns: NDArray[np.int64],
        concept: tuple[NDArray[np.bool_], NDArray[np.uint64]],
        row_left: NDArray[np.int64],
        beat: int,
        on_their_own: bool,
    ) -> tuple[int, int]:
        state, by_column = (self._bounds, self._intent), (self._starts, self._members)
        packed = (self._A, self._uncovered)
        j, value = best_column_into(state, columns, concept, by_column, packed, row_left, beat, on_their_own)
        return int(j), int(value)

    def take(self) -> None:
        """Cover the ones of the concept at hand."""
        self._uncovered[self.rows] &= ~self._intent
        self.left -= self.value
        self._forget()

    def take_block(self, rows: NDArray[np.bool_], columns: NDArray[np.bool_]) -> int:
        """Cover the ones of any block and return how many of them were not covered before."""
        words, pattern = self._uncovered[rows], pack(columns[None])[0]
        fresh = int(count_bits(words & pattern).sum())
        if fresh:
            self._uncovered[rows] = words & ~pattern
            self.left -= fresh
        return fresh

    def share(self, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the columns that the given rows share; all columns if there are no rows."""
        shared: NDArray[np.bool_] = unpack(np.bitwise_and.reduce(self._A[rows], axis=0)[None], self._shape[1])[0]
        return shared

    def hold(self, columns: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the rows that hold all of the given columns."""
        pattern = pack(columns[None])[0]
        held: NDArray[np.bool_] = ~((self._A & pattern) ^ pattern).any(axis=1)
        return held

    def expand(self, penalty: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the rows and columns by which the concept at hand should grow beyond the ones.

        A line gains its ones in the block that are not covered, less `penalty` times its zeros in the block. As long
        as rows gain, they are added; otherwise the column that gains most, the first of equals; until no line gains.
        """
        rows, columns = self.rows.copy(), self.columns
        added = np.zeros(rows.size, dtype=bool), np.zeros(columns.size, dtype=bool)
        by_row = self._row_gains(columns, penalty)
        by_column = self._column_gains(rows, penalty)
        while True:
            fresh = ~rows & (by_row > 0)
            if fresh.any():
                by_column += self._column_gains(fresh, penalty)
                rows |= fresh
                added[0][fresh] = True
                continue
            by_column[columns] = -np.inf
            j = int(np.argmax(by_column))
            if not by_column[j] > 0:
                return added
            fresh = np.zeros(columns.size, dtype=bool)
            fresh[j] = columns[j] = added[1][j] = True
            by_row += self._row_gains(fresh, penalty)

    def _row_gains(self, columns: NDArray[np.bool_], penalty: float) -> NDArray[np.float64]:
        pattern = pack(columns[None])[0]
        words = np.flatnonzero(pattern)
        ones = count_bits(self._A[:, words] & pattern[words])
        gains: NDArray[np.float64] = count_bits(self._uncovered[:, words] & pattern[words]) - penalty * (
            np.count_nonzero(columns) - ones
        )
        return gains

    def _column_gains(self, rows: NDArray[np.bool_], penalty: float) -> NDArray[np.float64]:
        which, counts = np.flatnonzero(rows), np.zeros((2, self._shape[1]), dtype=np.int64)
        count_columns_into(counts[0], self._uncovered, which)
        count_columns_into(counts[1], self._A, which)
        gains: NDArray[np.float64] = counts[0] - penalty * (which.size - counts[1])
        return gains

    def _extent(self, rows: NDArray[np.bool_], j: int) -> NDArray[np.bool_]:
        extent: NDArray[np.bool_] = np.zeros(self._shape[0], dtype=bool)
        members = self._members[self._starts[j] : self._starts[j + 1]]
        extent[members] = rows[members]
        return extent

    def _blocks(self, columns: NDArray[np.int64], extent: NDArray[np.bool_]) -> Iterator[NDArray[np.int64]]:
        """Cut columns into pieces of about equal work."""
        share = np.count_nonzero(extent) / max(1, extent.size)
        lengths = self._starts[columns + 1] - self._starts[columns]
        work = np.cumsum(1 + lengths * (1 + share * 2 * self._A.shape[1]))
        for part in split_work(work, STEPS_AT_A_TIME):
            yield columns[part]


@kernel
def best_column_into(
    state: Any, columns: Any, concept: Any, by_column: Any, packed: Any, row_left: Any, value: int, on_their_own: bool
) -> Any:
    """Return the first of the `columns` after which a concept covers most, and how much, if more than `value`; else −1.

    Writes the columns of the new concept into the `intent` of the state and, if the columns are considered on their
    own, what they are worth into its `bounds`.
    """
    bounds, intent = state
    old_extent, old_intent = concept
    starts, members = by_column
    A, uncovered = packed
    rows = np.empty(A.shape[0], dtype=np.int64)
    shared = np.zeros(A.shape[1], dtype=np.uint64)
    words = np.empty(A.shape[1], dtype=np.int64)
    best = -1
    for j in columns:
        if on_their_own and bounds[j] <= value:
            continue
        if (old_intent[j >> 6] >> np.uint64(j & 63)) & np.uint64(1) != np.uint64(0):
            continue  # it adds nothing
        height, most = 0, 0
        for p in range(starts[j], starts[j + 1]):
            r = members[p]
            if old_extent[r]:
                rows[height] = r
                height += 1
                most += row_left[r]
        if most <= value:
            continue
        n_words = share_columns_into(shared, words, A, rows[:height], value)
        covers = 0
        for i in range(height if n_words > 0 else 0):
            r = rows[i]
            for x in range(n_words):
                covers += popcount(shared[words[x]] & uncovered[r, words[x]])
        if on_their_own:
            # Without words the search for shared columns was given up, since they cannot cover more than `value`.
            bounds[j] = covers if n_words > 0 else min(bounds[j], value)
        if covers > value:
            best, value = j, covers
            intent[:] = np.uint64(0)
            for x in range(n_words):
                intent[words[x]] = shared[words[x]]
    return best, value


@kernel
def share_columns_into(shared: Any, words: Any, A: Any, rows: Any, value: int) -> int:
    """Write the columns that `rows` share, packed, and the words that are not zero; return how many words these are.

    Gives up and returns 0 as soon as rows times shared columns are not more than `value`. Most words become zero after
    a few rows, so the rest is put together whenever the number of rows seen has doubled.
    """
    n_words = A.shape[1]
    for w in range(n_words):
        shared[w] = A[rows[0], w]
        words[w] = w
    first, last = 1, 1
    while True:
        for i in range(first, last):
            r = rows[i]
            for x in range(n_words):
                shared[words[x]] &= A[r, words[x]]
        kept, width = 0, 0
        for x in range(n_words):
            w = words[x]
            if shared[w] != np.uint64(0):
                words[kept] = w
                kept += 1
                width += popcount(shared[w])
        n_words = kept
        if width * rows.shape[0] <= value:
            return 0
        if last == rows.shape[0]:
            return n_words
        first, last = last, min(2 * last, rows.shape[0])


@kernel
def count_columns_into(counts: Any, words: Any, rows: Any) -> None:
    """Add the bits of some packed rows to the counts of their columns."""
    for r in rows:
        for w in range(words.shape[1]):
            left = words[r, w]
            while left != np.uint64(0):
                counts[(w << 6) + lowest_bit(left)] += 1
                left &= left - np.uint64(1)


# -- How often each one is covered by blocks, and the essential ones -------------------------------------------------


class Coverage:
    """How many of some blocks cover each one of A; zeros are not counted."""

    def __init__(self, A: BinaryMatrix) -> None:
        self._A, self._times = A, np.zeros(A.nnz, dtype=np.int32)

    def add(self, rows: NDArray[np.int64], columns: NDArray[np.bool_], by: int = 1) -> None:
        """Count the block of some row numbers and a mask of columns, or stop counting it with −1."""
        add_block_into(self._times, self._A.indptr, self._A.indices, rows, columns, by)

    def covered_by_others(self, rows: NDArray[np.int64], columns: NDArray[np.bool_]) -> bool:
        """Whether every one inside a counted block is covered by another block, too."""
        return bool(fewest_of_block(self._times, self._A.indptr, self._A.indices, rows, columns) >= 2)


@kernel
def add_block_into(times: Any, indptr: Any, indices: Any, rows: Any, columns: Any, by: int) -> None:
    """Add `by` to the ones inside a block."""
    for r in rows:
        for p in range(indptr[r], indptr[r + 1]):
            if columns[indices[p]]:
                times[p - indptr[0]] += by


@kernel
def fewest_of_block(times: Any, indptr: Any, indices: Any, rows: Any, columns: Any) -> int:
    """Return the smallest count of the ones inside a block; 2 if it is no smaller, or if there are none."""
    for r in rows:
        for p in range(indptr[r], indptr[r + 1]):
            if columns[indices[p]] and times[p - indptr[0]] < 2:
                return int(times[p - indptr[0]])
    return 2


def essential_ones(A: BinaryMatrix) -> BinaryMatrix:
    """Return the essential ones of A: whoever covers them by concepts covers all ones.

    A one (r, j) is essential if no row with a one in column j is a proper subset of row r, and no column with a one in
    row r is a proper subset of column j. Takes n²m/64 + m²n/64 steps for n distinct rows and m distinct columns.
    """
    columns = transpose(A)
    by_row, by_column = _without_subsets(A), _without_subsets(columns)
    kept = by_row.to_scipy(bool).multiply(transpose(by_column).to_scipy(bool))
    return BinaryMatrix.of(kept.tocsr())


def _without_subsets(lines: BinaryMatrix) -> BinaryMatrix:
    """Return lines without the ones that they share with a line that is a proper subset of them."""
    distinct, group, _ = group_masks(pack_binary(lines))
    order = np.argsort(count_bits(distinct), kind="stable")
    kept = np.empty_like(distinct)
    remove_subsets_into(kept, distinct, order, count_bits(distinct))
    return BinaryMatrix.of(unpack(kept[group], lines.shape[1]))


@kernel
def remove_subsets_into(kept: Any, lines: Any, order: Any, sizes: Any) -> None:
    """Write every line without the union of its proper subsets; `order` takes the lines by ascending size."""
    for place in range(order.shape[0]):
        i = order[place]
        for w in range(lines.shape[1]):
            kept[i, w] = lines[i, w]
        for before in range(place):
            other = order[before]
            if sizes[other] == sizes[i]:
                break
            inside = True
            for w in range(lines.shape[1]):
                if lines[other, w] & ~lines[i, w] != np.uint64(0):
                    inside = False
                    break
            if inside:
                for w in range(lines.shape[1]):
                    kept[i, w] &= ~lines[other, w]


# -- Dense blocks of what is left of a matrix: seeds, those who resemble them, and the removal of a block ------------
#
# A *line* is a row or a column; everything here is written for the lines of a matrix M and the lines of its transpose,
# so columns are the rows of Mᵀ. A line with b ones is a pattern B. Another line with c ones inside B resembles it if
#
#     c >= min(t·b + 1, b),
#
# and the block of all a lines that do, and of B, is worth
#
#     (a − 1)(b − 1) − (zeros in the block) = Σ_{lines in the block} (c − 1) − (b − 1).
#
# The second form has one term per line, which makes bounds on it cheap, and many seeds need not be looked at.

SEEDS_PACKED_ADVANTAGE = 8.0
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
    if SEEDS_PACKED_ADVANTAGE * float(common.sums.sum()) <= float(n) * words * seeds.size:
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


@kernel
def remove_block_into(kept_indptr: Any, kept: Any, indptr: Any, indices: Any, rows: Any, columns: Any) -> None:
    """Copy the ones outside of the block."""
    position = 0
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            kept[position] = indices[p]
            position += int(not (rows[r] and columns[indices[p]]))
        kept_indptr[r + 1] = position


@kernel
def seed_moments_into(moments: Any, seeds: Any, indptr: Any, indices: Any, pairs: Any) -> None:
    """Write, for each seed B, the sums of ``pairs[j, j]`` over j in B and of ``pairs[i, j]`` over i and j in B."""
    for s in range(seeds.shape[0]):
        for p in range(indptr[seeds[s]], indptr[seeds[s] + 1]):
            i = indices[p]
            moments[0, s] += pairs[i, i]
            for q in range(indptr[seeds[s]], indptr[seeds[s] + 1]):
                moments[1, s] += pairs[i, indices[q]]


@kernel
def seed_bounds_into(sums: Any, largest: Any, seeds: Any, indptr: Any, indices: Any, sizes: Any) -> None:
    """Write the sum and the largest of `sizes` over the ones of each seed."""
    for i in range(seeds.shape[0]):
        for p in range(indptr[seeds[i]], indptr[seeds[i] + 1]):
            sums[i] += sizes[indices[p]]
            largest[i] = max(largest[i], sizes[indices[p]])


# Both searches take seeds by descending bound. Of equally good seeds the first line wins, so an equal bound is worth
# a look only for a line before the best one.


@kernel
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


@kernel
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


@kernel
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
