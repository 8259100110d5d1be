"""Plots, tables and pages of results; see `felb.report.page` for the parts of a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.late import late_names

if TYPE_CHECKING:
    from felb.report.choice_figure import write_choice
    from felb.report.evidence import Evidence, gather
    from felb.report.exports import write_figures, write_tables
    from felb.report.feature_sets import write_rules, write_sets
    from felb.report.page_of_result import result_page
    from felb.report.pictures import Order, draw_matrices, tile_order
    from felb.report.result_stability import stability_of

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

__getattr__ = late_names(
    __name__,
    {
        "Evidence": "felb.report.evidence",
        "Order": "felb.report.pictures",
        "draw_matrices": "felb.report.pictures",
        "gather": "felb.report.evidence",
        "result_page": "felb.report.page_of_result",
        "stability_of": "felb.report.result_stability",
        "tile_order": "felb.report.pictures",
        "write_choice": "felb.report.choice_figure",
        "write_figures": "felb.report.exports",
        "write_rules": "felb.report.feature_sets",
        "write_sets": "felb.report.feature_sets",
        "write_tables": "felb.report.exports",
    },
)
