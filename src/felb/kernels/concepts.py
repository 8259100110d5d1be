"""Formal concepts that cover what is left of the ones, grown column by column on packed bits.

A concept is a block of ones that cannot be made larger: its rows are all that hold its columns, and its columns are
all that its rows share. Adding column j to a concept with rows e gives the rows a = e ∧ A_j and the columns
b = ⋂_{r ∈ a} A_r.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.kernels.bits import count_bits, pack_binary, popcount, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

STEPS_AT_A_TIME = 1 << 26
"""Words compared before the caller hears about it, about a tenth of a second."""


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
        by_column = A.to_scipy(np.int8).tocsc()
        self._starts, self._members = by_column.indptr.astype(np.int64), by_column.indices.astype(np.int32, copy=False)
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

    def grow(self) -> Iterator[None]:
        """Look for a concept that covers many of the ones that are left.

        In every round the column is added after which the concept covers most, the first of equals, until no column
        makes it cover more. Columns without uncovered ones at the beginning are not considered.
        """
        self._forget()
        holds = unpack(np.bitwise_or.reduce(self._uncovered, axis=0)[None], self._shape[1])[0]
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
        first = 0
        while first < columns.size:
            done = work[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(work, done + STEPS_AT_A_TIME)))
            yield columns[first:last]
            first = last


# -- kernels ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
