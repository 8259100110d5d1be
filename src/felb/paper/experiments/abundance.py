"""Abundant data: every client brings its own rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb.paper.claims import beats_at, claim, holds_if_any, listed, shares
from felb.paper.experiment_cells import Cell, MethodUse, PlantedData
from felb.paper.experiment_spec import (
    F1_STAR,
    FELB,
    FELB_MU,
    QUICK_ITERATIONS,
    RMSD,
    SECONDS,
    Study,
    all_methods,
    labels,
)  # fmt: skip
from felb.paper.experiments.scaling import cells_over_clients, cheaper, counts, pairwise, rivals
from felb.paper.study import View

if TYPE_CHECKING:
    from felb.paper.study import Claim, StudyRecord

SIMILAR = 2.0
"""Times within this factor are called comparable."""


@dataclass(frozen=True, slots=True)
class AbundanceStudy(Study):
    """500 rows a client, 2² to 2⁹ clients."""

    name = "abundance"
    title = "Abundant data"
    question = "How do methods use that every further client brings rows of its own?"

    rows_per_client: int = 500
    columns: int = 200
    components: int = 10
    noise: float = 0.05
    clients: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512)
    methods: tuple[MethodUse, ...] = all_methods()

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, number of clients and method."""
        return cells_over_clients(
            self.clients,
            self.methods,
            trials=self.trials,
            data=lambda count: PlantedData(
                count * self.rows_per_client, self.columns, self.components, noise=self.noise
            ),
        )

    def view(self) -> View:
        """Three figures over the number of clients."""
        note = (
            f"{self.rows_per_client} rows a client × {self.columns}, {self.components} planted tiles, {self.noise:.0%} "
            "of the cells flipped; post-hoc methods by majority vote."
        )
        return View("lines", "clients", (RMSD, F1_STAR, SECONDS), labels(self.methods), scale="log2", note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold the order of the methods, and times, against the paper's."""
        places, others = counts(record), rivals(record)
        won, seen = beats_at(record, "rmsd", (FELB, FELB_MU), others, high=False, places=places)
        numbers = shares(won, seen, "numbers of clients")
        if seen:
            numbers += f"; at {seen[-1]:g} clients: {listed(record, 'rmsd', [FELB, FELB_MU, *others], seen[-1])}"
        found = [
            claim(
                "FELB and FELB-MU have a lower RMSD than every post-hoc method",
                holds_if_any(seen, len(won) == len(seen)),
                numbers,
            )
        ]
        many = places[len(places) // 2 :]
        means = [(record.mean("rmsd", FELB, place), record.mean("rmsd", FELB_MU, place)) for place in many]
        found.append(
            claim(
                "With more data FELB has a slightly lower RMSD than FELB-MU",
                holds_if_any(many, all(felb < mu for felb, mu in means if felb is not None and mu is not None)),
                pairwise(record, "rmsd", places),
            )
        )
        ratios = [
            felb / mu
            for place in places
            if (felb := record.mean("seconds_per_client", FELB, place))
            and (mu := record.mean("seconds_per_client", FELB_MU, place))
        ]
        found.append(
            claim(
                "FELB and FELB-MU take comparable time (within a factor of two)",
                holds_if_any(ratios, all(1 / SIMILAR <= ratio <= SIMILAR for ratio in ratios)),
                pairwise(record, "seconds_per_client", places),
            )
        )
        return [*found, cheaper(record, places)]


FULL = AbundanceStudy()
QUICK = AbundanceStudy(
    form="quick",
    trials=3,
    time_limit=60.0,
    rows_per_client=200,
    columns=100,
    components=5,
    clients=(4, 8, 16, 32),
    methods=all_methods(iterations=QUICK_ITERATIONS),
)
