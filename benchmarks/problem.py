"""One iteration on a matrix in several ways: felb's, and the ones it is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.decomposition import non_negative_factorization

from felb.kernels.passes import RowPass, factor_step, row_pass
from felb.optim.steps import GradientStep, HalsStep, MultiplicativeStep, Penalty

if TYPE_CHECKING:
    from felb.data import BinaryMatrix
    from felb.kernels.passes import Rule

DENSE_BYTES = 1 << 30
"""A dense A beyond this is not tried."""

PROX = Penalty(0.001, 0.1)


class Problem:
    """A matrix with factors, and every way of moving them that is compared."""

    def __init__(self, A: BinaryMatrix, k: int, rule: str = "lipschitz", *, dense: bool = True) -> None:
        rng = np.random.default_rng(1)
        n, m = A.shape
        self.A, self.k = A, k
        self.U = rng.random((n, k), dtype=np.float32)
        self.Vt = rng.random((m, k), dtype=np.float32)
        self.step = float(1 / np.linalg.norm(self.Vt.T @ self.Vt))
        self.rule: Rule = {
            "lipschitz": GradientStep(self.step, PROX),
            "multiplicative": MultiplicativeStep(PROX),
            "hals": HalsStep(2),
        }[rule]
        self.out = RowPass(np.empty((n, k), np.float32), np.empty((m, k), np.float32), np.empty((k, k), np.float32))
        self.csr = A.to_scipy(np.float32)
        self.dense: Any = None
        if dense and 4 * n * m <= DENSE_BYTES:
            self.dense = self.csr.toarray()

    def felb(self, threads: int = 1) -> None:
        """Do one pass."""
        row_pass(self.A, self.U, self.Vt, rule=self.rule, threads=threads, out=self.out)

    def felb_inertia(self) -> None:
        """Do one pass from an extrapolated point."""
        row_pass(self.A, self.U, self.Vt, rule=self.rule, U_prev=self.U, beta=0.001, threads=1, out=self.out)

    def felb_iteration(self) -> None:
        """Do one pass and the step of V."""
        self.felb()
        step = 1 / float(np.linalg.norm(self.out.UtU))
        rule = GradientStep(step, PROX) if isinstance(self.rule, GradientStep) else self.rule
        factor_step(self.Vt, self.out.AtU, self.out.UtU, rule=rule)

    def scipy(self) -> None:
        """Do the same pass in SciPy and NumPy."""
        gram = self.Vt.T @ self.Vt
        x = self.csr @ self.Vt
        x -= self.U @ gram
        x *= np.float32(self.step)
        x += self.U
        prox_in_place(x, np.float32(self.step * PROX.kappa), np.float32(self.step * PROX.lam))
        self.csr.T @ x
        x.T @ x

    def blas(self) -> None:
        """Do the same iteration on a dense matrix."""
        U, Vt = self.U, self.Vt
        for target, matrix, held in ((U, self.dense, Vt), (Vt, self.dense.T, U)):
            gram = held.T @ held
            step = np.float32(1 / np.linalg.norm(gram))
            x = target + step * (matrix @ held - target @ gram)
            prox_in_place(x, step * np.float32(PROX.kappa), step * np.float32(PROX.lam))

    def sklearn(self, iterations: int) -> None:
        """Do some iterations of scikit-learn's multiplicative NMF."""
        W, H = self.U.copy(), np.ascontiguousarray(self.Vt.T)
        non_negative_factorization(
            self.csr, W, H, n_components=self.k, init="custom", solver="mu", max_iter=iterations, tol=0
        )


def prox_in_place(x: np.ndarray, kappa: np.floating[Any], lam: np.floating[Any]) -> None:
    """Apply the printed prox and clip to [0, 1] with as few passes over x as NumPy allows."""
    target = (x > 0.5).astype(np.float32)
    x -= target
    sign = np.sign(x)
    sign *= kappa
    x -= sign
    x /= 1 + lam
    x += target
    np.clip(x, 0, 1, out=x)
