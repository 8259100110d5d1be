"""The methods for pooled data: published values of their reference implementations, speed, and 50 clients of real data.

With --clients, all of them post hoc at 50 clients, which writes BASELINES.md; the rest is part of `make bench`.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from common import Figure, at_least, at_most, listed, make_parser, real, write_page

import felb
from felb.data import partition
from felb.federated.algorithms.registry import CENTRALIZED
from felb.metrics import confusion
from felb.sklearn.methods import make

if TYPE_CHECKING:
    from collections.abc import Callable

    from felb.data import BinaryMatrix
    from felb.metrics import Counts
    from felb.sklearn.base import CentralizedFactorization

TABLE = Path(__file__).with_name("BASELINES.md")
CLIENTS = 50
DATA = {"tcga_mutation": 33, "go_human_genes": 50, "cps_280k": 20}
R_SECONDS = 16.0
"""What MEBF's implementation in R takes for ten components of the mushrooms."""
MUSHROOM_CONCEPTS = 119


def own_counts(model: CentralizedFactorization, A: BinaryMatrix) -> Counts:
    """Fit and count the errors of the algorithm's own U."""
    return confusion(A, model.fit_transform(A), model.components_)


def exactly(what: str, found: float, expected: float, digits: int = 0) -> Figure:
    """Return a figure that must be what the reference implementation gives."""
    return Figure(what, f"{found:.{digits}f}", f"= {expected:.{digits}f}", round(found, digits) == expected)


def oracles() -> list[Figure]:
    """Return what the reference implementations give on data that is not shipped; nothing where it is absent."""
    found = []
    mushroom, msweb = real("bmf_mushroom"), real("msweb")
    if mushroom is not None:
        found += [
            exactly("GreConD, mushroom, k = 10: errors", own_counts(felb.GreConD(10), mushroom).errors, 78042),
            exactly("GreConD, mushroom: concepts", felb.GreConD(130).fit(mushroom).n_iter_, MUSHROOM_CONCEPTS),
            exactly("MEBF, mushroom, k = 5: F1", own_counts(felb.MEBF(5), mushroom).f1, 0.6049, 4),
            exactly("MEBF, mushroom, k = 10: F1", own_counts(felb.MEBF(10), mushroom).f1, 0.7036, 4),
        ]
    if msweb is not None:
        f1 = own_counts(felb.MEBF(10), msweb.rows(0, 5000)).f1
        found.append(exactly("MEBF, msweb, first 5000 rows, k = 10: F1", f1, 0.4862, 4))
    return found


def sparse_problem() -> BinaryMatrix:
    """Return 20000 × 2000 at 1% ones, in blocks and at random."""
    data = felb.data.planted(20000, 2000, 20, heights=(0.01, 0.05), widths=(0.005, 0.02), noise=0.008, seed=0)
    return data.A


def seconds(run: Callable[[], object], repeats: int = 3) -> float:
    """Return the least processor time."""
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return best


def speed() -> list[Figure]:
    """Return what the methods take in one process, compiled code loaded."""
    found, sparse = [], sparse_problem()
    for warm in (felb.GreConD(2), felb.MEBF(2), felb.Asso(2), felb.Zhang(2, max_iter=2)):
        warm.fit(sparse.rows(0, 300))
    mushroom = real("bmf_mushroom")
    if mushroom is not None:
        concepts = seconds(lambda: felb.GreConD(130).fit(mushroom))
        found.append(at_most("GreConD, mushroom, all concepts", concepts, 1, "s"))
        mebf = seconds(lambda: felb.MEBF(10).fit(mushroom))
        found.append(at_least("MEBF, mushroom, k = 10, against R", R_SECONDS / mebf, 50, f"{1e3 * mebf:.0f} ms"))
    what = f"{sparse.shape[0]} x {sparse.shape[1]}, {sparse.density:.1%} ones, k = 20"
    for tau in (0.3, 1.0):
        taken = seconds(lambda tau=tau: felb.Asso(20, tau=tau).fit(sparse), 1)
        found.append(at_most(f"Asso, {what}, tau {tau}", taken, 15, "s"))
    zhang = felb.Zhang(20, random_state=0)
    found.append(at_most(f"Zhang with its grid, {what}", seconds(lambda: zhang.fit(sparse), 1), 30, "s"))
    return found


def post_hoc(name: str, A: BinaryMatrix, k: int, *, limit: float) -> list[str]:
    """Return the rows of the table for one data set."""
    groups, rows = partition.even(A.shape[0], CLIENTS), []
    for method in CENTRALIZED:
        model = make(f"{method.name}+vote", n_components=k, time_limit=limit, random_state=0, n_jobs=2)
        start = time.perf_counter()
        model.fit(A, groups=groups)
        taken, scores = time.perf_counter() - start, model.counts_
        finished = "yes" if model.complete_ else f"stopped after {limit:g} s a client"
        rows.append(f"| {name} | {method.name}+vote | {taken:.1f} | {scores.f1:.3f} | {scores.rmsd:.4f} | {finished} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Print, and write the table of the 50 clients."""
    parser = make_parser(__doc__)
    parser.add_argument("--clients", action="store_true", help="the real data at 50 clients; writes BASELINES.md")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a client has")
    warnings.simplefilter("ignore")
    options = parser.parse_args()
    if not options.clients:
        for figure in [*oracles(), *speed()]:
            print(f"{figure.what}: {figure.measured} {figure.bar} {figure.verdict}", flush=True)
        return
    rows = []
    for name, k in DATA.items():
        A = real(name)
        if A is None:
            print(f"{name} is not at hand, left out")
        else:
            rows += post_hoc(f"{name}, k = {k}", A, k, limit=options.limit)
    lines = [
        "# Post-hoc methods on real data",
        "",
        f"Written by `python benchmarks/bench_baselines.py --clients`: {CLIENTS} clients, two at a time, vote.",
        "Components of different clients do not correspond, and few entries find a majority.",
        "",
        "| data | method | seconds | F1 | RMSD | finished |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        *listed(),
    ]
    write_page(TABLE, "\n".join(lines))


if __name__ == "__main__":
    main()
