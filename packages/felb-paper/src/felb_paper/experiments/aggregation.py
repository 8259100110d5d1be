"""How to aggregate what clients found alone: rounded mean, majority vote, logical or."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb_paper.cells import F1_STAR, QUICK_ITERATIONS, RMSD, Cell, labels, post_hoc_methods
from felb_paper.experiments.scaling import SMALL, ManyClients
from felb_paper.study import View, claim, holds_if_any

if TYPE_CHECKING:
    from felb_paper.study import Claim, StudyRecord

VOTE, MEAN, OR = "majority vote", "rounded mean", "logical or"
WORDS = {VOTE: "vote", MEAN: "mean", OR: "or"}
CLOSE = 0.01
"""Mean difference in RMSD up to which two aggregations are called similar."""


@dataclass(frozen=True, slots=True)
class AggregationStudy(ManyClients):
    """Abundant data, as in the study of that name, for the five methods that clients run alone."""

    name = "aggregation"
    title = "Post-hoc aggregations"
    question = "Which aggregation of local components gives the best reconstruction?"

    rows_per_client: int = 500
    iterations: int = 1000

    @property
    def rows_in_words(self) -> str:
        """How many rows there are, for the note below figures."""
        return f"{self.rows_per_client} rows a client × {self.columns}"

    def rows_of(self, clients: int) -> int:
        """Return the rows of so many clients together."""
        return clients * self.rows_per_client

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, number of clients, aggregation and method."""
        return tuple(
            Cell(use, self.planted(count), count, float(count), trial, panel=panel)
            for trial in range(self.trials)
            for count in self.clients
            for panel, word in WORDS.items()
            for use in post_hoc_methods(word, iterations=self.iterations)
        )

    def view(self) -> View:
        """RMSD over the number of clients, a panel for each aggregation."""
        note = f"{self.note}. If half of the clients have an entry, the vote keeps it and the mean does not."
        return View(
            "lines",
            "clients",
            (RMSD, F1_STAR),
            labels(post_hoc_methods()),
            panels=tuple(WORDS),
            scale="log2",
            note=note,
        )

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare aggregations method by method and count by count."""
        means = {
            (panel, method, place): mean
            for panel in WORDS
            for method in record.methods(panel)
            for place in record.places(panel)
            if (mean := record.mean("rmsd", method, place, panel)) is not None
        }
        pairs = [
            (means[VOTE, method, place], means[MEAN, method, place], means[OR, method, place])
            for panel, method, place in means
            if panel == VOTE and (MEAN, method, place) in means and (OR, method, place) in means
        ]
        gap = sum(abs(vote - mean) for vote, mean, _ in pairs) / max(1, len(pairs))
        average = [sum(column) / max(1, len(pairs)) for column in zip(*pairs, strict=True)] if pairs else [0.0] * 3
        worse = sum(union > max(vote, mean) for vote, mean, union in pairs)
        numbers = f"mean RMSD: vote {average[0]:.3f}, mean {average[1]:.3f}, or {average[2]:.3f}"
        return [
            claim(
                "Rounded mean and majority vote perform alike",
                holds_if_any(pairs, gap <= CLOSE),
                f"mean difference in RMSD {gap:.4f}; {numbers}",
            ),
            claim(
                "Both are clearly better than the logical or",
                holds_if_any(pairs, worse > 0.5 * len(pairs) and average[2] > max(average[:2]) + CLOSE),
                f"or is worse than both in {worse} of {len(pairs)} comparisons; {numbers}",
            ),
        ]


FULL = AggregationStudy()
QUICK = AggregationStudy(**{**SMALL, "clients": (4, 8, 16)}, rows_per_client=200, iterations=QUICK_ITERATIONS)
