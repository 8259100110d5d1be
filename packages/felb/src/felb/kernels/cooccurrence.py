"""Co-occurrence of features, and what is found from it alone: association, choice of columns, symmetric factors."""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.data.binary import BinaryMatrix, index_dtype
from felb.errors import InputError
from felb.kernels.bits import pack_binary_columns, popcount, words_for
from felb.kernels.compiler import compiled, kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


# -- Co-occurrence of features: (AᵀA)_ij = |{r : A_ri ∧ A_rj}|, an additive statistic of the rows --------------------

PACKED_ADVANTAGE = 8.0
"""How many packed words are compared in the time in which one pair of ones is counted."""

PACKED_ROWS = 1 << 14
"""Rows packed at once: few enough for a block of columns to stay in cache, and for little memory."""


def transpose(A: BinaryMatrix) -> BinaryMatrix:
    """Return Aᵀ: a row for each column, with the rows of its ones, ascending."""
    indptr = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(A.column_sums())))
    rows = np.empty(A.nnz, dtype=index_dtype(A.shape[0]))
    transpose_into(rows, indptr[:-1].copy(), A.indptr, A.indices)
    return BinaryMatrix.of_valid_rows(indptr, rows, A.shape[0])


def split_work(ends: NDArray[Any], most: int) -> Iterator[slice]:
    """Cut things into runs of about `most` work, at least one thing each, given the summed work up to each of them."""
    first = 0
    while first < ends.size:
        done = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + most)))
        yield slice(first, last)
        first = last


def cooccurrence(A: BinaryMatrix) -> NDArray[np.int64]:
    """Return AᵀA as a dense m × m array of counts; the diagonal holds the column sums.

    Counts every pair of ones within the rows, Σ_r |A_r|² / 2 steps, or, where that is cheaper, compares packed columns,
    m² n / 128 words.
    """
    n, m = A.shape
    counts = np.zeros((m, m), dtype=np.int64)
    lengths = A.row_sums()
    if PACKED_ADVANTAGE * float(lengths @ lengths) > float(m) * m * words_for(n):
        for block in A.row_blocks(PACKED_ROWS):
            count_column_pairs_into(counts, pack_binary_columns(block))
    else:
        count_row_pairs_into(counts, A.indptr, A.indices)
    mirror_into(counts)
    return counts


DENSE_COLUMNS = 4096
"""Columns up to which all pairs of them are counted in a dense array."""


def sparse_cooccurrence(A: BinaryMatrix) -> sp.csr_array:
    """Return AᵀA as a sparse array of counts."""
    if A.shape[1] <= DENSE_COLUMNS:
        return sp.csr_array(cooccurrence(A))
    ones = A.to_scipy(np.int64)
    return sp.csr_array(ones.T @ ones)


@kernel
def transpose_into(rows: Any, position: Any, indptr: Any, indices: Any) -> None:
    """Write the row of every one to the next free place of its column; `position` is used up."""
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            rows[position[j]] = r
            position[j] += 1


# -- kernels: each fills the upper triangle, `mirror_into` the lower one -----------------------------------------------


@kernel
def count_row_pairs_into(counts: Any, indptr: Any, indices: Any) -> None:
    """Add 1 to ``counts[i, j]``, i <= j, for every pair of ones within a row."""
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            i = indices[p]
            for q in range(p, indptr[r + 1]):
                counts[i, indices[q]] += 1


@kernel
def count_column_pairs_into(counts: Any, columns: Any) -> None:
    """Add |columns i ∧ j| to ``counts[i, j]``, i <= j, from packed columns."""
    for i in range(columns.shape[0]):
        for j in range(i, columns.shape[0]):
            common = 0
            for w in range(columns.shape[1]):
                common += popcount(columns[i, w] & columns[j, w])
            counts[i, j] += common


@kernel
def mirror_into(counts: Any) -> None:
    """Copy the upper triangle to the lower one."""
    for i in range(counts.shape[0]):
        for j in range(i):
            counts[i, j] = counts[j, i]


# -- Association of features: conf(i→j) = |i ∧ j| / |i|, cut at a threshold ------------------------------------------

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
        by_column = transpose(A)
        self._starts, self._rows = by_column.indptr, by_column.indices
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
        for part in split_work(ends, PAIRS_AT_A_TIME):
            yield associate(self._columns[part], self._starts, self._rows, self._A.indptr, self._A.indices, m, tau)


