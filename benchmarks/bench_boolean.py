"""The Boolean kernels against a pass over the same data: scoring a factorization, assigning rows to components."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from common import at_least, smallest
from problem import Problem
from shapes import SHAPES, generate
from threadpoolctl import threadpool_limits

from felb.kernels.assign import assign_rows
from felb.kernels.boolean import FactorMasks, count_overlaps

if TYPE_CHECKING:
    from collections.abc import Callable

    from common import Figure

    from felb.data import BinaryMatrix


def measure(name: str, A: BinaryMatrix, k: int, *, repeats: int) -> list[Figure]:
    """Return what both cost in passes; components are 1% of the columns, rows have 10% of the components."""
    rng = np.random.default_rng(1)
    (n, m), problem = A.shape, Problem(A, k, dense=False)
    U, V = rng.random((n, k)) < 0.1, rng.random((k, m)) < 0.01
    runs: dict[str, Callable[[], object]] = {
        "pass": problem.felb,
        "count_overlaps": lambda: count_overlaps(A, FactorMasks.of(U, V)),
        "assign_rows": lambda: assign_rows(A, V),
    }
    for run in runs.values():
        run()
    with threadpool_limits(1):
        best = smallest(runs, repeats, time.process_time)
    return [
        at_least(f"{name}: {what}", best[what] / best["pass"], None, f"{1e3 * best[what]:.0f} ms")
        for what in ("count_overlaps", "assign_rows")
    ]


if __name__ == "__main__":
    for figure in measure("ratings", generate(SHAPES["ratings"]), SHAPES["ratings"].k, repeats=3):
        print(f"{figure.what}: {figure.measured}", flush=True)
