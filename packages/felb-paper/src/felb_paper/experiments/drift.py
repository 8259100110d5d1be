"""Client drift: more and more local steps between two synchronisations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb_paper.cells import F1, F1_STAR, FELB, FELB_MU, Cell, PlantedData, Study, federated_methods
from felb_paper.study import Metric, View, claim, holds_if_any

if TYPE_CHECKING:
    from felb_paper.study import Claim, StudyRecord

FLAT_FROM, FLAT, HIGH = 25.0, 0.25, 0.8
"""Steps from which the loss is said to be flat; share of the earlier change that is flat; high F1*."""


@dataclass(frozen=True, slots=True)
class DriftStudy(Study):
    """FELB and FELB-MU with 1 to 50 local steps."""

    name = "drift"
    title = "Client drift"
    question = "How do loss and F1* change if clients synchronise less often?"

    rows: int = 2000
    columns: int = 200
    components: int = 10
    noise: float = 0.05
    clients: int = 10
    steps: tuple[int, ...] = (1, 2, 5, 10, 15, 20, 25, 30, 40, 50)

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, number of steps and method."""
        data = PlantedData(self.rows, self.columns, self.components, noise=self.noise)
        return tuple(
            Cell(use, data, self.clients, float(steps), trial)
            for trial in range(self.trials)
            for steps in self.steps
            for use in federated_methods(local_steps=steps)
        )

    def view(self) -> View:
        """Four figures over the number of local steps."""
        metrics = (
            Metric("loss", "loss", "low", digits=0),
            F1,
            F1_STAR,
            Metric("integrality_gap", "integrality gap", "low"),
        )
        note = (
            f"{self.rows} × {self.columns}, {self.components} planted tiles, {self.noise:.0%} of the cells flipped, "
            f"{self.clients} clients, at most 100 rounds. The loss is that of the clients' relaxed factors in "
            "the last round."
        )
        return View("lines", "local steps between synchronisations", metrics, (FELB, FELB_MU), note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare the change of the loss before and after 25 steps, and look at F1*."""
        places = [float(place) for place in record.places()]
        found = []
        for method in (FELB, FELB_MU):
            losses = {place: loss for place in places if (loss := record.mean("loss", method, place)) is not None}
            known = bool(losses) and min(places) in losses and max(places) in losses and FLAT_FROM in losses
            numbers, flat = "", None
            if known:
                before = losses[FLAT_FROM] - losses[min(places)]
                after = losses[max(places)] - losses[FLAT_FROM]
                flat = abs(after) <= FLAT * abs(before)
                numbers = f"loss {losses[min(places)]:.0f} → {losses[FLAT_FROM]:.0f} → {losses[max(places)]:.0f}"
                numbers += f" at {min(places):.0f}, {FLAT_FROM:.0f}, {max(places):.0f} steps"
            found.append(claim(f"{method}: the loss flattens after about 25 local steps", flat, numbers))
            stars = [star for place in places if (star := record.mean("f1_star", method, place)) is not None]
            found.append(
                claim(
                    f"{method}: F1* stays high (0.8 or more) with rare synchronisations",
                    holds_if_any(stars, min(stars, default=0.0) >= HIGH),
                    f"F1* between {min(stars, default=0.0):.3f} and {max(stars, default=0.0):.3f}",
                )
            )
        return found


FULL = DriftStudy()
QUICK = DriftStudy(
    form="quick", trials=3, time_limit=90.0, rows=1000, columns=100, components=5, clients=5, steps=(1, 5, 10, 25, 50)
)
