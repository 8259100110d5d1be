"""Relaxed rows with unknown cells: they are computed from the known cells and predict the unknown ones.

With K_r the known columns of row r, its best u given V minimises Σ_{j ∈ K_r} (A_rj − (uV)_j)², so the Gram matrix of
the row is VVᵀ without its unknown columns. For the step of V, an unknown cell is filled with (uV)_j in [0, 1].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from felb.kernels.fixed_point import SKETCH_BITS
from felb.kernels.schedule import plain_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

LEAST_KNOWN = 1e-6
"""A component of which less than this share is known in a row is not looked for in it."""


def sweep_known_into(
    swept: NDArray[np.float32], A: BinaryMatrix, U: NDArray[np.float32], Vt: NDArray[np.float32], *, sweeps: int
) -> None:
    """Replace those rows of `swept` that have unknown cells by the rows of U after HALS sweeps over their known ones.

    A sweep sets u_l ← max(0, u_l + (a_l − (uG)_l) / G_ll) with a = Σ_{j: A_rj = 1} Vᵀ[j] and G = Σ_{j ∈ K_r} v_j v_jᵀ;
    a component without known columns gets 0. Each row depends on itself alone.
    """
    if A.unknown is not None:
        wide = Vt.astype(np.float64)
        known_sweeps_into(
            swept,
            plain_view(A.indptr),
            plain_view(A.indices),
            plain_view(A.unknown.indptr),
            plain_view(A.unknown.indices),
            plain_view(U),
            wide,
            wide.T @ wide,
            int(sweeps),
        )


def add_filled(
    AtX: NDArray[np.int64], unknown: BinaryMatrix, X: NDArray[np.int32], *, V: NDArray[Any], units: NDArray[np.float64]
) -> tuple[NDArray[np.int64], int]:
    """Return AᵀX with the unknown cells filled, and the sum of their squares in units of 2^-SKETCH_BITS.

    Rows X are whole multiples of the units of their columns. Every addend is rounded to a whole number, so sums are
    exact however rows are split.
    """
    filled = AtX.copy()
    scaled = np.ascontiguousarray((V.astype(np.float64) * units[:, None]).T)
    squares = fill_cells_into(filled, plain_view(unknown.indptr), plain_view(unknown.indices), X, scaled)
    return filled, int(squares)


# -- kernels ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def known_sweeps_into(
    swept: Any,
    indptr: Any,
    indices: Any,
    unknown_indptr: Any,
    unknown_indices: Any,
    U: Any,
    Vt: Any,
    gram: Any,
    sweeps: int,
) -> None:
    """Sweep over the rows with unknown cells; see `sweep_known_into`."""
    k = gram.shape[0]
    known, gathered, u = np.empty((k, k)), np.empty(k), np.empty(k)
    for r in range(swept.shape[0]):
        if unknown_indptr[r] == unknown_indptr[r + 1]:
            continue
        known[:] = gram
        for p in range(unknown_indptr[r], unknown_indptr[r + 1]):
            v = Vt[unknown_indices[p]]
            for c in range(k):
                for d in range(k):
                    known[c, d] -= v[c] * v[d]
        gathered[:] = 0.0
        for p in range(indptr[r], indptr[r + 1]):
            v = Vt[indices[p]]
            for c in range(k):
                gathered[c] += v[c]
        for c in range(k):
            u[c] = U[r, c] if known[c, c] > LEAST_KNOWN * gram[c, c] else 0.0
        for _ in range(sweeps):
            for c in range(k):
                if known[c, c] > LEAST_KNOWN * gram[c, c]:
                    slope = gathered[c]
                    for d in range(k):
                        slope -= known[c, d] * u[d]
                    u[c] = max(u[c] + slope / known[c, c], 0.0)
        for c in range(k):
            swept[r, c] = u[c]


@njit(cache=True, nogil=True)
def fill_cells_into(total: Any, unknown_indptr: Any, unknown_indices: Any, X: Any, scaled: Any) -> Any:
    """Add x̂·X[r] to ``total[j]`` for every unknown cell (r, j), x̂ = X[r]·scaled[j] in [0, 1]; return Σ x̂²."""
    k = X.shape[1]
    squares = np.int64(0)
    for r in range(unknown_indptr.shape[0] - 1):
        for p in range(unknown_indptr[r], unknown_indptr[r + 1]):
            j = unknown_indices[p]
            value = 0.0
            for c in range(k):
                value += X[r, c] * scaled[j, c]
            value = min(value, 1.0)
            for c in range(k):
                total[j, c] += np.int64(np.rint(value * X[r, c]))
            squares += np.int64(np.rint(value * value * (1 << SKETCH_BITS)))
    return squares
