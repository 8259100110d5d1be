"""The default method against the smallest errors ever published for small matrices.

    python benchmarks/records.py                               all cells that are not measured yet; writes RECORDS.md
    python benchmarks/records.py --again --efforts default     measure the cells of one effort again
    python benchmarks/records.py --only kov_ --no-record       print some cells and write nothing

Two tables, with the published figures in published_errors.csv. *kov*: matrices of Kovács, Günlük and Hauser; the best
is that of EvoMF (Drogo, Gillis and Vandaele, EUSIPCO 2026, which also proves some of them optimal) and of column
generation (Kovács et al., 20 to 30 minutes of CPLEX a cell). *uc*: matrices of Avellaneda and Villemaire (AAAI 2022);
the best is that of the eleven methods of their benchmark. The matrices are not part of the project; where their folder
is absent, the cells are skipped. Errors are wrong cells of all; nothing is compared but that number.
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from common import (
    FOLDER,
    MEASURED,
    Cells,
    Figure,
    Section,
    listed,
    load_average,
    make_parser,
    name_of,
    real,
    write_page,
)

import felb

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

HERE = Path(__file__).parent
PUBLISHED, TABLE = HERE / "published_errors.csv", HERE / "RECORDS.md"
CELLS = Cells(MEASURED / "records.json")
EFFORTS = ("fast", "default", "high")
SIZES = ("small", "middle", "large")
OPPONENTS = {
    "kov": "the best of EvoMF and column generation (kov)",
    "uc": "the best of eleven: FastUndercover, OptiBlock, OptiBlock*, IterEss, Tile, GreConD+, message passing, "
    "k-greedy, Asso, MEBF, column generation (uc)",
}
# Family, size of k, effort: excess over the best in percent at most, as a mean for kov and as a median for uc.
BARS = {
    ("kov", "default"): 2.5,
    ("kov", "high"): 1.0,
    ("uc", "middle", "default"): 5.0,
    ("uc", "large", "default"): 10.0,
    ("uc", "small", "high"): 1.0,
    ("uc", "middle", "high"): 3.0,
    ("uc", "large", "high"): 5.0,
}


@dataclass(frozen=True)
class Cell:
    """A matrix, a number of components, and the smallest published error."""

    data: str
    k: int
    best: int
    optimal: bool
    former: Mapping[str, int]
    size: str

    @property
    def family(self) -> str:
        """The collection that the matrix belongs to."""
        return self.data.partition("_")[0]

    def key(self, effort: str) -> str:
        """Return the name under which the measurement is kept."""
        return name_of((self.data, self.k, effort))

    def excess(self, errors: int) -> float:
        """Return the percentage by which errors exceed the best."""
        return 100 * (errors / self.best - 1)


def published() -> list[Cell]:
    """Return all cells; of the three k of a matrix, the least is small and the greatest is large."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    ranks = {name: sorted(int(row["k"]) for row in rows if row["data"] == name) for name in {r["data"] for r in rows}}
    return [
        Cell(
            row["data"],
            int(row["k"]),
            int(row["best"]),
            row["optimal"] == "yes",
            {effort: int(row[f"felb_0.1_{effort}"]) for effort in ("default", "high") if row[f"felb_0.1_{effort}"]},
            SIZES[ranks[row["data"]].index(int(row["k"]))],
        )
        for row in rows
    ]


def measure(A: felb.BinaryMatrix, cell: Cell, *, effort: str, limit: float | None) -> dict[str, Any]:
    """Fit one cell; return its errors with the seconds of a clock and of a processor."""
    start, used = time.perf_counter(), time.process_time()
    model = felb.FederatedBMF(cell.k, objective="hamming", effort=effort, time_limit=limit, random_state=0).fit(A)
    return {
        "errors": int(model.counts_.errors),
        "seconds": round(time.perf_counter() - start, 2),
        "processor": round(time.process_time() - used, 2),
        "complete": bool(model.complete_),
        "limit": limit,
    }


