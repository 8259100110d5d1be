"""How felb grows on Dask: seconds a round, bytes moved, memory and what Dask adds, for more and more rows on disk.

Rows of about 50 random ones in 1000 columns are written to ``.felb`` files once. FELB with 20 components, with a local
step (the least there is to compute in a round) and with the usual ten, is then played over blocks of these files: on
the local engine with one thread, on one Dask worker, and on two, each a process with one thread. A round's time is the
smallest of those played after the first two, since other work on the machine can only add to it. Overhead is a round
over blocks of ten rows, where there is nothing to compute.

    python benchmarks/scale_dask.py --quick             10⁵ rows: a minute; writes nothing
    python benchmarks/scale_dask.py --rows 1e6 4e6      the sizes to try; the table goes to benchmarks/SCALE_DASK.md
    python benchmarks/scale_dask.py --rows 1e6 1e7      5·10⁸ ones from disk: 1.1 GB of files
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import listed, make_parser, write_page
from distributed import Client, LocalCluster

import felb
from felb.data import Blocks, open_blocks
from felb.data.binary import BinaryMatrix
from felb.engines import local
from felb.engines.dask.cluster import DistributedRows, run
from felb.federated.algorithms.felb import felb as felb_algorithm

OUT = Path(__file__).with_name("SCALE_DASK.md")
COLUMNS, COMPONENTS, GAPS, FILE_ROWS, SKIPPED = 1000, 20, (1, 40), 1_000_000, 2
MANY_ROWS = 4_000_000
"""Beyond these, only the first number of local steps is tried."""


def write_files(folder: Path, rows: int) -> int:
    """Write rows whose ones stand at random distances; return the number of ones."""
    ones = 0
    for number, first in enumerate(range(0, rows, FILE_ROWS)):
        parts = []
        for start in range(first, min(first + FILE_ROWS, rows), 100_000):
            count = min(100_000, rows - start)
            places = np.cumsum(np.random.default_rng(start).integers(*GAPS, size=(count, 60)), axis=1, dtype=np.int32)
            kept = places < COLUMNS
            indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
            parts.append(BinaryMatrix(indptr, places[kept].astype(np.uint16), COLUMNS))
        matrix = BinaryMatrix.vstack(parts)
        ones += matrix.nnz
        matrix.save(folder / f"part-{number:04}.felb")
    return ones


def algorithm(rounds: int, steps: int = 1) -> Any:
    """Return FELB, which nothing ends before its last round."""
    return felb_algorithm(COLUMNS, COMPONENTS, local_steps=steps, max_rounds=rounds, tol=0.0, kappa=0.0, lam=0.0)


@dataclass
class Clock:
    """Notes when rounds end."""

    ends: list[float]

    def __call__(self, _: Any) -> None:
        """Note the end of a round."""
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """The quickest round of local steps."""
        return float(np.diff(self.ends)[SKIPPED + 3 : -1].min())


@dataclass(frozen=True)
class Found:
    """What a run took."""

    seconds: float
    components: Any
    moved: float = 0.0
    workers: float = 0.0
    caller: float = 0.0
    processor: float = 0.0


def here(blocks: Blocks, rounds: int, steps: int = 1) -> Found:
    """Play on the local engine."""
    clock, shards = Clock([]), dict(zip(_names(len(blocks)), blocks.read(), strict=True))
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})  # one thread, as a worker has
    try:
        done = local.run(algorithm(rounds, steps), shards, on_round=clock)
    finally:
        os.sched_setaffinity(0, processors)
    return Found(clock.seconds, done.outcome.components)


def there(blocks: Blocks, rounds: int, workers: int, *, steps: int = 1) -> Found:
    """Play on Dask workers."""
    clock = Clock([])
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        rows = DistributedRows.of(blocks, client, read=BinaryMatrix.of)
        before, busy = sum(client.run(sent).values()), time.process_time()
        done = run(algorithm(rounds, steps), rows.blocks, client=client, on_round=clock, persist_every=10_000)
        busy = (time.process_time() - busy) / len(clock.ends)
        moved = (sum(client.run(sent).values()) - before) / len(clock.ends)
        held = max(client.run(anonymous_gigabytes).values())
        return Found(clock.seconds, done.outcome.components, moved, held, anonymous_gigabytes(), busy)


def sent(dask_worker: Any = None) -> float:
    """Bytes that a worker has sent to other workers and to the caller."""
    return float(dask_worker.transfer_outgoing_bytes_total)


def anonymous_gigabytes() -> float:
    """Memory of this process without what is mapped from files."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return float(text.partition("RssAnon:")[2].split()[0]) / 2**20


def _names(count: int) -> list[str]:
    from felb.data.partition import client_names

    return client_names(count)


def overhead(rounds: int) -> tuple[float, float]:
    """What two workers with a block each add to a round of 20 × 1000 sums in which there is nothing to compute.

    Seconds, and processor seconds of the caller with the scheduler, which other work on the machine does not change.
    """
    with tempfile.TemporaryDirectory() as name:
        write_files(Path(name), 20)
        blocks = open_blocks(f"{name}/*.felb", rows=10)
        found = there(blocks, rounds, 2)
        return found.seconds - here(blocks, rounds).seconds, found.processor


def compared(blocks: Blocks, rounds: int, steps: int) -> str:
    """Play on the local engine, on one worker and on two; return the rest of a row of the table."""
    alone, one, two = here(blocks, rounds, steps), *(there(blocks, rounds, n, steps=steps) for n in (1, 2))
    if not all(np.array_equal(alone.components, found.components) for found in (one, two)):
        raise SystemExit("the engines disagree")
    return (
        f"| {steps} | {alone.seconds:.2f} | {one.seconds:.2f} | {two.seconds:.2f} | {one.seconds / two.seconds:.2f} | "
        f"{two.moved / 1000:.0f} | {two.workers:.2f} | {two.caller:.2f} |"
    )


def main() -> None:
    """Measure and print; write the table unless it was a try."""
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=float, nargs="*", default=[1e6, 4e6])
    parser.add_argument("--block-rows", type=int, default=1 << 18)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--local-steps", type=int, nargs="+", default=[1, 10], help="of FELB; 10 are usual")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sizes = [100_000] if options.quick else [int(rows) for rows in options.rows]
    block_rows = 1 << 14 if options.quick else options.block_rows
    spent, busy = overhead(10 if options.quick else 40)
    lines = [
        f"A round with nothing to compute takes {1000 * spent:.0f} ms more on two workers than on the local engine; "
        f"caller and scheduler are busy for {1000 * busy:.0f} ms of it.",
        "",
        "| rows | ones | blocks | local steps | local, s a round | one worker | two workers | two against one | "
        "kB sent by workers a round | GB of a worker | GB of the caller and scheduler |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            ones = write_files(Path(name), size)
            blocks = open_blocks(f"{name}/*.felb", rows=block_rows)
            for steps in options.local_steps if size <= MANY_ROWS else options.local_steps[:1]:
                lines.append(f"| {size:.0e} | {ones:.1e} | {len(blocks)} {compared(blocks, options.rounds, steps)}")
                print(lines[-1], flush=True)
    if not options.quick:
        about = [*listed(), f"- felb: {felb.__version__}"]
        head = ["# Rows on Dask", "", "Written by `benchmarks/scale_dask.py`: FELB, 20 × 1000.", ""]
        write_page(OUT, "\n".join([*head, *lines, "", *about]))


if __name__ == "__main__":
    main()