def _first_of_equals(starts: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return, ascending, the first of all columns that have the same rows; empty ones are left out."""
    first: dict[bytes, int] = {}
    for j in np.flatnonzero(np.diff(starts)).tolist():
        first.setdefault(_digest(rows[starts[j] : starts[j + 1]]), j)
    return np.array(list(first.values()), dtype=np.int64)


def _digest(numbers: NDArray[Any]) -> bytes:
    return blake2b(numbers.tobytes(), digest_size=16).digest()


@kernel
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


# -- Choose k columns of the data whose unions represent all columns best, from co-occurrence alone ------------------
#
# With the chosen columns as U, column j is represented by a set S_j of chosen columns that occur in no row together, so
# that what S_j is worth is a sum of pairwise counts:
#
#     Σ_{i ∈ S_j} g_ij,    g_ij = w₁·|A_i ∩ A_j| + w₀·|A_i \ A_j|,
#
# where w₁ >= 0 is the gain of a covered one and w₀ <= 0 that of a covered zero. S_j is found greedily. All columns are
# chosen first; then the column whose loss costs least is given up, until k are left. Where columns are few, a chosen
# one is then exchanged for another one as long as that gains.

MOST_EXCHANGED, PASSES = 256, 8
"""Columns up to which chosen ones are exchanged, and how often all of them are tried; more take seconds."""


def columns_as_components(
    pairs: NDArray[np.int64], n_components: int, *, weight_one: float = 1.0, weight_zero: float = -1.0
) -> NDArray[np.bool_]:
    """Return V, k × m: V_lj = 1 where the l-th chosen column takes part in the representation of column j.

    Parameters
    ----------
    pairs : AᵀA, m × m
    n_components : k; where fewer columns have ones, the other components are empty
    weight_one, weight_zero : gain of covering a one and of covering a zero
    """
    sizes = np.diagonal(pairs)
    gains = weight_one * pairs + weight_zero * (sizes[:, None] - pairs)
    chosen = sizes > 0
    member = np.zeros(pairs.shape, dtype=bool)
    counts = np.asarray(gains, dtype=np.float64), np.ascontiguousarray(pairs)
    give_up_into(chosen, member, *counts, n_components)
    if len(sizes) <= MOST_EXCHANGED:
        exchange_into(chosen, member, *counts, PASSES)
    V = np.zeros((n_components, len(sizes)), dtype=bool)
    V[: np.count_nonzero(chosen)] = member[chosen]
    return V


@kernel
def give_up_into(chosen: Any, member: Any, gains: Any, pairs: Any, n_components: int) -> None:
    """Unset `chosen` until at most so many columns are left, and set ``member[i, j]`` where column j uses column i."""
    m = chosen.shape[0]
    # What column j would lose without column i, and whether i matters to it, now or as a substitute.
    losses = np.zeros((m, m))
    used = np.zeros((m, m), dtype=np.bool_)
    open_gains = np.empty(m)
    found = np.empty((2, m), dtype=np.int64)
    totals = np.zeros(m)
    left = 0
    for j in range(m):
        left += chosen[j]
        _represent_into(member, losses, used, open_gains, found, j, chosen, gains, pairs)
    for i in range(m):
        totals[i] = losses[i].sum()
    while left > n_components:
        least = -1
        for i in range(m):
            if chosen[i] and (least < 0 or totals[i] < totals[least]):
                least = i
        chosen[least] = False
        left -= 1
        for j in range(m):
            if used[least, j]:
                for i in range(m):
                    totals[i] -= losses[i, j]
                _represent_into(member, losses, used, open_gains, found, j, chosen, gains, pairs)
                for i in range(m):
                    totals[i] += losses[i, j]


@kernel
def exchange_into(chosen: Any, member: Any, gains: Any, pairs: Any, passes: int) -> None:
    """Exchange each chosen column in turn for the column that gains most, if any does."""
    m = chosen.shape[0]
    values = np.zeros(m)
    open_gains = np.empty(m)
    found = np.empty(m, dtype=np.int64)
    for j in range(m):
        values[j] = _union_into(found, open_gains, j, chosen, -1, gains, pairs)[1]
    for _ in range(passes):
        exchanged = False
        for out in range(m):
            if not chosen[out]:
                continue
            chosen[out] = False
            best, most = out, 0.0
            for new in range(m):
                if chosen[new] or new == out or pairs[new, new] == 0:
                    continue
                chosen[new] = True
                more = 0.0
                for j in range(m):
                    if member[out, j] or gains[new, j] > 0.0:
                        more += _union_into(found, open_gains, j, chosen, -1, gains, pairs)[1] - values[j]
                chosen[new] = False
                if more > most:
                    best, most = new, more
            chosen[best] = True
            if best != out:
                exchanged = True
                for j in range(m):
                    if member[out, j] or gains[best, j] > 0.0:
                        length, values[j] = _union_into(found, open_gains, j, chosen, -1, gains, pairs)
                        member[:, j] = False
                        for a in range(length):
                            member[found[a], j] = True
        if not exchanged:
            return


@kernel
def _represent_into(
    member: Any,
    losses: Any,
    used: Any,
    open_gains: Any,
    found: Any,
    j: int,
    chosen: Any,
    gains: Any,
    pairs: Any,
) -> None:
    """Represent column j by chosen columns, and find what it would lose without each of these."""
    for i in range(chosen.shape[0]):
        member[i, j] = False
        losses[i, j] = 0.0
        used[i, j] = False
    length, value = _union_into(found[0], open_gains, j, chosen, -1, gains, pairs)
    for a in range(length):
        i = found[0, a]
        member[i, j] = True
        used[i, j] = True
    for a in range(length):
        i = found[0, a]
        substitutes, without = _union_into(found[1], open_gains, j, chosen, i, gains, pairs)
        losses[i, j] = value - without
        for b in range(substitutes):
            used[found[1, b], j] = True


@kernel
def _union_into(
    found: Any, open_gains: Any, j: int, chosen: Any, left_out: int, gains: Any, pairs: Any
) -> tuple[int, float]:
    """Collect chosen columns of positive gain, the best first, that share no row; return their number and gain."""
    m = chosen.shape[0]
    for i in range(m):
        open_gains[i] = gains[i, j] if chosen[i] and i != left_out else 0.0
    length = 0
    value = 0.0
    while True:
        best = 0
        for i in range(1, m):
            if open_gains[i] > open_gains[best]:
                best = i
        if open_gains[best] <= 0.0:
            return length, value
        value += open_gains[best]
        found[length] = best
        length += 1
        for i in range(m):
            if pairs[best, i] > 0:
                open_gains[i] = 0.0


# -- Rows of a symmetric factorization with weights, Q ≈ P diag(π) Pᵀ off the diagonal, one after the other ----------
#
# Given all other rows, the best row of P in [0, 1] solves a small quadratic problem with bounds. Coordinate descent
# solves it, and keeps the Gram matrix of P up to date, so that a sweep over m rows of K numbers costs O(m²K + mK²).

NEGLIGIBLE = 1e-14
"""Curvatures below this say nothing about a coordinate, which is then left alone."""


def descend_rows_of_moments(
    P: Array, pi: Array, *, pairs: Array, frequencies: Array, weight: float, sweeps: int, inner: int = 3
) -> Array:
    """Improve P row by row and return the improved copy; the loss never rises.

    Row i minimises, with all others fixed and within [0, 1],

        Σ_{j≠i} (Q_ij − Σ_c π_c P_ic P_jc)² + λ (q_i − Σ_c π_c P_ic)².

    Parameters
    ----------
    P : m × K, in [0, 1]
    pi : π, length K, non-negative
    pairs : Q, symmetric, m × m; its diagonal is not read
    frequencies : q, length m
    weight : λ
    sweeps : visits of each row
    inner : rounds of coordinate descent in each visit
    """
    m, n_classes = P.shape
    if pairs.shape != (m, m) or frequencies.shape != (m,) or pi.shape != (n_classes,):
        raise InputError(
            f"shapes do not fit: P {P.shape}, pi {pi.shape}, pairs {pairs.shape}, frequencies {frequencies.shape}"
        )
    improved = np.array(P, dtype=np.float64, order="C")
    _descend_into(
        improved,
        np.ascontiguousarray(pi, dtype=np.float64),
        np.ascontiguousarray(pairs, dtype=np.float64),
        np.ascontiguousarray(frequencies, dtype=np.float64),
        float(weight),
        int(sweeps),
        int(inner),
    )
    return improved


def descend_weights(H: Array, b: Array, x: Array, *, rounds: int, least: float = 0.0) -> Array:
    """Minimise ½xᵀHx − bᵀx over x >= `least` by coordinate descent from x and return the improved copy."""
    improved = np.maximum(np.asarray(x, dtype=np.float64), least)
    H, b = np.ascontiguousarray(H, dtype=np.float64), np.ascontiguousarray(b, dtype=np.float64)
    _descend_coordinates_into(improved, H, b, least, np.inf, int(rounds))
    return improved


@compiled(fastmath={"reassoc", "contract"})
def _descend_coordinates_into(x, H, b, low, high, rounds):  # type: ignore[no-untyped-def]
    for _ in range(rounds):
        for a in range(x.size):
            if H[a, a] > NEGLIGIBLE:
                slope = b[a]
                for c in range(x.size):
                    slope -= H[a, c] * x[c]
                x[a] = min(high, max(low, x[a] + slope / H[a, a]))


@compiled(fastmath={"reassoc", "contract"})
def _descend_into(P, pi, Q, q, lam, sweeps, inner):  # type: ignore[no-untyped-def]
    m, k = P.shape
    gram, H = np.empty((k, k)), np.empty((k, k))
    b, row = np.empty(k), np.empty(k)
    for _ in range(sweeps):
        # Anew in each sweep, so that rounding does not pile up.
        gram[:] = 0.0
        for i in range(m):
            for a in range(k):
                for c in range(k):
                    gram[a, c] += P[i, a] * P[i, c]
        for i in range(m):
            b[:] = 0.0
            for j in range(m):
                if j != i:
                    for a in range(k):
                        b[a] += Q[i, j] * P[j, a]
            for a in range(k):
                row[a] = P[i, a]
                b[a] = pi[a] * (b[a] + lam * q[i])
            for a in range(k):
                for c in range(k):
                    gram[a, c] -= row[a] * row[c]
                    H[a, c] = pi[a] * pi[c] * (gram[a, c] + lam)
            _descend_coordinates_into(row, H, b, 0.0, 1.0, inner)
            for a in range(k):
                P[i, a] = row[a]
            for a in range(k):
                for c in range(k):
                    gram[a, c] += row[a] * row[c]
