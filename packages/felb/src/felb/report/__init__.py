"""Plots, tables and pages of results; see `felb.report.parts` for the parts of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb._lazy import import_when_used

if TYPE_CHECKING:
    from felb.report.evidence import Evidence, gather, stability_of
    from felb.report.exports import write_figures, write_rules, write_sets, write_tables
    from felb.report.figures import Order, draw_matrices, tile_order
    from felb.report.model import write_choice
    from felb.report.result_page import result_page

__all__ = [
    "Evidence",
    "Order",
    "draw_matrices",
    "gather",
    "result_page",
    "stability_of",
    "tile_order",
    "write_choice",
    "write_figures",
    "write_rules",
    "write_sets",
    "write_tables",
]

__getattr__ = import_when_used(
    __name__,
    {
        "Evidence": "felb.report.evidence",
        "Order": "felb.report.figures",
        "draw_matrices": "felb.report.figures",
        "gather": "felb.report.evidence",
        "result_page": "felb.report.result_page",
        "stability_of": "felb.report.evidence",
        "tile_order": "felb.report.figures",
        "write_choice": "felb.report.model",
        "write_figures": "felb.report.exports",
        "write_rules": "felb.report.exports",
        "write_sets": "felb.report.exports",
        "write_tables": "felb.report.exports",
    },
)
