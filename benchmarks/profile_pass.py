"""Where the time of an iteration goes, in felb and in what it is compared with, and how near that is to memory.

    python benchmarks/profile_pass.py acs-income

Bytes are those that the loops ask for: for each one of A its index and a row of the table of Vᵀ (read) or of AᵀU (read
and written), for each row of U what is read and written. Rates are held against plain reading (a dot product) and
updating in place (x += 1) of arrays that fit the second-level cache, the third-level cache, or neither: a loop that is
near one of them can only get faster by moving less.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

import numpy as np
from common import make_parser, smallest
from problem import PROX, Problem, prox_in_place
from shapes import SHAPES, generate
from threadpoolctl import threadpool_limits

from felb.kernels import vector_passes as kernels
from felb.kernels.passes import factor_step, squared_loss
from felb.kernels.schedule import Schedule, block_of, chunks, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Runs = dict[str, Callable[[], object]]

STREAMS = {"second-level cache": 1 << 18, "third-level cache": 1 << 23, "memory": 1 << 28}


def felb_parts(problem: Problem) -> Runs:
    """Return the parts of an iteration, as `row_pass` and `factor_step` do them in one thread."""
    A, k, U, Vt, out = problem.A, problem.k, problem.U, problem.Vt, problem.out
    n, m = A.shape
    schedule, table, sums, UtU = Schedule(A, k, 1), table_of(m, k), table_of(m, k), np.zeros((k, k))
    scratch, gram, shape = schedule.scratch(), block_of(k, k), (schedule.columns, schedule.width)
    gram[:, :k] = Vt.T @ Vt
    numbers, parts = tuple(problem.rule.numbers(0.0, pulled=False) or ()), chunks(A, 0, n)
    kernels.table_pass(Vt, table)

    def move() -> None:
        for span in parts:
            kernels.move_pass(schedule.ones, span, (U, U, out.U), (table, gram), numbers, scratch, *shape)

    def collect() -> None:
        for span in parts:
            kernels.statistics_pass(schedule.ones, span, out.U, (sums, UtU), scratch, *shape)

    def copy() -> None:
        kernels.table_pass(Vt, table_of(m, k))
        for i in range(len(parts)):
            sums[:] = 0
            kernels.collect_pass(sums, out.AtU, i > 0)

    return {
        "gather + move": move,
        "scatter + UᵀU": collect,
        "table copies": copy,
        "V Vᵀ": lambda: Vt.T @ Vt,
        "V step": lambda: factor_step(Vt, out.AtU, out.UtU, rule=problem.rule),
        "whole iteration": problem.felb_iteration,
        "(loss)": lambda: squared_loss(A.nnz, out.AtU, out.UtU, Vt),
    }


def other_parts(problem: Problem) -> Runs:
    """Return the parts of the pass in SciPy and NumPy, and the others as wholes."""
    csr, U, Vt = problem.csr, problem.U, problem.Vt
    gram, x = Vt.T @ Vt, U.copy()
    kappa, lam = np.float32(problem.step * PROX.kappa), np.float32(problem.step * PROX.lam)
    runs: Runs = {
        "SciPy A @ Vᵀ": lambda: csr @ Vt,
        "BLAS U @ V Vᵀ": lambda: U @ gram,
        "NumPy prox": lambda: prox_in_place(x, kappa, lam),
        "SciPy Aᵀ @ U": lambda: csr.T @ U,
        "BLAS Uᵀ @ U": lambda: U.T @ U,
        "whole SciPy pass": problem.scipy,
        "scikit-learn, 1 iteration": lambda: problem.sklearn(1),
        "scikit-learn, 3 iterations": lambda: problem.sklearn(3),
    }
    if problem.dense is not None:
        runs |= {"BLAS dense A @ Vᵀ": lambda: problem.dense @ Vt, "whole dense iteration": problem.blas}
    return runs


def stream_rates(repeats: int) -> dict[str, tuple[float, float]]:
    """Return bytes per second of reading and of updating, for each size."""
    rates = {}
    for name, size in STREAMS.items():
        x, loops = np.ones(size // 4, np.float32), max(1, (1 << 26) // size)

        def read(x: np.ndarray = x, loops: int = loops) -> None:
            for _ in range(loops):
                x.dot(x)

        def update(x: np.ndarray = x, loops: int = loops) -> None:
            for _ in range(loops):
                np.add(x, 1, out=x)

        best = smallest({"read": read, "update": update}, repeats, time.process_time)
        rates[name] = loops * size / best["read"], 2 * loops * size / best["update"]
    return rates


def show(title: str, best: dict[str, float], moved: dict[str, float]) -> None:
    """Print times, and rates where it is known what was moved."""
    print(f"\n{title}")
    for name, seconds in best.items():
        rate = f"{moved[name] / seconds / 1e9:8.1f} GB/s" if name in moved else ""
        print(f"  {name:28s} {1e3 * seconds:9.2f} ms{rate}")


def main() -> None:
    """Profile one shape."""
    parser = make_parser(__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--rows", type=int, help="take only so many rows")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    shape = SHAPES[options.shape]
    A = generate(shape.take(options.rows or shape.rows))
    problem = Problem(A, shape.k)
    (n, m), k, row = A.shape, shape.k, 16 * len(Schedule(A, shape.k, 1).width)
    index = A.indices.itemsize
    tiles = -(-m // Schedule(A, k, 1).columns[1])
    print(f"{shape.name}: {A}, k = {k}, {A.nnz / n:.1f} ones a row, {tiles} tiles, tables of {m * row / 1e6:.1f} MB")
    moved = {
        "gather + move": A.nnz * (index + row) + 8.0 * n * k,
        "scatter + UᵀU": A.nnz * (index + 2 * row) + 4.0 * n * k,
        "SciPy A @ Vᵀ": A.nnz * (8 + 4 * k) + 4.0 * n * k,
        "SciPy Aᵀ @ U": A.nnz * (8 + 8 * k) + 4.0 * n * k,
        "BLAS dense A @ Vᵀ": 4.0 * n * m,
    }
    with threadpool_limits(1):
        problem.felb_iteration()
        ours = felb_parts(problem)
        show("felb", smallest(ours, options.repeats, time.process_time), moved)
        show("others", smallest(other_parts(problem), options.repeats, time.process_time), moved)
        print("\nplain streams" + " " * 17 + "read        update")
        for name, (read, update) in stream_rates(options.repeats).items():
            print(f"  {name:20s} {read / 1e9:8.1f} GB/s {update / 1e9:8.1f} GB/s")


if __name__ == "__main__":
    main()
