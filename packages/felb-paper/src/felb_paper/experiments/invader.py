"""The toy of the introduction: one picture at five clients, Asso with logical or against FELB."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from felb_paper.cells import (
    F1_STAR,
    FELB,
    FELB_MU,
    OURS,
    Cell,
    InvaderData,
    MethodUse,
    Study,
    federated_methods,
    labels,
    post_hoc_methods,
)
from felb_paper.study import Metric, View, claim, listed

if TYPE_CHECKING:
    from felb_paper.study import Claim, StudyRecord

ASSO_OR = "Asso+or"
PLACE = "aggregated"
NEARLY_PERFECT = 0.95


def invader_methods() -> tuple[MethodUse, ...]:
    """Return Asso by logical or, FELB, and the others beside them."""
    asso = post_hoc_methods("or")[0]
    return (MethodUse(ASSO_OR, asso.method, asso.parameters), *federated_methods(), MethodUse(OURS, "bmf"))


@dataclass(frozen=True, slots=True)
class InvaderStudy(Study):
    """A picture with additive noise at each of five clients."""

    name = "invader"
    title = "A picture at five clients"
    question = "How well do the methods recover a picture from the noisy copies of five clients?"

    scale: int = 5
    components: int = 8
    noise: float = 0.1
    clients: int = 5

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial and method."""
        data = InvaderData(self.scale, self.components, self.noise)
        return tuple(
            Cell(use, data, self.clients, PLACE, trial, watch="pictures")
            for trial, use in product(range(self.trials), invader_methods())
        )

    def view(self) -> View:
        """Pictures of Asso+or and FELB, and how near each comes to the picture."""
        metrics = (
            F1_STAR,
            Metric("f1_star_local", "F1* of clients alone", "high"),
            Metric("precision", "precision", "high"),
            Metric("recall", "recall", "high"),
        )
        note = (
            f"Each of {self.clients} clients holds the picture with {self.noise:.0%} of the white cells turned black, "
            f"{self.components} components. Below it are the results of the method on the client's rows alone and on "
            "the rows of all clients. The first column shows the cells that are black at most clients. F1*, precision "
            "and recall compare with the picture without noise."
        )
        return View("pictures", "result", metrics, labels(invader_methods()), scale="names", note=note)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Compare how near the two come to the picture."""
        asso, felb = (record.mean("f1_star", method, PLACE) for method in (ASSO_OR, FELB))
        alone = record.mean("f1_star_local", ASSO_OR, PLACE)
        numbers = "F1*: " + listed(record, "f1_star", [ASSO_OR, FELB, FELB_MU, OURS], PLACE)
        return [
            claim(
                "FELB reconstructs the picture nearly perfectly (F1* of 0.95 or more)",
                None if felb is None else felb >= NEARLY_PERFECT,
                numbers,
            ),
            claim(
                "Asso with logical or does much worse (by 0.1 or more)",
                None if felb is None or asso is None else asso < felb - 0.1,
                numbers,
            ),
            claim(
                "Aggregation by logical or spoils what Asso finds alone",
                None if asso is None or alone is None else asso < alone,
                "F1* alone {}, aggregated {}".format(*("–" if x is None else f"{x:.3f}" for x in (alone, asso))),
            ),
        ]


INVADER = InvaderStudy(), InvaderStudy(form="quick", trials=5, time_limit=60.0)
