"""Which features come along with a feature: conf(i→j) = |i ∧ j| / |i|, cut at a threshold."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from felb.linalg.binary import BinaryMatrix

PAIRS_AT_A_TIME = 1 << 24
"""Pairs of ones counted before a list is handed out, about a tenth of a second."""


def associations(A: BinaryMatrix, tau: float) -> Iterator[list[NDArray[np.int32]]]:
    """Yield the distinct sets {j : conf(i→j) >= τ}, τ > 0, of all columns i that hold ones, ascending in i.

    They come in lists, so that a caller can stop in between. Of equal sets the one of the lowest i is kept. Columns
    with the same rows have the same set, which is computed once. Takes Σ_r |A_r|² steps and, apart from the sets, memory in proportion to the ones of A.
    """
    if not tau > 0:
        raise InputError(f"tau={tau}: with a threshold of 0 every feature comes along with every other; use more")
    column_starts, column_rows = _columns_of(A)
    first_columns = _first_of_equals(column_starts, column_rows)
    lengths = A.row_sums()
    # Prefix sums over all ones give the work of a column: the lengths of the rows it occurs in.
    work = np.concatenate(([0], np.cumsum(lengths[column_rows])))
    ends = np.cumsum(work[column_starts[first_columns + 1]] - work[column_starts[first_columns]])
    seen: set[bytes] = set()
    start = 0
    while start < first_columns.size:
        done = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + PAIRS_AT_A_TIME)))
        starts, found = associate(
            first_columns[start:stop], column_starts, column_rows, A.indptr, A.indices, A.shape[1], float(tau)
        )
        sets = []
        for a, b in zip(starts[:-1], starts[1:], strict=True):
            name = _digest(found[a:b])
            if name not in seen:
                seen.add(name)
                sets.append(found[a:b].copy())
        yield sets
        start = stop


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
    return blake2b(np.ascontiguousarray(numbers), digest_size=16).digest()


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
