"""How fast a pass is, as ratios against what one would otherwise use, measured side by side in one process.

pass       one `row_pass` against the same arithmetic in SciPy and NumPy: A @ Vᵀ, prox in place, Aᵀ @ U, Uᵀ @ U
iteration  `row_pass` and `factor_step` against one iteration of scikit-learn's NMF (solver "mu")
dense      the same iteration against the same algorithm on a dense A through BLAS, where that fits into memory
threads    one thread against two in wall time; "(machine)" is what two threads that share nothing gain at the same
           time, 2 on an idle machine; "(busy)" is against half the processor time of both, a hint at what the wall time
           would be on an idle machine if the two finish together

All but the last are processor time in one thread, the smallest of several interleaved runs.
"""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from common import at_least, make_parser, smallest
from problem import Problem
from shapes import SHAPES, generate
from threadpoolctl import threadpool_limits

from felb.kernels.schedule import Schedule, available_cpus

if TYPE_CHECKING:
    from collections.abc import Callable

    from common import Figure

    from felb.data import BinaryMatrix

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


def compare(name: str, A: BinaryMatrix, *, rule: str, repeats: int, others: bool = True) -> list[Figure]:
    """Return the ratios of one shape, in one thread."""
    problem = Problem(A, SHAPES[name].k, rule)
    problem.felb()
    problem.felb_iteration()
    runs: dict[str, Callable[[], object]] = {
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
    if not others:
        return [at_least(f"{name}: inertia", best["felb_inertia"] / best["felb"], None, _times(best, "felb"))]
    best["sklearn"] = (best["sklearn3"] - best["sklearn1"]) / 2
    pairs = {"pass": ("scipy", "felb"), "iteration": ("sklearn", "felb_iteration"), "dense": ("blas", "felb_iteration")}
    return [
        at_least(
            f"{name}: {what}",
            best[other] / best[ours],
            BARS.get((name, what)),
            f"{_times(best, other)} / {_times(best, ours)}",
        )
        for what, (other, ours) in pairs.items()
        if other in best
    ]


def scale(name: str, A: BinaryMatrix, *, rule: str, repeats: int) -> list[Figure]:
    """Return the gain of a second thread, if there is a second processor and enough work."""
    problem = Problem(A, SHAPES[name].k, rule, dense=False)
    if available_cpus() < 2 or len(Schedule(A, problem.k, None).each(lambda span: span)) < 2:
        return []
    pair: dict[str, Callable[[], object]] = {"1": problem.felb, "2": lambda: problem.felb(2)}
    control: dict[str, Callable[[], object]] = {"alone": lambda: multiply(1), "both": lambda: multiply(2)}
    problem.felb(2)
    with threadpool_limits(1):
        wall = smallest(pair | control, repeats, time.perf_counter)
        busy = smallest(pair, repeats, time.process_time)
    return [
        at_least(f"{name}: threads", wall["1"] / wall["2"], THREADS_BAR, f"{_times(wall, '1')} / {_times(wall, '2')}"),
        at_least(f"{name}: (machine)", wall["alone"] / wall["both"], None),
        at_least(f"{name}: (busy)", 2 * busy["1"] / busy["2"], None, "processor time"),
    ]


def multiply(threads: int, *, times: int = 200) -> None:
    """Multiply small matrices, a share of the times in each thread."""
    x = np.ones((192, 192), np.float32)

    def share(count: int) -> None:
        for _ in range(count):
            x @ x

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(share, [times // threads] * threads))


def _times(best: dict[str, float], name: str) -> str:
    return f"{1e3 * best[name]:.1f} ms"


def main() -> None:
    """Compare on the given shapes."""
    parser = make_parser(__doc__)
    parser.add_argument("names", nargs="*", default=DEFAULT, help=", ".join(SHAPES))
    parser.add_argument("--rule", choices=["lipschitz", "multiplicative", "hals"], default="lipschitz")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--alone", action="store_true", help="measure felb only")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.names:
        A = generate(SHAPES[name])
        print(f"{name}: {A}, k = {SHAPES[name].k}, {options.rule}", flush=True)
        figures = compare(name, A, rule=options.rule, repeats=options.repeats, others=not options.alone)
        for figure in figures + scale(name, A, rule=options.rule, repeats=options.repeats):
            print(f"  {figure.what}: {figure.measured}  {figure.bar} {figure.verdict}", flush=True)


if __name__ == "__main__":
    main()
