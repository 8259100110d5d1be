"""Formal concepts that cover what is left of the ones, grown column by column on packed bits.

A concept is a block of ones that cannot be made larger: its rows are all that hold its columns, its columns all that its
rows share. Adding column j to a concept with rows e gives the rows a = e ∧ A_j and the columns b = ⋂_{r ∈ a} A_r.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.linalg.bits import count_bits, pack_binary, popcount, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from felb.linalg.binary import BinaryMatrix

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
        n, m = self._shape
        self.value = 0
        self.rows: NDArray[np.bool_] = np.ones(n, dtype=bool)
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
        row_left = count_bits(self._uncovered)
        holds = unpack(np.bitwise_or.reduce(self._uncovered, axis=0)[None], self._shape[1])[0]
        candidates = np.flatnonzero(holds)
        lonely = True  # in the first round, a column is considered on its own
        improved = True
        while improved:
            extent, found = self.rows, -1
            for block in self._blocks(candidates, extent):
                state = (self._bounds, self._intent)
                j, value = best_column_into(
                    state, block, extent, (self._starts, self._members), (self._A, self._uncovered), row_left,
                    self.value, lonely,
                )
                if j >= 0:
                    found, self.value = j, int(value)
                    self.rows = self._extent(extent, found)
                yield
            improved, lonely = found >= 0, False

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
    state: Any, columns: Any, extent: Any, by_column: Any, packed: Any, row_left: Any, value: int, lonely: bool
) -> Any:
    """Return the first of the `columns` that is worth most, and its worth, if that exceeds `value`; else −1.

    Writes the columns of that concept to `intent` and, if the columns are considered on their own, what they are
    worth to `bounds`.
    """
    bounds, intent = state
    starts, members = by_column
    A, uncovered = packed
    n_words = A.shape[1]
    rows = np.empty(A.shape[0], dtype=np.int64)
    shared = np.empty(n_words, dtype=np.uint64)
    best = -1
    for j in columns:
        if lonely and bounds[j] <= value:
            continue
        height, most = 0, 0
        for p in range(starts[j], starts[j + 1]):
            r = members[p]
            if extent[r]:
                rows[height] = r
                height += 1
                most += row_left[r]
        if most <= value:
            continue
        shared[:] = A[rows[0]]
        for i in range(1, height):
            r = rows[i]
            for w in range(n_words):
                shared[w] &= A[r, w]
        width = 0
        for w in range(n_words):
            width += popcount(shared[w])
        if height * width <= value:
            continue
        covers = 0
        for i in range(height):
            r = rows[i]
            for w in range(n_words):
                covers += popcount(shared[w] & uncovered[r, w])
        if lonely:
            bounds[j] = covers
        if covers > value:
            best, value = j, covers
            intent[:] = shared
    return best, value
