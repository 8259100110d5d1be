"""Plots of binary matrices: a one is black, a cell is a whole number of pixels, nothing is smoothed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.data.shards import is_list_of_matrices
from felb.errors import InputError, missing_extra
from felb.metrics.counts import to_boolean
from felb.safe_files import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    Pixels = NDArray[np.uint8]

INK, PAPER, FRAME = 17, 255, 200
"""Grey levels of a one, of a zero and of the line around a panel."""

FRAME_WIDTH, BAND_GAP, PANEL_GAP, MARGIN = 2, 6, 60, 36
"""Pixels: the line, between the clients of a panel, between panels, around the plot."""

LONGEST_CELL = 6
"""Ratio of the sides of a cell at most; matrices much longer than wide, or wider than long, get stretched cells."""

TITLE_SIZE, NOTE_SIZE, LINE = 26, 22, 40
"""Pixels of a heading, of the small text below it, and from line to line."""

TITLE_COLOUR, NOTE_COLOUR = "#111111", "#6a6a6a"

DPI = 256
"""A power of two, so that pixels survive the way through inches and back exactly."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order of rows and columns to show matrices in."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]

    def of(self, matrix: Any) -> NDArray[np.bool_]:
        """Return the matrix with its rows and columns in this order."""
        return BinaryMatrix.of(matrix).take(self.rows).toarray()[:, self.columns]


def tile_order(U: ArrayLike, V: ArrayLike) -> Order:
    """Order rows and columns by the components they have, so that the tiles of U∘V show.

    The component with the largest tile comes first; among the rows (columns) that have it, those that share the
    second largest come first, and so on. Rows and columns without a component come last, in their old order.

    Examples
    --------
    >>> import numpy as np
    >>> order = tile_order(U=np.array([[0], [1], [0], [1]]), V=np.array([[0, 1, 1]]))
    >>> order.rows.tolist(), order.columns.tolist()
    ([1, 3, 0, 2], [1, 2, 0])
    """
    rows, columns = to_boolean(U, "U"), to_boolean(V, "V").T
    if rows.shape[1] != columns.shape[1]:
        raise InputError(f"U has {rows.shape[1]} components and V has {columns.shape[1]}")
    largest_first = np.argsort(-rows.sum(axis=0) * columns.sum(axis=0), kind="stable")
    return Order(*(_by_components(members[:, largest_first]) for members in (rows, columns)))


