"""The loss of a step reconstruction [UVᵀ >= τ], and its descent, without a sum over the zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from felb.kernels.compiler import kernel

# With X = UVᵀ, the loss is Σ_{ones} log(1 + exp(τ − X_ij)) + Σ_{zeros} X_ij² / (4τ). The sum over all cells of X² is
# tr(UᵀU VᵀV), so that only ones are visited: Σ_{zeros} = Σ_{all} − Σ_{ones}. For a row u of U this is, with G = VᵀV,
#
#     f(u) = Σ_{j in row} [log(1 + exp(τ − u·v_j)) − (u·v_j)²/(4τ)] + uGuᵀ/(4τ),
#
# which is convex in every single coordinate.

HALVINGS = 12
"""How often a step is halved before the coordinate stays as it is."""


@kernel
def descend_rows_into(U: Any, V: Any, gram: Any, indptr: Any, indices: Any, tau: float, floor: float) -> None:
    """Take one Newton step in every coordinate of every row of U, halved until the loss of the row does not grow."""
    k = U.shape[1]
    x = np.empty(V.shape[0], dtype=np.float64)
    before = np.empty(V.shape[0], dtype=np.float64)
    for r in range(U.shape[0]):
        first, length = indptr[r], indptr[r + 1] - indptr[r]
        for p in range(length):
            x[p] = 0.0
            for c in range(k):
                x[p] += U[r, c] * V[indices[first + p], c]
        for c in range(k):
            slope, curvature = 0.0, gram[c, c] / (2 * tau)
            for d in range(k):
                slope += U[r, d] * gram[d, c] / (2 * tau)
            pull = slope  # of the squares of all cells
            for p in range(length):
                v = V[indices[first + p], c]
                chance = 1 / (1 + np.exp(x[p] - tau))
                slope -= v * (chance + x[p] / (2 * tau))
                before[p] = softplus(tau - x[p])
                curvature += v * v * (chance * (1 - chance) - 1 / (2 * tau))
            step = -slope / max(curvature, 1e-12)
            for _ in range(HALVINGS):
                moved = max(U[r, c] + step, floor) - U[r, c]
                change = moved * pull + moved * moved * gram[c, c] / (4 * tau)
                for p in range(length):
                    after = x[p] + moved * V[indices[first + p], c]
                    change += softplus(tau - after) - before[p] - (after * after - x[p] * x[p]) / (4 * tau)
                if change <= 0:
                    U[r, c] += moved
                    for p in range(length):
                        x[p] += moved * V[indices[first + p], c]
                    break
                step /= 2


@kernel
def loss_of_ones(U: Any, V: Any, indptr: Any, indices: Any, tau: float) -> float:
    """Return Σ_{ones} [log(1 + exp(τ − X_ij)) − X_ij²/(4τ)]."""
    total = 0.0
    for r in range(U.shape[0]):
        for p in range(indptr[r], indptr[r + 1]):
            x = 0.0
            for c in range(U.shape[1]):
                x += U[r, c] * V[indices[p], c]
            total += softplus(tau - x) - x * x / (4 * tau)
    return total


@kernel
def softplus(x: float) -> float:
    """log(1 + exp(x)) without overflow."""
    return float(max(x, 0.0) + np.log1p(np.exp(-abs(x))))
