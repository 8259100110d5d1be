"""The best pair of thresholds for two relaxed factors: the error of every pair on a grid, in one pass over the rows.

For thresholds s and t, cell (i, j) of [W >= s] ∘ [H >= t] is one iff W_il >= s and H_lj >= t for some l, so

    error(s, t) = |A| + Σ_{ij} covered_ij(s, t) · (1 − 2A_ij).

Let x have *level* p if it reaches the p smallest thresholds. The pairs that cover a cell are a staircase: the union
over l of all pairs below (level of W_il, level of H_lj). Taking the components of a row by descending level of W, the
stair at level p rises from the highest level of H seen before to the next higher one. Each rise is noted at two
corners; summing up the corners of all cells, each with its weight, gives all errors at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

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


@njit(cache=True, nogil=True)
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