def _by_components(members: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Sort descending by the first component, then the second, …; `lexsort` takes the weightiest key last."""
    if members.shape[1] == 0:
        return np.arange(members.shape[0])
    return np.lexsort(~members.T[::-1])


def draw_matrices(
    panels: Mapping[str, Any], path: str | os.PathLike[str], *, width: int = 420, height: int = 640
) -> None:
    r"""Draw binary matrices side by side into a PNG file, ones black.

    Parameters
    ----------
    panels : matrix by title; a list of matrices, one per client, is drawn as bands below each other. The first line
        of a title is its heading, further lines are small
    path : file to write; it appears complete or not at all
    width, height : pixels of a panel at most; a matrix with more columns or rows is thinned out evenly

    Examples
    --------
    >>> from felb.data import planted
    >>> data = planted(60, 40, 3, noise=0.1, contiguous=True)
    >>> draw_matrices({"planted": data.signal, "seen\n10% of the cells flipped": data.A}, "picture.png")
    """
    if not panels:
        raise InputError("nothing to draw: no panels were given")
    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{Path(path).name!r} must end in .png; plots are PNG files")
    drawn = {title: _panel(title, matrix, (height, width)) for title, matrix in panels.items()}
    lines = max(title.count("\n") + 1 for title in drawn)
    top = MARGIN + lines * LINE
    canvas_height = top + max(pixels.shape[0] for pixels in drawn.values()) + MARGIN
    canvas_width = 2 * MARGIN + sum(pixels.shape[1] for pixels in drawn.values()) + PANEL_GAP * (len(drawn) - 1)
    canvas = np.full((canvas_height, canvas_width), PAPER, dtype=np.uint8)
    headings, left = [], MARGIN
    for title, pixels in drawn.items():
        canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
        headings.append((title, left))
        left += pixels.shape[1] + PANEL_GAP
    _write(canvas, headings, Path(path))


def _panel(title: str, matrix: Any, box: tuple[int, int]) -> Pixels:
    """Return one panel in pixels, at most as large as `box`, but for the lines around its bands."""
    parts = list(matrix) if is_list_of_matrices(matrix) else [matrix]
    bands = [BinaryMatrix.of(part) for part in parts]
    n, m = sum(len(band) for band in bands), bands[0].shape[1]
    if n == 0 or m == 0:
        raise InputError(f"panel {title!r} has no cells: {n} rows, {m} columns")
    if any(band.shape[1] != m for band in bands):
        raise InputError(f"the matrices of panel {title!r} have {[band.shape[1] for band in bands]} columns")
    down, across = cell_size((n, m), box)
    share = min(1.0, box[0] / n)
    framed = [
        _framed(_enlarged(_thinned(band, max(1, round(share * len(band))), box[1]), down, across)) for band in bands
    ]
    gap = np.full((BAND_GAP, framed[0].shape[1]), PAPER, dtype=np.uint8)
    return np.vstack([piece for band in framed for piece in (gap, band)][1:])


def cell_size(shape: tuple[int, int], box: tuple[int, int]) -> tuple[int, int]:
    """Return the pixels (down, across) of a cell of a matrix that is to fit into a box of pixels.

    The number of columns alone decides how wide a cell is, so that panels with the same columns line up. A cell is
    not higher than wide, unless the panel would fill less than half the box, and never longer than `LONGEST_CELL`.

    Examples
    --------
    >>> cell_size((150, 100), (640, 420)), cell_size((6, 100), (640, 420)), cell_size((2000, 200), (640, 420))
    ((4, 4), (24, 4), (1, 2))
    """
    down, across = (max(1, side // count) for side, count in zip(box, shape, strict=True))
    across = min(across, LONGEST_CELL * down)
    square = min(down, across)
    fills = 2 * square * shape[0] >= box[0]
    return (square if fills else min(down, LONGEST_CELL * across)), across


def _thinned(matrix: BinaryMatrix, n_rows: int, n_columns: int) -> NDArray[np.bool_]:
    """Return evenly spaced rows and columns, at most that many of each."""
    rows, columns = (
        np.arange(have) if have <= want else np.linspace(0, have - 1, want).round().astype(np.int64)
        for have, want in zip(matrix.shape, (n_rows, n_columns), strict=True)
    )
    return matrix.take(rows).toarray()[:, columns]


def _enlarged(cells: NDArray[np.bool_], down: int, across: int) -> Pixels:
    grey = np.where(cells, np.uint8(INK), np.uint8(PAPER))
    return np.repeat(np.repeat(grey, down, axis=0), across, axis=1)


def _framed(pixels: Pixels) -> Pixels:
    return np.pad(pixels, FRAME_WIDTH, constant_values=FRAME)


def _write(canvas: Pixels, headings: list[tuple[str, int]], path: Path) -> None:
    """Write the canvas with its headings; matplotlib sets the text and leaves the pixels alone."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        missing_extra("drawing", "report", error)
    high, wide = canvas.shape
    figure = Figure(figsize=(wide / DPI, high / DPI), dpi=DPI, facecolor="white")
    figure.figimage(np.repeat(canvas[:, :, None], 3, axis=2), origin="upper")
    for title, left in headings:
        for number, line in enumerate(title.split("\n")):
            figure.text(
                left / wide,
                1 - (MARGIN + number * LINE) / high,
                line,
                va="top",
                fontsize=(NOTE_SIZE if number else TITLE_SIZE) * 72 / DPI,
                fontweight="normal" if number else "bold",
                color=NOTE_COLOUR if number else TITLE_COLOUR,
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, partial.open("wb") as file:
        # Not savefig, which listens to settings of the user such as a tight bounding box.
        FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})  # type: ignore[no-untyped-call]
