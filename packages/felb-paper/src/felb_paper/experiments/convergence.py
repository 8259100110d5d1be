"""Convergence: loss, F1 and integrality gap, round by round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb_paper.cells import FELB, FELB_MU, Cell, PlantedData, Study, federated_methods
from felb_paper.study import Metric, View, claim, holds_if_any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from felb_paper.study import Claim, StudyRecord

EARLY, RISE, CLOSED = 25, 0.25, 0.05
"""Rounds that are early; relative rise of the loss that is small; gap that is as good as none."""

USUAL = 100
"""Rounds that the methods play by default."""


@dataclass(frozen=True, slots=True)
class ConvergenceStudy(Study):
    """FELB and FELB-MU on planted data, watched after every round, until they settle."""

    name = "convergence"
    title = "Convergence"
    question = "How do loss, F1 and integrality gap develop over the rounds?"

    rows: int = 2000
    columns: int = 200
    components: int = 10
    noise: float = 0.05
    clients: int = 10
    rounds: int = 300

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial and method."""
        data = PlantedData(self.rows, self.columns, self.components, noise=self.noise)
        return tuple(
            Cell(use, data, self.clients, "rounds", trial, watch="rounds")
            for trial in range(self.trials)
            for use in federated_methods(max_iter=self.rounds)
        )

    def view(self) -> View:
        """Figures over the rounds."""
        metrics = (
            Metric("loss", "loss", "low", digits=0),
            Metric("f1", "F1", "high"),
            Metric("f1_star", "F1*", "high"),
            Metric("integrality_gap", "integrality gap", "low"),
        )
        note = (
            f"{self.rows} × {self.columns}, {self.components} planted tiles, {self.noise:.0%} of the cells flipped, "
            f"{self.clients} clients, ten local steps per round, until V converges or for {self.rounds} rounds. The "
            "loss is that of the clients' relaxed factors, Σ ‖A_i − U_iV_i‖²; F1 is that of the shared components "
            "thresholded at ½ after the round. Tables show the last round."
        )
        return View("rounds", "round", metrics, (FELB, FELB_MU), scale="names", note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Look for the fall, the small rise and the closing gap in every run."""
        found = []
        for method in (FELB, FELB_MU):
            losses = [_numbers(cell.curves.get("loss", ())) for cell in record.done(method)]
            gaps = [_numbers(cell.curves.get("integrality_gap", ())) for cell in record.done(method)]
            losses = [loss for loss in losses if len(loss) > 1]
            gaps = [gap for gap in gaps if gap]
            early = [_fall(loss) for loss in losses]
            rises = [(loss[-1] - min(loss)) / min(loss) for loss in losses]
            mean_early, mean_rise = _mean(early), _mean(rises)
            found += [
                claim(
                    f"{method}: the loss falls fast, within the first {EARLY} rounds",
                    holds_if_any(losses, mean_early >= 0.9),
                    f"{mean_early:.0%} of the whole fall by then, mean of {len(losses)} runs",
                ),
                claim(
                    f"{method}: afterwards it rises only slightly, as factors become Boolean (a quarter at most)",
                    holds_if_any(losses, 0 <= mean_rise <= RISE),
                    f"by {mean_rise:.1%} from its minimum to the end",
                ),
                claim(
                    f"{method}: the integrality gap closes",
                    holds_if_any(gaps, _mean([gap[-1] for gap in gaps]) <= CLOSED),
                    f"from {_at(gaps, 0):.3f} over {_at(gaps, USUAL - 1):.3f} after {USUAL} rounds to "
                    f"{_mean([gap[-1] for gap in gaps]):.3f} at the end, after {_mean([len(gap) for gap in gaps]):.0f}",
                ),
            ]
        return found


def _fall(loss: Sequence[float]) -> float:
    """Return which share of the fall from the first round to the minimum happens early."""
    whole = loss[0] - min(loss)
    return 1.0 if whole <= 0 else (loss[0] - min(loss[: EARLY + 1])) / whole


def _at(curves: Sequence[Sequence[float]], number: int) -> float:
    """Return the mean after a round; a run that ended before stays as it was."""
    return _mean([curve[min(number, len(curve) - 1)] for curve in curves])


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


FULL = ConvergenceStudy()
QUICK = ConvergenceStudy(form="quick", trials=3, time_limit=60.0, rows=1000, columns=100, components=5)
