"""Plots, tables and pages of results; see `felb.report.page` for the parts of a page."""

from felb.report.choice_figure import write_choice
from felb.report.evidence import Evidence, gather
from felb.report.exports import write_figures, write_tables
from felb.report.feature_sets import write_rules, write_sets
from felb.report.pictures import Order, draw_matrices, tile_order
from felb.report.result_page import result_page
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
