"""Compare runs over real processes with their simulation: every kind of method, three, five and twenty sites.

A cell is one run over a relay, vaults and couriers of this machine, on planted rows. It holds if the run ends with
exactly the components, and the tasks of all rounds, of the local engine under the same disclosure rules on the same
rows.

    python benchmarks/federation_cells.py              all cells that were not played yet; writes FEDERATION_CELLS.md
    python benchmarks/federation_cells.py --sites 3    those of three sites
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from common import MEASURED, Cells, exit_if_missed, listed, make_parser, write_page

from felb.data import BinaryMatrix, partition, planted
from felb.data.partition import split
from felb.engines.local import run as simulate
from felb.privacy.disclosure import Disclosure
from felb_sites.coordinator.local import LocalFederation
from felb_sites.coordinator.run import run_deployed
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.run_plan import Plan
from felb_sites.terms import Terms

PAGE = Path(__file__).with_name("FEDERATION_CELLS.md")
POLICY = {"auto_approve": ["all"], "require_privacy": False, "min_rows": 1}
EQUAL = "equal"


@dataclass(frozen=True)
class Cell:
    """One run: how many sites, the method, rows, features and components, whether sums are masked, which rules."""

    sites: int
    method: str
    n: int
    m: int
    k: int
    masked: bool
    rules: str = "none"
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str | int, ...]:
        """What is stored with the verdict."""
        sums = "masked" if self.masked else "clear"
        return self.sites, self.method, self.n, self.m, self.k, sums, self.rules


FAST, FEW = {"effort": "fast"}, {"max_iter": 5}
CELLS = (
    Cell(3, "bmf", 1_200, 12, 3, True, "strict"),
    Cell(3, "bmf", 20_000, 40, 10, True, "strict", FAST),
    Cell(3, "bmf", 60, 12, 2, False, "none", FAST),
    Cell(3, "felb", 2_000, 200, 8, True, "none", FEW),
    Cell(3, "felb-mu", 6_000, 50, 10, False, "strict", FEW),
    Cell(3, "fednmf", 300, 100, 5, True, "none", FEW),
    Cell(3, "fedprox", 300, 30, 4, False, "none", FEW),
    Cell(3, "scaffold", 1_000, 2_000, 50, True, "none", FEW),
    Cell(3, "proxskip", 240, 24, 3, False, "none", FEW),
    Cell(3, "asso+vote", 300, 20, 3, True),
    Cell(3, "grecond+aligned-vote", 300, 20, 3, False),
    Cell(5, "bmf", 5_000, 30, 5, True, "strict", FAST),
    Cell(5, "felb", 20_000, 200, 20, False, "none", FEW),
    Cell(5, "felb-mu", 1_000, 40, 4, True, "none", FEW),
    Cell(5, "fednmf", 500, 60, 6, False, "none", FEW),
    Cell(5, "fedprox", 500, 30, 4, True, "none", FEW),
    Cell(5, "scaffold", 500, 24, 3, False, "none", FEW),
    Cell(5, "proxskip", 500, 24, 3, True, "none", FEW),
    Cell(5, "elbmf+mean", 500, 24, 3, True),
    Cell(5, "mebf+aligned-or", 500, 24, 3, False),
    Cell(20, "bmf", 20_000, 24, 3, True, "strict", FAST),
    Cell(20, "felb", 1_000, 100, 4, False, "none", FEW),
    Cell(20, "felb-mu", 2_000, 40, 4, True, "none", FEW),
    Cell(20, "scaffold", 400, 24, 3, True, "none", FEW),
)


def main() -> None:
    """Play the cells that are missing and write the page."""
    options = make_parser(__doc__)
    options.add_argument("--sites", type=int, nargs="*", default=sorted({cell.sites for cell in CELLS}))
    given = options.parse_args()
    stored = Cells(MEASURED / "federation_cells.json")
    for sites in given.sites:
        missing = [cell for cell in CELLS if cell.sites == sites and stored.get(cell.key) is None]
        if missing:
            play_all(missing, stored)
    played = [(cell, found) for cell in CELLS if (found := stored.get(cell.key)) is not None]
    lines = [
        "# Runs over processes against their simulation",
        "",
        "Printed by `python benchmarks/federation_cells.py`: a relay, vaults and couriers on one machine, TLS on",
        "loopback, planted rows with 5% noise. A cell is equal if the components of the run, and the tasks of its",
        "rounds, are exactly those of the local engine under the same disclosure rules on the same rows. Seconds",
        "include the proposal; other work on the machine counts in.",
        "",
        "| sites | method | rows | features | components | sums | rules | verdict | rounds | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {' | '.join(map(str, cell.key))} | {found['verdict']} | {found['rounds']} | {found['seconds']} |"
            for cell, found in played
        ),
        "",
        f"{sum(found['verdict'] == EQUAL for _, found in played)} of {len(CELLS)} cells are equal, "
        f"{len(CELLS) - len(played)} were not played yet.",
        "",
        *listed(load=False),
    ]
    write_page(PAGE, "\n".join(lines))
    exit_if_missed([str(cell.key) for cell, found in played if found["verdict"] != EQUAL])


def make_shards(cell: Cell) -> dict[str, BinaryMatrix]:
    """Return planted rows, split evenly among the sites."""
    names = np.array([f"site-{number + 1:02}" for number in range(cell.sites)])
    data = planted(cell.n, cell.m, cell.k, noise=0.05, seed=cell.n + cell.m)
    return split(data.A, names[partition.even(cell.n, cell.sites)])[0]


def play_all(cells: list[Cell], stored: Cells) -> None:
    """Play cells of one number of sites over one federation."""
    rows = make_shards(cells[0])
    with tempfile.TemporaryDirectory() as scratch, LocalFederation(Path(scratch) / "f", rows, policy=POLICY) as local:
        for number, cell in enumerate(cells):
            found = play(local, cell, f"cell-{number}")
            stored.put(cell.key, found)
            print(*cell.key, *found.values(), flush=True)


def play(local: LocalFederation, cell: Cell, name: str) -> dict[str, Any]:
    """Play one cell, and compare it with its simulation."""
    shards = make_shards(cell)
    local.load(shards)
    for site in local.sites.values():
        site.configure(policy={"disclosure": cell.rules})
    plan = Plan(name, cell.method, cell.k, cell.m, cell.parameters)
    terms = Terms(quorum=cell.sites)
    run = DeployedRun(plan, terms, tuple(shards), None, disclosure=cell.rules, secure=cell.masked)
    begun = time.monotonic()
    result = run_deployed(local.federation, run, local.folder / name, patience=300)
    seconds = time.monotonic() - begun
    simulated = simulate(plan.algorithm(), shards, seed=plan.seed, disclosure=Disclosure.of(cell.rules))
    expected = simulated.outcome.components.copy()
    expected[list(result.withheld)] = (
        False  # of fewer records than the rules publish, as `felb simulate` withholds them
    )
    assert result.withheld == Disclosure.of(cell.rules).withheld([int(n) for n in simulated.outcome.supports])
    same = np.array_equal(result.outcome.components, expected) and [row["task"] for row in result.history] == [
        row["task"] for row in simulated.history
    ]
    return {"verdict": EQUAL if same else "**differs**", "rounds": len(result.history), "seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
