"""FastStep: non-negative factors whose product is cut by a step (Araujo et al., 2016)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.centralized.base import RelaxedMethod
from felb.errors import InputError
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import threshold_grid
from felb.kernels.cooccurrence import transpose
from felb.kernels.step_loss import descend_rows_into, loss_of_ones
from felb.metrics import confusion
from felb.metrics.counts import Counts
from felb.optim.prox import check_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.centralized.base import Factors
    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline

    Array = NDArray[np.float64]

FLOOR = 1e-5
"""Entries are at least this."""

ROWS = 1 << 12
"""Rows of the step reconstruction that are held at once."""


@dataclass(eq=False, repr=False)
class FastStepMethod(RelaxedMethod):
    """The method of `felb.FastStep`, which describes it and its parameters."""

    _: KW_ONLY
    tau: float = 20.0
    max_iter: int = 50
    tol: float = 1e-4
    grid: int = 11
    dtype: str = "float64"

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""
        check_weights(max_iter=(self.max_iter, 1), tol=(self.tol, 0))
        if not self.tau > 0:
            raise InputError(f"tau must be positive, got {self.tau}")
        threshold_grid(self.grid)

    @property
    def of_shortcut(self) -> dict[str, Any]:
        """Return the threshold for factors that are Boolean; there is no step reconstruction."""
        return {"threshold_": 0.5, "step_rows_": None, "step_columns_": None}

    def warn_about(self, components: NDArray[np.bool_], supports: NDArray[np.int64] | None, gap: float) -> None:  # noqa: ARG002
        """Warn about a result that collapsed; one that is not Boolean is what the threshold is for."""
        super().warn_about(components, supports, 0.0)

    def finished(self, rows: list[dict[str, float]]) -> bool:
        """Whether all iterations were taken, or the loss decreases by less than `tol`, relatively."""
        return len(rows) == self.max_iter or (
            len(rows) > 1 and rows[-2]["loss"] - rows[-1]["loss"] <= self.tol * rows[-2]["loss"]
        )

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:
        """Descend by rows and columns in turn, then choose the threshold of the Boolean components."""
        rng, columns = np.random.default_rng(seed), transpose(A)
        # Cells start near the step on average: components that start far below follow the first one.
        U, V = (FLOOR + 2 * np.sqrt(self.tau / k) * rng.random((size, k)) for size in A.shape)
        rows: list[dict[str, float]] = []
        while self.goes_on(rows, deadline):
            descend_rows_into(U, V, V.T @ V, A.indptr, A.indices, self.tau, FLOOR)
            descend_rows_into(V, U, U.T @ U, columns.indptr, columns.indices, self.tau, FLOOR)
            rows.append({"round": len(rows), "loss": step_loss(A, U, V, self.tau)})
        scale = (V * V).sum(axis=0) / V.sum(axis=0)  # the typical entry of a component
        relaxed = np.ascontiguousarray(np.minimum(V / scale, 1).T)
        rounded = [(float(t), assign_rows(A, relaxed >= t)) for t in threshold_grid(self.grid)[1:]]
        threshold, assigned = min(rounded, key=lambda pair: confusion(A, pair[1], relaxed >= pair[0]).errors)
        return self.factors(
            assigned,
            relaxed >= threshold,
            relaxed=relaxed,
            gap=float(np.minimum(relaxed, 1 - relaxed).max()),
            rows=rows,
            threshold_=threshold,
            step_rows_=U,
            step_columns_=V,
        )


def step_loss(A: BinaryMatrix, U: Array, V: Array, tau: float) -> float:
    """Σ_{ones} log(1 + exp(τ − X_ij)) + Σ_{zeros} X_ij²/(4τ) for X = UVᵀ."""
    squares = float(np.vdot(U.T @ U, V.T @ V)) / (4 * tau)
    return squares + float(loss_of_ones(U, V, A.indptr, A.indices, tau))


def count_step_cells(A: BinaryMatrix, U: Array, V: Array, tau: float) -> Counts:
    """Count the cells of [UVᵀ >= τ] against those of A, some rows at a time; takes nmk steps."""
    total = Counts(0, 0, 0, 0)
    for first in range(0, len(A), ROWS):
        block = A.rows(first, first + ROWS)
        claimed = U[first : first + ROWS] @ V.T >= tau
        lines = np.repeat(np.arange(len(block)), block.row_sums())
        tp = int(np.count_nonzero(claimed[lines, block.indices[block.indptr[0] : block.indptr[-1]]]))
        total += Counts(tp, int(np.count_nonzero(claimed)) - tp, block.nnz - tp, claimed.size)
    return total
