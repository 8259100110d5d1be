"""Clusters of the rows of a stream, in memory that does not depend on the number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.kernels.compiler import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

# -- Centres of the rows seen so far -----------------------------------------------------------------------------------
#
# A centre has a *weight*, the number of rows that joined it, and counts how often each column occurs in them; its
# *pattern* is the columns that occur in at least half of them. A row joins centres greedily: of those of which it holds
# more than a share `overlap` of the pattern, the one that covers most of its columns that are not covered yet, less
# those of the pattern that it does not hold; until none covers more. If columns are left, at least two and a share
# `rest` of the row, they open a new centre, in place of that of the least weight if there are as many as there may be.


class RowCentres:
    """Centres of the rows that were added, at most `most` of them.

    Parameters
    ----------
    n_columns : m; memory is 10 bytes for each centre and column
    most : centres that are kept
    overlap : share of a pattern that a row holds if it joins
    rest : share of the columns of a row that opens a new centre if no centre covers them
    """

    def __init__(self, n_columns: int, most: int, *, overlap: float, rest: float) -> None:
        self._shares = float(overlap), float(rest)
        self.weights = np.zeros(most, dtype=np.int64)
        self._counts = np.zeros((most, n_columns), dtype=np.int32)
        self._inside = np.zeros((n_columns, most), dtype=np.int16)
        self._met = np.zeros((most, n_columns), dtype=np.int32)  # columns that a centre has counted
        self._n_met = np.zeros(most, dtype=np.int64)
        self._sizes = np.zeros(most, dtype=np.int64)

    def add(self, rows: BinaryMatrix) -> None:
        """Let rows join the centres, in their order."""
        state = self.weights, self._counts, self._inside, self._sizes, self._met, self._n_met
        join_centres(state, rows.indptr, rows.indices, self._shares)

    def patterns(self) -> list[NDArray[np.int32]]:
        """Return the patterns of the centres that more than one row has joined, the heaviest first."""
        order = np.argsort(-self.weights, kind="stable")
        kept = (c for c in order if self.weights[c] > 1 and self._sizes[c] > 0)
        return [np.flatnonzero(self._inside[:, c]).astype(np.int32) for c in kept]


@kernel
def join_centres(state: Any, indptr: Any, indices: Any, shares: Any) -> None:
    """Let every row join centres or open one."""
    weights, counts, inside, sizes, met, n_met = state
    overlap, rest = shares
    most, m = counts.shape
    held = np.zeros(most, dtype=np.int32)
    fresh = np.zeros(most, dtype=np.int32)
    joined = np.zeros(most, dtype=np.bool_)
    covered = np.zeros(m, dtype=np.bool_)
    for r in range(indptr.shape[0] - 1):
        first, last = indptr[r], indptr[r + 1]
        if first == last:
            continue
        held[:] = 0
        for p in range(first, last):
            line = inside[indices[p]]
            for c in range(most):
                held[c] += line[c]
        fresh[:] = held
        joined[:] = False
        left = last - first
        while left > 0:
            best, best_gain = -1, 0
            for c in range(most):
                gain = fresh[c] - (sizes[c] - held[c])
                if not joined[c] and held[c] > overlap * sizes[c] and gain > best_gain:
                    best, best_gain = c, gain
            if best < 0:
                break
            joined[best] = True
            for p in range(first, last):
                j = indices[p]
                if inside[j, best] and not covered[j]:
                    covered[j] = True
                    left -= 1
                    line = inside[j]
                    for c in range(most):
                        fresh[c] -= line[c]
        for c in range(most):
            if joined[c]:
                weights[c] += 1
                for p in range(first, last):
                    count_column(state, c, indices[p])
                if weights[c] <= 64 or (weights[c] & 63) == 0:
                    refresh_pattern(state, c)
        if left > 1 and left >= rest * (last - first):
            least = int(np.argmin(weights))
            for x in range(n_met[least]):
                counts[least, met[least, x]] = 0
                inside[met[least, x], least] = 0
            n_met[least] = 0
            weights[least] = 1
            for p in range(first, last):
                if not covered[indices[p]]:
                    count_column(state, least, indices[p])
            refresh_pattern(state, least)
        for p in range(first, last):
            covered[indices[p]] = False


@kernel
def count_column(state: Any, c: int, j: int) -> None:
    """Count a column of a row that joins a centre."""
    _, counts, _, _, met, n_met = state
    if counts[c, j] == 0:
        met[c, n_met[c]] = j
        n_met[c] += 1
    counts[c, j] += 1


@kernel
def refresh_pattern(state: Any, c: int) -> None:
    """Make the pattern of a centre the columns that occur in at least half of its rows."""
    weights, counts, inside, sizes, met, n_met = state
    size = 0
    for x in range(n_met[c]):
        j = met[c, x]
        inside[j, c] = int(2 * counts[c, j] >= weights[c])
        size += inside[j, c]
    sizes[c] = size


class RowSample:
    """A uniform sample of the rows of a stream, without replacement, of a fixed size (reservoir sampling).

    Parameters
    ----------
    size : rows to keep
    seed : of the choice
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._rng, self.seen = size, np.random.default_rng(seed), 0
        self._rows: list[NDArray[Any]] = []

    def add(self, rows: BinaryMatrix) -> None:
        """Offer rows; row i of the stream replaces a kept one with probability size/i."""
        places = (self._rng.random(len(rows)) * np.arange(self.seen + 1, self.seen + len(rows) + 1)).astype(np.int64)
        fresh = max(0, self._size - self.seen)
        for r in [*range(min(fresh, len(rows))), *(fresh + np.flatnonzero(places[fresh:] < self._size)).tolist()]:
            columns = rows.indices[rows.indptr[r] : rows.indptr[r + 1]].copy()
            if self.seen + r < self._size:
                self._rows.append(columns)
            else:
                self._rows[places[r]] = columns
        self.seen += len(rows)

    def rows(self, n_columns: int) -> BinaryMatrix:
        """Return the kept rows."""
        starts = np.concatenate(([0], np.cumsum([len(row) for row in self._rows], dtype=np.int64))).astype(np.int64)
        columns = np.concatenate(self._rows) if self._rows else np.zeros(0, dtype=np.int32)
        return BinaryMatrix(starts, columns, n_columns)
