"""Starts: spectral initialisation, columns of the data, patterns of columns, factorization from above."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import InputError
from felb.federated.protocol import Request, Update
from felb.federated.steps.refine import FLIP_GAINS, weigh_gains
from felb.federated.steps.reseed import CANDIDATE_GAINS, PAIR_COUNTS, RESIDUAL_COUNTS, drop_duplicate_rows
from felb.federated.steps.state import ClientState, Cost, Objective, Solution, as_array, best_so_far, required, stream
from felb.federated.tasks import MOST, TINY, Input, Output, TaskSpec, Work
from felb.kernels.cooccurrence import columns_as_components, sparse_cooccurrence
from felb.kernels.passes import as_sketch, fixed_sketch, from_sketch, to_sketch
from felb.optim.palm import exact_components_of_sketch
from felb.privacy.disclosure import count_effectively, round_counts

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from felb.federated.protocol import Sums
    from felb.federated.steps.state import Steps


# -- Spectral initialization: a non-negative V from the leading singular vectors of all rows, computed from sums -----
#
# A randomized range finder (Halko, Martinsson, Tropp): Q ← qr(Σ AᵢᵀAᵢ Q) brings a random m × (k+10) basis close to the
# leading right singular vectors; the Gram matrix Qᵀ(Σ AᵢᵀAᵢ)Q then gives them and the singular values. NNDSVD
# (Boutsidis, Gallopoulos) keeps the larger of the positive and the negative part of each pair of singular vectors; of
# the left ones, which stay at the clients, it needs norms only.

POWER = 2
"""How often the basis is multiplied by AᵀA; more brings it closer to the leading vectors."""

SPECTRAL_ROUNDS = POWER + 2
"""Rounds of the spectral init with the usual power: one for each power, the Gram matrix, the parts of left vectors.
Of trivial data there is one round only."""

EXTRA = 10
"""Columns of the basis beyond the components; they catch what the first ones would miss."""

WIDE = 256
"""Columns of a basis beyond which it is made orthonormal by the quicker of two ways, see `orthonormal`."""

FLOOR = 0.01
"""Added to V, whose rows have the largest entry 1, because a sweep can hardly bring back what all rows have at zero."""

NEGLIGIBLE = 1e-6
"""Singular values below this share of the largest belong to nothing; their components start at random."""

SQUARE_BITS = 40
"""Fractional bits of squares of left vectors; they add up to 1."""


def sketch_gram(work: Work) -> tuple[ClientState | None, Update]:
    """AᵀA Q, in fixed point; under disclosure rules of the pair counts that may leave, as sketches tell all of them."""
    Q = np.asarray(work.values["Q"])
    if work.least == 1:
        return work.state, Update({"sketch": fixed_sketch(work.rows, Q)})
    pairs = sparse_cooccurrence(work.rows)
    sizes, first, second = pairs.diagonal(), np.repeat(np.arange(len(Q)), np.diff(pairs.indptr)), pairs.indices
    groups = np.where(first == second, len(work.rows), np.minimum(sizes[first], sizes[second]))
    pairs.data = round_counts(pairs.data, groups, work.least)
    return work.state, Update({"sketch": to_sketch(pairs @ Q)}, supports={"sketch": sizes})


def sum_sign_norms(work: Work) -> tuple[ClientState | None, Update]:
    """Squared norms of the positive and of the negative parts of the left vectors A v / s, in fixed point."""
    vectors, values = (np.asarray(work.values[name]) for name in ("vectors", "values"))
    left = work.rows.to_scipy(np.float64) @ vectors / values
    squares = np.rint(np.ldexp(left * left, SQUARE_BITS)).astype(np.int64)
    parts = {"positive": np.where(left > 0, squares, 0), "negative": np.where(left < 0, squares, 0)}
    update = {name: part.sum(axis=0) for name, part in parts.items()}
    supports = {
        name: count_effectively(update[name], part.max(axis=0, initial=0))
        for name, part in (parts.items() if work.least > 1 else ())
    }
    return work.state, Update(update, supports=supports)


GRAM_SKETCH = TaskSpec(
    "gram_sketch",
    "initialisation",
    sketch_gram,
    "AᵀA times a few more public vectors than there are components",
    {"Q": Input("f", ("m", "q"), -1.001, 1.001)},
    {"sketch": Output("i", ("m", "q"), low=-MOST, made_of="named", axes=1)},
    sizes={"q": lambda limits: limits.n_components + EXTRA},
    by_rows=True,
)
SIGN_NORMS = TaskSpec(
    "sign_norms",
    "initialisation",
    sum_sign_norms,
    "squared norms of the parts of left singular vectors",
    # Negligible singular values are told as 2^500, see `find_leading_vectors`.
    {"vectors": Input("f", ("m", "k"), -1.1, 1.1), "values": Input("f", ("k",), TINY, 2.0**501)},
    {name: Output("i", ("k",), made_of="named") for name in ("positive", "negative")},
    by_rows=True,
)


def spectral_init(
    n_features: int, n_components: int, *, seed: int, power: int = POWER, keep_empty: bool = True
) -> Steps:
    """Compute a non-negative initial V from the rows of all clients.

    The first sketch tells trivial data, such as that without ones; then what is returned are its `exact` components.

    Parameters
    ----------
    n_features, n_components : size of V
    power : how often the basis is multiplied by AᵀA before the Gram matrix is taken
    keep_empty : of trivial data, return empty components up to `n_components`; otherwise one at least
    """
    width = min(n_features, n_components + EXTRA)
    Q = as_sketch(random_basis(n_features, width, stream(seed, "start", 0)))
    with best_so_far(lambda: Solution(relaxed=_absolute(Q, n_components))):
        sums = yield Request(GRAM_SKETCH, Q=Q, all_clients=True)
        product = from_sketch(sums["sketch"])
        exact = exact_components_of_sketch(product, Q, n_components)
        if exact is not None:
            return make_exact_solution(exact, keep_empty=keep_empty)
        for _ in range(power):
            Q = as_sketch(orthonormal(product))
            sums = yield Request(GRAM_SKETCH, Q=Q, all_clients=True)
            product = from_sketch(sums["sketch"])
        vectors, values = find_leading_vectors(Q, product, n_components)
        sums = yield Request(SIGN_NORMS, vectors=vectors, values=values, all_clients=True)
    V = stream(seed, "start", power + 2).random((n_components, n_features))
    return Solution(relaxed=keep_larger_parts(V, vectors, sums["positive"], sums["negative"]))


def random_basis(n_features: int, width: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a random orthonormal basis; a wide one is drawn only, which is orthonormal on average."""
    drawn = rng.standard_normal((n_features, width))
    return drawn / np.sqrt(n_features) if width > WIDE else orthonormal(drawn)


