"""Components directly from noisy co-occurrence: M ≈ VᵀHV off the diagonal; better if there are few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from felb.errors import InputError
from felb.optim.prox import prox_elb

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.privacy.private_cooccurrence import NoisyCooccurrence

    Array = NDArray[np.float64]


def symmetric_components(
    released: NoisyCooccurrence,
    n_components: int,
    *,
    restarts: int = 6,
    iterations: int = 400,
    lam: float = 1e-3,
    rate: float = 1.01,
    seed: int = 0,
) -> NDArray[np.bool_]:
    """Return Boolean V from the best of several starts.

    Alternates projected gradient steps on Σ_{i≠j} (M_ij − (VᵀHV)_ij)² over H >= 0, which stands for UᵀU, and V in
    [0, 1], whose proximal step drives it to 0 and 1 as λ grows. Starts from columns that differ in what they
    occur with more often than chance.

    Parameters
    ----------
    released : M, N and σ
    n_components : k
    restarts, iterations : starts, and steps from each
    lam, rate : λ of the first step, and its growth
    seed : fixes everything
    """
    m = released.M.shape[0]
    if not 1 <= n_components <= m:
        raise InputError(f"{m} columns have between 1 and {m} components, not {n_components}")
    M = released.M - np.diag(np.diag(released.M))
    lift = _lift(released)
    best, lowest = np.zeros((n_components, m)), np.inf
    for stream in np.random.SeedSequence(seed).spawn(restarts):
        V = _start(lift, n_components, np.random.default_rng(stream))
        V, loss = _descend(M, V, 0.1 * max(released.N, 1.0), iterations=iterations, lam=lam, rate=rate)
        if loss < lowest:
            best, lowest = V, loss
    return best > 0.5


def _lift(released: NoisyCooccurrence) -> Array:
    """Return how much more often than by chance pairs occur: M_ij − M_ii M_jj / N."""
    counts = np.maximum(np.diag(released.M), 3 * released.sigma + 1)
    lift = released.M - np.outer(counts, counts) / max(released.N, 1.0)
    np.fill_diagonal(lift, 0)
    return lift


def _start(lift: Array, k: int, rng: np.random.Generator) -> Array:
    """Pick k columns far from each other in what they are lifted with; each starts a component."""
    lengths = np.linalg.norm(lift, axis=1) + 1e-12
    directions = lift / lengths[:, None]
    picked = [int(rng.choice(lengths.size, p=lengths / lengths.sum()))]
    while len(picked) < k:
        nearest = np.max(directions @ directions[picked].T, axis=1)
        weight = np.maximum(1 - nearest, 1e-12) ** 2 * lengths
        weight[picked] = 0
        picked.append(int(rng.choice(lengths.size, p=weight / weight.sum())))
    rows = lift[picked]
    V = np.clip(rows / (np.quantile(rows, 0.95, axis=1, keepdims=True) + 1e-9), 0, 1)
    V[np.arange(k), picked] = 1
    return np.asarray(V)


def _descend(M: Array, V: Array, support: float, *, iterations: int, lam: float, rate: float) -> tuple[Array, float]:
    H = np.eye(V.shape[0]) * support
    for _ in range(iterations):
        gram = V @ V.T
        H = np.maximum(H - V @ _residual(M, V, H) @ V.T / (np.linalg.norm(gram, 2) ** 2 + 1e-9), 0)
        H = (H + H.T) / 2
        step = 1 / (2 * np.linalg.norm(H @ gram @ H, 2) + 1e-9)
        V = np.clip(prox_elb(V - 2 * step * (H @ V) @ _residual(M, V, H), 0.0, lam), 0, 1)
        lam *= rate
    residual = _residual(M, V, H)
    return V, float((residual * residual).sum())


def _residual(M: Array, V: Array, H: Array) -> Array:
    residual = V.T @ H @ V - M
    np.fill_diagonal(residual, 0)
    return np.asarray(residual)
