"""Products of a binary matrix with thin dense factors; the passes over the data that the solvers make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.linalg.binary import BinaryMatrix

    Array = NDArray[np.floating[Any]]


def gather(A: BinaryMatrix, Vt: Array) -> Array:
    """A·Vᵀ: for every row, the sum of the rows of `Vt` (features × components) where it has ones."""
    out = np.zeros((A.shape[0], Vt.shape[1]), dtype=Vt.dtype)
    _gather_into(out, A.indptr, A.indices, np.ascontiguousarray(Vt))
    return out


def scatter(A: BinaryMatrix, U: Array) -> Array:
    """Aᵀ·U: for every column, the sum of the rows of `U` (records × components) that have a one there."""
    out = np.zeros((A.shape[1], U.shape[1]), dtype=U.dtype)
    _scatter_into(out, A.indptr, A.indices, np.ascontiguousarray(U))
    return out


def squared_loss(nnz: int, AtU: Array, UtU: Array, Vt: Array) -> float:
    """‖A − UV‖² = nnz − 2⟨AᵀU, Vᵀ⟩ + ⟨UᵀU, VVᵀ⟩, in float64 and without building UV."""
    wide = Vt.astype(np.float64)
    return float(nnz - 2 * np.vdot(AtU.astype(np.float64), wide) + np.vdot(UtU.astype(np.float64), wide.T @ wide))


@njit(cache=True, nogil=True)
def _gather_into(out: Array, indptr: NDArray[np.int64], indices: NDArray[Any], Vt: Array) -> None:
    for r in range(out.shape[0]):
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            for c in range(out.shape[1]):
                out[r, c] += Vt[j, c]


@njit(cache=True, nogil=True)
def _scatter_into(out: Array, indptr: NDArray[np.int64], indices: NDArray[Any], U: Array) -> None:
    for r in range(U.shape[0]):
        for p in range(indptr[r], indptr[r + 1]):
            j = indices[p]
            for c in range(out.shape[1]):
                out[j, c] += U[r, c]
