"""Post-hoc votes row by row against votes on aligned components, on real data.

    python benchmarks/aligned.py                          the data folder beside the project, and the shipped sets
    python benchmarks/aligned.py FOLDER --data msweb zoo  another folder, some of the sets

Twenty components, fifty even clients (four rows a client at least), at most 10 000 random rows and the 1000 heaviest
columns, seed 0; Zhang and ELBMF with 300 iterations, the others with their defaults. Both votes are about the same
components: every client factorizes once. Sets that are not at hand are left out, with the reason. Prints F1 of
all clients together as a Markdown table; each cell is: row by row → aligned.
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from common import FOLDER, make_parser, real

import felb
from felb.data import load, partition
from felb.sklearn.base import CentralizedFactorization
from felb_paper.measuring import subset

if TYPE_CHECKING:
    from felb.centralized.base import Factors
    from felb.progress import Deadline

COMPONENTS, CLIENTS, ROWS_EACH = 20, 50, 4
SHIPPED = ("zoo", "soybean", "sc_10x_brain_10k")
SETS = (*SHIPPED, "msweb", "bmf_mushroom", "cps_280k", "tcga_mutation", "wordnet_glosses", "go_human_genes")
MODELS = {
    "Asso": felb.Asso,
    "GreConD": felb.GreConD,
    "MEBF": felb.MEBF,
    "Zhang": partial(felb.Zhang, max_iter=300),
    "ELBMF": partial(felb.ELBMF, max_iter=300),
}


class Once(CentralizedFactorization):
    """A model that remembers what it has found at each client; clients are told apart by their seeds."""

    time_limit = None

    def __init__(self, model: CentralizedFactorization) -> None:
        self.model = model
        self.n_components = model.n_components
        self.found: dict[int, Factors] = {}

    def factorize(self, A: felb.BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:
        """Factorize, or remember."""
        if seed not in self.found:
            self.found[seed] = self.model.factorize(A, k, seed=seed, deadline=deadline)
        return self.found[seed]


def scores(model: str, A: felb.BinaryMatrix, aggregations: tuple[str, ...]) -> list[float]:
    """Return F1 of all clients together for each aggregation."""
    once = Once(MODELS[model](min(COMPONENTS, *A.shape)))
    groups = partition.even(len(A), min(CLIENTS, len(A) // ROWS_EACH), seed=0)
    fitted = (felb.PostHoc(once, word, random_state=0).fit(A, groups=groups) for word in aggregations)
    return [float(found.counts_.f1) for found in fitted]


def main() -> None:
    """Print a row of the table for each set."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=FOLDER, help="folder of SciPy files (default: %(default)s)"
    )
    parser.add_argument("--data", nargs="+", default=list(SETS), metavar="NAME", help="sets (default: all)")
    parser.add_argument("--aggregation", default="vote", help="vote, mean or or (default: %(default)s)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| data | shape | {' | '.join(MODELS)} | s |")
    print(f"|---|---|{'---|' * (len(MODELS) + 1)}")
    absent = []
    for name in arguments.data:
        full = load(name) if name in SHIPPED else real(name, arguments.folder)
        if full is None:
            absent.append(f"{name} left out: there is no {arguments.folder / name}.npz")
            continue
        A, start = subset(full), time.perf_counter()
        words = arguments.aggregation, f"aligned-{arguments.aggregation}"
        row = " | ".join(" → ".join(f"{f1:.3f}" for f1 in scores(model, A, words)) for model in MODELS)
        print(f"| {name} | {A.shape[0]} × {A.shape[1]} | {row} | {time.perf_counter() - start:.0f} |", flush=True)
    for line in absent:
        print(line)


if __name__ == "__main__":
    main()
