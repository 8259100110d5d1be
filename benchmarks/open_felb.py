"""What the check of a `.felb` file costs at its first opening, beside reading its rows.

    python benchmarks/open_felb.py --ones 100000000

A matrix with 100 ones in a row is written once. Then, in turns and each time by a new mapping of the file: the first
opening, which compares checksums and looks at every row; the next one, which does not; and a pass over all rows after
an opening of either kind, once by the lightest pass there is (ones in each column) and once by the kernel that assigns
components to rows. The medians of processor and of elapsed seconds are printed. The bar: the first opening and one pass
cost at most 15% more than a pass after the next opening, the next opening itself nothing.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from common import make_parser

from felb.data import BinaryMatrix
from felb.data import storage as verified
from felb.data.storage import MatrixWriter
from felb.kernels.assign import assign_rows

if TYPE_CHECKING:
    from collections.abc import Callable

PER_ROW, COLUMNS, ROWS_AT_A_TIME = 100, 40_000, 20_000
BAR = 1.15


def write(path: Path, ones: int) -> None:
    """Write a matrix with ascending random columns in each row."""
    rng = np.random.default_rng(0)
    with MatrixWriter(path) as writer:
        for start in range(0, ones // PER_ROW, ROWS_AT_A_TIME):
            n = min(ROWS_AT_A_TIME, ones // PER_ROW - start)
            gaps = rng.integers(1, COLUMNS // PER_ROW, (n, PER_ROW))
            columns = (np.cumsum(gaps, axis=1) - 1).ravel()
            writer.append(BinaryMatrix(np.arange(0, n * PER_ROW + 1, PER_ROW), columns, COLUMNS))


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Return processor and elapsed seconds."""
    computing, began = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - computing, time.perf_counter() - began


def forget() -> None:
    """Make the next opening a first one."""
    verified._known.clear()
    for path in (verified.cache_folder() / "verified").glob("*"):
        path.unlink()


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__)
    parser.add_argument("--ones", type=int, default=100_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where the file is written (default: a temporary folder)")
    chosen = parser.parse_args()
    V = np.random.default_rng(1).random((10, COLUMNS)) < 0.002
    passes: dict[str, Callable[[BinaryMatrix], object]] = {
        "ones in each column": BinaryMatrix.column_sums,
        "assignment, k = 10": lambda A: assign_rows(A, V),
    }
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        os.environ[verified.CACHE] = folder
        path = Path(folder) / "matrix.felb"
        write(path, chosen.ones)
        time.sleep(verified.SETTLED + 0.1)
        measured: dict[str, list[tuple[float, float]]] = {}
        assign_rows(BinaryMatrix.open(path), V)  # compiles
        for _ in range(chosen.repeats):
            forget()
            measured.setdefault("first opening", []).append(timed(lambda: BinaryMatrix.open(path)))
            measured.setdefault("next opening", []).append(timed(lambda: BinaryMatrix.open(path)))
            for name, walk in passes.items():
                forget()
                for when in ("first", "next"):
                    cost = timed(lambda walk=walk: walk(BinaryMatrix.open(path)))  # type: ignore[misc]
                    measured.setdefault(f"{when} opening and {name}", []).append(cost)
        print(f"{chosen.ones:.0e} ones, {path.stat().st_size / 1e6:.0f} MB; milliseconds of processor, and elapsed")
    middle = {name: [statistics.median(each) for each in zip(*times, strict=True)] for name, times in measured.items()}
    for name, (computing, elapsed) in middle.items():
        print(f"{name:45} {1e3 * computing:8.1f} {1e3 * elapsed:8.1f}")
    for name in passes:
        first, plain = (middle[f"{when} opening and {name}"] for when in ("first", "next"))
        more = [100 * (a / b - 1) for a, b in zip(first, plain, strict=True)]
        verdict = "within" if more[0] <= 100 * (BAR - 1) else "beyond"
        print(f"checked, then {name}: {more[0]:+.0f}% processor, {more[1]:+.0f}% elapsed; {verdict} {BAR - 1:.0%}")


if __name__ == "__main__":
    main()
