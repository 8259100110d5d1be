"""Pictures and tables of results."""

from felb.report.pictures import Order, draw_matrices, tile_order

__all__ = ["Order", "draw_matrices", "tile_order"]
