"""C-SALT: components that classes share, and their alterations in single classes (Hess and Morik, 2017)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.centralized.base import RelaxedMethod
from felb.centralized.primp import WARM_UP, two_valued_penalty
from felb.centralized.zhang import balanced
from felb.errors import InputError
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import threshold_grid
from felb.kernels.passes import factor_steps, gather, squared_loss, statistics_pass
from felb.kernels.schedule import one_blas_thread
from felb.metrics import confusion, integrality_gap
from felb.optim.prox import check_weights
from felb.optim.steps import GradientStep, Lipschitz, Penalty, uniform_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.centralized.base import Factors
    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline

    Array = NDArray[np.floating[Any]]
    Boolean = NDArray[np.bool_]


@dataclass(eq=False, repr=False)
class CSaltMethod(RelaxedMethod):
    """The method of `felb.CSalt`, which describes it and its parameters."""

    _: KW_ONLY
    alteration: float = 1.0
    max_iter: int = 300
    tol: float = 1e-5
    grid: int = 11
    _labels: Any = field(default=None, init=False)

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""
        check_weights(max_iter=(self.max_iter, 1), alteration=(self.alteration, 0), tol=(self.tol, 0))
        threshold_grid(self.grid)

    @property
    def of_shortcut(self) -> dict[str, Any]:
        """Return no classes: trivial data has no alterations."""
        return {"classes_": np.zeros(0, dtype=np.int64), "alterations_": None}

    def finished(self, rows: list[dict[str, float]]) -> bool:
        """Whether all iterations were taken, or the objective decreases by less than `tol`, relatively."""
        return len(rows) == self.max_iter or (
            len(rows) > 1 and abs(rows[-2]["objective"] - rows[-1]["objective"]) <= self.tol * rows[-2]["objective"]
        )

    def warn_about(self, components: Boolean, supports: NDArray[np.int64] | None, gap: float) -> None:  # noqa: ARG002
        """Warn about a result that collapsed; one that is not Boolean is what the threshold is for."""
        super().warn_about(components, supports, 0.0)

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:
        """Take proximal steps for U, V and the alterations of every class in turn, then round."""
        labels = np.zeros(len(A), dtype=np.int64) if self._labels is None else np.asarray(self._labels)
        if labels.shape != (len(A),):
            raise InputError(f"y must have a label for each of the {len(A)} records, got shape {labels.shape}")
        classes, of_row = np.unique(labels, return_inverse=True)
        parts = [A.take(np.flatnonzero(of_row == a)) for a in range(classes.size)]
        Vt = np.ascontiguousarray(uniform_columns(seed, k, A.shape[1], dtype=self.dtype).T)
        Us = [Lipschitz().first_rows(part, Vt) for part in parts]
        Ws, rows = [np.zeros_like(Vt) for _ in parts], list[dict[str, float]]()
        with one_blas_thread():
            for _ in range(WARM_UP):
                Us, Vt, _ = self._step(parts, Us, Vt, Ws, warm=True)
            warm = balanced(np.vstack(Us), Vt)[1], Ws
            while self.goes_on(rows, deadline):
                Us, Vt, Ws = self._step(parts, Us, Vt, Ws, warm=False)
                loss = sum(loss_of(part, U, Vt + W) for part, U, W in zip(parts, Us, Ws, strict=True))
                ones = sum(float(X.sum(dtype=np.float64)) for X in (*Us, Vt)) / 2
                own = sum(float((W * (0.5 * self.alteration + Vt)).sum(dtype=np.float64)) for W in Ws)
                value = loss / 2 + ones + own + two_valued_penalty(*Us, Vt, *Ws)
                gap = integrality_gap(Vt)
                rows.append({"round": len(rows), "loss": loss, "objective": value, "integrality_gap": gap})
        _, V, altered, U = min(
            (self._round(A, of_row, parts, *factors) for factors in ((Vt, Ws), warm)), key=lambda found: found[0]
        )
        relaxed = np.ascontiguousarray(Vt.T)
        shown = {"classes_": classes, "alterations_": altered}
        return self.factors(U, V, relaxed=relaxed, gap=integrality_gap(relaxed), rows=rows, **shown)

    def _step(
        self, parts: list[BinaryMatrix], Us: list[Array], Vt: Array, Ws: list[Array], *, warm: bool
    ) -> tuple[list[Array], Array, list[Array]]:
        """Move all U_a, then V by the sums over classes, then all W_a; without penalties and alterations if `warm`."""
        penalty = Penalty(kappa=0.0 if warm else 2.0, exact=True)
        slope = Vt.dtype.type(0.0 if warm else 0.5)
        moved = []
        for part, U, W in zip(parts, Us, Ws, strict=True):
            of_class = np.minimum(Vt + W, 1)
            moved.append(move(U, gather(part, of_class) - slope, of_class.T @ of_class, penalty))
        statistics = [statistics_pass(part, U) for part, U in zip(parts, moved, strict=True)]
        shares = zip(statistics, Ws, strict=True)
        pulled = sum(AtU - W @ UtU - (0 if warm else W) for (AtU, UtU), W in shares) - slope
        Vt = move(Vt, pulled, np.sum([UtU for _, UtU in statistics], axis=0), penalty)
        if warm or len(parts) == 1:  # what a single class has is shared
            return moved, Vt, Ws
        slope = slope * Vt.dtype.type(self.alteration)
        fresh = [
            np.minimum(move(W, AtU - Vt @ UtU - Vt - slope, UtU, penalty), 1 - Vt)
            for (AtU, UtU), W in zip(statistics, Ws, strict=True)
        ]
        return moved, Vt, fresh

    def _round(
        self, A: BinaryMatrix, of_row: NDArray[np.int64], parts: list[BinaryMatrix], Vt: Array, Ws: list[Array]
    ) -> tuple[float, Boolean, Boolean, Boolean]:
        """Return cost (wrong cells plus ones of V and W), V, W and U for the threshold of the least cost."""
        best: tuple[float, Boolean, Boolean, Boolean] | None = None
        for threshold in threshold_grid(self.grid)[1:]:
            V = np.ascontiguousarray((Vt >= threshold).T)
            altered = np.array([(threshold <= W).T & ~V for W in Ws])
            U, cost = np.zeros((len(A), len(V)), dtype=bool), float(V.sum() + altered.sum())
            for a, part in enumerate(parts):
                own = V | altered[a]
                U[of_row == a] = assigned = assign_rows(part, own)
                cost += confusion(part, assigned, own).errors
            if best is None or cost < best[0]:
                best = cost, V, altered, U
        assert best is not None  # a grid has at least two thresholds
        return best


def move(X: Array, gathered: Array, gram: Array, penalty: Penalty) -> Array:
    """Return X after a proximal step of a size for each component, in the box [0, 1]."""
    rule = GradientStep(1 / 1.1, penalty, by_component=True)
    return factor_steps(X, gathered, gram, steps=1, rule=rule)[0]


def loss_of(part: BinaryMatrix, U: Array, of_class: Array) -> float:
    """‖A_a − U_a(V + W_a)‖²."""
    return squared_loss(part.nnz, *statistics_pass(part, U), of_class)
