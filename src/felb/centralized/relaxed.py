"""Methods that iterate on non-negative factors until these are Boolean."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from felb.centralized.method import CentralizedFactorization, Factors
from felb.kernels.assign import assign_rows
from felb.metrics import DECIDED
from felb.metrics.history import History
from felb.optim.trivial import exact_components

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.deadline import Deadline


class RelaxedFactorization(CentralizedFactorization):
    """Base of the methods that iterate; a subclass keeps a row with loss and integrality gap for every iteration."""

    max_iter: int
    tol: float
    dtype: str

    def goes_on(self, rows: list[dict[str, float]], deadline: Deadline) -> bool:
        """Whether to take another step: always a first one, then until out of iterations or time, or settled."""
        self.step_done(len(rows))
        return not rows or not (self.finished(rows) or deadline.passed)

    def steps(self, k: int) -> tuple[str, int]:  # noqa: ARG002
        """Return what a progress bar counts, and how many there are at most."""
        return "iterations", self.max_iter

    def finished(self, rows: list[dict[str, float]]) -> bool:
        """Whether all iterations were taken, or the components are Boolean and the loss stays put."""
        return len(rows) == self.max_iter or self._settled(rows)

    def _settled(self, rows: list[dict[str, float]]) -> bool:
        if len(rows) < 2 or rows[-1]["integrality_gap"] > self.tol:
            return False
        change = abs(rows[-1]["loss"] - rows[-2]["loss"])
        return change <= self.tol * max(rows[-2]["loss"], 1.0)

    def shortcut(self, A: BinaryMatrix, k: int) -> Factors | None:
        """Return the factors of data with at most k ones, or with nothing else: no iteration is needed."""
        V = exact_components(A.column_sums(), A.known_cells, k)
        if V is None:
            return None
        found = self.factors(assign_rows(A, V), V, relaxed=V.astype(self.dtype), gap=0.0, rows=[], **self.of_shortcut)
        return replace(found, complete=True)

    @property
    def of_shortcut(self) -> dict[str, Any]:
        """Further attributes that a fit without iterations shows."""
        return {}

    def factors(
        self,
        U: NDArray[np.bool_],
        V: NDArray[np.bool_],
        *,
        relaxed: NDArray[np.floating[Any]],
        gap: float,
        rows: list[dict[str, float]],
        **attributes: Any,
    ) -> Factors:
        """Return what was found, with what the fitted estimator shows of the way there."""
        return Factors(
            U,
            V,
            complete=self.finished(rows),
            attributes={
                "relaxed_components_": relaxed,
                "history_": History(rows),
                "n_iter_": len(rows),
                "integrality_gap_": gap,
                "converged_": gap <= DECIDED,
                **attributes,
            },
        )
