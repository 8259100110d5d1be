"""How often clients synchronise: FELB against FELB-MU on real data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb_paper.cells import F1, FELB, FELB_MU, RMSD, Cell, SourceData, Study, federated_methods
from felb_paper.experiments.realworld import SHIPPED_COMPONENTS, RealworldStudy
from felb_paper.study import View, claim, holds_if_any

if TYPE_CHECKING:
    from felb_paper.study import Claim, StudyRecord

REGIMES = {1: "every step", 10: "every 10 steps", 50: "every 50 steps"}


@dataclass(frozen=True, slots=True)
class SyncStudy(Study):
    """1, 10 or 50 local steps between synchronisations, on the data of the study of real data."""

    name = "sync"
    title = "Frequency of synchronisation"
    question = "Is FELB-MU better than FELB when clients rarely synchronise?"
    reads_data = True

    clients: int = 50
    sources: tuple[str, ...] | None = None
    rows: int | None = None

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, regime, data set and method."""
        # The cells of that study say which data there is, and over how many clients.
        data = {
            cell.place: (cell.data, cell.clients)
            for cell in RealworldStudy(
                trials=1, clients=self.clients, sources=self.sources, rows=self.rows, data=self.data
            ).cells()
        }
        return tuple(
            Cell(use, source, clients, place, trial, panel=REGIMES[steps])
            for trial in range(self.trials)
            for steps in REGIMES
            for place, (source, clients) in data.items()
            if isinstance(source, SourceData)
            for use in federated_methods(local_steps=steps)
        )

    def view(self) -> View:
        """RMSD and F1 of both methods on each data set, a panel for each regime."""
        note = (
            f"At most {self.clients} clients, and no more than one for ten rows, at most 100 rounds."
            + ("" if self.rows is None else f" At most {self.rows} rows of each data set, drawn at random.")
            + " The relative RMSD of a data set is RMSD(FELB) / RMSD(FELB-MU): above 1, FELB-MU is better."
        )
        return View(
            "points",
            "data",
            (RMSD, F1),
            (FELB, FELB_MU),
            panels=tuple(REGIMES.values()),
            scale="names",
            note=note,
            ratio=("rmsd", FELB, FELB_MU),
        )

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare relative RMSDs over the regimes."""
        ratios = {panel: relative(record, panel) for panel in REGIMES.values()}
        means = {panel: sum(found.values()) / len(found) for panel, found in ratios.items() if found}
        often, sometimes, rarely = REGIMES.values()
        told = "mean RMSD(FELB)/RMSD(FELB-MU): " + ", ".join(f"{panel} {mean:.4f}" for panel, mean in means.items())
        whole = len(means) == len(REGIMES)
        better = [name for name, ratio in ratios[rarely].items() if ratio > 1]
        return [
            claim(
                "With rare synchronisation FELB-MU has the lower RMSD",
                holds_if_any(ratios[rarely], 2 * len(better) > len(ratios[rarely]) and means.get(rarely, 0) > 1),
                f"on {len(better)} of {len(ratios[rarely])} data sets; {told}",
            ),
            claim(
                "The more often clients synchronise, the smaller the difference",
                None if not whole else abs(means[often] - 1) <= abs(means[sometimes] - 1) <= abs(means[rarely] - 1),
                told,
            ),
            claim(
                "With frequent and occasional synchronisation both perform alike (within 2%)",
                None if not whole else max(abs(means[often] - 1), abs(means[sometimes] - 1)) <= 0.02,
                told,
            ),
        ]


def relative(record: StudyRecord, panel: str) -> dict[str, float]:
    """Return RMSD(FELB) / RMSD(FELB-MU) of each data set."""
    found = {}
    for place in record.places(panel):
        felb, mu = (record.mean("rmsd", method, place, panel) for method in (FELB, FELB_MU))
        if felb is not None and mu:
            found[str(place)] = felb / mu
    return found


FULL = SyncStudy()
QUICK = SyncStudy(form="quick", trials=3, time_limit=90.0, clients=5, rows=400, sources=tuple(SHIPPED_COMPONENTS))
