"""What each private mechanism recovers of planted components, at the same honest total: F1* over epsilon.

200 columns, ten tiles of 15% of the rows and 12% of the columns, 90% dense, 2% of the cells flipped; ten clients,
20000 records; delta = 1e-5 in total. The uploads of clients, by the mechanism for FELB, hide a client; all others hide
a record. Two harder sets, for co-occurrence only: 5000 records, and 75% dense tiles with 8% flipped.

    python benchmarks/private_mechanisms.py                   everything, into PRIVATE_MECHANISMS.md and the figure
    python benchmarks/private_mechanisms.py --quick           one seed, epsilon 1 and 2; prints only
    python benchmarks/private_mechanisms.py --exact           noise by the exact sampler, as in real use: much slower
    python benchmarks/private_mechanisms.py --exact --design co-occurrence    the default mechanism; prints only

Without --exact, noise is NumPy's, rounded to whole numbers: of the same size, with a seed, for a benchmark only. Every
run is kept in measured/private_mechanisms.json as it ends, and a run that is there already is not played again. Ends
with an error if a bar is missed.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import MEASURED, Cells, draw_by_seed, f1_star, make_parser, name_of, write_page

from felb.data import planted
from felb.privacy import Privacy
from felb.sklearn.federated import FELB, FederatedBMF

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
EXACT = "exact"
"""Last word of the key of a run with the exact sampler."""
TABLE, FIGURE = HERE / "PRIVATE_MECHANISMS.md", HERE.parent / "docs" / "images" / "private_planted.png"
COLUMNS, COMPONENTS, CLIENTS, DELTA = 200, 10, 10, 1e-5
UPLOADS, THETA = 20, 15.0
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
SETS = {
    "planted": {"n": 20_000, "density": 0.9, "noise": 0.02},
    "5000 records": {"n": 5_000, "density": 0.9, "noise": 0.02},
    "75% dense, 8% flipped": {"n": 20_000, "density": 0.75, "noise": 0.08},
}
DESIGNS = {
    "statistics": "each client",
    "statistics, distributed": "a share at each client",
    "co-occurrence": "each client",
    "hybrid": "each client",
    "uploads of clients": "each client",
}
STYLES = ("s-", "^-", "D-", "x--", "+--")
"""Curves lie on each other; their marks tell them apart."""

Run = tuple[str, str, float, int]
"""Set, design, epsilon and seed."""

# (set, design, epsilon): least F1* of every seed
BARS = {
    ("planted", "statistics", 2.0): 0.90,
    ("planted", "statistics, distributed", 1.0): 0.97,
    ("planted", "co-occurrence", 0.5): 0.97,
    ("planted", "co-occurrence", 1.0): 0.97,
    ("planted", "co-occurrence", 2.0): 0.97,
    ("5000 records", "co-occurrence", 1.0): 0.90,
    ("5000 records", "co-occurrence", 2.0): 0.90,
    ("75% dense, 8% flipped", "co-occurrence", 1.0): 0.88,
}

NOTES = """
## How to read this

- A cell holds one figure per seed; with one figure it is seed 0 only. A dash was not measured.
- All rows were measured by earlier versions. "statistics, aggregate" is now called "statistics, distributed" and has a
  ninth more noise variance, since one of ten clients may collude; its bar has not been measured again. The
  factorization of synthetic rows, behind co-occurrence and hybrid, and FELB, behind the paper's row and the uploads of
  clients, have changed since. The steps of the statistics are the same.
- The constants of the statistics (start, lambda, averaging, steps, least eigenvalue) were chosen among about thirty
  settings on data of this very kind, seeds 0 to 3 among them, so their row is not held out. With the setting fixed, a
  plain loop of the same steps on data seeds 10 to 13, two starts each, gave F1* of 0.98 to 1.00 at epsilon 2 (each
  client), 0.84 to 0.98 at epsilon 1 (each client) and 1.00 at epsilon 1 (on the sum).
- Some runs of statistics end near 0.93 although there is little noise: from the one random start there is, a
  component ends as two halves, and another one is missed. Joining components that are used together, half-way, mended
  some of these runs and spoiled others. The hybrid starts from co-occurrence and does not have the problem.
- To hide one client of ten takes noise in which nothing is left, by the paper's mechanism or by that of felb; for that
  there have to be many more clients.
- The row and the curve of the paper are of a version of felb that had its mechanism, which is now in felb-paper: FELB
  with Gaussian noise on clipped uploads, the epsilon of its formula chosen such that all uploads together come to the
  stated total. It is one setting, 20 uploads and theta = 15 (the planted V has length 15.5), not tuned. Without noise
  the same 20 rounds reach 1.00; at epsilon 8, seed 0, fewer uploads or a smaller theta gave 0.026 (1 upload), 0.014
  (5) and 0.016 (5, theta = 5). It hides a whole client, which is more than a record: the rows compare what an
  epsilon buys, not the same guarantee.
