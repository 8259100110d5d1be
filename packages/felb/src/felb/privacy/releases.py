"""Releases of private runs: co-occurrence, statistics, scores, a choice among candidates, uploads."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import boolean_product
from felb.metrics import Counts
from felb.optim.prox import prox_elb
from felb.privacy.accounting import Cost, Neighbours
from felb.privacy.mechanisms import (
    GRID_BITS,
    RecordSum,
    capped_weights,
    check_bound,
    discrete_gaussian,
    floor_steps,
    shorten_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix

    Array = NDArray[np.float64]


# -- Co-occurrence of features as a bounded sum over records ---------------------------------------------------------
#
# Three statistics, each additive over records and clients, with a bound on what one record contributes:
#
#     sizes          how many records have how many ones                              Δ = 1
#     co-occurrence  the upper triangle of Σ_r w_r a_r a_rᵀ, and N = Σ_r w_r          Δ = √(B(B+1)/2 + 1)
#     columns        Σ_r w_r a_r, for data too wide for all pairs                     Δ = √B
#
# A record with r ones has the weight w = min(1, Δ/‖its part‖): records with more ones than the bound B count for less.

ROWS_AT_A_TIME = 1 << 14
DEFAULT_ROW_BOUND = 20
"""B where the histogram of sizes drowns in its noise."""

MOST_RECORDS = 0.8
"""Share of the records that must be in bins of sizes that stand out from the noise, for these to stand for all."""

LEAST_PAIRED = 200
"""Columns of wide data whose pairs are counted, at least."""


def size_edges(n_columns: int) -> NDArray[np.int64]:
    """Upper ends of the bins of sizes: 0, 1, … 32, then growing by a tenth, up to `n_columns`; they are public."""
    edges = list(range(min(32, n_columns) + 1))
    while edges[-1] < n_columns:
        edges.append(min(n_columns, max(edges[-1] + 1, round(edges[-1] * 1.1))))
    return np.asarray(edges, dtype=np.int64)


def row_size_histogram(A: BinaryMatrix, *, bits: int = GRID_BITS) -> RecordSum:
    """Count the records per bin of `size_edges`, in steps of 2^−bits; a record counts once in one bin: Δ = 2^bits."""
    edges = size_edges(A.shape[1])
    bins = np.searchsorted(edges, A.row_sums())
    counts = np.bincount(bins, minlength=edges.size).astype(np.int64)
    return RecordSum.in_steps(counts << bits, 1.0, bits)


def row_bound_from_histogram(noisy: NDArray[Any], n_columns: int, *, sigma: float) -> int:
    """Return B, the median size by a noisy histogram; bins below two standard deviations are taken as empty.

    The median, since a bound that suits the largest records would make the noise too large for all. Where the bins that
    stand out hold too few of the records, but all bins together stand out, it is the smallest size that may halve their
    sum, within a standard deviation: a bound too small costs little, since records above
    it keep their ratio to the noise, and one too large drowns all of them.
    """
    edges = size_edges(n_columns)
    counts = np.asarray(noisy, dtype=np.float64)
    if counts.shape != edges.shape:
        raise InputError(f"a histogram of sizes over {n_columns} columns has {edges.size} bins, not {counts.shape}")
    kept, total = np.where(counts > 2 * sigma, counts, 0.0), float(counts.sum())
    noise = sigma * math.sqrt(counts.size)
    # Bins that stand out do so partly by their noise, which must not pass for records.
    surely = kept.sum() - sigma * np.count_nonzero(kept)
    if surely < MOST_RECORDS * total and total > 2 * noise:
        middle = int(np.argmax(2 * np.cumsum(counts) - total > -noise))
    elif kept.sum() <= 0:
        return min(DEFAULT_ROW_BOUND, max(1, n_columns))
    else:
        middle = int(np.searchsorted(np.cumsum(kept) / kept.sum(), 0.5))
    return max(1, int(edges[min(middle, edges.size - 1)]))


def cooccurrence_sensitivity(row_bound: float) -> float:
    """D = √(B(B+1)/2 + 1): the norm of triu(a aᵀ) of a record with B ones together with its 1 in N."""
    return math.sqrt(row_bound * (row_bound + 1) / 2 + 1)


def weighted_cooccurrence(A: BinaryMatrix, row_bound: float, *, bits: int = GRID_BITS) -> RecordSum:
    """Return [triu(Σ_r w_r a_r a_rᵀ), Σ_r w_r] as m(m+1)/2 + 1 integers, in steps of 2^−bits.

    A record with r ones has w = ⌊2^bits min(1, D/√(r(r+1)/2 + 1))⌋, so its part is never longer than 2^bits D.
    """
    bound = cooccurrence_sensitivity(check_bound("row_bound", row_bound))
    sizes = A.row_sums().astype(np.float64)
    weights = capped_weights(np.sqrt(sizes * (sizes + 1) / 2 + 1), bound, bits)
    m = A.shape[1]
    sums = np.zeros((m, m), dtype=np.int64)
    for start in range(0, A.shape[0], ROWS_AT_A_TIME):
        rows = A.rows(start, start + ROWS_AT_A_TIME).to_scipy(np.int64)
        weighted = rows.copy()
        weighted.data = np.repeat(weights[start : start + ROWS_AT_A_TIME], np.diff(rows.indptr))
        sums += np.asarray((weighted.T @ rows).todense())
    return RecordSum.in_steps(np.append(sums[np.triu_indices(m)], weights.sum()), bound, bits)


@dataclass(frozen=True, slots=True)
class NoisyCooccurrence:
    """What the server has of the data: M ≈ AᵀWA, symmetric, N ≈ the sum of weights, and σ, the noise of each entry."""

    M: NDArray[np.float64]
    N: float
    sigma: float

    @classmethod
    def of(cls, total: NDArray[Any], n_columns: int, *, grid: float, sigma: float) -> NoisyCooccurrence:
        """Read the sum of releases of `weighted_cooccurrence`; `sigma` is its noise in units of the data, not steps."""
        values = np.asarray(total, dtype=np.float64) * grid
        if values.shape != (n_columns * (n_columns + 1) // 2 + 1,):
            raise InputError(f"{values.size} numbers are no co-occurrence of {n_columns} columns")
        return cls(_unpack_symmetric(values[:-1], n_columns), float(values[-1]), float(sigma))

    def of_columns(self, columns: NDArray[np.integer[Any]]) -> NoisyCooccurrence:
        """Restrict to some columns."""
        return NoisyCooccurrence(self.M[np.ix_(columns, columns)], self.N, self.sigma)


def _unpack_symmetric(upper: Array, n: int) -> Array:
    """Return the symmetric n × n matrix of its upper triangle."""
    M = np.zeros((n, n))
    M[np.triu_indices(n)] = upper
    return M + np.triu(M, 1).T


def weighted_column_counts(A: BinaryMatrix, row_bound: float, *, bits: int = GRID_BITS) -> RecordSum:
    """Return Σ_r w_r a_r in steps of 2^−bits, w = ⌊2^bits min(1, √(B/r))⌋ for r ones; Δ = 2^bits √B."""
    bound = math.sqrt(check_bound("row_bound", row_bound))
    weights = capped_weights(np.sqrt(A.row_sums().astype(np.float64)), bound, bits)
    counts = np.zeros(A.shape[1], dtype=np.int64)
    for start in range(0, A.shape[0], ROWS_AT_A_TIME):
        rows = A.rows(start, start + ROWS_AT_A_TIME).to_scipy(np.int64)
        counts += rows.T @ weights[start : start + ROWS_AT_A_TIME]
    return RecordSum.in_steps(counts, bound, bits)


def heavy_columns(
    noisy: NDArray[Any], *, sigma: float, z: float = 3.0, most: int = 1000, least: int = 5
) -> NDArray[np.int64]:
    """Return the columns whose noisy count exceeds zσ and 1, ascending: at most `most`, at least `least`."""
    counts = np.asarray(noisy, dtype=np.float64)
    heavy = int((counts > max(z * sigma, 1.0)).sum())
    keep = min(max(heavy, least), most, counts.size)
    return np.sort(np.argsort(-counts, kind="stable")[:keep]).astype(np.int64)


def columns_to_pair(
    noisy: NDArray[Any], *, sigma: float, row_bound: int, least: int = LEAST_PAIRED
) -> tuple[NDArray[np.int64], int]:
    """Return the columns of wide data whose pairs are counted next, and B for records restricted to these.

    At least `least` columns, since one that is lost in the noise here may still stand out among pairs, where records
    with few ones among few columns need little noise: B' = ⌈B s⌉, at least 2, where s is the share of all ones that lie
    in these columns. Counts are soft-thresholded at 2σ for it, so that columns that were kept for their noise do not
    make the bound larger.
    """
    columns = heavy_columns(noisy, sigma=sigma, least=least)
    counts = np.asarray(noisy, dtype=np.float64)
    kept, total = np.maximum(counts[columns] - 2 * sigma, 0.0).sum(), float(counts.sum())
    share = min(1.0, float(kept) / total) if total > 0 else 1.0
    return columns, min(row_bound, max(2, math.ceil(row_bound * share)))


def select_columns(A: BinaryMatrix, columns: NDArray[np.integer[Any]]) -> BinaryMatrix:
    """Return A restricted to public columns, in their order."""
    from felb.data.binary import BinaryMatrix as Matrix

    return Matrix.of(A.to_scipy()[:, np.asarray(columns)])


# -- Rounds of private statistics: noisy sums over records for a public V̂ -------------------------------------------
#
# With V̂ frozen, u_r depends on row r alone: the start, the number of steps, the step size 1/‖V̂V̂ᵀ‖ and λ are public.
# So the statistics
#
#     [ Σ_r u_r a_rᵀ ,  w Σ_r u_r u_rᵀ ]        with ‖u_r‖ <= c, ‖a_r‖ <= s
#
# are sums over records, and a record moves them by at most √(c²s² + w²c⁴) per round.

LIFT = 0.1
"""Least eigenvalue of UᵀU that is believed, relative to the largest."""


@dataclass(frozen=True, slots=True)
class StatisticsBounds:
    """Bounds of one record in a round of statistics: ‖u_r‖ <= c, ‖a_r‖ <= s, and the weight w of the second part."""

    c: float = 1.0
    s: float = 5.0
    w: float = 1.0

    def __post_init__(self) -> None:
        for name in ("c", "s", "w"):
            check_bound(name, getattr(self, name))

    @property
    def sensitivity(self) -> float:
        """√(c²s² + w²c⁴)."""
        return math.sqrt(self.c**2 * self.s**2 + self.w**2 * self.c**4)


def fit_rows(A: BinaryMatrix, V: Array, *, U: Array | None = None, steps: int = 20, lam: float = 0.02) -> Array:
    """Take proximal gradient steps for U at a frozen, public V; row r of the result depends on row r of A alone.

    u ← clip(prox_{0,λ}(u − (uV Vᵀ − aVᵀ)/‖VVᵀ‖), 0, 1), from ½ or from the U of the round before. All sums run in an
    order that does not depend on the other rows, so that isolation holds to the last bit.
    """
    V = np.asarray(V, dtype=np.float64)
    if V.shape[1] != A.shape[1]:
        raise InputError(f"V has {V.shape[1]} columns, but the data has {A.shape[1]}")
    gram, targets = V @ V.T, A.to_scipy(np.float64) @ V.T
    step = 1 / max(float(np.linalg.norm(gram, 2)), 1e-9)
    rows: Array = np.full((A.shape[0], V.shape[0]), 0.5) if U is None else np.asarray(U, dtype=np.float64)
    for _ in range(steps):
        gradient = -targets
        for component in range(V.shape[0]):  # a matrix product may add in another order for another number of rows
            gradient = gradient + rows[:, component, None] * gram[component]
        rows = np.clip(prox_elb(rows - step * gradient, 0.0, lam), 0, 1)
    return rows


def clipped_statistics(A: BinaryMatrix, U: Array, bounds: StatisticsBounds, *, bits: int = GRID_BITS) -> RecordSum:
    """Return [UᵀA, w·triu(UᵀU)] with clipped rows as km + k(k+1)/2 integers, in steps of 2^−bits.

    Each record's part is rounded towards zero before the sum, so it is never longer than the bounds allow.
    """
    U = np.asarray(U, dtype=np.float64)
    if U.ndim != 2 or U.shape[0] != A.shape[0] or (U.size and U.min() < 0):
        raise InputError(f"U must hold {A.shape[0]} rows of non-negative numbers")
    clipped = shorten_rows(U, bounds.c)
    # A binary record is shortened to s as a whole, so that its share of UᵀA is still an integer times the record.
    shortening = capped_weights(np.sqrt(A.row_sums().astype(np.float64)), bounds.s, 30)
    shares = floor_steps(clipped * np.ldexp(shortening.astype(np.float64), -30)[:, None], bits)
    first = np.asarray((A.to_scipy(np.int64).T @ shares).T)
    left, right = np.triu_indices(U.shape[1])
    second = np.array(
        [floor_steps(bounds.w * clipped[:, i] * clipped[:, j], bits).sum() for i, j in zip(left, right, strict=True)],
        dtype=np.int64,
    )
    return RecordSum.in_steps(np.concatenate((first.ravel(), second)), bounds.sensitivity, bits)


def read_statistics(
    total: NDArray[Any], k: int, m: int, *, grid: float, bounds: StatisticsBounds
) -> tuple[Array, Array]:
    """Return (UᵀA, UᵀU) of the sum of releases, as real numbers."""
    values = np.asarray(total, dtype=np.float64) * grid
    if values.shape != (k * m + k * (k + 1) // 2,):
        raise InputError(f"{values.size} numbers are no statistics of {k} components and {m} columns")
    return values[: k * m].reshape(k, m), _unpack_symmetric(values[k * m :] / bounds.w, k)


def improve_components(V: Array, S: Array, G: Array, *, lam: float, steps: int = 10) -> Array:
    """Take the server's steps on ½⟨V, GV⟩ − ⟨V, S⟩ + R(V) over [0, 1], for noisy S ≈ UᵀA and G ≈ UᵀU.

    Noise can make G indefinite, and its small eigenvalues are noise in any case; they are lifted to a tenth of the
    largest.
    """
    values, vectors = np.linalg.eigh((G + G.T) / 2)
    top = max(float(values[-1]), 1e-9)
    lifted = (vectors * np.maximum(values, top * LIFT)) @ vectors.T
    V = np.asarray(V, dtype=np.float64)
    for _ in range(steps):
        V = np.clip(prox_elb(V - (lifted @ V - S) / top, 0.0, lam), 0, 1)
    return V


# -- Noisy scores: counts of right and wrong cells with a bounded part of each record --------------------------------


def clipped_counts(
    A: BinaryMatrix, U: NDArray[np.bool_], V: NDArray[np.bool_], bound: float, *, bits: int = GRID_BITS
) -> RecordSum:
    """Σ_r w_r (tp_r, fp_r, fn_r, 1) with w_r = min(1, D/‖(tp_r, fp_r, fn_r, 1)‖), D² = bound² + 1; Δ = 2^bits D.

    The last entry counts the records with their weights, so that the four together are counts of weighted records.
    """
    if not bound > 0:
        raise InputError(f"a record's part in the scores needs a positive bound, got {bound}")
    cover = boolean_product(U, V).to_scipy(np.int64)
    hits = np.asarray(A.to_scipy(np.int64).multiply(cover).sum(axis=1)).ravel()
    claimed = np.asarray(cover.sum(axis=1)).ravel()
    rows = np.stack([hits, claimed - hits, A.row_sums() - hits, np.ones_like(hits)], axis=1).astype(np.int64)
    largest = math.sqrt(bound**2 + 1)
    weights = capped_weights(np.sqrt((rows**2).sum(axis=1).astype(np.float64)), largest, bits)
    return RecordSum.in_steps((weights[:, None] * rows).sum(axis=0), largest, bits)


def read_counts(values: NDArray[Any], n_columns: int) -> Counts:
    """Return the counts that a noisy sum lets expect; what noise made negative is zero."""
    tp, fp, fn, records = (max(0, round(float(value))) for value in values)
    return Counts(tp, fp, fn, max(records * n_columns, tp + fp + fn))


# -- Private choice among public candidates for V: one small release -------------------------------------------------


def row_gains(A: BinaryMatrix, V: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return each row's covered ones minus covered zeros under its own best components of V."""
    cover = boolean_product(assign_rows(A, V), V).to_scipy(np.int64)
    hits = A.to_scipy(np.int64).multiply(cover)
    return np.asarray(2 * hits.sum(axis=1) - cover.sum(axis=1), dtype=np.int64).ravel()


