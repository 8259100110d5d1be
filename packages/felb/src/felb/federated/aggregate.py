"""Aggregations: functions of a sum and a count; alignment of components with a reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]
    Aggregation = Callable[[Array, int], Array]
    """(Σ V_i, C) -> V̂."""


# -- Aggregations: functions of a sum and a count, so that secure aggregation works for each of them -----------------


def mean(total: Array, n_clients: int) -> Array:
    """(1/C) Σ V_i; the identity for one client."""
    return np.asarray(total / n_clients)


def curvature_mean(total: Array, curvature: Array, *, otherwise: Array) -> Array:
    """Σ s_i ⊙ V_i ⊘ Σ s_i from both sums: component l of client i weighs s_il = (U_iᵀU_i)_ll.

    It is argmin_V Σ_i Σ_l s_il ‖V_l − V_il‖². A component that no client uses stays as it was (`otherwise`).
    """
    used = curvature > 0
    weights = np.where(used, curvature, 1)[:, None]
    return np.where(used[:, None], total / weights, otherwise)


def rounded_mean(total: Array, n_clients: int) -> NDArray[np.bool_]:
    """⌊(1/C) Σ V_i⌉, exact halves rounded down (Eq. aggmean)."""
    return np.asarray(total / n_clients > 0.5)


def majority_vote(total: Array, n_clients: int) -> NDArray[np.bool_]:
    """[Σ V_i >= C/2], exact halves rounded up (Eq. aggvote)."""
    return np.asarray(2 * total >= n_clients)


def logical_or(total: Array, n_clients: int) -> NDArray[np.bool_]:  # noqa: ARG001
    """⋁ V_i (Eq. aggor)."""
    return np.asarray(total > 0)


BOOLEAN_AGGREGATIONS: dict[str, Aggregation] = {
    "mean": rounded_mean,
    "vote": majority_vote,
    "or": logical_or,
}
"""The aggregations of Boolean components by the word used at the command line."""

ALIGNED_AGGREGATIONS: dict[str, str] = {f"aligned-{word}": word for word in BOOLEAN_AGGREGATIONS}
"""The words for aligned components, and the aggregation that follows the alignment."""


# -- Alignment: which component of a client corresponds to which row of a shared reference ---------------------------
#
# Components are a set; their order is an accident of the search. A client permutes the rows of its Boolean V_i such
# that they overlap most with the rows of a reference R that all clients know (the Hungarian algorithm):
#
#     argmax_σ Σ_l ⟨V_i[σ(l)], R[l]⟩  =  argmin_σ Σ_l ‖V_i[σ(l)] − R[l]‖²        as both norms do not depend on σ.
#
# With R = Σ_i V_i, repeated, this is k-means with a constraint: no two components of one client share a centre. Each
# pass that changes the sum increases ‖Σ_i V_i‖², so passes of the same clients end. A multiple of R aligns as R does,
# so Σ_i V_i serves as well as the mean, and as it is whole, overlaps are exact on every machine.

ANCHOR_SCALE = 1 << 16
"""Steps of the grid of an anchor in one standard deviation."""


def anchor(seed: int, shape: tuple[int, int]) -> NDArray[np.int64]:
    """Return the first reference, k × m Gaussian weights on a grid: public, and about nobody's data.

    Equal sets of components are sent in the same order, as no two orders overlap equally with it; similar sets in a
    similar one. Measured on real data, the kind of weights hardly matters once a few passes follow.
    """
    weights = np.random.default_rng(seed).standard_normal(shape)
    return np.rint(ANCHOR_SCALE * weights).astype(np.int64)


def sorted_rows(V: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rows in lexical order, which does not depend on the order in which they were found."""
    packed = np.packbits(V, axis=1)
    return V[sorted(range(len(V)), key=lambda row: packed[row].tobytes())]


def align(V: NDArray[np.bool_], reference: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the rows of V in the order that overlaps most with the rows of the reference; a function of their set.

    An empty row overlaps with nothing, so it goes where no other row gains more.
    """
    from scipy.optimize import linear_sum_assignment  # takes a third of a second, and few methods align

    rows = sorted_rows(np.asarray(V, dtype=bool))
    # Whole numbers below 2^53: sums in float64 are exact in any order, so ties are ties everywhere.
    overlap = rows.astype(np.float64) @ np.asarray(reference, dtype=np.float64).T
    own, place = linear_sum_assignment(overlap, maximize=True)
    permuted = np.empty_like(rows)
    permuted[place] = rows[own]
    return permuted


def agreement(total: NDArray[Any], n_clients: int) -> float:
    """‖Σ V_i‖² / (C Σ_lj (Σ V_i)_lj): how many of the clients have a one where one has it, on average; 1/C to 1."""
    ones = float(np.sum(total, dtype=np.float64))
    return float(np.sum(np.square(total, dtype=np.float64))) / (n_clients * ones) if ones > 0 else 1.0