"""


def model_of(design: str, epsilon: float, seed: int) -> Any:
    """Return the estimator of a design."""
    if design == "uploads of clients":
        privacy = Privacy(epsilon, DELTA, unit="client", theta=THETA, rounds=UPLOADS)
        return FELB(COMPONENTS, random_state=seed, privacy=privacy)
    if design in ("co-occurrence", "hybrid"):
        privacy = Privacy(epsilon, DELTA, mechanism=design.replace("-", ""))
        return FederatedBMF(COMPONENTS, random_state=seed, privacy=privacy)
    place = "distributed" if design.endswith("distributed") else "client"
    privacy = Privacy(epsilon, DELTA, mechanism="statistics", noise=place)
    return FederatedBMF(COMPONENTS, random_state=seed, privacy=privacy, secure=place == "distributed")


def recovered(set_: str, design: str, epsilon: float, seed: int) -> float:
    """Return F1* of one run."""
    shape = {"heights": (0.15, 0.15), "widths": (0.12, 0.12), "seed": seed}
    size = SETS[set_]["n"]
    data = planted(size, COLUMNS, COMPONENTS, **{key: SETS[set_][key] for key in ("density", "noise")}, **shape)
    return f1_star(model_of(design, epsilon, seed), data, groups=np.arange(size) % CLIENTS)


def cells(quick: bool) -> Iterator[tuple[str, str, float]]:
    """Return what is measured: set, design, epsilon."""
    for design in DESIGNS:
        for epsilon in (1.0, 2.0) if quick else EPSILONS:
            yield "planted", design, epsilon
    for set_ in list(SETS)[1:]:
        for epsilon in (1.0,) if quick else (0.5, 1.0, 2.0, 4.0):
            yield set_, "co-occurrence", epsilon


def report(runs: dict[Run, float], seeds: int) -> tuple[str, bool]:
    """Return the tables and whether every bar that was measured holds."""
    lines, holds = [], True
    for set_ in SETS:
        lines += ["", f"## {set_}", "", "| design | noise added | " + " | ".join(f"ε={e:g}" for e in EPSILONS) + " |"]
        lines.append("|---|---|" + "---|" * len(EPSILONS))
        for design, place in DESIGNS.items():
            entries = []
            for epsilon in EPSILONS:
                scores = [runs[key] for s in range(seeds) if (key := (set_, design, epsilon, s)) in runs]
                bar = BARS.get((set_, design, epsilon))
                missed = bar is not None and bool(scores) and min(scores) < bar
                holds &= not missed
                note = "" if bar is None or not scores else f" (bar {bar:.2f}{', MISSED' if missed else ''})"
                entries.append(" ".join(f"{score:.3f}" for score in scores) + note if scores else "–")
            if any(entry != "–" for entry in entries):
                lines.append(f"| {design} | {place} | " + " | ".join(entries) + " |")
    return "\n".join(lines) + "\n", holds


def draw(runs: dict[Run, float], seeds: int) -> None:
    """Draw F1* over epsilon, the mean of the seeds."""
    try:
        import matplotlib as mpl
    except ImportError:
        sys.exit("the figure needs matplotlib: pip install 'felb[report]'")
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for (design, place), style in zip(DESIGNS.items(), STYLES, strict=True):
        means = [
            np.mean([runs[key] for s in range(seeds) if (key := ("planted", design, e, s)) in runs] or [np.nan])
            for e in EPSILONS
        ]
        label = design.removesuffix(", distributed")
        axes.plot(EPSILONS, means, style, markersize=9, fillstyle="none", label=f"{label} ({place})")
    axes.set(
        xscale="log", xticks=EPSILONS, ylim=(0, 1.03), xlabel="total ε (δ = 1e-5)", ylabel="F1* of planted components"
    )
    axes.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center right")
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, dpi=130)


def main() -> None:
    """Measure, write, compare."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, two epsilons, nothing written")
    parser.add_argument("--exact", action="store_true", help="the exact sampler")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--design", help="only this one")
    parser.add_argument("--set", help="only this one")
    parser.add_argument("--epsilon", type=float, help="only this one")
    parser.add_argument(
        "--runs", type=Path, default=MEASURED / "private_mechanisms.json", help="file of the single runs"
    )
    options = parser.parse_args()
    seeds = 1 if options.quick else options.seeds
    kept, kind = Cells(options.runs), (EXACT,) if options.exact else ()
    asked = (options.set, options.design, options.epsilon)
    runs: dict[Run, float] = {}
    for seed in range(seeds):
        for set_, design, epsilon in cells(options.quick):
            key = set_, design, epsilon, seed
            if (found := kept.get((*key, *kind))) is not None:
                runs[key] = found["f1"]
                continue
            if any(a not in (None, b) for a, b in zip(asked, key[:3], strict=True)):
                continue
            started = time.perf_counter()
            if not options.exact:
                draw_by_seed(seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                runs[key] = recovered(set_, design, epsilon, seed)
            if not options.quick:
                kept.put((*key, *kind), {"f1": runs[key]})
            print(f"{name_of(key)}: {runs[key]:.3f}, {time.perf_counter() - started:.0f} s", flush=True)
    text, holds = report(runs, seeds)
    print(text)
    if not options.quick and asked == (None, None, None):
        noise = (
            "the exact sampler" if options.exact else "NumPy, rounded to whole numbers (same size, for benchmarks only)"
        )
        intro = "# Private mechanisms on planted data\n\n" + f"F1* of seeds 0 to {seeds - 1}. Noise by {noise}.\n"
        lead = (__doc__ or "").split("\n\n")[1]
        picture = "![F1* over epsilon](../docs/images/private_planted.png)"
        write_page(TABLE, f"{intro}\n{lead}\n\n{picture}\n{text}{NOTES}")
        draw(runs, seeds)
    sys.exit(int(not holds))


if __name__ == "__main__":
    main()
