"""Aggregations: functions of a sum and a count, so that secure aggregation works for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]
    Aggregation = Callable[[Array, int], Array]
    """(Σ V_i, C) -> V̂."""


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
