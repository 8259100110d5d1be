"""F1, RMSD and time of the federated competitors with their defaults on the real data that these were chosen on.

10000 random rows (seed 0), 1000 heaviest columns, 20 components, 50 even clients; smaller data is taken whole. Prints a
Markdown table.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

from common import FOLDER, make_parser, real

from felb.data import partition
from felb.errors import ConvergenceWarning
from felb.sklearn.methods import make
from felb_paper.measuring import subset

CHOSEN_ON = ("bmf_mushroom", "sc_10x_brain_10k", "tcga_mutation")
COMPETITORS = ("fednmf", "fedprox", "scaffold", "proxskip")


def main() -> None:
    """Print the table."""
    parser = make_parser(__doc__)
    parser.add_argument("--methods", nargs="+", default=COMPETITORS)
    parser.add_argument("--data", nargs="+", default=CHOSEN_ON)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the SciPy files")
    parser.add_argument("--clients", type=int, default=50)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("| data | method | F1 | RMSD | rounds | gap | s |\n|---|---|---|---|---|---|---|")
    for name in options.data:
        matrix = real(name, options.folder)
        if matrix is None:
            print(f"| {name} | not at hand | | | | | |")
            continue
        A = subset(matrix)
        clients = partition.even(len(A), options.clients, seed=0)
        for method in options.methods:
            begun = time.perf_counter()
            model = make(method, n_components=20, random_state=0).fit(A, groups=clients)
            seconds = time.perf_counter() - begun
            print(
                f"| {name} | {method} | {model.counts_.f1:.3f} | {model.counts_.rmsd:.4f} | {model.n_iter_} "
                f"| {model.integrality_gap_:.2f} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
