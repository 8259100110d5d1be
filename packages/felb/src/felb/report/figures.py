"""Plots of matrices and curves."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.data.partition import is_list_of_matrices
from felb.errors import InputError, missing_extra
from felb.kernels.boolean import boolean_product_dense
from felb.metrics.counts import to_boolean
from felb.records import replacing
from felb.report.parts import Html, legend, significant, tag

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from felb.metrics.counts import History
    from felb.report.evidence import Measured

    Pixels = NDArray[np.uint8]
    Codes = NDArray[np.uint8]


# -- Plots of binary matrices: a one is black, a cell is a whole number of pixels, nothing is smoothed ---------------

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


def check_drawable(path: str | os.PathLike[str]) -> None:
    """Raise unless a plot can be written to `path`; checked before the computation."""
    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{Path(path).name!r} must end in .png; plots are PNG files")
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"there is no folder {Path(path).absolute().parent}; make it, or choose another place")
    try:
        import matplotlib.backends.backend_agg  # noqa: F401
    except ImportError as error:
        missing_extra("drawing", "report", error)


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


# -- Plots of a matrix, its reconstruction and the residual, as PNG in two themes; a cell is a whole number of pixels

PAPER_INDEX, INK_INDEX, KEPT, MISSED, WRONG = range(5)
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
    residual = np.select([cells & made, cells, made_known], [KEPT, MISSED, WRONG], PAPER_INDEX).astype(np.uint8)
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


# -- Curves as inline SVG: text in the page's font, colours from its style sheet, so that both themes and print fit --

STYLES = 10
"""Curves of a chart that can be told apart: five colours, drawn through and dashed."""

MOST_POINTS = 400
"""Of a curve; more would not be seen."""

SHORTEST, LONGEST = 1e-3, 1e5
"""Numbers beyond these are written as powers of ten."""

LEFT, RIGHT, TOP, BOTTOM = 46, 14, 14, 36
"""Pixels around the plot."""


@dataclass(frozen=True, slots=True)
class Series:
    """A curve, with its interval where `low` and `high` are given.

    Parameters
    ----------
    name : for the legend
    x, y : points in order of x; a y of None breaks the curve
    low, high : ends of the interval at each x
    marks : draw the points too; by default where there are few
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    marks: bool | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of numbers laid over a range of pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers between low and high, about `count` of them, 1, 2 or 5 · 10^z apart.

    Examples
    --------
    >>> nice_ticks(0, 70)
    [0, 20, 40, 60]
    """
    if not high > low:
        return [low]
    raw = (high - low) / max(1, count - 1)
    power = 10 ** math.floor(math.log10(raw))
    step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda s: abs(math.log(s / raw)))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def log_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return powers of ten between low and high, every second or third if there are many."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last < first:
        return [low, high]
    every = max(1, math.ceil((last - first + 1) / count))
    return [10.0**i for i in range(first, last + 1, every)]


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str | None = None,
    size: tuple[int, int] = (360, 220),
    log_x: bool = False,
    log_y: bool = False,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    whole_x: bool = False,
) -> Html:
    """Return curves over one axis, with a legend if there are several.

    Parameters
    ----------
    series : at most as many as there are styles
    title : what is seen, for the heading and for screen readers
    x_label, y_label : of the axes; the y label stands above the plot
    size : width and height in pixels; the figure shrinks with the page and never grows beyond it
    log_x, log_y : logarithmic axes; all values must be above 0
    x_range, y_range : of the axes; by default what the values need
    whole_x : mark whole numbers only
    """
    if len(series) > STYLES:
        raise InputError(f"a chart shows at most {STYLES} curves, got {len(series)}; split it")
    xs = [float(x) for s in series for x in s.x]
    ys = [float(y) for s in series for values in (s.y, s.low or (), s.high or ()) for y in values if y is not None]
    if not ys:
        raise InputError(f"nothing to draw in {title!r}: no series has a value")
    width, height = size
    x_axis = Axis(*(x_range or _room(min(xs), max(xs), log=log_x)), LEFT, width - RIGHT, log_x)
    y_axis = Axis(
        *(y_range or _room(min(ys), max(ys), log=log_y, pad=0.06)), height - BOTTOM, TOP + (16 if y_label else 0), log_y
    )
    content = [
        tag("title", _summary(title, series)),
        _grid(x_axis, y_axis, labels=(x_label, y_label), whole_x=whole_x),
        *(_curve(s, i, x_axis, y_axis) for i, s in enumerate(series)),
    ]
    chart = tag("svg", content, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", class_="chart")
    entries = {s.name: f"s{i}" for i, s in enumerate(series)} if len(series) > 1 else {}
    return tag("div", tag("h3", title), chart, legend(entries) if entries else None, class_="plot")


def _room(low: float, high: float, *, log: bool, pad: float = 0.0) -> tuple[float, float]:
    """Return a range with room around the values; one that is not empty even if they are all the same."""
    if log:
        room = max(2.0 if low == high else 1.0, (high / low) ** pad)
        return low / room, high * room
    if low == high:
        return (low - 0.5, high + 0.5) if low == 0 else (low - abs(low) / 2, high + abs(high) / 2)
    room = pad * (high - low)
    # A quantity that is never negative does not get an axis that is.
    return (max(0.0, low - room) if low >= 0 else low - room), high + room


def _grid(x_axis: Axis, y_axis: Axis, *, labels: tuple[str, str | None], whole_x: bool) -> list[Html]:
    x_label, y_label = labels
    drawn = []
    for tick, label in _labelled(y_axis):
        y = f"{y_axis.at(tick):.1f}"
        drawn.append(tag("line", x1=x_axis.start, x2=x_axis.end, y1=y, y2=y, class_="grid"))
        drawn.append(tag("text", label, x=x_axis.start - 7, y=y, dy=".32em", class_="tick end"))
    base = y_axis.start
    drawn.append(tag("line", x1=x_axis.start, x2=x_axis.end, y1=base, y2=base, class_="axis"))
    for tick, label in _labelled(x_axis):
        if whole_x and tick != int(tick):
            continue
        x = f"{x_axis.at(tick):.1f}"
        drawn.append(tag("line", x1=x, x2=x, y1=base, y2=base + 4, class_="axis"))
        drawn.append(tag("text", label, x=x, y=base + 16, class_="tick middle"))
    drawn.append(tag("text", x_label, x=x_axis.end, y=base + 31, class_="label end"))
    if y_label:
        drawn.append(tag("text", y_label, x=x_axis.start - 40, y=12, class_="label"))
    return drawn


def _labelled(axis: Axis) -> list[tuple[float, str]]:
    """Return the marks of an axis with their labels: all as powers of ten, or none."""
    ticks = (log_ticks if axis.log else nice_ticks)(axis.low, axis.high)
    long = any(tick and not SHORTEST <= abs(tick) < LONGEST for tick in ticks)
    return [(tick, _power(tick) if long and tick else significant(tick, 4)) for tick in ticks]


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    power = f"10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return power if mantissa == "1.0" else f"{mantissa.removesuffix('.0')}·{power}"


def _curve(series: Series, colour: int, x_axis: Axis, y_axis: Axis) -> Html:
    chosen = _thinned_points(len(series.x))
    pieces: list[list[tuple[float, float]]] = [[]]
    for i in chosen:
        y = series.y[i]
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append((x_axis.at(series.x[i]), y_axis.at(y)))
    pieces = [piece for piece in pieces if piece]
    drawn: list[Html] = []
    if series.low is not None and series.high is not None:
        up = [(x_axis.at(series.x[i]), y_axis.at(series.high[i])) for i in chosen]
        down = [(x_axis.at(series.x[i]), y_axis.at(series.low[i])) for i in reversed(chosen)]
        drawn.append(tag("polygon", points=_points(up + down), class_="band"))
    drawn += [tag("polyline", points=_points(piece), class_="line") for piece in pieces if len(piece) > 1]
    few = sum(map(len, pieces)) <= 24
    marks = [p for piece in pieces if (few if series.marks is None else series.marks) or len(piece) == 1 for p in piece]
    if pieces and not marks:
        marks = [pieces[-1][-1]]
    drawn += [tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.6) for x, y in marks]
    return tag("g", drawn, class_=f"s{colour}")


def _thinned_points(n: int) -> list[int]:
    """Return at most `MOST_POINTS` numbers of points, evenly, with the first and the last."""
    if n <= MOST_POINTS:
        return list(range(n))
    return [round(i * (n - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _summary(title: str, series: Sequence[Series]) -> str:
    told = []
    for s in series:
        known = [(x, y) for x, y in zip(s.x, s.y, strict=True) if y is not None]
        if known:
            (x0, y0), (x1, y1) = known[0], known[-1]
            told.append(f"{s.name}: {significant(y0)} at {significant(x0)}, {significant(y1)} at {significant(x1)}")
    return f"{title}. {'; '.join(told)}"


# -- Curves of a history: one small chart for every metric with values in several rounds -----------------------------

TITLES = {
    "loss": "Loss ‖A − UV‖²",
    "errors": "Wrong cells",
    "f1": "F1",
    "integrality_gap": "Integrality gap of V",
    "change": "Change per round",
    "lam": "Weight λ of the regularizer",
    "flips": "Changed entries of V",
    "gain": "Gain of a further component",
    "inside": "Estimated share of ones inside components",
    "outside": "Estimated share of ones outside components",
    "clients": "Clients that responded",
}
"""Figures that have a name in words, in the order of the charts."""

LEFT_OUT = {"round", "rmsd", "rmsd_table", "precision", "recall", "coverage", "measured", "tries"}
"""Figures that say the same as others, or nothing on their own."""

RELAXED = {"factor_statistics"}
"""Tasks whose factors are not Boolean, in methods that go on with Boolean ones."""

MOST_CHARTS = 9

WIDE = 1000
"""Ratio of the largest to the smallest value beyond which the axis is logarithmic."""

FEW = 2
"""Points that make no curve."""


def curves(history: History) -> list[Html]:
    """Return the charts of a history."""
    last = max((float(row.get("round", number)) for number, row in enumerate(history)), default=0.0)
    return [_chart(key, series, last) for key, series in list(figures(history).items())[:MOST_CHARTS]]


def figures(history: History) -> dict[str, list[Series]]:
    """Return the curves of every metric that varies over the rounds, the best known metrics first."""
    keys = list(dict.fromkeys([*TITLES, *(key for row in history for key in row)]))
    found = {}
    for key in keys:
        points = [
            (float(row.get("round", number)), float(row[key]), str(row.get("task", "")) in RELAXED)
            for number, row in enumerate(history)
            if key not in LEFT_OUT and _is_number(row.get(key))
        ]
        if len(points) > FEW and len({value for _, value, _ in points}) > 1:
            found[key] = _series(points)
    return found


def _series(points: list[tuple[float, float, bool]]) -> list[Series]:
    """Return one curve, or two where a relaxed search came first; it is broken where another start was tried."""
    relaxed = [(x, y) for x, y, is_relaxed in points if is_relaxed]
    groups: dict[str, list[tuple[float, float | None]]] = {
        "relaxed": _broken(relaxed),
        "Boolean": [(x, y) for x, y, is_relaxed in points if not is_relaxed],
    }
    return [
        Series(name, [x for x, _ in kept], [y for _, y in kept], marks=False) for name, kept in groups.items() if kept
    ]


def _broken(points: list[tuple[float, float]]) -> list[tuple[float, float | None]]:
    """Put a gap wherever rounds are left out."""
    broken: list[tuple[float, float | None]] = []
    for number, (x, y) in enumerate(points):
        if number and x > points[number - 1][0] + 1:
            broken.append((x - 1, None))
        broken.append((x, y))
    return broken


def _chart(key: str, series: list[Series], last: float) -> Html:
    """Draw one metric; the axis of rounds is the same for all, so that charts can be compared."""
    title = TITLES.get(key, key.replace("_", " "))
    return line_chart(series, title=title, x_label="round", log_y=is_wide(series), x_range=(0.0, last), whole_x=True)


def is_wide(series: list[Series]) -> bool:
    """Whether values range so far that only a logarithmic axis shows them."""
    values = [y for one in series for y in one.y if y is not None]
    return min(values) > 0 and max(values) / min(values) > WIDE


def _is_number(value: object) -> bool:
    return type(value) is not bool and isinstance(value, int | float) and math.isfinite(value)
