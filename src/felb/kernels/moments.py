"""Rows of a symmetric factorization with weights, Q ≈ P diag(π) Pᵀ off the diagonal, one after the other.

Given all other rows, the best row of P in [0, 1] solves a small quadratic problem with bounds. Coordinate descent
solves it, and keeps the Gram matrix of P up to date, so that a sweep over m rows of K numbers costs O(m²K + mK²).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

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


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _descend_coordinates_into(x, H, b, low, high, rounds):  # type: ignore[no-untyped-def]
    for _ in range(rounds):
        for a in range(x.size):
            if H[a, a] > NEGLIGIBLE:
                slope = b[a]
                for c in range(x.size):
                    slope -= H[a, c] * x[c]
                x[a] = min(high, max(low, x[a] + slope / H[a, a]))


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
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
