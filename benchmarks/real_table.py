"""The default method over fifty clients against methods that see all rows, on real data of full size.

    python benchmarks/real_table.py                       every file of the data folder, half an hour a cell at most
    python benchmarks/real_table.py --data zoo soybean --time-limit 60

Twenty components each. FederatedBMF runs over fifty even clients; Asso (best of ten thresholds), GreConD, MEBF and
non-negative factorization with the best pair of thresholds run on the pooled rows. Every cell is a process of its own,
which compiles everything on a small example first; a method that does not answer within twice its time limit and a
minute is ended. For pooled methods the better of their own assignment and of rows assigned anew to their components is
scored, which is not part of the time. Cells are kept in measured/real_table.json; only those that are absent, or
were cut by a smaller time limit, are run again. Writes REAL_TABLE.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import FOLDER, MEASURED, Cells, listed, make_parser, real, write_page

import felb
from felb.data import partition, planted
from felb.metrics import confusion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TABLE = Path(__file__).with_name("REAL_TABLE.md")
CELLS = Cells(MEASURED / "real_table.json")
COMPONENTS, CLIENTS = 20, 50
OURS = "FederatedBMF"
METHODS: dict[str, Callable[..., Any]] = {
    OURS: felb.FederatedBMF,
    "Asso": lambda k, **p: felb.Asso(k, tau="auto", **p),
    "GreConD": felb.GreConD,
    "MEBF": felb.MEBF,
    # Without its penalty, the updates are those of non-negative factorization.
    "NMF": lambda k, **p: felb.Zhang(k, l2=0.0, **p),
}


def score(method: str, A: felb.BinaryMatrix, limit: float) -> dict[str, Any]:
    """Fit one data set; return seconds, scores, and whether there was time enough."""
    k = min(COMPONENTS, *A.shape)
    model = METHODS[method](k, time_limit=limit, random_state=0)
    groups = {"groups": partition.even(len(A), min(CLIENTS, len(A)))} if method == OURS else {}
    start, used = time.perf_counter(), time.process_time()
    U = model.fit_transform(A, **groups)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    counts = confusion(A, U, model.components_)
    if method != OURS:
        counts = min(counts, confusion(A, model.transform(A), model.components_), key=lambda c: c.errors)
    return {
        "seconds": round(seconds, 2),
        "processor": round(used, 2),
        "load": round(os.getloadavg()[0], 1),
        "f1": counts.f1,
        "rmsd": counts.rmsd,
        "errors": counts.errors,
        "complete": model.complete_,
    }


def run_cell(name: str, method: str, limit: float) -> None:
    """Compile, fit, and print the figures as JSON; runs in a process of its own."""
    warnings.simplefilter("ignore")
    A = real(name)
    if A is None:
        sys.exit(f"{name} is not at hand")
    score(method, planted(200, 40, 4, seed=0).A, 60.0)
    print(json.dumps({"shape": A.shape, "ones": A.nnz, **score(method, A, limit)}))


def play(name: str, method: str, limit: float) -> None:
    """Run a cell unless it is there, and keep it."""
    kept = CELLS.get((name, method))
    if kept is not None and (kept.get("complete") or kept["limit"] >= limit):
        return
    command = [sys.executable, __file__, "--cell", name, method, "--time-limit", str(limit)]
    grace = 2 * limit + 60
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=grace, check=False)
    except subprocess.TimeoutExpired:
        found = {"failed": f"no answer within {grace:.0f} s"}
    else:
        if done.returncode == 0:
            found = json.loads(done.stdout)
        else:
            reason = done.stderr.strip().rpartition("\n")[2][:200] or f"ended with code {done.returncode}"
            found = {"failed": reason}
    CELLS.put((name, method), {"limit": limit, **found})
    print(name, method, found, flush=True)


def table_rows(names: list[str]) -> Iterator[str]:
    """Yield a line of the table for each cell, and one for each data set that says how the default method stands."""
    for name in names:
        cells = {method: cell for method in METHODS if (cell := CELLS.get((name, method))) is not None}
        scored = {method: cell for method, cell in cells.items() if "errors" in cell}
        if not cells:
            continue
        least = min((cell["errors"] for method, cell in scored.items() if method != OURS), default=None)
        size = next((f"{cell['shape'][0]} × {cell['shape'][1]}" for cell in scored.values()), "")
        for method, cell in cells.items():
            if "errors" not in cell:
                yield f"| {name} | {size} | {method} | | | | | | {cell['failed']} |"
                continue
            notes = [] if cell["complete"] else [f"cut at {cell['limit']:.0f} s"]
            if method == OURS and least is not None:
                notes.append("no worse than the best" if cell["errors"] <= least else "**worse than the best**")
            times = f"{cell['seconds']:.1f} | {cell['processor']:.1f} | {cell['load']}"
            scores = f"{cell['f1']:.4f} | {cell['rmsd']:.4f}"
            yield f"| {name} | {size} | {method} | {times} | {scores} | {', '.join(notes)} |"


def write_table(names: list[str]) -> None:
    """Write what is known so far."""
    rows = list(table_rows(names))
    missing = [f"{name} with {method}" for name in names for method in METHODS if CELLS.get((name, method)) is None]
    lines = [
        "# Real data",
        "",
        "Written by `python benchmarks/real_table.py`: 20 components (or as many as there are columns); FederatedBMF "
        "over 50 even clients, one after the other, the others on the pooled rows. *Seconds* are of a clock, with the "
        "load of the machine at the end of the fit beside them; *of a processor* is what the process itself has used. "
        "*Cut*: the method was ended by the time limit, with the best until then. A comparison with a method that was "
        "cut says nothing of what it would find in more time.",
        "",
        "| data | size | method | seconds | of a processor | load | F1 | RMSD | |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        *([f"Not run: {'; '.join(missing)}.", ""] if missing else []),
        *listed(load=False),
    ]
    write_page(TABLE, "\n".join(lines))


def main() -> None:
    """Run what is missing and write the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="*", help="names of data sets; all of the folder by default, small ones first")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--time-limit", type=float, default=1800.0, metavar="SECONDS")
    parser.add_argument("--cell", nargs=2, metavar=("DATA", "METHOD"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        run_cell(*options.cell, options.time_limit)
        return
    everything = [path.stem for path in sorted(FOLDER.glob("*.npz"), key=lambda path: path.stat().st_size)]
    if not everything:
        sys.exit(f"no data in {FOLDER}")
    for name in options.data or everything:
        for method in options.methods:
            play(name, method, options.time_limit)
            write_table(everything)


if __name__ == "__main__":
    main()
