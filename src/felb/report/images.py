"""Plots of a matrix, its reconstruction and the residual, as PNG in two themes; a cell is a whole number of pixels."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.kernels.boolean import boolean_product_dense
from felb.report.pictures import cell_size, tile_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.report.evidence import Measured

    Codes = NDArray[np.uint8]

PAPER, INK, KEPT, MISSED, WRONG = range(5)
"""A zero; a one; and of a residual: a one that is explained, one that is not, and a zero that is claimed to be one."""

PALETTES = {
    "light": ("#ffffff", "#1b1d1f", "#c9cbc6", "#0b6b69", "#c2500f"),
    "dark": ("#181b1e", "#e7e8e5", "#4b5156", "#56c4ba", "#f0935a"),
}
"""Colours by theme, those of the style sheet."""

BOX = (960, 720)
"""Maximum height and width of a plot in pixels."""

MOST = (320, 240)
"""Maximum number of rows and columns of a plot."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """Data, reconstruction and residual over the same rows and columns.

    Parameters
    ----------
    data, reconstruction, residual : codes of cells
    shape : of the whole matrix, of which an even selection is shown if it is larger than the plot
    """

    data: Codes
    reconstruction: Codes
    residual: Codes
    shape: tuple[int, int]

    @property
    def chosen(self) -> bool:
        """Whether not all cells are shown."""
        return self.data.shape != self.shape


def pictures_of(measured: Measured) -> Pictures:
    """Order rows and columns so that tiles show, choose some if there are many, and compare."""
    order = tile_order(measured.U, measured.V)
    rows = _chosen(order.rows, np.any(measured.U, axis=1), MOST[0])
    columns = _chosen(order.columns, np.any(measured.V, axis=0), MOST[1])
    cells = measured.matrix.take(rows).toarray()[:, columns]
    made = boolean_product_dense(measured.U[rows], measured.V[:, columns])
    if measured.matrix.unknown is not None:  # neither right nor wrong
        made_known = made & ~measured.matrix.unknown.take(rows).toarray()[:, columns]
    else:
        made_known = made
    residual = np.select([cells & made, cells, made_known], [KEPT, MISSED, WRONG], PAPER).astype(np.uint8)
    return Pictures(cells.astype(np.uint8), made.astype(np.uint8), residual, measured.matrix.shape)


def _chosen(order: NDArray[np.int64], described: NDArray[np.bool_], most: int) -> NDArray[np.int64]:
    """Choose evenly along an order; what no component describes gets a quarter of the room at most."""
    if len(order) <= most:
        return order
    inside, outside = order[described[order]], order[~described[order]]
    room = min(len(outside), max(most // 4, most - len(inside)))
    return np.concatenate([_evenly(inside, most - room), _evenly(outside, room)])


def _evenly(order: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    if len(order) <= count:
        return order
    return order[np.linspace(0, len(order) - 1, count).round().astype(np.int64)]


def enlarged(codes: Codes) -> Codes:
    """Return the codes with cells of whole pixels, as large as fits."""
    down, across = cell_size((codes.shape[0], codes.shape[1]), BOX)
    return np.repeat(np.repeat(codes, down, axis=0), across, axis=1)


def png(pixels: Codes, palette: tuple[str, ...]) -> bytes:
    """Return a PNG file with colours from a palette."""
    high, wide = pixels.shape
    # Every line of a PNG begins with the number of its filter, here none.
    lines = np.zeros((high, wide + 1), dtype=np.uint8)
    lines[:, 1:] = pixels
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)),
        (b"PLTE", b"".join(bytes.fromhex(colour[1:]) for colour in palette)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def data_uri(pixels: Codes, palette: tuple[str, ...]) -> str:
    """Return a PNG as a data URL."""
    return f"data:image/png;base64,{base64.b64encode(png(pixels, palette)).decode()}"
