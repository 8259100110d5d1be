"""Scarce and abundant data: planted data over more and more clients."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from felb_paper.cells import (
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
    from collections.abc import Sequence

    from felb_paper.study import Claim, StudyRecord

SMALL: dict[str, Any] = {
    "form": "quick",
    "trials": 3,
    "time_limit": 60.0,
    "columns": 100,
    "components": 5,
    "clients": (4, 8, 16, 32),
}
"""Of the quick forms."""


@dataclass(frozen=True, slots=True)
class ManyClients(Study):
    """Planted tiles, over 2² to 2⁹ clients. How wide the data is, and its noise, the paper leaves open."""

    columns: int = 200
    components: int = 10
    noise: float = 0.05
    clients: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512)

    @property
    @abstractmethod
    def rows_in_words(self) -> str:
        """How many rows there are, for the note below figures."""

    @abstractmethod
    def rows_of(self, clients: int) -> int:
        """Return the rows of so many clients together."""

    def planted(self, clients: int) -> PlantedData:
        """Return what so many clients share."""
        return PlantedData(self.rows_of(clients), self.columns, self.components, noise=self.noise)

    @property
    def note(self) -> str:
        """The data in words."""
        return f"{self.rows_in_words}, {self.components} planted tiles, {self.noise:.0%} of the cells flipped"


@dataclass(frozen=True, slots=True)
class ScalingStudy(ManyClients):
    """All methods over the number of clients."""

    methods: tuple[MethodUse, ...] = all_methods()

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, number of clients and method."""
        return tuple(
            Cell(use, self.planted(count), count, float(count), trial)
            for trial in range(self.trials)
            for count in self.clients
            for use in self.methods
        )

    def view(self) -> View:
        """Three figures over the number of clients."""
        note = f"{self.note}. Post-hoc methods aggregate by majority vote."
        return View("lines", "clients", (RMSD, F1_STAR, SECONDS), labels(self.methods), scale="log2", note=note)


QUICK_METHODS = all_methods(iterations=QUICK_ITERATIONS)


def lowest_rmsd(record: StudyRecord, says: str, winners: tuple[str, ...]) -> Claim:
    """Hold some methods' RMSD against that of all post-hoc methods."""
    places, others = counts(record), rivals(record)
    won, seen = beats_at(record, "rmsd", winners, others, high=False, places=places)
    numbers = shares(won, seen, "numbers of clients")
    if seen:
        numbers += f"; at {seen[-1]:g} clients: {listed(record, 'rmsd', [FELB, FELB_MU, *others], seen[-1])}"
    return claim(says, holds_if_any(seen, len(won) == len(seen)), numbers)


def rivals(record: StudyRecord) -> list[str]:
    """Return the post-hoc methods of a record."""
    return [method for method in record.methods() if method not in (FELB, FELB_MU, OURS)]


def counts(record: StudyRecord) -> list[float]:
    """Return the numbers of clients where FELB and FELB-MU both have figures."""
    return [
        float(place)
        for place in record.places()
        if all(record.mean("rmsd", method, place) is not None for method in (FELB, FELB_MU))
    ]


def pairwise(record: StudyRecord, metric: str, places: Sequence[float]) -> str:
    """Say FELB / FELB-MU at each number of clients."""
    parts = []
    for place in places:
        felb, mu = (record.mean(metric, method, place) for method in (FELB, FELB_MU))
        if felb is not None and mu is not None:
            parts.append(f"{place:.0f} clients {felb:.3g} / {mu:.3g}")
    return "FELB / FELB-MU: " + ", ".join(parts)


def cheaper(record: StudyRecord, places: Sequence[float]) -> Claim:
    """Hold the time of post-hoc methods against that of FELB and FELB-MU."""
    pairs = [
        (place, rival, other, min(ours))
        for place in places
        for rival in rivals(record)
        if (other := record.mean("seconds_per_client", rival, place)) is not None
        and (ours := [x for m in (FELB, FELB_MU) if (x := record.mean("seconds_per_client", m, place)) is not None])
    ]
    won = [pair for pair in pairs if pair[2] < pair[3]]
    slow = sorted({pair[1] for pair in pairs if pair not in won})
    numbers = f"in {len(won)} of {len(pairs)} comparisons" + (f"; slower somewhere: {', '.join(slow)}" if slow else "")
    holds = None if not pairs else len(won) == len(pairs)
    return claim("Post-hoc methods take less time per client, as clients work only once", holds, numbers)
