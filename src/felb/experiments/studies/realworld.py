"""Real data: the paper's tables beside what is measured here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from felb.datasets.catalogue import find
from felb.experiments.cells import Cell, MethodUse, SourceData
from felb.experiments.evidence import claim, holds_if_any
from felb.experiments.sources import at_hand
from felb.experiments.spec import (
    ELBMF,
    F1,
    FELB,
    FELB_MU,
    OURS,
    QUICK_ITERATIONS,
    SECONDS,
    ZHANG,
    Study,
    all_methods,
    labels,
)  # fmt: skip
from felb.experiments.studies.published import SHIPPED_COMPONENTS, TABLE
from felb.results.study import Metric, View

if TYPE_CHECKING:
    from felb.results.study import Claim, StudyRecord

ROWS_A_CLIENT = 10
"""Fewer clients than asked for where each would have fewer rows than this."""

NEAR = 0.1
"""Relative difference up to which a measured F1 or RMSD agrees with the published one."""


@dataclass(frozen=True, slots=True)
class RealworldStudy(Study):
    """Fifty clients, ten local steps: the paper's data as far as it is at hand, and the data that comes with felb.

    Parameters
    ----------
    clients : at most; data with few rows has fewer
    sources : names of data sets; None for those that come with felb and those in the data folder
    rows : take that many rows of each, drawn by the seed; None for all
    """

    name = "realworld"
    title = "Real data"
    question = "How well do the methods reconstruct real data over fifty clients?"

    clients: int = 50
    sources: tuple[str, ...] | None = None
    rows: int | None = None
    methods: tuple[MethodUse, ...] = field(default_factory=all_methods)

    def names(self) -> list[str]:
        """Names of the data sets to run: those that come with felb first, then the paper's that are at hand."""
        if self.sources is not None:
            return list(self.sources)
        here = at_hand()
        return [*SHIPPED_COMPONENTS, *(published.name for published in TABLE if published.name in here)]

    def cells(self) -> tuple[Cell, ...]:
        """One for each trial, data set and method."""
        components = {**SHIPPED_COMPONENTS, **{published.name: published.components for published in TABLE}}
        return tuple(
            Cell(use, SourceData(name, components[name], self.rows), self.clients_of(name), name, trial)
            for trial in range(self.trials)
            for name in self.names()
            for use in self.methods
        )

    def clients_of(self, name: str) -> int:
        """Return over how many clients a data set is dealt out."""
        rows = find(name).shape[0]
        rows = rows if self.rows is None else min(rows, self.rows)
        return max(2, min(self.clients, rows // ROWS_A_CLIENT))

    def view(self) -> View:
        """Both tables, published figures beside measured ones."""
        note = (
            f"At most {self.clients} clients, and no more than one for ten rows; ten local steps a round; post-hoc "
            "methods by majority vote. RMSD in the unit of the paper's table, 50·√(share of wrong cells)."
            + ("" if self.rows is None else f" At most {self.rows} rows of each data set, drawn at random.")
            + " Data of the paper that is not at hand is not run: `felb data info NAME` says where to get it."
        )
        published = {
            metric: {row.name: row.table(key) for row in TABLE}
            for metric, key in (("f1", "f1"), ("rmsd_table", "rmsd"))
        }
        metrics = (F1, Metric("rmsd_table", "RMSD (table unit)", "low"), SECONDS)
        return View("points", "data", metrics, labels(self.methods), scale="names", note=note, published=published)

    def claims(self, record: StudyRecord) -> list[Claim]:
        """Rank the methods on each data set; compare with the published figures where there are any."""
        ranked = {str(place): _ranks(record, str(place)) for place in record.places()}
        ranked = {place: ranks for place, ranks in ranked.items() if FELB in ranks and FELB_MU in ranks}
        top = [place for place, ranks in ranked.items() if min(ranks[FELB], ranks[FELB_MU]) == 1]
        both = [place for place, ranks in ranked.items() if max(ranks[FELB], ranks[FELB_MU]) <= 2]
        told = "; ".join(f"{place}: FELB {r[FELB]}, FELB-MU {r[FELB_MU]} of {len(r)}" for place, r in ranked.items())
        empty = {
            (str(place), method): mean
            for place in record.places()
            for method in (ZHANG, ELBMF)
            if (mean := record.mean("f1", method, place)) is not None
        }
        near, compared = _near_published(record)
        return [
            claim(
                "FELB and FELB-MU are the best or second best of the seven methods (F1) on every data set",
                holds_if_any(ranked, len(both) == len(ranked)),
                f"both on {len(both)}, one of them first on {len(top)} of {len(ranked)} data sets. Ranks: {told}",
            ),
            claim(
                "ELBMF and Zhang by vote end in components without consensus: F1 near 0",
                holds_if_any(empty, all(value < 0.05 for value in empty.values())),
                ", ".join(f"{method} on {place} {value:.3f}" for (place, method), value in empty.items()),
            ),
            claim(
                "Measured F1 and RMSD agree with the published tables (within a tenth)",
                None if not compared else len(near) == len(compared),
                f"{len(near)} of {len(compared)} figures" if compared else "none of the paper's data is at hand",
            ),
        ]


def _ranks(record: StudyRecord, place: str) -> dict[str, int]:
    """Rank the seven methods of the paper by F1; equal means share a rank."""
    means = {
        method: mean
        for method in record.methods()
        if method != OURS and (mean := record.mean("f1", method, place)) is not None
    }
    return {method: 1 + sum(other > mean for other in means.values()) for method, mean in means.items()}


def _near_published(record: StudyRecord) -> tuple[list[str], list[str]]:
    near, compared = [], []
    for metric, rows in record.view.published.items():
        for place in record.places():
            for method, published in rows.get(str(place), {}).items():
                measured = record.mean(metric, method, place)
                if published is None or measured is None:
                    continue
                compared.append(f"{place} {method}")
                if abs(measured - published) <= NEAR * max(published, NEAR):
                    near.append(f"{place} {method}")
    return near, compared


FULL = RealworldStudy()
QUICK = RealworldStudy(
    form="quick",
    trials=3,
    time_limit=60.0,
    clients=10,
    rows=600,
    methods=all_methods(iterations=QUICK_ITERATIONS),
    sources=tuple(SHIPPED_COMPONENTS),
)
