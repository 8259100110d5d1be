"""Zhang: binary matrix factorization by multiplicative updates with a growing penalty (Zhang et al., 2007)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.centralized.base import RelaxedMethod
from felb.errors import InputError
from felb.kernels.boolean import best_thresholds, threshold_grid
from felb.kernels.passes import gather, squared_loss, statistics_pass
from felb.kernels.schedule import one_blas_thread
from felb.metrics import integrality_gap
from felb.optim.prox import Geometric, check_weights
from felb.optim.steps import projected_rows, uniform_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.centralized.base import Factors
    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline

    Array = NDArray[np.floating[Any]]

FLOOR = 1e-16
"""Entries stay above 0, since a multiplicative step cannot leave 0, and below every threshold."""

ROWS = 1 << 11
"""Rows of a factor that move together; more would leave the cache."""


@dataclass(eq=False, repr=False)
class ZhangMethod(RelaxedMethod):
    """The method of `felb.Zhang`, which describes it and its parameters."""

    _: KW_ONLY
    l2: float = 0.001
    l2_rate: float = 1.01
    grid: int = 100

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""
        check_weights(max_iter=(self.max_iter, 1), l2=(self.l2, 0), l2_rate=(self.l2_rate, 0), tol=(self.tol, 0))
        if np.dtype(self.dtype) not in (np.float32, np.float64):
            raise InputError(f'dtype must be "float32" or "float64", got {self.dtype!r}')
        threshold_grid(self.grid)

    @property
    def of_shortcut(self) -> dict[str, Any]:
        """Return the thresholds for factors that are Boolean."""
        return {"thresholds_": (0.5, 0.5)}

    def warn_about(self, components: NDArray[np.bool_], supports: NDArray[np.int64] | None, gap: float) -> None:  # noqa: ARG002
        """Warn about a result that collapsed; one that is not Boolean is what the thresholds are for."""
        super().warn_about(components, supports, 0.0)

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:
        """Iterate until Boolean, then choose the thresholds."""
        weight = Geometric(self.l2, self.l2_rate)
        Ht = np.ascontiguousarray(uniform_columns(seed, k, A.shape[1], dtype=self.dtype).T)
        W, Ht = balanced(projected_rows(A, Ht), Ht)
        rows: list[dict[str, float]] = []
        with one_blas_thread():
            AtW, WtW = statistics_pass(A, W)
            while self.goes_on(rows, deadline):
                lam = weight(len(rows))
                Ht = penalised_step(Ht, AtW, WtW, lam=lam)
                W = penalised_step(W, gather(A, Ht), Ht.T @ Ht, lam=lam)
                AtW, WtW = statistics_pass(A, W)
                loss, gap = squared_loss(A.nnz, AtW, WtW, Ht), gap_of(Ht)
                rows.append({"round": len(rows), "loss": loss, "integrality_gap": gap, "lam": lam})
        W, Ht = balanced(W, Ht)
        s, t, _ = best_thresholds(A, W, Ht, grid=threshold_grid(self.grid))
        return self.factors(
            np.greater_equal(W, np.float64(s)),  # in double precision, as the thresholds were chosen
            np.ascontiguousarray(np.greater_equal(Ht, np.float64(t)).T),
            relaxed=np.ascontiguousarray(np.minimum(Ht, 1).T),
            gap=gap_of(Ht),
            rows=rows,
            thresholds_=(s, t),
        )


def penalised_step(X: Array, gathered: Array, gram: Array, *, lam: float) -> Array:
    """X ← X (a + 3λX²) / (XG + 2λX³ + λX), at least `FLOOR`; a is AHᵀ for X = W and AᵀW for X = Hᵀ, G is HHᵀ or WᵀW.

    A multiplicative step for ½‖A − WH‖² + (λ/2)‖X² − X‖², whose gradient is XG − a + λ(2X³ − 3X² + X).
    """
    moved, weight = np.empty_like(X), X.dtype.type(lam)
    tiny = np.finfo(X.dtype).tiny
    for first in range(0, len(X), ROWS):
        x = X[first : first + ROWS]
        square = x * x
        above = gathered[first : first + ROWS] + 3 * weight * square
        below = x @ gram + weight * x * (2 * square + 1)
        np.maximum(x * above / np.maximum(below, tiny), FLOOR, out=moved[first : first + ROWS])
    return moved


def gap_of(Ht: Array) -> float:
    """Return the integrality gap of min(H, 1)."""
    blocks = (Ht[first : first + ROWS] for first in range(0, len(Ht), ROWS))
    return max(integrality_gap(np.minimum(block, 1)) for block in blocks)


def balanced(W: Array, Ht: Array) -> tuple[Array, Array]:
    """Rescale each component so that its greatest entries in W and H are equal; WH stays as it is.

    A component with nothing in W or H is left alone.
    """
    tops = W.max(axis=0, initial=0), Ht.max(axis=0, initial=0)
    used = (tops[0] > FLOOR) & (tops[1] > FLOOR)
    scale = np.sqrt(np.where(used, tops[1], 1) / np.where(used, tops[0], 1)).astype(W.dtype)
    return W * scale, Ht / scale
