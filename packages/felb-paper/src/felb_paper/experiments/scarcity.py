"""Scarce data: the same rows over more and more clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb_paper.cells import FELB, FELB_MU
from felb_paper.experiments.scaling import QUICK_METHODS, SMALL, ScalingStudy, cheaper, counts, lowest_rmsd, pairwise
from felb_paper.study import claim, holds_if_any

if TYPE_CHECKING:
    from felb_paper.study import Claim, StudyRecord


@dataclass(frozen=True, slots=True)
class ScarcityStudy(ScalingStudy):
    """2¹⁶ rows split over 2² to 2⁹ clients. How wide the data is, and its noise, the paper leaves open."""

    name = "scarcity"
    title = "Scarce data"
    question = "How does quality change if the same rows are split among more and more clients?"

    rows: int = 2**16

    @property
    def rows_in_words(self) -> str:
        """How many rows there are, for the note below figures."""
        return f"{self.rows} × {self.columns} in all"

    def rows_of(self, clients: int) -> int:  # noqa: ARG002
        """Return the rows of all clients together, which are the same for any number of them."""
        return self.rows

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold FELB-MU against the others, and times against each other."""
        places = counts(record)
        found = [lowest_rmsd(record, "FELB-MU has a lower RMSD than every post-hoc method", (FELB_MU,))]
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
QUICK = ScarcityStudy(**SMALL, rows=2**11, methods=QUICK_METHODS)
