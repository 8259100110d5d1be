"""Components and synthetic rows from noisy co-occurrence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.kernels.cooccurrence import descend_rows_of_moments, descend_weights
from felb.optim.prox import prox_elb
from felb.privacy.releases import NoisyCooccurrence, heavy_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


# -- Components directly from noisy co-occurrence: M ≈ VᵀHV off the diagonal; better if there are few rows -----------


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


# -- Synthetic rows from noisy co-occurrence, so that any factorization can run without the data ---------------------
#
# Everything here works on what has been released already, and so costs no privacy. Two kinds of rows are drawn: from
# latent-class models, which know groups of records, and from a Gaussian copula, which knows correlations of features.

CLASSES_PER_EIGENVALUE = 2
FEWEST_CLASSES, MOST_CLASSES = 5, 60
DEAD = 1e-4
"""Classes with less weight than this are started anew, but not in the last turns, which are for the others."""

LAST_TURNS = 6

RARE = 1e-4
"""Frequencies are kept this far from 0 and 1 in the copula, where its correlations are not determined."""


@dataclass(frozen=True, slots=True)
class LatentClasses:
    """Rows that belong to class c with probability π_c and then have feature j with probability P_jc, independently."""

    P: Array
    pi: Array

    def sample(self, n: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw n rows."""
        member = rng.choice(self.pi.size, n, p=self.pi / self.pi.sum())
        return np.asarray(rng.random((n, self.P.shape[0])) < self.P[:, member].T)


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Synthetic rows over the kept columns.

    Parameters
    ----------
    latent, copula : rows of either kind; the columns are those of `columns`, in order
    columns : numbers of the kept columns
    n_columns : columns of the data
    n_classes : classes of the latent-class models
    """

    latent: BinaryMatrix
    copula: BinaryMatrix
    columns: NDArray[np.int64]
    n_columns: int
    n_classes: int

    @property
    def mix(self) -> BinaryMatrix:
        """All rows."""
        return BinaryMatrix.vstack([self.latent, self.copula])

    def expand(self, V: NDArray[np.bool_], n_components: int | None = None) -> NDArray[np.bool_]:
        """Return components of the kept columns as components of all, with empty ones up to `n_components`."""
        k = V.shape[0] if n_components is None else max(n_components, V.shape[0])
        whole = np.zeros((k, self.n_columns), dtype=bool)
        whole[: V.shape[0], self.columns] = V
        return whole


def synthesize(
    released: NoisyCooccurrence,
    *,
    z: float = 3.0,
    fits: int = 6,
    copulas: int = 2,
    rows: int = 2500,
    seed: int = 0,
) -> Synthetic:
    """Draw synthetic rows that co-occur as the release says.

    Parameters
    ----------
    released : M, N and σ
    z : columns are kept if M_jj > zσ
    fits, copulas : latent-class models fitted from different starts, and samples of the copula
    rows : rows drawn from each of them
    seed : fixes everything
    """
    if min(fits, copulas) < 0 or fits + copulas < 1 or rows < 1:
        raise InputError("synthetic rows need at least one model and one row from each")
    columns = heavy_columns(np.diag(released.M), sigma=released.sigma, z=z)
    part = released.of_columns(columns)
    part = NoisyCooccurrence(part.M, max(part.N, float(np.diag(part.M).max()), 1.0), part.sigma)
    n_classes = count_classes(part)
    streams = np.random.SeedSequence(seed).spawn(fits + copulas)
    latent, copula = [], []
    for stream in streams[:fits]:
        rng = np.random.default_rng(stream)
        latent.append(fit_latent_classes(part, n_classes, rng=rng).sample(rows, rng))
    if copulas:
        factor, thresholds = gaussian_copula(part)
        for stream in streams[fits:]:
            normal = np.random.default_rng(stream).standard_normal((rows, factor.shape[1]))
            copula.append(normal @ factor.T < thresholds)
    empty = np.zeros((0, columns.size), dtype=bool)
    return Synthetic(
        BinaryMatrix.of(np.vstack([empty, *latent])),
        BinaryMatrix.of(np.vstack([empty, *copula])),
        columns,
        released.M.shape[0],
        n_classes,
    )


def count_classes(released: NoisyCooccurrence) -> int:
    """Return twice the number of eigenvalues of M, diagonal apart, above those of noise, 2σ√m, within 5 to 60."""
    M = released.M - np.diag(np.diag(released.M))
    values = np.linalg.eigvalsh(M)
    above = int((values > max(2 * released.sigma * math.sqrt(len(M)), 1e-3 * float(values[-1]))).sum())
    return int(np.clip(CLASSES_PER_EIGENVALUE * above, FEWEST_CLASSES, MOST_CLASSES))


def fit_latent_classes(
    released: NoisyCooccurrence, n_classes: int, *, rng: np.random.Generator, rounds: int = 25
) -> LatentClasses:
    """Fit π >= 0 and P in [0, 1] to pairs and frequencies, in turns.

    With Q = M/N off the diagonal and q = diag(M)/N, minimises

        ½ Σ_{i≠j} (Q_ij − Σ_c π_c P_ic P_jc)² + λ Σ_j (q_j − Σ_c π_c P_jc)² + mλ (1 − Σ_c π_c)²,   λ = m/4.

    Each row of P, and π, is a small quadratic problem given all else, which coordinate descent solves. Gradient steps
    on everything at once do not get there: the weights of the terms differ too much. Starts from the conditional
    frequencies of columns drawn by frequency; a class that dies is started anew from a column that is explained badly.
    """
    m = released.M.shape[0]
    lam = m / 4
    q = np.clip(np.diag(released.M) / released.N, 0, 1)
    Q = released.M / released.N
    Q = Q - np.diag(np.diag(Q))
    conditional = np.clip(Q / np.maximum(q, 1e-9)[:, None], 0, 1)

    def start_from(columns: NDArray[np.int64]) -> Array:
        P = (0.6 * conditional[columns] + 0.4 * q).T
        P[columns, np.arange(columns.size)] = 1.0
        return np.clip(P + 0.02 * rng.random(P.shape), 0, 1)

    P = start_from(rng.choice(m, n_classes, p=_weights(q)))
    pi = np.full(n_classes, 1 / n_classes)
    for turn in range(rounds):
        P = descend_rows_of_moments(P, pi, pairs=Q, frequencies=q, weight=lam, sweeps=2)
        pi = _class_weights(Q, q, P, pi, lam=lam)
        dead = np.flatnonzero(pi < DEAD)
        if dead.size and turn < rounds - LAST_TURNS:
            left = np.clip(Q - (P * pi) @ P.T, 0, None)
            np.fill_diagonal(left, 0)
            P[:, dead] = start_from(rng.choice(m, dead.size, p=_weights(left.sum(axis=1))))
            pi[dead] = 0.5 / n_classes
            pi /= pi.sum()
    return LatentClasses(P, pi)


def _class_weights(Q: Array, q: Array, P: Array, pi: Array, *, lam: float) -> Array:
    """Return the best π for P, nearly, scaled to the sum 1."""
    m, gram, squares = q.size, P.T @ P, P * P
    H = gram * gram - squares.T @ squares + 2 * lam * gram + 2 * m * lam
    b = (P * (Q @ P)).sum(axis=0) + 2 * lam * (q @ P) + 2 * m * lam
    pi = descend_weights(H, b, pi, rounds=50, least=1e-6)
    return np.asarray(pi / pi.sum())


def _weights(values: Array) -> Array:
    positive = np.maximum(values, 0) + 1e-12
    return np.asarray(positive / positive.sum())


def gaussian_copula(released: NoisyCooccurrence, *, z: float = 2.0) -> tuple[Array, Array]:
    """Return (L, h) such that rows [Lx < h], x standard normal, have the released frequencies and excesses.

    h_j = Φ⁻¹(M_jj/N). The correlation ρ_ij is the one for which P(both) − P(i)P(j) equals the released excess,
    soft-thresholded at zσ/N so that noise alone correlates nothing; LLᵀ is the nearest positive part, rescaled to 1.
    """
    from scipy.special import ndtri

    m = released.M.shape[0]
    q = np.clip(np.diag(released.M) / released.N, RARE, 1 - RARE)
    h = np.asarray(ndtri(q))
    i, j = np.triu_indices(m, 1)
    excess = released.M[i, j] / released.N - q[i] * q[j]
    excess = np.sign(excess) * np.maximum(np.abs(excess) - z * released.sigma / released.N, 0)
    R = np.zeros((m, m))
    R[i, j] = _correlations(h[i], h[j], excess)
    values, vectors = np.linalg.eigh(R + R.T + np.eye(m))
    factor = vectors[:, values > 0] * np.sqrt(values[values > 0])
    return factor / np.maximum(np.linalg.norm(factor, axis=1), 1e-9)[:, None], h


def _correlations(a: Array, b: Array, excess: Array, *, halvings: int = 14) -> Array:
    """Solve Φ₂(a, b; ρ) − Φ(a)Φ(b) = excess for ρ by bisection; the left side is ∫₀^ρ φ₂(a, b; t) dt."""
    nodes, weights = np.polynomial.legendre.leggauss(10)
    nodes, weights = (nodes + 1) / 2, weights / 2
    low, high = np.full(a.shape, -0.98), np.full(a.shape, 0.98)
    squares, product = a * a + b * b, a * b
    for _ in range(halvings):
        middle = (low + high) / 2
        value = np.zeros_like(middle)
        for node, weight in zip(nodes, weights, strict=True):
            t = middle * node
            rest = 1 - t * t
            value += weight * np.exp((t * product - squares / 2) / rest) / np.sqrt(rest)
        below = value * middle / (2 * np.pi) < excess
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray(np.where(excess == 0, 0.0, (low + high) / 2))
