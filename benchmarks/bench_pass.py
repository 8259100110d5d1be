"""How fast a pass is, as ratios against what one would otherwise use, measured side by side in one process.

pass       one `row_pass` against the same arithmetic in SciPy and NumPy: A @ Vᵀ, prox in place, Aᵀ @ U, Uᵀ @ U
iteration  `row_pass` and `factor_step` against one iteration of scikit-learn's NMF (solver "mu")
dense      the same iteration against the same algorithm on a dense A through BLAS, where that fits into memory
threads    one thread against two in wall time; "(busy)" is against half the processor time of both, a hint at what the
           wall time would be on an idle machine if the two finish together

All but the last are processor time in one thread, the smallest of several interleaved runs.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from shapes import SHAPES, generate
from sklearn.decomposition import non_negative_factorization
from threadpoolctl import threadpool_limits

from felb.linalg.passes import RowPass, factor_step, row_pass_into
from felb.linalg.schedule import count_threads
from felb.optim.steps import GradientStep, HalsStep, MultiplicativeStep, Penalty

if TYPE_CHECKING:
    from collections.abc import Callable

    from felb.linalg import BinaryMatrix
    from felb.linalg.rules import Rule

DEFAULT = ("ratings", "acs-income", "single-cell", "hpa-tenth", "small")

BARS = {
    ("ratings", "pass"): 1.8,
    ("acs-income", "pass"): 7.0,
    ("single-cell", "pass"): 2.8,
    ("ratings", "iteration"): 2.5,
    ("acs-income", "iteration"): 4.0,
    ("single-cell", "iteration"): 4.0,
    ("single-cell", "dense"): 9.0,
}
"""Ratios that must be reached."""

THREADS_BAR = 1.7

DENSE_BYTES = 1 << 30
"""A dense A beyond this is not tried."""

PROX = Penalty(0.001, 0.1)


class Problem:
    """A matrix with factors, and every way of moving them that is compared."""

    def __init__(self, A: BinaryMatrix, k: int, rule: str) -> None:
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
        if 4 * n * m <= DENSE_BYTES:
            self.dense = self.csr.toarray()

    def felb(self, threads: int = 1) -> None:
        """Do one pass."""
        row_pass_into(self.out, self.A, self.U, self.Vt, rule=self.rule, threads=threads)

    def felb_inertia(self) -> None:
        """Do one pass from an extrapolated point."""
        row_pass_into(self.out, self.A, self.U, self.Vt, rule=self.rule, U_prev=self.U, beta=0.001, threads=1)

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


def smallest(runs: dict[str, Callable[[], None]], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Return the smallest time of each, run in turn so that all see the same machine."""
    best = dict.fromkeys(runs, np.inf)
    for _ in range(repeats):
        for name, run in runs.items():
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    return best


def bench(name: str, *, rule: str, repeats: int, others: bool) -> None:
    """Measure one shape and print its ratios."""
    A = generate(SHAPES[name])
    problem = Problem(A, SHAPES[name].k, rule)
    problem.felb()
    problem.felb_iteration()
    runs: dict[str, Callable[[], None]] = {
        "felb": problem.felb,
        "felb_inertia": problem.felb_inertia,
        "felb_iteration": problem.felb_iteration,
    }
    if others:
        runs["scipy"] = problem.scipy
        runs["sklearn1"] = lambda: problem.sklearn(1)
        runs["sklearn3"] = lambda: problem.sklearn(3)
        if problem.dense is not None:
            runs["blas"] = problem.blas
    with threadpool_limits(1):
        best = smallest(runs, repeats, time.process_time)
        print(f"{name}: {A}, k = {SHAPES[name].k}, {rule}")
        print(
            f"  felb: pass {1e3 * best['felb']:.1f} ms, with inertia {1e3 * best['felb_inertia']:.1f} ms, "
            f"iteration {1e3 * best['felb_iteration']:.1f} ms"
        )
        if others:
            report(name, "pass", best["scipy"], best["felb"])
            report(name, "iteration", (best["sklearn3"] - best["sklearn1"]) / 2, best["felb_iteration"])
            if "blas" in best:
                report(name, "dense", best["blas"], best["felb_iteration"])
        if (os.cpu_count() or 1) > 1 and count_threads(A, problem.k, None) > 1:
            pair = {"1": problem.felb, "2": lambda: problem.felb(2)}
            wall = smallest(pair, repeats, time.perf_counter)
            report(name, "threads", wall["1"], wall["2"], THREADS_BAR)
            busy = smallest(pair, repeats, time.process_time)
            report(name, "(busy)", busy["1"], busy["2"] / 2)


def report(name: str, what: str, other: float, felb: float, bar: float | None = None) -> None:
    """Print one ratio and whether it reaches its bar."""
    bar = BARS.get((name, what), bar)
    verdict = "" if bar is None else f"  (bar {bar}: {'reached' if other / felb >= bar else 'MISSED'})"
    print(f"  {what:9s} {1e3 * other:9.1f} ms / {1e3 * felb:7.1f} ms = {other / felb:5.2f}x{verdict}")


def main() -> None:
    """Compare on the given shapes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=DEFAULT, help=", ".join(SHAPES))
    parser.add_argument("--rule", choices=["lipschitz", "multiplicative", "hals"], default="lipschitz")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--alone", action="store_true", help="measure felb only")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in arguments.names:
        bench(name, rule=arguments.rule, repeats=arguments.repeats, others=not arguments.alone)


if __name__ == "__main__":
    main()
