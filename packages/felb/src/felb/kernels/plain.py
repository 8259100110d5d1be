"""The passes of `felb.kernels.passes` in NumPy and SciPy: any float type, no compiler, several times slower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.kernels.passes import Rule

BLOCK = 1 << 13
"""Rows that are handled together, so that temporaries stay small."""


def row_pass_into(
    out: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    A: BinaryMatrix,
    U: NDArray[Any],
    Vt: NDArray[Any],
    *,
    rule: Rule,
    U_prev: NDArray[Any],
    beta: float,
) -> None:
    """See `felb.kernels.passes.row_pass_into`."""
    moved, AtU, UtU = out
    gram = Vt.T @ Vt
    AtU[:], UtU[:] = 0, 0
    for first in range(0, A.shape[0], BLOCK):
        block = slice(first, first + BLOCK)
        ones = A.rows(first, first + BLOCK).to_scipy(U.dtype)
        rows = move(U[block], ones @ Vt, gram, rule=rule, X_prev=U_prev[block], beta=beta, target=None)
        moved[block] = rows
        AtU += ones.T @ rows
        UtU += rows.T @ rows


def statistics_into(out: tuple[NDArray[Any], NDArray[Any]], A: BinaryMatrix, U: NDArray[Any]) -> None:
    """See `felb.kernels.passes.statistics_pass`."""
    AtU, UtU = out
    AtU[:] = A.to_scipy(U.dtype).T @ U
    UtU[:] = U.T @ U


def gather_into(out: NDArray[Any], A: BinaryMatrix, Vt: NDArray[Any]) -> None:
    """See `felb.kernels.passes.gather`."""
    out[:] = A.to_scipy(Vt.dtype) @ Vt


def move(
    X: NDArray[Any],
    gathered: NDArray[Any],
    gram: NDArray[Any],
    *,
    rule: Rule,
    X_prev: NDArray[Any],
    beta: float,
    target: NDArray[Any] | None,
) -> NDArray[Any]:
    """See `felb.kernels.passes.factor_step`."""
    point = np.maximum(X + X.dtype.type(beta) * (X - X_prev), X.dtype.type(rule.lowest))
    return rule.apply(point, gathered, gram, target)