def play(cells: Iterable[Cell], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Measure what is missing; return all measurements, also those of earlier runs."""
    kept: dict[str, dict[str, Any]] = CELLS.all()
    for k in (2, 10):  # compiles what the cells need
        felb.FederatedBMF(k, random_state=0).fit(felb.data.load("zoo"))
    for cell in cells:
        A = real(f"records/{cell.data}", options.data)
        if A is None:
            print(f"skipped {cell.data}, k = {cell.k}: no file {cell.data}.npz in the folder records of --data")
            continue
        for effort in options.efforts:
            key = cell.key(effort)
            if options.again or key not in kept:
                limit = options.time_limit if effort == "high" else None
                found = kept[key] = measure(A, cell, effort=effort, limit=limit)
                if not options.no_record:
                    CELLS.put((cell.data, cell.k, effort), found)
                print(
                    f"{key}: {found['errors']} (best {cell.best}, {cell.excess(found['errors']):+.1f}%), "
                    f"{found['seconds']:.1f} s, {found['processor']:.1f} s of a processor",
                    flush=True,
                )
    return kept


def verdicts(pairs: Iterable[tuple[int, int]]) -> str:
    """Return wins, ties and losses of our errors against those of another."""
    found = [(ours > theirs) - (ours < theirs) for ours, theirs in pairs]
    return f"{found.count(-1)} | {found.count(0)} | {found.count(1)}"


def duels(cells: list[Cell], kept: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line of wins, ties and losses for each effort and opponent."""
    for effort in EFFORTS:
        met = [(cell, kept[cell.key(effort)]["errors"]) for cell in cells if cell.key(effort) in kept]
        for family, opponent in OPPONENTS.items():
            pairs = [(errors, cell.best) for cell, errors in met if cell.family == family]
            if pairs:
                yield f"| {effort} | {opponent} | {verdicts(pairs)} |"
        pairs = [(errors, cell.former[effort]) for cell, errors in met if effort in cell.former]
        if pairs:
            yield f"| {effort} | felb 0.1 with the same effort | {verdicts(pairs)} |"


def bars(cells: list[Cell], kept: Mapping[str, Mapping[str, Any]]) -> Iterator[Figure]:
    """Yield the excess over the best for each bar."""
    for (family, *size, effort), bar in BARS.items():
        excesses = [
            cell.excess(kept[cell.key(effort)]["errors"])
            for cell in cells
            if cell.family == family and (not size or cell.size == size[0]) and cell.key(effort) in kept
        ]
        if not excesses:
            continue
        value = median(excesses) if size else mean(excesses)
        what = f"{'median' if size else 'mean'} excess of {family}, " + (f"{size[0]} k, " if size else "") + effort
        yield Figure(what, f"{value:.1f}% of {len(excesses)} cells", f"<= {bar}%", value <= bar)


def line(cell: Cell, kept: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the line of a cell: its errors and seconds for each effort."""
    parts = []
    for effort in EFFORTS:
        found = kept.get(cell.key(effort))
        if found is None:
            parts.append("| ")
            continue
        errors = f"**{found['errors']}**" if found["errors"] <= cell.best else str(found["errors"])
        cut = "" if found["complete"] else " (cut)"
        parts.append(f"{errors} ({cell.excess(found['errors']):+.1f}%) | {found['processor']:.1f}{cut}")
    best = f"{cell.best} (optimal)" if cell.optimal else str(cell.best)
    former = " / ".join(str(cell.former.get(effort, "–")) for effort in ("default", "high"))
    return f"| {cell.data} | {cell.k} | {best} | {former} | " + " | ".join(parts) + " |"


def page(cells: list[Cell], kept: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page."""
    missing = [cell.key(effort) for cell in cells for effort in EFFORTS if cell.key(effort) not in kept]
    head = "".join(f" {effort} | s |" for effort in EFFORTS)
    return "\n".join(
        [
            "# Published records",
            "",
            "Written by `make records` (`python benchmarks/records.py`, which names the sources): wrong cells of "
            'FederatedBMF on pooled rows, objective "hamming", seed 0, against the smallest errors published. Bold: '
            "at or below the best. *s* are processor seconds; *cut*: the time limit ended the fit.",
            "",
            "The sources give the best of their methods for each cell, not the figure of every method. Who is at or "
            "below the best of eleven is at or below each of them, so the wins and ties are the least number against "
            "any one of them, OptiBlock* among them.",
            "",
            "| effort | opponent | wins | ties | losses |",
            "|---|---|---|---|---|",
            *duels(cells, kept),
            "",
            Section("Excess over the best", "Bars of the default method.", list(bars(cells, kept))).markdown(),
            "## Cells",
            "",
            f"| data | k | best published | felb 0.1 default / high |{head}",
            "|---|---|---|---|" + "---|---|" * len(EFFORTS),
            *(line(cell, kept) for cell in cells),
            "",
            *([f"Not measured: {'; '.join(missing)}.", ""] if missing else []),
            *listed(load=False),
            f"- load average at the end: {load_average()}",
            "",
        ]
    )


def main() -> None:
    """Measure the cells and write the page."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder that has the folder records")
    parser.add_argument("--only", default="", metavar="PREFIX", help="cells of data sets whose names begin like this")
    parser.add_argument("--efforts", nargs="+", choices=EFFORTS, default=list(EFFORTS))
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS", help="of a fit with high effort")
    parser.add_argument("--again", action="store_true", help="measure also cells that are measured already")
    parser.add_argument("--no-record", action="store_true", help="measure all again and write nothing")
    options = parser.parse_args()
    options.again = options.again or options.no_record
    warnings.simplefilter("ignore", felb.ConvergenceWarning)
    cells = published()
    kept = play([cell for cell in cells if cell.data.startswith(options.only)], options)
    if options.no_record:
        return
    if not kept:
        sys.exit("nothing was measured")
    write_page(TABLE, page(cells, kept))


if __name__ == "__main__":
    main()