def orthonormal(Y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an orthonormal basis Q of the span of the columns of Y, with as many columns.

    Of many columns it is Y W Λ^(−1/2) from the eigenvectors W of YᵀY, in a quarter of the time of a QR decomposition.
    Directions whose singular values are below 1e-7 or so of the largest are lost to rounding; their columns are zero.
    """
    if Y.shape[1] <= WIDE:
        return np.linalg.qr(Y)[0]
    eigenvalues, W = np.linalg.eigh(Y.T @ Y)
    kept = eigenvalues > len(W) * np.finfo(np.float64).eps * eigenvalues[-1]
    scales = np.where(kept, 1.0 / np.sqrt(np.where(kept, eigenvalues, 1.0)), 0.0)
    return np.asarray(Y @ (W * scales)[:, ::-1])


def make_exact_solution(components: NDArray[np.bool_], *, keep_empty: bool) -> Solution:
    """Return the components of trivial data, after which no step has anything to do."""
    used = len(components) if keep_empty else max(1, int(np.count_nonzero(components.any(axis=1))))
    return Solution(components=components[:used], settled=True, exact=True)


def find_leading_vectors(
    Q: NDArray[np.float64], product: NDArray[np.float64], n_components: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return right singular vectors (features × components) and values of A from Q and AᵀA Q.

    Negligible values are told as infinite: their left vectors vanish, and their components start at random.
    """
    gram = Q.T @ product
    eigenvalues, turn = np.linalg.eigh((gram + gram.T) / 2)
    leading = np.argsort(-eigenvalues, kind="stable")[:n_components]
    values = np.sqrt(np.maximum(eigenvalues[leading], 0.0))
    floor = max(NEGLIGIBLE * float(values.max(initial=0.0)), np.finfo(np.float32).tiny)
    return as_sketch(Q @ turn[:, leading]), np.where(values > floor, values, 2.0**500)


def keep_larger_parts(
    V: NDArray[np.float64],
    vectors: NDArray[np.float64],
    positive: NDArray[np.int64],
    negative: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Return V with the larger part of each pair of singular vectors in place of its row, where there is one.

    The parts are compared by ‖u₊‖‖v₊‖ and ‖u₋‖‖v₋‖, in squares.
    """
    V = V.copy()
    for component, vector in enumerate(vectors.T):
        if positive[component] + negative[component] == 0:
            continue
        if component == 0:
            V[component] = np.abs(vector)
            continue
        parts = np.maximum(vector, 0), np.maximum(-vector, 0)
        sizes = [int(u) * float(v @ v) for u, v in zip((positive[component], negative[component]), parts, strict=True)]
        V[component] = parts[int(sizes[1] > sizes[0])]
    highest = V.max(axis=1, keepdims=True)
    return np.asarray(V / np.where(highest > 0, highest, 1.0) + FLOOR, dtype=np.float32)


def _absolute(Q: NDArray[np.float64], n_components: int) -> NDArray[np.float32]:
    V = np.zeros((n_components, len(Q)), dtype=np.float32)
    rows = np.abs(Q.T[:n_components])
    V[: len(rows)] = rows
    return V


def random_init(n_features: int, n_components: int, *, seed: int, number: int = 0) -> Solution:
    """Draw a random non-negative V, without a request.

    Parameters
    ----------
    n_features, n_components : size of V
    number : of the draw, so that several starts of one run differ
    """
    V = stream(seed, "random start", number).random((n_components, n_features))
    return Solution(relaxed=np.asarray(V + FLOOR, dtype=np.float32))


# -- Patterns of columns from summed co-occurrence, and components chosen from them one after the other --------------
#
# For a seed column s and a confidence τ, the candidate of Asso (Miettinen, Mielikäinen, Gionis, Das, Mannila) is the
# set of columns j with |A_s ∩ A_j| >= τ·|A_s|. The co-occurrence of seeds with all columns is a sum over rows, hence
# over clients, and so is what a candidate would gain on top of a cover; all of these are integers, the same for any
# split.

CONFIDENCES = (0.3, 0.5, 0.7, 0.9, 1.0)
"""A column joins a seed's pattern if it is in this share of the records that have the seed."""


def make_patterns(
    pairs_of: NDArray[np.int64],
    sizes: NDArray[np.int64],
    seeds: NDArray[np.int64],
    *,
    confidences: tuple[float, ...] = CONFIDENCES,
) -> NDArray[np.bool_]:
    """Return the different patterns of all seeds and confidences, one per row, in a fixed order."""
    found = []
    for seed, pairs in zip(seeds, pairs_of, strict=True):
        for confidence in confidences:
            pattern = pairs >= confidence * max(int(sizes[seed]), 1)
            pattern[seed] = True
            found.append(pattern)
    return drop_duplicate_rows(np.array(found)) if found else np.zeros((0, len(sizes)), dtype=bool)


def find_patterns(
    solution: Solution, n_features: int, n_seeds: int = 256, *, confidences: tuple[float, ...] = CONFIDENCES
) -> Steps:
    """Find columns that often occur together, in two rounds of everybody; nothing is covered yet, so of all ones.

    Parameters
    ----------
    solution : handed on, with the patterns
    n_features : columns of the data
    n_seeds : the columns with the most ones are seeds, this many
    confidences : see `make_patterns`
    """
    if n_seeds < 1:
        raise InputError(f"at least one seed is needed, got n_seeds={n_seeds}")
    if not all(0 < confidence <= 1 for confidence in confidences):
        raise InputError(f"confidences lie in (0, 1], got {confidences}")
    nothing = {"components": np.zeros((1, n_features), dtype=bool), "weights": np.array([1.0, -1.0])}
    with best_so_far(lambda: solution):
        sums = yield Request(RESIDUAL_COUNTS, **nothing, all_clients=True)
        sizes = sums["residual"]
        seeds = np.argsort(-sizes, kind="stable")[:n_seeds]
        seeds = np.sort(seeds[sizes[seeds] > 0])
        sums = yield Request(PAIR_COUNTS, **nothing, seeds=seeds, all_clients=True)
    patterns = make_patterns(sums["pairs"], sizes, seeds, confidences=confidences)
    sums.report(patterns=len(patterns))
    return replace(solution, patterns=patterns)


def cover(solution: Solution, n_components: int, objective: Objective | None = None) -> Steps:
    """Choose components among known patterns: each time the one with the largest summed gain, as long as there is one.

    Parameters
    ----------
    n_components : rounds at most
    objective : what cells are worth; the Hamming loss if None
    """
    patterns = required(solution.patterns, "patterns of columns")
    weights = as_array((objective or Cost()).weights(None))
    V = np.zeros((n_components, patterns.shape[1]), dtype=bool)
    with best_so_far(lambda: Solution(components=V, weights=weights)):
        for taken in range(n_components if len(patterns) else 0):
            sums = yield Request(CANDIDATE_GAINS, components=V, weights=weights, candidates=patterns, all_clients=True)
            gains = weights[0] * sums["ones"] + weights[1] * sums["zeros"]
            best = int(np.argmax(gains))
            sums.report(gain=float(gains[best]))
            if not gains[best] > 0:
                break
            V = V.copy()
            V[taken] = patterns[best]
    return Solution(components=V, weights=weights)


# -- A start from the columns of the data: k columns stand for the records of k components ---------------------------
#
# Where there are nearly as many components as columns, hardly any set of columns is worth a component of its own, and a
# good V groups columns by which of k chosen ones they are close to, or are a union of (see
# `felb.kernels.cooccurrence`). The choice needs the co-occurrence of columns, a sum over rows, and nothing else.

COLUMNS_AT_A_TIME = 256
"""Columns whose co-occurrence with all columns is asked for in a round."""


def choose_columns(n_features: int, n_components: int, objective: Objective | None = None) -> Steps:
    """Choose columns and return the components that they stand for.

    Parameters
    ----------
    n_features : columns of the data, at most a few thousand, since the co-occurrence of all pairs is asked for
    n_components : number of components
    objective : what cells are worth; the Hamming loss if None
    """
    weights = (objective or Cost()).weights(None)
    nothing = {"components": np.zeros((1, n_features), dtype=bool), "weights": as_array(weights)}
    parts = []
    for first in range(0, n_features, COLUMNS_AT_A_TIME):
        columns = np.arange(first, min(first + COLUMNS_AT_A_TIME, n_features))
        sums = yield Request(PAIR_COUNTS, **nothing, seeds=columns, all_clients=True)
        parts.append(sums["pairs"])
    one, zero = weights
    V = columns_as_components(np.concatenate(parts), n_components, weight_one=one, weight_zero=zero)
    return Solution(components=V, weights=as_array(weights))


# -- Factorization from above: every one can be covered, because every column that has ones is in some component -----
#
# With a false negative dearer than a row of false positives, a row takes components until its ones are covered, if they
# can be. The components of a search need not contain rare columns; those that are left join the component in which they
# gain most.


def cover_all(solution: Solution) -> Generator[Request, Sums, Solution]:
    """Add the columns that have ones but are in no component to that with the largest summed gain."""
    V, weights = solution.boolean(), required(solution.weights, "the weights of cells")
    asked = {"components": V, "weights": weights}
    sums = yield Request(RESIDUAL_COUNTS, **asked, all_clients=True)
    missing = np.flatnonzero((sums["residual"] > 0) & ~V.any(axis=0))
    if not len(missing) or not len(V):
        return solution
    sums = yield Request(FLIP_GAINS, **asked, all_clients=True)
    gains = weigh_gains(sums, (float(weights[0]), float(weights[1])))
    whole = V.copy()
    whole[np.argmax(gains[:, missing], axis=0), missing] = True
    return replace(solution, components=whole, belief=None, settled=False)
