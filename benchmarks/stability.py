"""How stable components are, and which number of components held-out cells choose.

    python benchmarks/stability.py            all parts; writes STABILITY.md
    python benchmarks/stability.py choice     one part: planted, choice, real or cost
    python benchmarks/stability.py --show     writes STABILITY.md from what is measured

Measured parts are kept in stability.json. S1 is described in quality.py: 2000 x 200, ten tiles.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from machine import facts

import felb
from felb.analysis import choose_k
from felb.atomic import replacing
from felb.data import load, partition, planted

TABLE = Path(__file__).with_name("STABILITY.md")
KEPT = Path(__file__).with_name("stability.json")
REFITS = 50
NUMBERS = range(7, 14)
SEEDS, PLANTED_SEEDS, TIMED_REFITS = 10, 1, 5
SHARED_SEEDS = 2
"""Seeds for which the choice is repeated with ten clients; it is the same by construction."""


def s1(noise: float, seed: int) -> Any:
    """Return planted data S1."""
    return planted(2000, 200, 10, noise=noise, seed=seed)


def measure_planted() -> list[list[Any]]:
    """Components of planted data are found again; components of noise are not."""
    rows = []
    for noise in (0.05, 0.1, 0.2):
        for seed in range(PLANTED_SEEDS):
            A = s1(noise, seed).A
            model = felb.FederatedBMF(10, random_state=seed).fit(A)
            found = felb.stability(model, A, n_resamples=REFITS).found
            rows.append([f"S1, {noise:.0%} noise, seed {seed}", 10, float(found.min()), float(found.max())])
            print(rows[-1], flush=True)
    for density in (0.05, 0.1, 0.3, 0.5):
        A = np.random.default_rng(1).random((2000, 200)) < density
        model = felb.FederatedBMF(10, random_state=0).fit(A)
        found = felb.stability(model, A, n_resamples=REFITS).found
        rows.append([f"independent cells, {density:.0%} ones", 10, float(found.min()), float(found.max())])
        print(rows[-1], flush=True)
    return rows


def measure_choice() -> list[list[Any]]:
    """The number of components that held-out cells choose, centralized and with ten clients."""
    rows = []
    for noise in (0.05, 0.1):
        for seed in range(SEEDS):
            A = s1(noise, seed).A
            pooled = choose_k(A, NUMBERS, n_resamples=0, random_state=seed)
            same = None
            if seed < SHARED_SEEDS:
                groups = partition.even(2000, 10, seed=seed)
                shared = choose_k(A, NUMBERS, groups=groups, n_resamples=0, random_state=seed)
                same = pooled == shared
            rows.append([noise, seed, pooled.best_k, same, pooled.shortest_k])
            print(rows[-1], flush=True)
    return rows


def measure_real() -> list[list[Any]]:
    """Components of zoo and of cells: how often each is found, and its match."""
    rows = []
    for name, k in (("zoo", 5), ("sc_10x_brain_10k", 5)):
        A = load(name)
        model = felb.FederatedBMF(k, random_state=0).fit(A)
        stable = felb.stability(model, A, n_resamples=REFITS)
        order = np.argsort(-model.supports_)
        frame = model.to_frame(A)
        for row in (stable.rows()[number] for number in order):
            features = list(frame[frame.component == row["component"]].feature)
            shown = ", ".join(features[:5]) + (", …" if len(features) > 5 else "")
            values = [row[name] for name in ("found", "match", "low", "high")]
            rows.append([name, k, row["component"], int(model.supports_[row["component"]]), *values, shown])
            print(rows[-1], flush=True)
    return rows


def measure_cost() -> list[list[Any]]:
    """Processor time of a refit and of a default fit, for 10000 x 1000."""
    small = planted(400, 50, 3, noise=0.3, seed=0).A
    for objective in ("auto", "hamming", "recover"):  # compiles
        felb.stability(felb.FederatedBMF(3, objective=objective, random_state=0).fit(small), small, n_resamples=1)
    rows = []
    for label, A, k in (
        ("planted, 5% noise", planted(10_000, 1000, 10, noise=0.05, seed=0).A, 10),
        ("planted, 30% noise", planted(10_000, 1000, 10, noise=0.3, seed=0).A, 10),
        ("sc_10x_brain_10k", load("sc_10x_brain_10k"), 20),
    ):
        start = time.process_time()
        model = felb.FederatedBMF(k, random_state=0).fit(A)
        fitted = time.process_time()
        felb.stability(model, A, n_resamples=TIMED_REFITS)
        rows.append([label, k, fitted - start, (time.process_time() - fitted) / TIMED_REFITS])
        print(rows[-1], flush=True)
    return rows


PARTS = {"cost": measure_cost, "choice": measure_choice, "planted": measure_planted, "real": measure_real}


def shown(kept: dict[str, Any]) -> str:
    """Return the page."""
    lines = ["# Stability and the choice of k", "", "Made by `python benchmarks/stability.py`.", ""]
    lines += [f"- {name}: {fact}" for name, fact in facts().items()] + [""]
    if "planted" in kept:
        lines += ["## Planted components and noise", "", f"Share of {REFITS} refits that find a component again.", ""]
        lines += ["| data | k | least of all components | most |", "|---|---|---|---|"]
        lines += [f"| {data} | {k} | {low:.2f} | {high:.2f} |" for data, k, low, high in kept["planted"]]
    if "choice" in kept:
        lines += ["", "## Number of components chosen on S1 (planted: 10)", ""]
        lines += ["| noise | held-out cells, seeds 0 to 9 | within 1 | ten clients agree | shortest description |"]
        lines += ["|---|---|---|---|---|"]
        for noise in (0.05, 0.1):
            rows = [row for row in kept["choice"] if row[0] == noise]
            near = sum(abs(row[2] - 10) <= 1 for row in rows)
            agree = [row[3] for row in rows if row[3] is not None]
            lines.append(
                f"| {noise:.0%} | {', '.join(str(row[2]) for row in rows)} | {near} of {len(rows)} | "
                f"{sum(agree)} of {len(agree)} | {', '.join(str(row[4]) for row in rows)} |"
            )
    if "real" in kept:
        lines += ["", "## Real data", "", "| data | k | component | records | found | match | 95% | features by lift |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        for data, k, number, support, found, match, low, high, features in kept["real"]:
            values = f"{found:.0%} | {match:.2f} | {low:.2f} to {high:.2f} | {features} |"
            lines.append(f"| {data} | {k} | {number} | {support} | {values}")
    if "cost" in kept:
        told = f"Processor time for 10000 x 1000. The time of a refit is the mean of {TIMED_REFITS}."
        lines += ["", "## Cost", "", told, ""]
        lines += ["| data | k | default fit, s | refit, s | 50 refits / fit |", "|---|---|---|---|---|"]
        for data, k, fit, refit in kept["cost"]:
            lines.append(f"| {data} | {k} | {fit:.1f} | {refit:.2f} | {50 * refit / fit:.1f} |")
    if "notes" in kept:
        lines += ["", "## Notes", "", *(f"- {note}" for note in kept["notes"])]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure parts, keep them, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in [] if options.show else options.parts or PARTS:
        measured = PARTS[part]()
        kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
        with replacing(KEPT) as partial:
            partial.write_text(json.dumps(kept | {part: measured}, indent=1))
    with replacing(TABLE) as partial:
        partial.write_text(shown(json.loads(KEPT.read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
