"""Association of features: conf(i→j) = |i ∧ j| / |i|, cut at a threshold."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.errors import InputError
from felb.kernels.cooccurrence import cooccurrence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

PAIRS_AT_A_TIME = 1 << 24
"""Pairs of ones counted before a list is handed out, about a tenth of a second."""

COUNTED_COLUMNS = 4096
"""Up to this many columns all pairs are counted at once, which takes 8 bytes a pair and is fast for dense data, too."""


class Associations:
    """The sets of features that come along with each feature of A, for any threshold.

    With up to `COUNTED_COLUMNS` columns, AᵀA is counted once for all thresholds. For wider data Σ_r |A_r|² pairs are
    counted for each threshold, in memory in proportion to the ones of A.
    """

    def __init__(self, A: BinaryMatrix) -> None:
        self._A = A
        self._starts, self._rows = _columns_of(A)
        # Columns with the same rows have the same associations, which are needed once.
        self._columns = _first_of_equals(self._starts, self._rows)
        self._counts = cooccurrence(A)[self._columns] if A.shape[1] <= COUNTED_COLUMNS else None

    def sets(self, tau: float) -> Iterator[list[NDArray[np.int32]]]:
        """Yield the distinct sets {j : conf(i→j) >= τ}, τ > 0, of all columns i that hold ones, ascending in i.

        They come in lists, so that a caller can stop in between. Of equal sets the one of the lowest i is kept.
        """
        if not tau > 0:
            raise InputError(f"tau={tau}: with a threshold of 0 every feature comes along with every other; use more")
        seen: set[bytes] = set()
        for starts, found in self._blocks(float(tau)):
            sets = []
            for a, b in pairwise(starts.tolist()):
                name = _digest(found[a:b])
                if name not in seen:
                    seen.add(name)
                    sets.append(found[a:b].copy())
            yield sets

    def _blocks(self, tau: float) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        """Yield the sets of some columns after another: where they start, and their members."""
        n_sets, m = self._columns.size, max(1, self._A.shape[1])
        if self._counts is not None:
            sizes = np.diff(self._starts)[self._columns]
            for first in range(0, n_sets, PAIRS_AT_A_TIME // m):
                part = slice(first, first + PAIRS_AT_A_TIME // m)
                rows, members = np.nonzero(self._counts[part] / sizes[part, None] >= tau)
                lengths = np.bincount(rows, minlength=sizes[part].size)
                yield np.concatenate(([0], np.cumsum(lengths))), members.astype(np.int32)
            return
        # The work of a column is the length of the rows it occurs in; prefix sums cut it into equal pieces.
        work = np.concatenate(([0], np.cumsum(self._A.row_sums()[self._rows])))
        ends = np.cumsum(work[self._starts[self._columns + 1]] - work[self._starts[self._columns]])
        first = 0
        while first < n_sets:
            done = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, done + PAIRS_AT_A_TIME)))
            columns = self._columns[first:last]
            yield associate(columns, self._starts, self._rows, self._A.indptr, self._A.indices, m, tau)
            first = last


def _columns_of(A: BinaryMatrix) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return where each column starts and the rows of its ones."""
    columns = A.to_scipy(np.int8).tocsc()
    return columns.indptr.astype(np.int64), columns.indices.astype(np.int32, copy=False)


def _first_of_equals(starts: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return, ascending, the first of all columns that have the same rows; empty ones are left out."""
    first: dict[bytes, int] = {}
    for j in np.flatnonzero(np.diff(starts)).tolist():
        first.setdefault(_digest(rows[starts[j] : starts[j + 1]]), j)
    return np.array(list(first.values()), dtype=np.int64)


def _digest(numbers: NDArray[Any]) -> bytes:
    return blake2b(numbers.tobytes(), digest_size=16).digest()


# -- kernels ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def associate(
    columns: Any, column_starts: Any, column_rows: Any, indptr: Any, indices: Any, n_columns: int, tau: float
) -> Any:
    """Return {j : |i ∧ j| / |i| >= τ}, ascending, of each of the `columns` i: where the sets start, and the sets."""
    counts = np.zeros(n_columns, dtype=np.int64)
    met = np.empty(n_columns, dtype=np.int32)
    starts = np.zeros(columns.shape[0] + 1, dtype=np.int64)
    sets = np.empty(max(n_columns, 1024), dtype=np.int32)
    length = 0
    for c in range(columns.shape[0]):
        i = columns[c]
        size = column_starts[i + 1] - column_starts[i]
        n_met = 0
        for p in range(column_starts[i], column_starts[i + 1]):
            r = column_rows[p]
            for q in range(indptr[r], indptr[r + 1]):
                j = indices[q]
                if counts[j] == 0:
                    met[n_met] = j
                    n_met += 1
                counts[j] += 1
        kept = 0
        for x in range(n_met):
            j = met[x]
            if counts[j] / size >= tau:
                met[kept] = j
                kept += 1
            counts[j] = 0
        if length + kept > sets.shape[0]:
            larger = np.empty(2 * sets.shape[0] + kept, dtype=np.int32)
            larger[:length] = sets[:length]
            sets = larger
        sets[length : length + kept] = np.sort(met[:kept])
        length += kept
        starts[c + 1] = length
    return starts, sets[:length]
