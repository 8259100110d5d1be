"""Seconds of fits of extreme data against random data with as many ones, and time limits that are kept.

    python benchmarks/pathological.py                     all cases, fast and default
    python benchmarks/pathological.py --only "one dense row" --efforts default
    python benchmarks/pathological.py --limits            time_limit=5 on the largest cases, all methods that have one

No case may take more than ten times the processor time of random data of its shape with as many ones, rank and effort.
A time limit must be kept within a fifth of it, or a second; that is wall time. On a busy machine, the processor time
beyond the limit tells as much, and is printed, too.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from common import exit_if_missed, load_average, make_parser

import felb
from felb.data import planted

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 10.0
LIMIT = 5.0


def random_ones(n: int, m: int, ones: int) -> felb.BinaryMatrix:
    """Return random data with about so many ones."""
    rng = np.random.default_rng(0)
    places = np.unique(rng.integers(0, n * m, ones))
    return felb.BinaryMatrix.of(sp.csr_array((np.ones(len(places), np.uint8), (places // m, places % m)), shape=(n, m)))


def one_dense_row() -> felb.BinaryMatrix:
    """Return sparse rows of which one has every feature."""
    X = random_ones(5000, 5000, 20_000).to_scipy(np.uint8).tolil()
    X[17] = 1
    return felb.BinaryMatrix.of(X.tocsr())


def many_components() -> felb.BinaryMatrix:
    """Return planted data whose rank is far below the requested one."""
    return planted(3000, 800, 20, noise=0.02, heights=(0.02, 0.1), widths=(0.02, 0.1), seed=0).A


CASES: dict[str, tuple[Callable[[], felb.BinaryMatrix], int]] = {
    "all zero, 5000 x 1000": (lambda: felb.BinaryMatrix.of(sp.csr_array((5000, 1000), dtype=np.uint8)), 20),
    "all one, 2000 x 500": (lambda: felb.BinaryMatrix.of(np.ones((2000, 500), np.uint8)), 20),
    "identity, 3000 x 3000": (lambda: felb.BinaryMatrix.of(sp.eye_array(3000, dtype=np.uint8, format="csr")), 20),
    "one dense row, 5000 x 5000": (one_dense_row, 20),
    "k = 500, 3000 x 800": (many_components, 500),
    "100 x 60000": (lambda: planted(100, 60_000, 10, noise=0.01, seed=0).A, 20),
}


def seconds(A: felb.BinaryMatrix, k: int, effort: str) -> float:
    """Return the processor seconds of a fit."""
    start = time.process_time()
    felb.FederatedBMF(k, effort=effort, random_state=0).fit(A)
    return time.process_time() - start


def ratios(only: str, efforts: list[str]) -> list[str]:
    """Print the time of each case and of random data; return those that miss the bar."""
    missed = []
    print("| data | effort | seconds | of random data | ratio |\n|---|---|---|---|---|")
    for name, (make, k) in CASES.items():
        if only not in name:
            continue
        A = make()
        other = random_ones(*A.shape, A.nnz) if 2 * A.nnz < A.shape[0] * A.shape[1] else _half(A.shape)
        for effort in efforts:
            spent, usual = seconds(A, k, effort), seconds(other, k, effort)
            held = spent <= MOST * max(usual, 0.05)
            print(f"| {name} | {effort} | {spent:.2f} | {usual:.2f} | {spent / max(usual, 0.05):.1f} |", flush=True)
            if not held:
                missed.append(f"{name}, {effort}")
    return missed


def _half(shape: tuple[int, int]) -> felb.BinaryMatrix:
    """Return random data with half of its cells one, for cases with more ones than that."""
    return felb.BinaryMatrix.of((np.random.default_rng(0).random(shape) < 0.5).astype(np.uint8))


METHODS: dict[str, Callable[..., Any]] = {
    **{
        f"FederatedBMF, {effort}": lambda k, effort=effort, **how: felb.FederatedBMF(k, effort=effort, **how)
        for effort in ("fast", "default", "high")
    },
    **{method.__name__: method for method in (felb.Asso, felb.GreConD, felb.MEBF, felb.ELBMF, felb.Zhang)},
}
"""What has a time limit."""


def limits(only: str) -> list[str]:
    """Print how long fits with a time limit take; return those that do not keep it."""
    missed = []
    allowed = LIMIT + max(1.0, 0.2 * LIMIT)
    print("| data | method | limit | elapsed | processor | |\n|---|---|---|---|---|---|")
    for name, (make, k) in CASES.items():
        if not (k == 500 or "60000" in name):
            continue
        A = make()
        for kind, data in (("", A), (", random", random_ones(*A.shape, A.nnz))):
            for method, estimator in METHODS.items():
                if only not in f"{name}{kind}, {method}":
                    continue
                rank = min(k, *data.shape)
                start, computing = time.perf_counter(), time.process_time()
                estimator(rank, time_limit=LIMIT, random_state=0).fit(data)
                elapsed, spent = time.perf_counter() - start, time.process_time() - computing
                held = min(elapsed, spent) <= allowed
                told = "kept" if held else "**missed**"
                row = f"| {name}{kind} | {method} | {LIMIT:g} | {elapsed:.1f} | {spent:.1f} | {told} |"
                print(row, flush=True)
                if not held:
                    missed.append(f"{name}{kind}, {method}")
    print(f"load {load_average()}")
    return missed


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--efforts", nargs="+", default=["fast", "default"])
    parser.add_argument("--limits", action="store_true", help="time limits instead of ratios")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for k in (4, 70):  # compiles what the cases need
        felb.FederatedBMF(k, random_state=0).fit(planted(200, 80, 4, seed=0).A)
    missed = limits(options.only) if options.limits else ratios(options.only, options.efforts)
    exit_if_missed(missed)


if __name__ == "__main__":
    main()
