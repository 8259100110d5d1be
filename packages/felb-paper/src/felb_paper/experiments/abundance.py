"""Abundant data: every client brings its own rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb_paper.cells import FELB, FELB_MU
from felb_paper.experiments.scaling import QUICK_METHODS, SMALL, ScalingStudy, cheaper, counts, lowest_rmsd, pairwise
from felb_paper.study import claim, holds_if_any

if TYPE_CHECKING:
    from felb_paper.study import Claim, StudyRecord

SIMILAR = 2.0
"""Times within this factor are called comparable."""


@dataclass(frozen=True, slots=True)
class AbundanceStudy(ScalingStudy):
    """500 rows a client, 2² to 2⁹ clients."""

    name = "abundance"
    title = "Abundant data"
    question = "How does quality change if every additional client contributes new rows?"

    rows_per_client: int = 500

    @property
    def rows_in_words(self) -> str:
        """How many rows there are, for the note below figures."""
        return f"{self.rows_per_client} rows a client × {self.columns}"

    def rows_of(self, clients: int) -> int:
        """Return the rows of so many clients together."""
        return clients * self.rows_per_client

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Hold the order of the methods, and times, against the paper's."""
        places = counts(record)
        found = [lowest_rmsd(record, "FELB and FELB-MU have a lower RMSD than every post-hoc method", (FELB, FELB_MU))]
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
QUICK = AbundanceStudy(**SMALL, rows_per_client=200, methods=QUICK_METHODS)
