"""Robustness against noise: ten clients, cells flipped at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb_paper.cells import (  # fmt: skip
    F1,
    F1_STAR,
    FELB,
    FELB_MU,
    OURS,
    QUICK_ITERATIONS,
    RMSD,
    SECONDS,
    Cell,
    MethodUse,
    PlantedData,
    Study,
    all_methods,
    labels,
)
from felb_paper.study import View, beats_at, claim, holds_if_any, listed, shares

if TYPE_CHECKING:
    from felb_paper.study import Claim, StudyRecord

HIGH = 0.3
"""From here on, noise is called high."""


@dataclass(frozen=True, slots=True)
class NoiseStudy(Study):
    """Planted tiles, each cell flipped with a probability of 0 to ½."""

    name = "noise"
    title = "Robustness against noise"
    question = "How well is a planted signal found if more and more matrix cells are flipped?"

    rows: int = 2000
    columns: int = 200
    components: int = 10
    clients: int = 10
    levels: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
    methods: tuple[MethodUse, ...] = all_methods()

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, level and method."""
        return tuple(
            Cell(use, PlantedData(self.rows, self.columns, self.components, noise=level), self.clients, level, trial)
            for trial in range(self.trials)
            for level in self.levels
            for use in self.methods
        )

    def view(self) -> View:
        """Four figures over the level."""
        note = (
            f"{self.rows} × {self.columns}, {self.components} planted tiles, {self.clients} clients. Post-hoc "
            "methods aggregate by majority vote; Asso uses the published threshold of 1 (a grid of thresholds gives "
            "far better results). F1 compares with the noisy data, F1* with the planted signal."
        )
        return View(
            "lines", "flipped cells", (RMSD, F1, F1_STAR, SECONDS), labels(self.methods), percent=True, note=note
        )

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold the order of the methods against the paper's."""
        places = [float(place) for place in record.places()]
        felb = (FELB, FELB_MU)
        rivals = [method for method in record.methods() if method not in (*felb, OURS)]
        found = []
        for says, metric, high, chosen in (
            ("FELB and FELB-MU find the signal better (F1*) than every post-hoc method under moderate noise",
             "f1_star", True, [place for place in places if place < HIGH]),
            ("They still do under high noise, from 30% on", "f1_star", True,
             [place for place in places if HIGH <= place < 0.5]),
            ("They reconstruct the data best (lowest RMSD) at every level of noise", "rmsd", False,
             [place for place in places if place < 0.5]),
            ("They agree best with the data (F1) at every level of noise", "f1", True,
             [place for place in places if place < 0.5]),
        ):  # fmt: skip
            won, seen = beats_at(record, metric, felb, rivals, high=high, places=chosen)
            numbers = shares(won, seen, "noise levels", percent=True)
            if seen:
                last = seen[-1]
                numbers += f"; at {float(last):.0%}: {listed(record, metric, [*felb, *rivals], last)}"
            found.append(claim(says, holds_if_any(seen, len(won) == len(seen)), numbers))
        slower = [
            place
            for place in places
            if all(
                (other := record.mean("seconds_per_client", rival, place)) is not None
                and (mine := record.mean("seconds_per_client", FELB, place)) is not None
                and other < mine
                for rival in rivals
            )
        ]
        timed = [place for place in places if record.mean("seconds_per_client", FELB, place) is not None]
        numbers = shares(slower, timed, "noise levels", percent=True)
        if timed:
            numbers += (
                f"; seconds at {timed[0]:.0%}: {listed(record, 'seconds_per_client', [*felb, *rivals], timed[0])}"
            )
        found.append(
            claim("Post-hoc methods take less time than FELB", holds_if_any(timed, len(slower) == len(timed)), numbers)
        )
        return found


FULL = NoiseStudy()
QUICK = NoiseStudy(
    form="quick",
    trials=3,
    time_limit=60.0,
    rows=1000,
    columns=100,
    components=5,
    levels=(0.0, 0.1, 0.2, 0.3, 0.4),
    methods=all_methods(iterations=QUICK_ITERATIONS),
)
