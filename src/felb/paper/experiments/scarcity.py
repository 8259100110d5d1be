"""Scarce data: the same rows over more and more clients."""

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


@dataclass(frozen=True, slots=True)
class ScarcityStudy(Study):
    """2¹⁶ rows split over 2² to 2⁹ clients. How wide the data is, and its noise, the paper leaves open."""

    name = "scarcity"
    title = "Scarce data"
    question = "How do methods stand the same rows being split among more and more clients?"

    rows: int = 2**16
    columns: int = 200
    components: int = 10
    noise: float = 0.05
    clients: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512)
    methods: tuple[MethodUse, ...] = all_methods()

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, number of clients and method."""
        data = PlantedData(self.rows, self.columns, self.components, noise=self.noise)
        return cells_over_clients(self.clients, self.methods, trials=self.trials, data=lambda _: data)

    def view(self) -> View:
        """Three figures over the number of clients."""
        note = (
            f"{self.rows} × {self.columns} in all, {self.components} planted tiles, {self.noise:.0%} of the cells "
            "flipped; post-hoc methods by majority vote."
        )
        return View("lines", "clients", (RMSD, F1_STAR, SECONDS), labels(self.methods), scale="log2", note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold FELB-MU against the others, and times against each other."""
        places, others = counts(record), rivals(record)
        won, seen = beats_at(record, "rmsd", (FELB_MU,), others, high=False, places=places)
        numbers = shares(won, seen, "numbers of clients")
        if seen:
            numbers += f"; at {seen[-1]:g} clients: {listed(record, 'rmsd', [FELB, FELB_MU, *others], seen[-1])}"
        found = [
            claim(
                "FELB-MU has a lower RMSD than every post-hoc method",
                holds_if_any(seen, len(won) == len(seen)),
                numbers,
            )
        ]
        many = places[len(places) // 2 :]
        better = [place for place in many if _ratio(record, "rmsd", place) < 1]
        found.append(
            claim(
                "With many clients FELB-MU has a lower RMSD than FELB",
                holds_if_any(many, len(better) == len(many)),
                pairwise(record, "rmsd", places),
            )
        )
        faster = [place for place in places if _ratio(record, "seconds_per_client", place) <= 0.9]
        found.append(
            claim(
                "FELB-MU is notably faster than FELB (by a tenth or more)",
                holds_if_any(places, 2 * len(faster) > len(places)),
                pairwise(record, "seconds_per_client", places),
            )
        )
        return [*found, cheaper(record, places)]


def _ratio(record: StudyRecord, metric: str, place: float) -> float:
    """Return the mean of FELB-MU over that of FELB, at a place where both have figures."""
    felb, mu = record.mean(metric, FELB, place), record.mean(metric, FELB_MU, place)
    return 1.0 if not felb or mu is None else mu / felb


FULL = ScarcityStudy()
QUICK = ScarcityStudy(
    form="quick",
    trials=3,
    time_limit=60.0,
    rows=2**11,
    columns=100,
    components=5,
    clients=(4, 8, 16, 32),
    methods=all_methods(iterations=QUICK_ITERATIONS),
)
