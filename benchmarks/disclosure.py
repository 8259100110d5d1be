"""What disclosure rules cost: F1 of the default method where sites hide what few of their records make.

Ten sites with 500, 200 or 50 records each, drawn from real data, and 20 components. The rule `min_support` is off, 5,
10 or 20; the limits on sites and parameters are off. F1 is of all records, assigned as each site does for itself.

    python benchmarks/disclosure.py                                  everything that is not there yet
    python benchmarks/disclosure.py --data msweb --records 200       a part of it
    python benchmarks/disclosure.py --table                          only the page

Keeps each run in measured/disclosure.json and writes DISCLOSURE.md.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from common import MEASURED, Cells, exit_if_missed, listed, make_parser, real, write_page

from felb.engines.local import run
from felb.federated.algorithms.bmf import federated_bmf
from felb.metrics import confusion
from felb.privacy.disclosure import Disclosure

if TYPE_CHECKING:
    from collections.abc import Sequence

CELLS, PAGE = Cells(MEASURED / "disclosure.json"), Path(__file__).with_name("DISCLOSURE.md")
BARRED = ("cps_280k", "msweb", "bmf_mushroom", "sc_10x_brain_10k")
DATA = (*BARRED, "amazon_music", "csalt_news_space")
RECORDS, SUPPORTS = (500, 200, 50), (0, 10, 5, 20)
SITES, COMPONENTS = 10, 20
BAR = 0.005
"""Of F1, lost at most with a rule of 10 and sites of 500 and 200 records."""


def measure(name: str, records: int, least: int, seed: int = 0) -> None:
    """Fit a sample of a data set under a rule, unless that was done."""
    A = real(name)
    if A is None or CELLS.get((name, records, least, seed)) is not None:
        return
    rows = np.sort(np.random.default_rng(seed).permutation(len(A))[: SITES * records])
    parts = np.array_split(np.random.default_rng(seed).permutation(rows), SITES)
    sites = {f"site-{i}": A.take(part) for i, part in enumerate(parts)}
    rules = Disclosure(least, 1, None, 1) if least else None
    finished = run(federated_bmf(A.shape[1], COMPONENTS), sites, seed=seed, disclosure=rules)
    counts = [confusion(sites[site], U, finished.outcome.components) for site, U in finished.assignments.items()]
    CELLS.put((name, records, least, seed), {"f1": round(sum(counts[1:], counts[0]).f1, 4)})


def table(seed: int = 0) -> tuple[list[str], list[str]]:
    """Return the rows of the page, and the bars that are missed."""
    rows, missed = [], []
    for name, records in product(DATA, RECORDS):
        found = {least: cell["f1"] for least in SUPPORTS if (cell := CELLS.get((name, records, least, seed)))}
        if not found:
            continue
        verdict = ""
        if name in BARRED and records >= 200 and {0, 10} <= found.keys():
            met = found[0] - found[10] <= BAR
            verdict = "met" if met else "**missed**"
            missed += [] if met else [f"{name}, {records} records: {found[0]:.3f} to {found[10]:.3f}"]
        shown = [f"{found[least]:.3f}" if least in found else "" for least in sorted(SUPPORTS)]
        rows.append(f"| {name} | {records} | {' | '.join(shown)} | {verdict} |")
    return rows, missed


def write(rows: Sequence[str]) -> None:
    """Write the page."""
    head = [f"| data | records of a site | {' | '.join(['off', '5', '10', '20'])} | at most {BAR} lost with 10 |"]
    write_page(
        PAGE,
        "\n".join(
            [
                "# What disclosure rules cost",
                "",
                f"F1 of the default method with {SITES} sites and {COMPONENTS} components, by `min_support`. Made by",
                "`python benchmarks/disclosure.py`; empty cells have not been measured.",
                "",
                *head,
                "|---|---|---|---|---|---|---|",
                *rows,
                "",
                *listed(load=False),
            ]
        ),
    )


def main() -> None:
    """Measure what is missing and write the page."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--records", nargs="+", type=int, choices=RECORDS, default=RECORDS)
    parser.add_argument("--min-support", nargs="+", type=int, choices=SUPPORTS, default=SUPPORTS)
    parser.add_argument("--table", action="store_true", help="only write the page")
    options = parser.parse_args()
    if not options.table:
        for least, records, name in product(options.min_support, options.records, options.data):
            measure(name, records, least)
    rows, missed = table()
    write(rows)
    print("\n".join(rows))
    exit_if_missed(missed)


if __name__ == "__main__":
    main()
