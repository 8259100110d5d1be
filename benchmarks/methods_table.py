"""Which method for which data: F1, wrong cells and processor time of all centralized methods on real data.

    python benchmarks/methods_table.py                   all sets that are at hand, and the page METHODS_TABLE.md
    python benchmarks/methods_table.py --data zoo msweb  some of the sets, printed only

Twenty components (zoo: 17), at most 10 000 random rows and the 1000 heaviest columns, seed 0, defaults of all methods
but Asso (tau "auto"), a time limit of 5 seconds for each fit. Rows are those that the methods assign. FastStep is
scored by its Boolean components; the line "faststep, step" by its step reconstruction. Times are processor seconds
after a first fit that compiles.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from common import FOLDER, listed, make_parser, real, write_page

from felb.data import load
from felb.federated.algorithms.registry import CENTRALIZED
from felb.metrics import confusion
from felb.sklearn.methods import make
from felb_paper.measuring import subset

if TYPE_CHECKING:
    from felb.data import BinaryMatrix

PAGE = Path(__file__).with_name("METHODS_TABLE.md")
SHIPPED = ("zoo", "soybean", "sc_10x_brain_10k")
SETS = ("zoo", "soybean", "bmf_mushroom", "msweb", "sc_10x_brain_10k")
METHODS = ("bmf", *(entry.name for entry in CENTRALIZED))
LIMIT = 5.0


def fitted(method: str, A: BinaryMatrix, k: int) -> list[tuple[str, str]]:
    """Return a cell of the table for a method, and one more for a step reconstruction."""
    options = {"tau": "auto"} if method == "asso" else {}
    model = make(method, n_components=k, time_limit=LIMIT, random_state=0, **options)
    start = time.process_time()
    U = model.fit_transform(A)
    seconds = time.process_time() - start
    counts = confusion(A, U, model.components_)
    mark = "" if model.complete_ else "\\*"
    cells = [(method, f"{counts.f1:.3f} / {counts.errors} / {seconds:.1f}{mark}")]
    if method == "faststep" and model.step_rows_ is not None:
        counts = model.step_counts(A)
        cells.append(("faststep, step", f"{counts.f1:.3f} / {counts.errors} /"))
    return cells


def main() -> None:
    """Measure, print, and write the page if all sets were measured."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="+", default=list(SETS), metavar="NAME", help="sets (default: all)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for method in METHODS:
        make(method, n_components=17, random_state=0).fit(load("zoo"))  # compiles
    table: dict[str, dict[str, str]] = {}
    heads = {}
    for name in arguments.data:
        full = load(name) if name in SHIPPED else real(name, FOLDER)
        if full is None:
            print(f"{name} left out: there is no {FOLDER.name}/{name}.npz")
            continue
        A = subset(full)
        heads[name] = f"{name}, {A.shape[0]} × {A.shape[1]}"
        for method in METHODS:
            for line, cell in fitted(method, A, min(20, *A.shape)):
                table.setdefault(line, {})[name] = cell
                print(name, line, cell, flush=True)
    lines = [f"| F1 / wrong cells / s | {' | '.join(heads.values())} |", f"|---|{'---|' * len(heads)}"]
    lines += [f"| `{line}` | {' | '.join(cells.get(name, '') for name in heads)} |" for line, cells in table.items()]
    print("\n".join(lines))
    if tuple(heads) == SETS:
        head = ["# All methods on centralized data", "", "Written by `python benchmarks/methods_table.py`.", ""]
        note = f"\n\\* ended by the time limit of {LIMIT:g} seconds, with the best result until then.\n"
        write_page(PAGE, "\n".join([*head, *listed(), "", *lines, note]))


if __name__ == "__main__":
    main()
