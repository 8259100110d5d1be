"""Labels of records beside components: a heat map, and which labels are enriched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from felb.report import parts
from felb.report.component_parts import MOST_IN_A_MAP, described
from felb.report.page import section
from felb.report.parts import Cell, Column, number, percent, significant

if TYPE_CHECKING:
    from felb.report.evidence import Evidence
    from felb.report.page import Section

LEVEL = 0.05
"""False discovery rate."""
MOST_ROWS = 60


def labels_section(evidence: Evidence) -> Section | None:
    """Return how the labels of records go with components."""
    found = evidence.enrichment
    if found is None:
        return None
    order = [component.number for component in described(evidence)][:MOST_IN_A_MAP]
    shown = np.argsort(-found.totals, kind="stable")[:MOST_IN_A_MAP]
    shares: list[list[float | None]] = [
        [float(found.joint[c, g] / found.supports[c]) if found.supports[c] else None for g in shown] for c in order
    ]
    heat = parts.heat_table(
        shares,
        rows=[str(c) for c in order],
        columns=[found.labels[g] for g in shown],
        caption="Share of the records of a component (row) that have each label (column), in percent",
    )
    table = found.columns()
    rows = [
        (
            Cell(table["component"][i], order=table["component"][i]),
            table["label"][i],
            Cell(number(table["records"][i]), order=table["records"][i]),
            Cell(percent(table["share"][i]), order=table["share"][i]),
            Cell(number(table["log2_odds"][i], 1), order=table["log2_odds"][i]),
            Cell(significant(table["q"][i], 2), order=table["q"][i]),
        )
        for i in range(len(table["q"]))
        if table["q"][i] <= LEVEL and table["log2_odds"][i] > 0
    ]
    if not rows:
        return section("Labels", heat, parts.note("No label is enriched at a false discovery rate of 5%."))
    columns = [Column("No."), Column("Label", "words"), Column("Records"), Column("Share")]
    columns += [Column("log₂ odds"), Column("q", hint="p-value of Fisher's exact test, adjusted for all tests")]
    caption = "Enriched labels at a false discovery rate of 5% (Fisher's exact test, Benjamini–Hochberg)"
    if len(rows) > MOST_ROWS:
        caption += f"; the first {MOST_ROWS} of {len(rows)} are shown"
    return section("Labels", heat, parts.table(columns, rows[:MOST_ROWS], caption=caption, sortable=True))
