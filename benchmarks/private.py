"""How well planted components are recovered under differential privacy of records: F1* against its bars.

200 columns, ten tiles of 15% of the rows and 12% of the columns, 90% dense, 2% of the cells flipped, or 75% and 8%; ten
clients, each of which adds all of its noise itself; delta = 1e-5 in total. Every seed must reach the bar. The noise
cannot be seeded, so figures differ from run to run.

    python benchmarks/private.py                                 everything
    python benchmarks/private.py --rows 5000 --epsilon 1         one row of the table

Prints a Markdown table, row by row; ends with an error if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from felb.data import planted
from felb.estimators.bmf_estimator import FederatedBMF
from felb.metrics import confusion
from felb.privacy import Privacy

COLUMNS, COMPONENTS, CLIENTS, DELTA = 200, 10, 10, 1e-5
CLEAN, ROUGH = (0.9, 0.02), (0.75, 0.08)
"""Density of the tiles, and share of the cells that are flipped."""

# (records, (density, flips), epsilon): least F1*
BARS = {
    (20_000, CLEAN, 0.5): 0.97,
    (20_000, CLEAN, 1.0): 0.97,
    (20_000, CLEAN, 2.0): 0.97,
    (5_000, CLEAN, 1.0): 0.90,
    (5_000, CLEAN, 2.0): 0.90,
    (20_000, ROUGH, 1.0): 0.88,
}


def recovered(records: int, kind: tuple[float, float], epsilon: float, *, seed: int) -> tuple[float, int, int]:
    """Return F1* of one run, the bound B it found, and which candidate it chose."""
    density, flips = kind
    tiles = {"heights": (0.15, 0.15), "widths": (0.12, 0.12), "density": density}
    data = planted(records, COLUMNS, COMPONENTS, noise=flips, seed=seed, **tiles)
    model = FederatedBMF(COMPONENTS, privacy=Privacy(epsilon, DELTA), random_state=seed)
    U = model.fit_transform(data.A, groups=np.arange(records) % CLIENTS)
    facts = {key: row[key] for row in model.history_ for key in ("row_bound", "chosen") if key in row}
    return confusion(data.signal, U, model.components_).f1, int(facts["row_bound"]), int(facts["chosen"])


def main() -> None:
    """Measure, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, help="only data of so many records")
    parser.add_argument("--epsilon", type=float, help="only this total")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    missed = False
    print(
        "| records | density, flips | epsilon | F1* of each seed | bar | B | candidate | seconds a run |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for (records, kind, epsilon), bar in BARS.items():
        if options.rows not in (None, records) or options.epsilon not in (None, epsilon):
            continue
        started = time.perf_counter()
        scores, bounds, chosen = zip(
            *(recovered(records, kind, epsilon, seed=s) for s in range(options.seeds)), strict=True
        )
        seconds = (time.perf_counter() - started) / options.seeds
        missed |= min(scores) < bar
        figures = " ".join(f"{score:.3f}" for score in scores)
        verdict = "" if min(scores) >= bar else " MISSED"
        found, picked = (" ".join(map(str, values)) for values in (bounds, chosen))
        print(
            f"| {records} | {kind[0]:g}, {kind[1]:g} | {epsilon:g} | {figures} | {bar:g}{verdict} | {found} | {picked} "
            f"| {seconds:.0f} |",
            flush=True,
        )
    sys.exit(int(missed))


if __name__ == "__main__":
    main()
