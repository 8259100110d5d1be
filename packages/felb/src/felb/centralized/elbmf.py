"""ELBMF: elastic Boolean matrix factorization of centralized data (Dalleiger and Vreeken, 2022)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.centralized.base import RelaxedMethod
from felb.errors import InputError
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


SETTINGS = ("recommended", "published")


@dataclass(eq=False, repr=False)
class ELBMFMethod(RelaxedMethod):
    """The method of `felb.ELBMF`, which describes it and its parameters."""

    _: KW_ONLY
    l1: float = 0.01
    l2: float = 0.01
    l2_rate: float = 1.02
    inertia: float = 0.01
    exact_prox: bool = False
    setting: str = "recommended"

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""
        check_weights(
            max_iter=(self.max_iter, 1), l1=(self.l1, 0), l2=(self.l2, 0), l2_rate=(self.l2_rate, 0), tol=(self.tol, 0)
        )
        check_inertia(self.inertia)
        if self.setting not in SETTINGS:
            raise InputError(f"setting must be one of {', '.join(SETTINGS)}, got {self.setting!r}")

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:
        """Iterate until Boolean; rows are assigned to the Boolean components, or as published keep their own U."""
        published = self.setting == "published"
        weight, rule = Geometric(self.l2, self.l2_rate), Lipschitz()
        Vt = np.ascontiguousarray(uniform_columns(seed, k, A.shape[1], dtype=self.dtype).T)
        first = uniform_columns(seed + 1, len(A), k, dtype=self.dtype) if published else rule.first_rows(A, Vt)
        point = Point.start(first, Vt)
        objective = Objective(kappa=self.l1, exact=self.exact_prox, upper=np.inf if published else 1.0)
        rows: list[dict[str, float]] = []
        with one_blas_thread():
            while self.goes_on(rows, deadline):
                t = len(rows)
                point, statistics = palm_step(A, point, objective, rule=rule, lam=weight(t), beta=self.inertia)
                loss = loss_at(A, point, statistics)
                rows.append({"round": t, "loss": loss, "integrality_gap": integrality_gap(point.Vt), "lam": weight(t)})
        relaxed, gap = np.ascontiguousarray(point.Vt.T), rows[-1]["integrality_gap"]
        V = relaxed > 0.5
        return self.factors(
            np.asarray(point.U > 0.5) if published else assign_rows(A, V), V, relaxed=relaxed, gap=gap, rows=rows
        )
