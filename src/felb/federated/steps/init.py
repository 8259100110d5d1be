"""Spectral initialization: a non-negative V from the leading singular vectors of all rows, computed from sums.

A randomized range finder (Halko, Martinsson, Tropp): Q ← qr(Σ AᵢᵀAᵢ Q) brings a random m × (k+10) basis close to the
leading right singular vectors; the Gram matrix Qᵀ(Σ AᵢᵀAᵢ)Q then gives them and the singular values. NNDSVD (Boutsidis,
Gallopoulos) keeps the larger of the positive and the negative part of each pair of singular vectors; of the left ones,
which stay at the clients, it needs norms only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from felb.federated.protocol import Request, Update
from felb.federated.steps.known import ClientState, Known, best_so_far, stream
from felb.kernels.fixed_point import as_sketch, fixed_sketch, from_sketch
from felb.optim.trivial import exact_components_of_sketch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Task
    from felb.federated.steps.known import Steps

GRAM_SKETCH, SIGN_NORMS = "gram_sketch", "sign_norms"

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


def gram_sketch_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState | None, Update]:
    """AᵀA Q, in fixed point."""
    return state, Update({"sketch": fixed_sketch(shard, np.asarray(request.values["Q"]))})


def sign_norms_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState | None, Update]:
    """Squared norms of the positive and of the negative parts of the left vectors A v / s, in fixed point."""
    vectors, values = (np.asarray(request.values[name]) for name in ("vectors", "values"))
    left = shard.to_scipy(np.float64) @ vectors / values
    squares = np.rint(np.ldexp(left * left, SQUARE_BITS)).astype(np.int64)
    update = {
        "positive": np.where(left > 0, squares, 0).sum(axis=0),
        "negative": np.where(left < 0, squares, 0).sum(axis=0),
    }
    return state, Update(update)


INIT_TASKS: dict[str, Task] = {GRAM_SKETCH: gram_sketch_task, SIGN_NORMS: sign_norms_task}


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
    with best_so_far(lambda: Known(relaxed=_absolute(Q, n_components))):
        sums = yield Request(GRAM_SKETCH, Q=Q, all_clients=True)
        product = from_sketch(sums["sketch"])
        exact = exact_components_of_sketch(product, Q, n_components)
        if exact is not None:
            return exactly_known(exact, keep_empty=keep_empty)
        for _ in range(power):
            Q = as_sketch(orthonormal(product))
            sums = yield Request(GRAM_SKETCH, Q=Q, all_clients=True)
            product = from_sketch(sums["sketch"])
        vectors, values = leading_vectors(Q, product, n_components)
        sums = yield Request(SIGN_NORMS, vectors=vectors, values=values, all_clients=True)
    V = stream(seed, "start", power + 2).random((n_components, n_features))
    return Known(relaxed=larger_parts(V, vectors, sums["positive"], sums["negative"]))


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


def exactly_known(components: NDArray[np.bool_], *, keep_empty: bool) -> Known:
    """Return the components of trivial data, after which no step has anything to do."""
    used = len(components) if keep_empty else max(1, int(np.count_nonzero(components.any(axis=1))))
    return Known(components=components[:used], settled=True, exact=True)


def leading_vectors(
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


def larger_parts(
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


def random_init(n_features: int, n_components: int, *, seed: int, number: int = 0) -> Known:
    """Draw a random non-negative V, without a request.

    Parameters
    ----------
    n_features, n_components : size of V
    number : of the draw, so that several starts of one run differ
    """
    V = stream(seed, "random start", number).random((n_components, n_features))
    return Known(relaxed=np.asarray(V + FLOOR, dtype=np.float32))
