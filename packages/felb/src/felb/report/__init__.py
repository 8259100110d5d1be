"""Plots, tables and pages of results: `inputs` are read, `figures` drawn, `pages` and `exports` written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb._lazy import import_when_used

if TYPE_CHECKING:
    from felb.report.exports import write_figures, write_rules, write_sets, write_tables
    from felb.report.figures import Order, draw_matrices, tile_order, write_choice
    from felb.report.inputs import ReportInputs, gather, measure_stability
    from felb.report.pages import build_result_page

_MODULES = {
    "exports": ("write_figures", "write_rules", "write_sets", "write_tables"),
    "figures": ("Order", "draw_matrices", "tile_order", "write_choice"),
    "inputs": ("ReportInputs", "gather", "measure_stability"),
    "pages": ("build_result_page",),
}

__all__ = [
    "Order",
    "ReportInputs",
    "build_result_page",
    "draw_matrices",
    "gather",
    "measure_stability",
    "tile_order",
    "write_choice",
    "write_figures",
    "write_rules",
    "write_sets",
    "write_tables",
]

__getattr__ = import_when_used(
    __name__, {name: f"felb.report.{module}" for module, names in _MODULES.items() for name in names}
)
