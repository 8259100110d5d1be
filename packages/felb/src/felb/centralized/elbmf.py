"""ELBMF: elastic Boolean matrix factorization of centralized data (Dalleiger and Vreeken, 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.centralized.base import RelaxedFactorization
from felb.kernels.assign import assign_rows
from felb.kernels.schedule import one_blas_thread
from felb.metrics import integrality_gap
from felb.optim.palm import Objective, Point, loss_at, palm_step
from felb.optim.prox import Geometric, check_inertia, check_weights
from felb.optim.steps import Lipschitz, uniform_columns

if TYPE_CHECKING:
    from felb.centralized.base import Factors
    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline


class ELBMF(RelaxedFactorization):
    """Boolean matrix factorization of centralized data by inertial proximal alternating minimization.

    Minimises ½‖A − UV‖² + R(U) + R(V) over [0, 1] with a regularizer that grows until the factors are Boolean.

    Parameters
    ----------
    n_components : int
    l1, l2 : weights κ and λ of the regularizer
    l2_rate : λ grows by this factor each iteration
    inertia : β of iPALM; 0 gives PALM
    max_iter : iterations at most
    tol : stop when the components are Boolean up to `tol` and the loss changes by less than `tol`, relatively
    exact_prox : use the exact minimiser of the regularizer instead of the printed operator
    dtype : "float32" or "float64"
    time_limit : seconds after which the iterations end, with what was found until then
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    relaxed_components_ : the components before they were cut at ½
    history_ : loss, integrality gap and λ per iteration
    integrality_gap_ : largest distance of an entry of `relaxed_components_` from 0 and 1
    converged_ : every entry lies within ¼ of 0 or 1, so that the cut at ½ is unambiguous
    n_iter_ : iterations taken
    supports_ : records that have each component
    complete_ : False if the time limit ended the iterations

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(300, 40, 3, seed=0)
    >>> model = felb.ELBMF(n_components=3, random_state=0).fit(data.A)
    >>> model.transform(data.A).shape
    (300, 3)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        l1: float = 0.01,
        l2: float = 0.01,
        l2_rate: float = 1.02,
        inertia: float = 0.01,
        max_iter: int = 1000,
        tol: float = 1e-4,
        exact_prox: bool = False,
        dtype: str = "float32",
        time_limit: float | None = None,
        binarize_threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.l1 = l1
        self.l2 = l2
        self.l2_rate = l2_rate
        self.inertia = inertia
        self.max_iter = max_iter
        self.tol = tol
        self.exact_prox = exact_prox
        self.dtype = dtype
        self.time_limit = time_limit
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""
        check_weights(
            max_iter=(self.max_iter, 1), l1=(self.l1, 0), l2=(self.l2, 0), l2_rate=(self.l2_rate, 0), tol=(self.tol, 0)
        )
        check_inertia(self.inertia)

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:
        """Iterate until Boolean; rows are assigned to the Boolean components."""
        weight, rule = Geometric(self.l2, self.l2_rate), Lipschitz()
        Vt = np.ascontiguousarray(uniform_columns(seed, k, A.shape[1], dtype=self.dtype).T)
        point = Point.start(rule.first_rows(A, Vt), Vt)
        objective = Objective(kappa=self.l1, exact=self.exact_prox)
        rows: list[dict[str, float]] = []
        with one_blas_thread():
            while self.goes_on(rows, deadline):
                t = len(rows)
                point, statistics = palm_step(A, point, objective, rule=rule, lam=weight(t), beta=self.inertia)
                loss = loss_at(A, point, statistics)
                rows.append({"round": t, "loss": loss, "integrality_gap": integrality_gap(point.Vt), "lam": weight(t)})
        relaxed, gap = np.ascontiguousarray(point.Vt.T), rows[-1]["integrality_gap"]
        V = relaxed > 0.5
        return self.factors(assign_rows(A, V), V, relaxed=relaxed, gap=gap, rows=rows)
