"""Plots, tables and pages of results; see `felb.report.page` for the parts of a page."""

from felb.report.evidence import Evidence, gather
from felb.report.exports import write_figures, write_tables
from felb.report.pictures import Order, draw_matrices, tile_order
from felb.report.result_page import result_page

__all__ = [
    "Evidence",
    "Order",
    "draw_matrices",
    "gather",
    "result_page",
    "tile_order",
    "write_figures",
    "write_tables",
]
