"""Zhang: binary matrix factorization by multiplicative updates with a growing penalty (Zhang et al., 2007)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.centralized.base import RelaxedFactorization
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


class Zhang(RelaxedFactorization):
    """Binary matrix factorization by multiplicative updates, with thresholds chosen on a grid.

    Minimises ½‖A − WH‖² + (λ/2) Σ (H² − H)² + (λ/2) Σ (W² − W)² over W, H >= 0 for a growing λ by

        H ← H (WᵀA + 3λH²) / (WᵀWH + 2λH³ + λH),    W likewise.

    The limit need not be Boolean, so U = [W >= s] and V = [H >= t] take the pair of thresholds, of `grid` equidistant
    ones on [1e-12, 1] each, with the fewest wrong cells of U∘V; of equals the smallest s, then the smallest t. Before
    the updates and before the thresholds, each component is rescaled so that its greatest entries in W and H are equal,
    which leaves WH as it is and makes one threshold for all components meaningful.

    Parameters
    ----------
    n_components : int
    l2 : weight λ of the penalty at the start
    l2_rate : λ grows by this factor each iteration
    max_iter : iterations at most
    tol : stop when the components are Boolean up to `tol` and the loss changes by less than `tol`, relatively
    grid : thresholds to try for each factor
    dtype : "float32" or "float64"
    time_limit : seconds after which the iterations end; thresholds are still sought for what was found until then
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    relaxed_components_ : H in [0, 1] before the threshold; what was above 1, and so above all thresholds, is 1
    thresholds_ : (s, t), for W and for H
    history_ : loss ‖A − WH‖², integrality gap and λ per iteration
    integrality_gap_ : largest distance of an entry of `relaxed_components_` from 0 and 1
    converged_ : every entry lies within ¼ of 0 or 1
    n_iter_ : iterations taken
    supports_ : records that have each component
    complete_ : False if the time limit ended the iterations

    References
    ----------
    Z. Zhang, T. Li, C. Ding, X. Zhang: Binary matrix factorization with applications. ICDM 2007.

    Examples
    --------
    >>> from felb.data import planted
    >>> from felb.centralized.zhang import Zhang
    >>> data = planted(300, 40, 3, seed=0)
    >>> model = Zhang(n_components=3, random_state=0)
    >>> U = model.fit_transform(data.A)
    >>> U.shape, len(model.thresholds_)
    ((300, 3), 2)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        l2: float = 0.001,
        l2_rate: float = 1.01,
        max_iter: int = 1000,
        tol: float = 1e-4,
        grid: int = 100,
        dtype: str = "float32",
        time_limit: float | None = None,
        binarize_threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.l2 = l2
        self.l2_rate = l2_rate
        self.max_iter = max_iter
        self.tol = tol
        self.grid = grid
        self.dtype = dtype
        self.time_limit = time_limit
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

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
