"""Seconds and peak memory of loading ratings from text, each in a process of its own.

The bar, for ten million lines: 60 seconds and 2 GB. The lines are made up in the layout of each source.

    python benchmarks/loading.py movielens netflix goodreads --lines 10000000
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from bench_memory import peak_bytes
from figures import Figure, at_most

from felb.paper.sources import goodreads, movielens, netflix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

USERS, ITEMS, LINES_AT_A_TIME = 162_541, 20_000, 500_000
SECONDS, BYTES = 60.0, 2e9
LOADERS = {"movielens": movielens.load, "netflix": netflix.load, "goodreads": goodreads.load}


def triplets(n_lines: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]:
    """Yield users, items (few of them popular) and ratings in half stars."""
    rng = np.random.default_rng(0)
    for start in range(0, n_lines, LINES_AT_A_TIME):
        size = min(LINES_AT_A_TIME, n_lines - start)
        items = 1 + (ITEMS * rng.random(size) ** 3).astype(np.int64)
        yield rng.integers(1, USERS + 1, size), items, rng.integers(1, 11, size) / 2


def write_movielens(folder: Path, n_lines: int) -> Path:
    """Write ratings.csv and movies.csv."""
    movies = (f'{i},"Movie, {i} (2000)",Drama\n' for i in range(1, ITEMS + 1))
    (folder / "movies.csv").write_text("movieId,title,genres\n" + "".join(movies))
    return _write(
        folder / "ratings.csv", n_lines, "%d,%d,%.1f,1147880044\n".__mod__, "userId,movieId,rating,timestamp\n"
    )


def write_goodreads(folder: Path, n_lines: int) -> Path:
    """Write ratings.json."""
    return _write(folder / "ratings.json", n_lines, '{"user_id": %d, "item_id": %d, "rating": %.1f}\n'.__mod__)


def write_netflix(folder: Path, n_lines: int) -> Path:
    """Write combined_data_1.txt, in which a movie has the ratings of one block."""
    path = folder / "combined_data_1.txt"
    with path.open("w") as file:
        for users, items, ratings in triplets(n_lines):
            order = np.argsort(items, kind="stable")
            last = None
            for user, item, rating in zip(users[order].tolist(), items[order].tolist(), ratings[order], strict=True):
                if item != last:
                    file.write(f"{item}:\n")
                    last = item
                file.write(f"{user},{int(rating + 0.5)},2005-09-06\n")
    return path


WRITERS = {"movielens": write_movielens, "netflix": write_netflix, "goodreads": write_goodreads}


def _write(path: Path, n_lines: int, line: Callable[[tuple[int, int, float]], str], header: str = "") -> Path:
    with path.open("w") as file:
        file.write(header)
        for users, items, ratings in triplets(n_lines):
            file.writelines(map(line, zip(users.tolist(), items.tolist(), ratings.tolist(), strict=True)))
    return path


def measure(name: str, n_lines: int) -> list[Figure]:
    """Return time and peak of loading so many lines in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = WRITERS[name](Path(folder), n_lines)
        command = [sys.executable, __file__, name, "--load", str(path)]
        seconds, busy, peak, shape = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(
            "\t"
        )
        size = path.stat().st_size / 1e6
    what = f"{name}: {n_lines:,} lines, {size:.0f} MB, {shape.strip()}, processor {float(busy):.1f} s"
    return [at_most(what, float(seconds), SECONDS, "s"), at_most(what, float(peak) / 1e9, BYTES / 1e9, "GB")]


def main() -> None:
    """Measure the given sources; or, as the child, load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["movielens"], help=", ".join(LOADERS))
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        start = time.perf_counter()
        matrix = LOADERS[options.names[0]](options.load).matrix
        shape = f"{matrix.shape[0]} x {matrix.shape[1]}"
        print(time.perf_counter() - start, time.process_time(), peak_bytes(), shape, sep="\t")
        return
    for name in options.names:
        for figure in measure(name, options.lines):
            print(f"{figure.what}: {figure.measured}, {figure.bar}: {figure.verdict}", flush=True)


if __name__ == "__main__":
    main()
