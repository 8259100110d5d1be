"""How stable components are, and which number of components held-out cells choose.

    python benchmarks/stability.py            all parts; writes STABILITY.md
    python benchmarks/stability.py choice     one part: planted, noise, choice, real or cost
    python benchmarks/stability.py --show     writes STABILITY.md from what is measured

Rows are kept in measured/stability.json as they are measured, each with its date and version; a part that was
interrupted goes on where it stopped. `--anew` measures all rows of a part again. S1 is described in quality.py: 2000 x
200, ten tiles.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import MEASURED, Cells, facts, make_parser, write_page

import felb
from felb.analysis import choose_k
from felb.data import load, partition, planted

TABLE = Path(__file__).with_name("STABILITY.md")
CELLS = Cells(MEASURED / "stability.json")
REFITS = 50
NUMBERS = range(7, 14)
SEEDS, PLANTED_SEEDS = 10, 3
COST_BAR, FOUND_BAR, NOISE_BAR = 15.0, 0.95, 0.5
SHARED_SEEDS = 2
"""Seeds for which the choice is repeated with ten clients; it is the same by construction."""


def s1(noise: float, seed: int) -> Any:
    """Return planted data S1."""
    return planted(2000, 200, 10, noise=noise, seed=seed)


def found_again(A: Any, seed: int) -> tuple[float, float]:
    """Return the smallest and the largest share of refits that find one of ten components again."""
    model = felb.FederatedBMF(10, random_state=seed).fit(A)
    found = felb.stability(model, A, n_resamples=REFITS).found
    return float(found.min()), float(found.max())


def measure_planted(noise: float, seed: int) -> list[Any]:
    """Components of planted data are found again."""
    return [f"S1, {noise:.0%} noise, seed {seed}", 10, *found_again(s1(noise, seed).A, seed)]


def measure_noise(density: float, seed: int) -> list[Any]:
    """Components that were fitted to independent cells are not found again."""
    A = np.random.default_rng(seed + 1).random((2000, 200)) < density
    return [f"independent cells, {density:.0%} ones, seed {seed}", 10, *found_again(A, seed)]


def measure_choice(noise: float, seed: int) -> list[Any]:
    """The number of components that held-out cells choose, centralized and with ten clients."""
    A = s1(noise, seed).A
    pooled = choose_k(A, NUMBERS, n_resamples=0, random_state=seed)
    same = None
    if seed < SHARED_SEEDS:
        groups = partition.even(2000, 10, seed=seed)
        same = pooled == choose_k(A, NUMBERS, groups=groups, n_resamples=0, random_state=seed)
    return [noise, seed, pooled.best_k, same, pooled.shortest_k]


def measure_real(name: str, k: int) -> list[list[Any]]:
    """Components of zoo and of cells: how often each is found, and its match."""
    A, rows = load(name), []
    model = felb.FederatedBMF(k, random_state=0).fit(A)
    stable = felb.stability(model, A, n_resamples=REFITS)
    frame = model.to_frame(A)
    for row in (stable.rows()[number] for number in np.argsort(-model.supports_)):
        features = list(frame[frame.component == row["component"]].feature)
        shown = ", ".join(features[:5]) + (", …" if len(features) > 5 else "")
        values = [row[name] for name in ("found", "match", "low", "high")]
        rows.append([name, k, row["component"], int(model.supports_[row["component"]]), *values, shown])
    return rows


def measure_cost(label: str, k: int) -> list[Any]:
    """Processor time of a default fit and of all refits, for 10000 x 1000."""
    small = planted(400, 50, 3, noise=0.3, seed=0).A
    for objective in ("auto", "hamming", "recover"):  # compiles
        felb.stability(felb.FederatedBMF(3, objective=objective, random_state=0).fit(small), small, n_resamples=1)
    noise = {"planted, 5% noise": 0.05, "planted, 30% noise": 0.3}.get(label)
    A = load(label) if noise is None else planted(10_000, 1000, 10, noise=noise, seed=0).A
    start = time.process_time()
    model = felb.FederatedBMF(k, random_state=0).fit(A)
    fitted = time.process_time()
    felb.stability(model, A, n_resamples=REFITS)
    return [label, k, fitted - start, time.process_time() - fitted]


PARTS: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "cost": (measure_cost, [("planted, 5% noise", 10), ("planted, 30% noise", 10), ("sc_10x_brain_10k", 20)]),
    "choice": (measure_choice, [(noise, seed) for noise in (0.05, 0.1) for seed in range(SEEDS)]),
    "planted": (measure_planted, [(noise, seed) for noise in (0.05, 0.1, 0.2) for seed in range(PLANTED_SEEDS)]),
    "noise": (measure_noise, [(density, seed) for density in (0.05, 0.1, 0.3) for seed in range(PLANTED_SEEDS)]),
    "real": (measure_real, [("zoo", 5), ("sc_10x_brain_10k", 5)]),
}
"""How a row of each part is measured, and with which arguments."""


def shown() -> str:
    """Return the page."""
    kept = {
        part: [found for arguments in wanted if (found := CELLS.get((part, *arguments)))]
        for part, (_, wanted) in PARTS.items()
    }
    rows = {part: [found["row"] for found in cells] for part, cells in kept.items()}
    versions = sorted({found["version"] for cells in kept.values() for found in cells})
    lines = ["# Stability and the choice of k", "", "Made by `python benchmarks/stability.py`.", ""]
    lines += [f"- {name}: {fact}" for name, fact in facts().items() if name not in ("date", "versions")]
    lines += [f"- measured with felb {', '.join(versions)}", *missing(), ""]
    lines += [
        "## Planted components and noise",
        "",
        f"Share of {REFITS} refits that find a component again. Limits: at ",
    ]
    lines[-1] += (
        f"least {FOUND_BAR} for planted components, below {NOISE_BAR} for components that were fitted to noise."
    )
    lines += ["", "| data | k | least of all components | most | |", "|---|---|---|---|---|"]
    lines += [_found_row(row, row[2] >= FOUND_BAR) for row in rows["planted"]]
    lines += [_found_row(row, row[3] < NOISE_BAR) for row in rows["noise"]]
    lines += ["", "## Number of components chosen on S1 (planted: 10)", ""]
    lines += ["| noise | held-out cells, seeds 0 to 9 | within 1 | ten clients agree | shortest description |"]
    lines += ["|---|---|---|---|---|"]
    for noise in sorted({row[0] for row in rows["choice"]}):
        chosen = [row for row in rows["choice"] if row[0] == noise]
        near, agree = sum(abs(row[2] - 10) <= 1 for row in chosen), [row[3] for row in chosen if row[3] is not None]
        lines.append(
            f"| {noise:.0%} | {', '.join(str(row[2]) for row in chosen)} | {near} of {len(chosen)} | "
            f"{sum(agree)} of {len(agree)} | {', '.join(str(row[4]) for row in chosen)} |"
        )
    lines += ["", "## Real data", "", "| data | k | component | records | found | match | 95% | features by lift |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for data, k, number, support, found, match, low, high, features in (row for some in rows["real"] for row in some):
        values = f"{found:.0%} | {match:.2f} | {low:.2f} to {high:.2f} | {features} |"
        lines.append(f"| {data} | {k} | {number} | {support} | {values}")
    told = f"Processor time for 10000 x 1000: a default fit, and {REFITS} refits. Limit: {COST_BAR:g} fits."
    lines += ["", "## Cost", "", told, ""]
    lines += [f"| data | k | default fit, s | {REFITS} refits, s | ratio | |", "|---|---|---|---|---|---|"]
    for data, k, fit, refits in rows["cost"]:
        met = "met" if refits <= COST_BAR * fit else "**missed**"
        lines.append(f"| {data} | {k} | {fit:.1f} | {refits:.1f} | {refits / fit:.1f} | {met} |")
    return "\n".join(lines) + "\n"


def missing() -> list[str]:
    """Say which rows of the parts are not measured."""
    absent = {
        part: [", ".join(map(str, arguments)) for arguments in wanted if CELLS.get((part, *arguments)) is None]
        for part, (_, wanted) in PARTS.items()
    }
    return [f"- not measured yet: {part}: {'; '.join(rows)}" for part, rows in absent.items() if rows]


def _found_row(row: list[Any], met: bool) -> str:
    data, k, low, high = row
    return f"| {data} | {k} | {low:.2f} | {high:.2f} | {'met' if met else '**missed**'} |"


def main() -> None:
    """Measure parts, keep them, and write the page."""
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--anew", action="store_true", help="measure also what is kept")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in [] if options.show else options.parts or PARTS:
        measure, wanted = PARTS[part]
        for arguments in wanted:
            if CELLS.get((part, *arguments)) and not options.anew:
                continue
            row = measure(*arguments)
            print(part, row, flush=True)
            known = facts()
            found = {
                "row": row,
                "date": known["date"],
                "version": known["versions"].split(",")[0].removeprefix("felb "),
            }
            CELLS.put((part, *arguments), found)
    write_page(TABLE, shown())


if __name__ == "__main__":
    main()
