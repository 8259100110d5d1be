"""Peak memory of a pass, in a process of its own, against what the data structures add up to.

    ones · (2 or 4) + 8 n + 4·KP·(n + m·(1 + threads)) bytes,  KP = k rounded up to sixteen

The bar is 1.3 times that and 300 MB for the interpreter, its libraries and the compiler.

    python benchmarks/bench_memory.py ratings
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import Figure, make_parser
from shapes import SHAPES, generate

from felb.data import BinaryMatrix
from felb.kernels.passes import RowPass, row_pass
from felb.optim.steps import GradientStep, Penalty

FACTOR, FIXED = 1.3, 300e6


def formula(A: BinaryMatrix, k: int, threads: int) -> int:
    """Return the bytes that a pass should need."""
    (n, m), padded = A.shape, 16 * -(-k // 16)
    return A.indices.itemsize * A.nnz + 8 * n + 4 * padded * (n + m * (1 + threads))


def peak_bytes() -> int:
    """Return the largest resident size of this process; not getrusage's, which a child inherits from its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def measure(name: str, A: BinaryMatrix, k: int, *, threads: int) -> Figure:
    """Return the peak of a pass over A in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matrix"
        A.save(path)
        command = [sys.executable, __file__, "--pass-over", str(path), "--k", str(k), "--threads", str(threads)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, expected = int(run.stdout), formula(A, k, threads)
    bar = FACTOR * expected + FIXED
    measured = f"{peak / 1e6:.0f} MB (formula {expected / 1e6:.0f} MB)"
    return Figure(f"{name}: {threads} thread{'s'[: threads - 1]}", measured, f"<= {bar / 1e6:.0f} MB", peak <= bar)


def one_pass(path: str, k: int, threads: int) -> None:
    """Read a matrix into memory, move U in place by one pass, print the peak."""
    stored = BinaryMatrix.open(path)
    A = BinaryMatrix(stored.indptr, np.array(stored.indices), stored.shape[1])
    del stored
    (n, m), rng = A.shape, np.random.default_rng(1)
    U, Vt = rng.random((n, k), dtype=np.float32), rng.random((m, k), dtype=np.float32)
    out = RowPass(U, np.empty((m, k), np.float32), np.empty((k, k), np.float32))
    row_pass(A, U, Vt, rule=GradientStep(1e-4, Penalty(0.001, 0.1)), threads=threads, out=out)
    print(peak_bytes())


def main() -> None:
    """Measure the given shapes; or, as the child, do the pass."""
    parser = make_parser(__doc__)
    parser.add_argument("names", nargs="*", default=["small"], help=", ".join(SHAPES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pass-over", help=argparse.SUPPRESS)
    parser.add_argument("--k", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pass_over:
        one_pass(options.pass_over, options.k, options.threads)
        return
    for name in options.names:
        figure = measure(name, generate(SHAPES[name]), SHAPES[name].k, threads=options.threads)
        print(f"{figure.what}: {figure.measured}, {figure.bar}: {figure.verdict}", flush=True)


if __name__ == "__main__":
    main()
