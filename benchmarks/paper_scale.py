"""A federated fit at the size of the published evaluation: wall time and peak memory.

    python benchmarks/paper_scale.py --shape ratings --rounds 3
    python benchmarks/paper_scale.py --shape tcga --record

Data of the shape is generated (see shapes.py) in a process of its own, mapped from disk, dealt out to the clients and
factorized by the local engine. With --record the run is kept in measured/paper_scale.json and in PAPER_SCALE.md.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import lean  # noqa: F401
from common import MEASURED, Cells, facts, make_parser, write_page
from shapes import PAPER, SHAPES, generate

import felb
from felb.data import partition
from felb.data.partition import named, split
from felb.engines.local import run
from felb.sklearn.methods import make_federated

if TYPE_CHECKING:
    import argparse

    from felb.federated.loop import Run, RunProgress

CELLS, TABLE = Cells(MEASURED / "paper_scale.json"), Path(__file__).with_name("PAPER_SCALE.md")


def peak_megabytes() -> float:
    """Return the largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def matrix_of(name: str, folder: Path) -> felb.BinaryMatrix:
    """Generate a shape in another process, so that its memory is not counted here, and map it."""
    path = folder / f"{name}.felb"
    subprocess.run([sys.executable, __file__, "--shape", name, "--generate", str(path)], check=True)
    return felb.BinaryMatrix.open(path)


def fit(options: argparse.Namespace, A: felb.BinaryMatrix) -> tuple[Run, float]:
    """Play the rounds; return the finished run and its seconds."""
    shards, _ = split(A, partition.consecutive(A.shape[0], options.clients))
    model = make_federated(
        options.method,
        n_components=SHAPES[options.shape].k,
        max_iter=options.rounds,
        local_steps=options.local_steps,
        tol=0.0,
    )
    start = time.perf_counter()

    def tell(progress: RunProgress) -> None:
        played = len(progress.history)
        if played in (1, 3) or played % 10 == 0:
            elapsed = time.perf_counter() - start
            print(f"  round {played}: {elapsed:.1f} s, peak {peak_megabytes():.0f} MB", flush=True)

    algorithm = model.algorithm(A.shape[1])
    return run(
        algorithm, named(list(shards.values())), workers=options.workers, on_round=tell
    ), time.perf_counter() - start


def record(row: dict[str, object]) -> None:
    """Keep a run, the last one of each shape, and write the table anew."""
    CELLS.put((str(row["shape"]),), row)
    kept = CELLS.all()
    columns = ("shape", "rows", "columns", "ones", "k", "rounds", "seconds", "peak MB", "F1", "RMSD", "load")
    lines = [
        "# Complete fits at the size of the published evaluation",
        "",
        "Written by `benchmarks/paper_scale.py --shape NAME --record`: FELB-MU, 50 clients, 10 local steps a round, on",
        "random data of the same shape, density and column popularity. There is nothing to find in random data: F1 and",
        "RMSD (in the unit of the paper's tables) only show that the run came to its end.",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(str(kept[s.name][c]) for c in columns) + " |" for s in PAPER if s.name in kept),
        "",
        *(f"- {name}: {value}" for name, value in facts().items() if name not in ("date", "load average at start")),
    ]
    write_page(TABLE, "\n".join(lines))


def main() -> None:
    """Generate, fit, print."""
    parser = make_parser(__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="ratings")
    parser.add_argument("--method", default="felb-mu")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--local-steps", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="keep the run in the table")
    parser.add_argument("--generate", metavar="PATH", help="only write the data")
    options = parser.parse_args()
    warnings.simplefilter("ignore", felb.ConvergenceWarning)
    if options.generate:
        generate(SHAPES[options.shape]).save(options.generate)
        return
    load = facts()["load average at start"].split(",")[0]
    with tempfile.TemporaryDirectory() as folder:
        A = matrix_of(options.shape, Path(folder))
        print(f"{options.shape}: {A}, k = {SHAPES[options.shape].k}, {options.clients} clients", flush=True)
        finished, seconds = fit(options, A)
    scores = finished.outcome.counts
    row = {
        "shape": options.shape,
        "rows": A.shape[0],
        "columns": A.shape[1],
        "ones": A.nnz,
        "k": SHAPES[options.shape].k,
        "rounds": finished.outcome.n_iter,
        "seconds": round(seconds, 1),
        "peak MB": round(peak_megabytes()),
        "F1": round(scores.f1, 3),
        "RMSD": round(scores.rmsd_table, 3),
        "load": load,
    }
    print(", ".join(f"{name} {value}" for name, value in row.items()))
    if options.record:
        record(row)


if __name__ == "__main__":
    main()
