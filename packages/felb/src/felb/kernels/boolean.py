"""The Boolean product, its agreement with data, and the best pair of thresholds for two relaxed factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from felb.data.binary import BinaryMatrix, index_dtype
from felb.errors import InputError
from felb.kernels.bits import (
    as_boolean,
    component_masks,
    group_masks,
    lowest_bit,
    pack,
    popcount,
    union_into,
    unpack,
    words_for,
)
from felb.kernels.compiler import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# -- The Boolean product (U∘V)_rj = ⋁_l U_rl ∧ V_lj, and its agreement with data without ever building it ------------


def check_factors(
    U: Any, V: Any, *, shape: tuple[int, int] | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return Boolean factors U (n × k) and V (k × m) that fit each other and, if given, data of that `shape`."""
    U, V = as_boolean(U, "U"), as_boolean(V, "V")
    if U.shape[1] != V.shape[0]:
        raise InputError(f"U has {U.shape[1]} components and V has {V.shape[0]}; they must agree")
    if shape is not None and (U.shape[0], V.shape[1]) != shape:
        raise InputError(f"U∘V is {U.shape[0]} x {V.shape[1]}, but the data is {shape[0]} x {shape[1]}")
    return U, V


@dataclass(frozen=True, slots=True)
class FactorMasks:
    """Boolean factors in the words that kernels read; made once for all counts of one U and V.

    Parameters
    ----------
    rows : components of each row of U, n × max(1, ⌈k/64⌉) words
    columns : components of each column of V, m × max(1, ⌈k/64⌉) words
    packed : rows of V, k × ⌈m/64⌉ words
    """

    rows: NDArray[np.uint64]
    columns: NDArray[np.uint64]
    packed: NDArray[np.uint64]

    @classmethod
    def of(cls, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> FactorMasks:
        """Pack factors that fit each other and the data, as the result of `assign_rows` does; nothing is checked."""
        return cls(component_masks(U), component_masks(V.T), pack(V))


def unknown_arrays(A: BinaryMatrix) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return `indptr` and `indices` of the unknown cells for a kernel; an `indptr` of length 1 if there are none."""
    if A.unknown is None:
        return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=A.indices.dtype)
    return A.unknown.indptr, A.unknown.indices


def boolean_product(U: Any, V: Any, columns: Sequence[str] | None = None) -> BinaryMatrix:
    """Return U∘V as a `BinaryMatrix`, optionally with column names.

    Works row by row in one buffer of ⌈m/64⌉ words; apart from the result nothing of its size is held in memory.
    """
    U, V = check_factors(U, V)
    masks, packed = component_masks(U), pack(V)
    distinct, group, _ = group_masks(masks)
    sizes = np.zeros(distinct.shape[0], dtype=np.int64)
    union_sizes_into(sizes, distinct, packed)
    indptr = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes[group])))
    indices = np.empty(int(indptr[-1]), dtype=index_dtype(V.shape[1]))
    product_indices_into(indices, indptr, masks, packed)
    return BinaryMatrix.of_valid_rows(indptr, indices, V.shape[1], columns)


def boolean_product_dense(U: Any, V: Any) -> NDArray[np.bool_]:
    """Return U∘V as an n × m Boolean array; for small matrices and plots."""
    U, V = check_factors(U, V)
    masks, packed = component_masks(U), pack(V)
    cover = np.zeros((U.shape[0], words_for(V.shape[1])), dtype=np.uint64)
    unions_into(cover, masks, packed)
    return unpack(cover, V.shape[1])


def count_overlaps(A: BinaryMatrix, factors: FactorMasks) -> tuple[int, int, int]:
    """Return (|A ∧ (U∘V)|, |U∘V|, |A|): true positives, predicted ones and ones, all among the known cells.

    All three add up over blocks of rows, hence over clients, and determine precision, recall, F1 and the Hamming
    loss. The first takes one pass over the ones of A, testing whether row mask and column mask intersect; the second
    is the size of one union of rows of V per distinct row mask.
    """
    distinct, _, counts = group_masks(factors.rows)
    sizes = np.zeros(distinct.shape[0], dtype=np.int64)
    union_sizes_into(sizes, distinct, factors.packed)
    claimed = int(sizes @ counts)
    if A.unknown is not None:
        claimed -= _covered_ones(A.unknown, factors.rows, factors.columns)
    return _covered_ones(A, factors.rows, factors.columns), claimed, A.nnz


def _covered_ones(A: BinaryMatrix, row_masks: NDArray[np.uint64], column_masks: NDArray[np.uint64]) -> int:
    """Return |A ∧ (U∘V)| from the masks of the rows of U and of the columns of V."""
    if row_masks.shape[1] == 1:
        return int(covered_ones_one_word(A.indptr, A.indices, row_masks[:, 0], column_masks[:, 0]))
    return int(covered_ones(A.indptr, A.indices, row_masks, column_masks))


def count_rows_by_cells(A: BinaryMatrix, factors: FactorMasks) -> NDArray[np.int64]:
    """Return how many rows have a covered one, a covered zero, an uncovered one and an uncovered zero, known ones."""
    distinct, group, _ = group_masks(factors.rows)
    sizes = np.zeros(distinct.shape[0], dtype=np.int64)
    union_sizes_into(sizes, distinct, factors.packed)
    ones, claimed, cells = A.row_sums(), sizes[group], np.full(len(A), A.shape[1])
    covered = _covered_ones_of_rows(A, factors)
    if A.unknown is not None:
        claimed, cells = claimed - _covered_ones_of_rows(A.unknown, factors), cells - A.unknown.row_sums()
    parts = covered, claimed - covered, ones - covered, cells - claimed - ones + covered
    return np.array([np.count_nonzero(part) for part in parts], dtype=np.int64)


def _covered_ones_of_rows(A: BinaryMatrix, factors: FactorMasks) -> NDArray[np.int64]:
    covered = np.zeros(len(A), dtype=np.int64)
    covered_ones_of_rows_into(covered, A.indptr, A.indices, factors.rows, factors.columns)
    return covered


def overlap_grid(A: BinaryMatrix, Us: Sequence[Any], Vs: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return |A ∧ (U∘V)| and |U∘V| for every pair of a U and a V, as two arrays of shape ``(len(Us), len(Vs))``.

    Both count known cells only.
    """
    check_factors(Us[0], Vs[0], shape=A.shape)
    for factors in (Us, Vs):
        if len({np.shape(factor) for factor in factors}) > 1:
            raise InputError("all U must have one shape, and all V another")
    rows = [component_masks(U) for U in Us]
    grouped = [group_masks(masks) for masks in rows]
    columns = [(component_masks(V.T), pack(V)) for V in Vs]
    covered = np.zeros((len(Us), len(Vs)), dtype=np.int64)
    claimed = np.zeros_like(covered)
    for a, (row_masks, (distinct, _, counts)) in enumerate(zip(rows, grouped, strict=True)):
        sizes = np.zeros(distinct.shape[0], dtype=np.int64)
        for b, (column_masks, packed) in enumerate(columns):
            covered[a, b] = _covered_ones(A, row_masks, column_masks)
            union_sizes_into(sizes, distinct, packed)
            claimed[a, b] = sizes @ counts
            if A.unknown is not None:
                claimed[a, b] -= _covered_ones(A.unknown, row_masks, column_masks)
    return covered, claimed


@kernel
def covered_ones(indptr: Any, indices: Any, row_masks: Any, column_masks: Any) -> int:
    """Count the ones (r, j) whose row mask and column mask intersect."""
    covered = 0
    for r in range(indptr.shape[0] - 1):
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            for w in range(row_masks.shape[1]):
                if row_masks[r, w] & column_masks[j, w] != np.uint64(0):
                    covered += 1
                    break
    return covered


@kernel
def covered_ones_of_rows_into(covered: Any, indptr: Any, indices: Any, row_masks: Any, column_masks: Any) -> None:
    """Write how many ones of each row its components cover."""
    for r in range(indptr.shape[0] - 1):
        covered[r] = covered_ones(indptr[r : r + 2], indices, row_masks[r : r + 1], column_masks)


@kernel
def covered_ones_one_word(indptr: Any, indices: Any, row_masks: Any, column_masks: Any) -> int:
    """Do the same for at most 64 components, without a loop over words or a branch per one."""
    covered = 0
    for r in range(indptr.shape[0] - 1):
        mask = row_masks[r]
        if mask != np.uint64(0):
            for p in range(indptr[r], indptr[r + 1]):
                covered += int(mask & column_masks[indices[p]] != np.uint64(0))
    return covered


@kernel
def unions_into(unions: Any, masks: Any, packed: Any) -> None:
    """Write the OR of the packed rows that each mask names into the rows of `unions`."""
    for r in range(masks.shape[0]):
        union_into(unions[r], masks[r], packed)


@kernel
def union_sizes_into(sizes: Any, masks: Any, packed: Any) -> None:
    """Write the number of columns that the components of each mask cover together."""
    union = np.empty(packed.shape[1], dtype=np.uint64)
    for r in range(masks.shape[0]):
        union_into(union, masks[r], packed)
        size = 0
        for w in range(union.shape[0]):
            size += popcount(union[w])
        sizes[r] = size


@kernel
def product_indices_into(indices: Any, indptr: Any, masks: Any, packed: Any) -> None:
    """Write the covered columns of every row, ascending, to their place in `indices`."""
    union = np.empty(packed.shape[1], dtype=np.uint64)
    for r in range(masks.shape[0]):
        union_into(union, masks[r], packed)
        p = indptr[r]
        for w in range(union.shape[0]):
            bits = union[w]
            while bits != np.uint64(0):
                indices[p] = (w << 6) + lowest_bit(bits)
                bits &= bits - np.uint64(1)
                p += 1


# -- The best pair of thresholds for two relaxed factors: the error of every pair on a grid, in one pass over the rows
#
# For thresholds s and t, cell (i, j) of [W >= s] ∘ [H >= t] is one iff W_il >= s and H_lj >= t for some l, so
#
#     error(s, t) = |A| + Σ_{ij} covered_ij(s, t) · (1 − 2A_ij).
#
# Let x have *level* p if it reaches the p smallest thresholds. The pairs that cover a cell are a staircase: the union
# over l of all pairs below (level of W_il, level of H_lj). Taking the components of a row by descending level of W, the
# stair at level p rises from the highest level of H seen before to the next higher one. Each rise is noted at two
# corners; summing up the corners of all cells, each with its weight, gives all errors at once.

SMALLEST_THRESHOLD = 1e-12
LARGEST_GRID = 1000
"""More thresholds than this need more memory than they are worth."""


class Thresholds(NamedTuple):
    """Thresholds for W and H, and the wrong cells of [W >= s] ∘ [H >= t]."""

    s: float
    t: float
    errors: int


def threshold_grid(size: int) -> NDArray[np.float64]:
    """Return `size` equidistant thresholds from 1e-12 to 1."""
    if not 2 <= size <= LARGEST_GRID:
        raise InputError(f"a grid has between 2 and {LARGEST_GRID} thresholds, got {size}")
    return np.linspace(SMALLEST_THRESHOLD, 1.0, size)


def best_thresholds(A: BinaryMatrix, W: NDArray[Any], Ht: NDArray[Any], *, grid: NDArray[np.float64]) -> Thresholds:
    """Return the pair with the fewest wrong cells; of equals the smallest s, then the smallest t."""
    errors = threshold_errors(A, W, Ht, grid=grid)
    a, b = np.unravel_index(int(errors.argmin()), errors.shape)
    return Thresholds(float(grid[a]), float(grid[b]), int(errors[a, b]))


def threshold_errors(
    A: BinaryMatrix, W: NDArray[Any], Ht: NDArray[Any], *, grid: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return |A ⊕ [W >= s] ∘ [H >= t]| for all thresholds s (rows) and t (columns) of an ascending grid.

    Parameters
    ----------
    A : BinaryMatrix, n × m
    W, Ht : float arrays, n × k and m × k (H transposed)
    grid : ascending thresholds
    """
    if W.shape != (A.shape[0], W.shape[1]) or Ht.shape != (A.shape[1], W.shape[1]):
        raise InputError(f"W is {W.shape} and Ht is {Ht.shape}; they do not go with data of shape {A.shape}")
    levels = _levels(Ht, grid)
    # Entries of level 0 are never one. The others, component after component:
    components, columns = np.nonzero(levels.T)
    indptr = np.searchsorted(components, np.arange(W.shape[1] + 1))
    corners = np.zeros((grid.size + 1, grid.size + 1), dtype=np.int64)
    height, given = np.zeros(A.shape[1], dtype=np.int16), levels.T[components, columns]
    staircases_into(corners, height, A.indptr, A.indices, _levels(W, grid), indptr, columns, given)
    # A corner (p, q) counts for all pairs of thresholds below it.
    sums = np.cumsum(np.cumsum(corners[::-1, ::-1], axis=0), axis=1)[::-1, ::-1]
    errors: NDArray[np.int64] = A.nnz + sums[1:, 1:]
    return errors


def _levels(X: NDArray[Any], grid: NDArray[np.float64]) -> NDArray[np.int16]:
    """Return how many thresholds of the grid each entry reaches."""
    return np.searchsorted(grid, X.astype(np.float64), side="right").astype(np.int16)


@kernel
def staircases_into(
    corners: Any,
    height: Any,
    indptr: Any,
    indices: Any,
    row_levels: Any,
    component_indptr: Any,
    columns: Any,
    levels: Any,
) -> None:
    """Add the corners of all cells, weighted by 1 for a zero of the data and −1 for a one.

    Component l has the given `levels` in the `columns` from ``component_indptr[l]`` on; `height`, one number per
    column, is used up.
    """
    k, m = row_levels.shape[1], height.shape[0]
    weights = np.ones(m, dtype=np.int64)
    order = np.empty(k, dtype=np.int64)
    for i in range(indptr.shape[0] - 1):
        active = 0
        for c in range(k):
            level = row_levels[i, c]
            if level > 0:
                place = active
                while place > 0 and row_levels[i, order[place - 1]] < level:
                    order[place] = order[place - 1]
                    place -= 1
                order[place] = c
                active += 1
        if active == 0:
            continue
        for p in range(indptr[i], indptr[i + 1]):
            weights[indices[p]] = -1
        height[:] = 0
        for place in range(active):
            c = order[place]
            line = corners[row_levels[i, c]]
            for p in range(component_indptr[c], component_indptr[c + 1]):
                j = columns[p]
                if levels[p] > height[j]:
                    line[levels[p]] += weights[j]
                    line[height[j]] -= weights[j]
                    height[j] = levels[p]
        for p in range(indptr[i], indptr[i + 1]):
            weights[indices[p]] = 1