def gain_differences(A: BinaryMatrix, candidates: Sequence[NDArray[np.bool_]]) -> NDArray[np.int64]:
    """Return for each row how much more it gains by each candidate than by the first one, the default."""
    if len(candidates) < 2:
        raise InputError("there is nothing to choose: give the default and at least one other candidate")
    base = row_gains(A, candidates[0])
    return np.stack([row_gains(A, V) - base for V in candidates[1:]], axis=1)


def gain_bound(synthetic: BinaryMatrix, candidates: Sequence[NDArray[np.bool_]], *, quantile: float = 0.98) -> float:
    """Return G, the length of the vector of differences that few synthetic rows exceed; public, since they are."""
    lengths = np.linalg.norm(gain_differences(synthetic, candidates), axis=1)
    return max(1.0, float(np.quantile(lengths, quantile))) if lengths.size else 1.0


def clipped_gains(
    A: BinaryMatrix, candidates: Sequence[NDArray[np.bool_]], bound: float, *, bits: int = GRID_BITS
) -> RecordSum:
    """Σ_r d_r min(1, G/‖d_r‖) over the rows' vectors of differences d_r, in steps of 2^−bits; Δ = 2^bits G.

    Rounded towards zero row by row. Differences have signs: exchanging a record can move the sum by 2Δ.
    """
    check_bound("bound", bound)
    clipped = shorten_rows(gain_differences(A, candidates).astype(np.float64), bound)
    steps = np.trunc(np.ldexp(clipped, bits)).astype(np.int64)
    return RecordSum.in_steps(steps.sum(axis=0), bound, bits, signed=True)


def choose(noisy_sums: NDArray[Any], *, sigma: float, z: float = 1.0) -> int:
    """Return the number of the chosen candidate: the default (0) unless the best other one gains more than zσ."""
    sums = np.asarray(noisy_sums, dtype=np.float64)
    best = int(np.argmax(sums))
    return best + 1 if sums[best] > z * sigma else 0


# -- Noise on uploads of the components of a client, which protects the whole client ---------------------------------
#
# Real components are shortened to a length and get discrete Gaussian noise; Boolean ones have their bits flipped at
# random. Both draw from the operating system's randomness, and neither looks at anything but the upload.

STEPS = 64
"""A client's noise spans at least this many steps of the grid that its upload is put on."""

DRAWS = 1 << 64
"""Flips are decided by whole numbers below this."""


@dataclass(frozen=True, slots=True)
class Uploads:
    """What a method uploads: how many times at most, how many numbers, and whether they are bits."""

    rounds: int
    size: int
    boolean: bool = False

    def __post_init__(self) -> None:
        if min(self.rounds, self.size) < 1:
            raise InputError(f"there is at least one upload of one number, got {self.rounds} of {self.size}")


@dataclass(frozen=True, slots=True)
class ClippedGaussian:
    """max(V, 0) · min(1, θ/‖V‖) on a grid, with discrete Gaussian noise of standard deviation σ.

    Entries are rounded towards zero, so an upload is never longer than θ. Without a client its upload counts as zero
    (``add_remove``): Δ₂ = θ. Two non-negative uploads differ by at most √2 θ (``replace``).

    Parameters
    ----------
    theta : θ
    mu : what one upload costs; σ = Δ₂/μ
    neighbours : of the client
    shares : clients whose noise together makes up σ, see `felb.privacy.mechanisms.DiscreteGaussian`
    """

    theta: float
    mu: float
    neighbours: Neighbours = "add_remove"
    shares: int = 1

    def __post_init__(self) -> None:
        check_bound("theta", self.theta)
        check_bound("mu", self.mu)

    @property
    def name(self) -> str:
        """The word for the log."""
        return "clipped discrete gaussian" + ("" if self.shares == 1 else f", 1 of {self.shares} shares")

    @property
    def sensitivity(self) -> float:
        """Δ₂."""
        return self.theta * (math.sqrt(2) if self.neighbours == "replace" else 1.0)

    @property
    def sigma_of_client(self) -> float:
        """Standard deviation of the noise that one client adds."""
        return self.sensitivity / self.mu / math.sqrt(self.shares)

    @property
    def grid(self) -> float:
        """Distance of possible values, a power of two; public."""
        return 2.0 ** math.floor(math.log2(self.sigma_of_client / STEPS))

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:  # noqa: ARG002
        """Shorten, put on the grid, add noise, charge μ."""
        if value.dtype.kind != "f":
            raise InputError(f"{what} is {value.dtype}; this noise is for real uploads")
        steps = self.clipped(value)
        noise = discrete_gaussian(self.sigma_of_client / self.grid, steps.size).reshape(steps.shape)
        cost = Cost("gaussian", self.mu, "client", self.neighbours)
        return (steps + noise) * self.grid, cost

    def clipped(self, value: NDArray[Any]) -> NDArray[np.int64]:
        """Return the upload without its noise, in steps of the grid; never longer than θ."""
        upload = np.maximum(np.asarray(value, dtype=np.float64), 0.0)
        length = float(np.linalg.norm(upload))
        shortened = upload * min(1.0, (1 - 1e-12) * self.theta / max(length, 1e-300))
        return np.floor(shortened / self.grid).astype(np.int64)


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """Flips each bit with probability p = 1/(1 + e^ε₀), rounded up to a multiple of 2^−64.

    Two clients may differ in all bits, so all are charged, under either relation of neighbours.
    """

    epsilon: float
    neighbours: Neighbours = "add_remove"
    name: str = "randomized response"

    def __post_init__(self) -> None:
        check_bound("epsilon", self.epsilon, 1e-9)

    @property
    def threshold(self) -> int:
        """A draw below it flips the bit."""
        return min(DRAWS // 2 - 1, math.ceil((1 + 1e-15) * DRAWS / (1 + math.exp(min(self.epsilon, 40.0)))))

    @property
    def flip_probability(self) -> float:
        """Probability p that a bit is flipped."""
        return self.threshold / DRAWS

    def cost(self, size: int) -> Cost:
        """Return what an upload of `size` bits costs."""
        return Cost("bits", self.epsilon, "client", self.neighbours, count=max(1, size))

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:  # noqa: ARG002
        """Flip bits, charge them all."""
        if value.dtype != np.bool_:
            raise InputError(f"{what} is {value.dtype}; bits are flipped in Boolean uploads only")
        draws = np.frombuffer(os.urandom(8 * value.size), dtype=np.uint64).reshape(value.shape)
        return value ^ (draws < np.uint64(self.threshold)), self.cost(value.size)

    def unbiased(self, total: NDArray[Any], n_clients: int) -> NDArray[Any]:
        """Return the sum of bits that a sum of flipped ones lets expect: (Σ − Cp)/(1 − 2p)."""
        p = self.flip_probability
        return np.asarray((total - n_clients * p) / (1 - 2 * p))
