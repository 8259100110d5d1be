"""Charts, all drawn by matplotlib: pictures of matrices, curves, heat maps, and the figures of a fitted model.

A chart of a page is an SVG image in the colours of its style sheet, once for a light page and once for a dark one.
matplotlib is loaded when the first chart is drawn. Settings of the user neither change the charts nor are changed.
"""

from __future__ import annotations

import base64
import io
import math
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from felb.data.binary import BinaryMatrix
from felb.data.partition import is_list_of_matrices
from felb.errors import InputError, missing_extra
from felb.kernels.boolean import boolean_product_dense
from felb.metrics.counts import to_boolean
from felb.records import replacing
from felb.sklearn.base import feature_names

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from felb.analysis.rank_choice import RankChoice
    from felb.metrics.counts import History
    from felb.sklearn.base import BooleanFactorization

    Pixels = NDArray[np.uint8]
    Codes = NDArray[np.uint8]

TITLE_COLOUR, NOTE_COLOUR = "#111111", "#6a6a6a"

COLOURS = {
    "bg": ("#fbfbf8", "#111315"),
    "surface": ("#ffffff", "#181b1e"),
    "wash": ("#f1f1ec", "#212529"),
    "ink": ("#1b1d1f", "#e7e8e5"),
    "muted": ("#5d6267", "#9fa5a9"),
    "line": ("#e2e2dc", "#2d3236"),
    "accent": ("#0b6b69", "#56c4ba"),
    "on-accent": ("#fffffe", "#0c1514"),
    "wrong": ("#c2500f", "#f0935a"),
    "kept": ("#c9cbc6", "#4b5156"),
    "violet": ("#5b4fb3", "#a79df0"),
    "ochre": ("#8a6d00", "#d9b949"),
    "rose": ("#b03a6c", "#ea86b0"),
}
"""Colours of charts and of the style sheet of pages, light and dark; no two of the light ones are the same."""

THEMES = {theme: {name: pair[i] for name, pair in COLOURS.items()} for i, theme in enumerate(("light", "dark"))}
LIGHT = THEMES["light"]
CURVE_COLOURS = ("accent", "wrong", "violet", "ochre", "rose")
MOST_CURVES = 2 * len(CURVE_COLOURS)
"""Curves of a chart that can be told apart: five colours, drawn through and dashed."""

PIXELS_OF_AN_INCH = 96
"""Of a page; the size of SVG images is in points, 72 to the inch."""


def check_matplotlib() -> None:
    """Raise unless there is matplotlib."""
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        missing_extra("drawing", "report", error)


@contextmanager
def drawing() -> Iterator[None]:
    """Draw with the settings of matplotlib, whatever those of the user are."""
    check_matplotlib()
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has more fonts
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "felb", "font.sans-serif": ["DejaVu Sans"]})
        yield


def make_figure(size: tuple[float, float], **options: Any) -> Any:
    """Return an empty figure of that size in inches, whose parts make room for each other."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, facecolor="white", **{"layout": "constrained", **options})


def write_png(figure: Any, path: str | os.PathLike[str], *, dpi: int = 200) -> None:
    """Write a figure as a PNG file that appears complete or not at all."""
    with replacing(Path(path)) as partial, partial.open("wb") as file:
        figure.savefig(file, format="png", dpi=dpi, metadata={"Software": None})


@dataclass(frozen=True, slots=True)
class Image:
    """An image of a page.

    Parameters
    ----------
    sources : data URL by theme
    width, height : in pixels of the page
    """

    sources: Mapping[str, str]
    width: int
    height: int


def to_printable(text: str) -> str:
    """Replace what neither HTML nor XML can hold: control characters and lone halves of surrogate pairs."""
    plain = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c >= " " or c in "\n\t" else "\ufffd" for c in plain)


def _encode(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _to_image(figure: Any) -> Image:
    """Return a figure as SVG in both themes: drawn once in the colours of the light one, which are then exchanged."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    sources = {}
    for theme, colours in THEMES.items():
        text = file.getvalue()
        for name, colour in LIGHT.items():
            text = text.replace(colour, colours[name])
        sources[theme] = _encode("svg+xml", text.encode())
    width, height = (round(PIXELS_OF_AN_INCH * inches) for inches in figure.get_size_inches())
    return Image(sources, width, height)


# -- Matrices: a one is black, a cell is a whole number of pixels, nothing is smoothed --------------------------------

INK, PAPER, FRAME = 17, 255, 200
"""Grey levels of a one, of a zero and of the line around a panel."""

FRAME_WIDTH, BAND_GAP, PANEL_GAP, MARGIN = 2, 6, 60, 36
"""Pixels: the line, between the clients of a panel, between panels, around the plot."""

LONGEST_CELL = 6
"""Ratio of the sides of a cell at most; matrices much longer than wide, or wider than long, get stretched cells."""

TITLE_SIZE, NOTE_SIZE, LINE = 26, 22, 40
"""Pixels of a heading, of the small text below it, and from line to line."""

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
    return Order(*(_sort_by_components(members[:, largest_first]) for members in (rows, columns)))


def _sort_by_components(members: NDArray[np.bool_]) -> NDArray[np.int64]:
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
    _check_suffix(path)
    drawn = {title: _draw_panel(title, matrix, (height, width)) for title, matrix in panels.items()}
    top = MARGIN + LINE * max(title.count("\n") + 1 for title in drawn)
    high = top + max(pixels.shape[0] for pixels in drawn.values()) + MARGIN
    wide = 2 * MARGIN + sum(pixels.shape[1] for pixels in drawn.values()) + PANEL_GAP * (len(drawn) - 1)
    canvas = np.full((high, wide), PAPER, dtype=np.uint8)
    with drawing():
        figure = make_figure((wide / DPI, high / DPI), dpi=DPI, layout="none")
        left = MARGIN
        for title, pixels in drawn.items():
            canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
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
            left += pixels.shape[1] + PANEL_GAP
        figure.figimage(np.repeat(canvas[:, :, None], 3, axis=2), origin="upper")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_png(figure, path, dpi=DPI)


def _check_suffix(path: str | os.PathLike[str]) -> None:
    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{Path(path).name!r} must end in .png; plots are PNG files")


def check_drawable(path: str | os.PathLike[str]) -> None:
    """Raise unless a plot can be written to `path`; checked before the computation."""
    _check_suffix(path)
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"there is no folder {Path(path).absolute().parent}; make it, or choose another place")
    check_matplotlib()


def _draw_panel(title: str, matrix: Any, box: tuple[int, int]) -> Pixels:
    """Return one panel in pixels, at most as large as `box`, but for the lines around its bands."""
    bands = [BinaryMatrix.of(part) for part in (matrix if is_list_of_matrices(matrix) else [matrix])]
    n, m = sum(len(band) for band in bands), bands[0].shape[1]
    if n == 0 or m == 0:
        raise InputError(f"panel {title!r} has no cells: {n} rows, {m} columns")
    if any(band.shape[1] != m for band in bands):
        raise InputError(f"the matrices of panel {title!r} have {[band.shape[1] for band in bands]} columns")
    cell, share = cell_size((n, m), box), min(1.0, box[0] / n)
    gap, pieces = None, []
    for band in bands:
        rows = _choose_evenly(np.arange(len(band)), max(1, round(share * len(band))))
        cells = band.take(rows).toarray()[:, _choose_evenly(np.arange(m), box[1])]
        grey = _enlarge(np.where(cells, np.uint8(INK), np.uint8(PAPER)), cell)
        framed = np.pad(grey, FRAME_WIDTH, constant_values=FRAME)
        pieces += [framed] if gap is None else [gap, framed]
        gap = np.full((BAND_GAP, framed.shape[1]), PAPER, dtype=np.uint8)
    return np.vstack(pieces)


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


def _choose_evenly(order: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    if len(order) <= count:
        return order
    return order[np.linspace(0, len(order) - 1, count).round().astype(np.int64)]


def _enlarge(cells: Pixels, size: tuple[int, int]) -> Pixels:
    return np.repeat(np.repeat(cells, size[0], axis=0), size[1], axis=1)


# -- A matrix, its reconstruction and the residual -------------------------------------------------------------------

ZERO, ONE, KEPT, MISSED, WRONG = range(5)
"""A zero; a one; and of a residual: a one that is explained, one that is not, and a zero that is claimed to be one."""

CELL_COLOURS = ("surface", "ink", "kept", "accent", "wrong")
"""Their colours, in the words of the style sheet."""

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
    def is_selection(self) -> bool:
        """Whether not all cells are shown."""
        return self.data.shape != self.shape


def picture(matrix: BinaryMatrix, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> Pictures:
    """Order rows and columns so that tiles show, choose some if there are many, and compare with U∘V."""
    order = tile_order(U, V)
    rows = _choose_described(order.rows, np.any(U, axis=1), MOST[0])
    columns = _choose_described(order.columns, np.any(V, axis=0), MOST[1])
    cells = matrix.take(rows).toarray()[:, columns]
    made = boolean_product_dense(U[rows], V[:, columns])
    claimed = made
    if matrix.unknown is not None:  # neither right nor wrong
        claimed = made & ~matrix.unknown.take(rows).toarray()[:, columns]
    residual = np.select([cells & made, cells, claimed], [KEPT, MISSED, WRONG], ZERO).astype(np.uint8)
    return Pictures(cells.astype(np.uint8), made.astype(np.uint8), residual, matrix.shape)


def _choose_described(order: NDArray[np.int64], described: NDArray[np.bool_], most: int) -> NDArray[np.int64]:
    """Choose evenly along an order; what no component describes gets a quarter of the room at most."""
    if len(order) <= most:
        return order
    inside, outside = order[described[order]], order[~described[order]]
    room = min(len(outside), max(most // 4, most - len(inside)))
    return np.concatenate([_choose_evenly(inside, most - room), _choose_evenly(outside, room)])


def _color_map(theme: str, names: Sequence[str] = CELL_COLOURS) -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap([THEMES[theme][name] for name in names])


def draw_cells(codes: Codes, theme: str = "light") -> bytes:
    """Return a PNG file of cells, each of whole pixels, as large as fits."""
    with drawing():
        from matplotlib.image import imsave

        pixels, file = _enlarge(codes, cell_size((codes.shape[0], codes.shape[1]), BOX)), io.BytesIO()
        colours = _color_map(theme)
        imsave(file, pixels, cmap=colours, vmin=0, vmax=colours.N - 1, format="png")
    return file.getvalue()


def draw_picture(codes: Codes) -> Image:
    """Return cells as an image of a page."""
    down, across = cell_size((codes.shape[0], codes.shape[1]), BOX)
    sources = {theme: _encode("png", draw_cells(codes, theme)) for theme in THEMES}
    return Image(sources, across * codes.shape[1], down * codes.shape[0])


# -- Heat maps of shares ---------------------------------------------------------------------------------------------

CELL_INCHES = 0.3
SQUARE = np.array([[0.03, 0.03], [0.97, 0.03], [0.97, 0.97], [0.03, 0.97], [0.03, 0.03]])
SHADES, DARK = 20, 0.55
"""Shades of cells, and a share from which on its cell is so dark that its number is light."""

MOST_NUMBERS = 400
"""Cells that show their numbers; of a larger map, only the table below it does."""

LONGEST_NAME = 24
"""Characters of a name beside a heat map; the table below has the whole of it."""


def draw_heat_map(shares: Any, rows: Sequence[str], columns: Sequence[str]) -> Image:
    """Return shares between 0 and 1 as an image of a page, the more the darker; NaN leaves a cell empty."""
    with drawing():
        return _to_image(_make_heat_map(shares, rows, columns))


def _make_heat_map(shares: Any, rows: Sequence[str], columns: Sequence[str]) -> Any:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    shares = np.asarray(shares, dtype=float).reshape(len(rows), len(columns))  # None becomes NaN
    row_names, column_names = ([_shorten(name) for name in names] for names in (rows, columns))
    widest, highest = (max(map(len, names), default=0) for names in (row_names, column_names))
    upright = highest <= 3
    height = CELL_INCHES * len(rows) + 0.3 + (0 if upright else 0.09 * highest)
    figure = make_figure((CELL_INCHES * len(columns) + 0.3 + 0.09 * widest, height))
    axes = figure.subplots()
    # One colour, more or less of it, so that the colour of the other theme can take its place; cells that look alike
    # are one shape.
    steps = np.round(SHADES * shares)
    for step in np.unique(steps[~np.isnan(steps)]):
        squares = [Outline(SQUARE + np.array([j, i]), closed=True) for i, j in np.argwhere(steps == step)]
        strength = 0.06 + 0.94 * step / SHADES
        axes.add_patch(PathPatch(Outline.make_compound_path(*squares), lw=0, color=LIGHT["accent"], alpha=strength))
    axes.set(xlim=(0, len(columns)), ylim=(len(rows), 0))
    axes.set_xticks(np.arange(len(columns)) + 0.5, column_names, rotation=0 if upright else 90, parse_math=False)
    axes.set_yticks(np.arange(len(rows)) + 0.5, row_names, parse_math=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=8, labelcolor=LIGHT["muted"])
    axes.spines[:].set_visible(False)
    for (i, j), share in np.ndenumerate(shares):
        if shares.size <= MOST_NUMBERS and not math.isnan(share):
            colour = LIGHT["on-accent"] if share >= DARK else LIGHT["ink"]
            axes.text(j + 0.5, i + 0.5, f"{100 * share:.0f}", ha="center", va="center", fontsize=7.5, color=colour)
    return figure


def _shorten(name: str) -> str:
    plain = " ".join(to_printable(name).split())
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 1]}…"


def write_heat_map(shares: Any, path: Path, *, rows: Sequence[str], columns: Sequence[str], title: str) -> None:
    """Write a heat map as a PNG file."""
    with drawing():
        figure = _make_heat_map(shares, rows, columns)
        width, height = figure.get_size_inches()
        figure.set_size_inches(max(width, 5.2), height + 0.4)
        figure.suptitle(title, fontsize=9, x=0.02, ha="left", color=LIGHT["ink"])
        write_png(figure, path)


# -- Curves ----------------------------------------------------------------------------------------------------------

FEW_POINTS = 24
"""Points of a curve that are all marked."""


@dataclass(frozen=True, slots=True)
class Series:
    """A curve: points in order of x, where a y of None breaks it, and whether few points are marked."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    marks: bool = True


def draw_chart(
    series: Sequence[Series], *, x_label: str, log_y: bool = False, x_range: tuple[float, float] | None = None
) -> Image:
    """Return curves over whole numbers as an image of a page; its title and its legend are text of the page."""
    if len(series) > MOST_CURVES:
        raise InputError(f"a chart shows at most {MOST_CURVES} curves, got {len(series)}; split it")
    with drawing():
        figure = make_figure((3.75, 2.3))
        _paint_curves(figure.subplots(), series, x_label=x_label, log_y=log_y, x_range=x_range)
        return _to_image(figure)


def _paint_curves(
    axes: Any, series: Sequence[Series], *, x_label: str, log_y: bool, x_range: tuple[float, float] | None = None
) -> None:
    from matplotlib.ticker import MaxNLocator

    for number, one in enumerate(series):
        y = np.array([np.nan if value is None else value for value in one.y], dtype=float)
        known = ~np.isnan(y)
        if not known.any():
            continue
        beside = np.r_[False, known[:-1]] | np.r_[known[1:], False]
        marked = known if one.marks and known.sum() <= FEW_POINTS else known & ~beside
        if not marked.any():
            marked = np.arange(len(y)) == np.flatnonzero(known)[-1]
        axes.plot(
            one.x,
            y,
            color=LIGHT[CURVE_COLOURS[number % len(CURVE_COLOURS)]],
            linestyle="-" if number < len(CURVE_COLOURS) else "--",
            linewidth=1.4,
            marker="o",
            markersize=3.5,
            markevery=np.flatnonzero(marked).tolist(),
            label=one.name,
            clip_on=False,
        )
    if log_y:
        axes.set_yscale("log")
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
    if x_range is not None and x_range[0] < x_range[1]:
        axes.set_xlim(*x_range)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.grid(axis="y", color=LIGHT["line"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=8, colors=LIGHT["muted"], left=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LIGHT["muted"])
    axes.set_xlabel(x_label, fontsize=8, color=LIGHT["muted"], loc="right")


METRIC_TITLES = {
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
"""Metrics of rounds that have a name in words, in the order of the charts."""

LEFT_OUT = {"round", "rmsd", "rmsd_table", "precision", "recall", "coverage", "measured", "tries"}
"""Metrics that say the same as others, or nothing on their own."""

RELAXED = {"factor_statistics"}
"""Tasks whose factors are not Boolean, in methods that go on with Boolean ones."""

WIDE = 1000
"""Ratio of the largest to the smallest value beyond which the axis is logarithmic."""

FEWEST_POINTS = 3
"""That make a curve."""


def find_curves(history: History) -> dict[str, list[Series]]:
    """Return the curves of every metric that varies over the rounds, the best known metrics first."""
    keys = list(dict.fromkeys([*METRIC_TITLES, *(key for row in history for key in row)]))
    found = {}
    for key in keys:
        points = [
            (float(row.get("round", number)), float(row[key]), str(row.get("task", "")) in RELAXED)
            for number, row in enumerate(history)
            if key not in LEFT_OUT and _is_number(row.get(key))
        ]
        if len(points) >= FEWEST_POINTS and len({value for _, value, _ in points}) > 1:
            found[key] = _split_at_starts(points)
    return found


def _split_at_starts(points: list[tuple[float, float, bool]]) -> list[Series]:
    """Return one curve, or two where a relaxed search came first; it is broken where another start was tried."""
    relaxed: list[tuple[float, float | None]] = []
    for x, y, is_relaxed in points:
        if is_relaxed:
            if relaxed and x > relaxed[-1][0] + 1:
                relaxed.append((x - 1, None))
            relaxed.append((x, y))
    boolean: list[tuple[float, float | None]] = [(x, y) for x, y, is_relaxed in points if not is_relaxed]
    return [
        Series(name, [x for x, _ in kept], [y for _, y in kept], marks=False)
        for name, kept in (("relaxed", relaxed), ("Boolean", boolean))
        if kept
    ]


def title_of(metric: str) -> str:
    """Return what a metric is called in words."""
    return METRIC_TITLES.get(metric, metric.replace("_", " "))


def is_wide(series: Sequence[Series]) -> bool:
    """Whether values range so far that only a logarithmic axis shows them."""
    values = [y for one in series for y in one.y if y is not None]
    return min(values) > 0 and max(values) / min(values) > WIDE


def _is_number(value: object) -> bool:
    return type(value) is not bool and isinstance(value, int | float) and math.isfinite(value)


def _paint_rounds(make: Callable[[tuple[float, float]], Any], curves: Mapping[str, list[Series]]) -> Any:
    """Return a figure of the metrics of the rounds, an axis each, up to three side by side."""
    across = min(3, len(curves))
    down = -(-len(curves) // across)
    figure = make((3.6 * across, 2.6 * down))
    grid = figure.subplots(down, across, squeeze=False).reshape(-1)
    for axes in grid[len(curves) :]:
        axes.set_visible(False)
    for axes, (metric, series) in zip(grid, curves.items(), strict=False):
        _paint_curves(axes, series, x_label="round", log_y=is_wide(series))
        axes.set_title(title_of(metric), fontsize=9, loc="left", color=LIGHT["ink"], parse_math=False)
        if len(series) > 1:
            axes.legend(fontsize=7, frameon=False)
    return figure


def write_rounds(curves: Mapping[str, list[Series]], path: Path) -> None:
    """Write the metrics of the rounds as a PNG file."""
    with drawing():
        write_png(_paint_rounds(make_figure, curves), path)


# -- The figures of a fitted model, which are matplotlib figures for a notebook ---------------------------------------

MOST_FEATURES = 60
"""Features of a plot of components; those of most components come first."""


class ModelPlots:
    """The figures of a model; each is a new `matplotlib.figure.Figure`, to be shown, changed or saved.

    Examples
    --------
    >>> import felb
    >>> model = felb.FederatedBMF(5, random_state=0).fit(felb.data.load("zoo"))
    >>> model.plot.components().savefig("components.png")
    """

    def __init__(self, model: BooleanFactorization) -> None:
        check_is_fitted(model)
        self._model = model

    def components(self, *, max_features: int = MOST_FEATURES) -> Any:
        """Draw which features each component has, by their names; at most so many features, those used most."""
        V = self._model.components_
        n_used = int(V.any(axis=0).sum())
        used = np.argsort(-V.sum(axis=0), kind="stable")[: max(1, min(max_features, n_used))]
        supports = getattr(self._model, "supports_", None)
        columns = used[tile_order(np.eye(len(V), dtype=bool), V[:, used]).columns]
        names = feature_names(self._model)
        figure = _make_notebook_figure((2.2 + 0.22 * len(columns), 1.6 + 0.3 * len(V)))
        axes = figure.subplots()
        colours = _color_map("light", ("surface", "accent"))
        axes.imshow(V[:, columns], cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.set_xticks(range(len(columns)), [names[j] for j in columns], rotation=90, parse_math=False)
        rows = range(len(V)) if supports is None else [f"{i}  ({support})" for i, support in enumerate(supports)]
        axes.set_yticks(range(len(V)), rows)
        axes.set_ylabel("component" if supports is None else "component (support)", fontsize=9)
        more = f"; {n_used - len(columns)} more features are not shown" if n_used > len(columns) else ""
        axes.set_title(f"Components and their features{more}", fontsize=10, loc="left")
        axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(len(V) + 1) - 0.5, minor=True)
        axes.grid(which="minor", color=LIGHT["line"], linewidth=0.6)
        axes.tick_params(which="both", length=0, labelsize=8)
        axes.spines[:].set_visible(False)
        return figure

    def reconstruction(self, X: Any) -> Any:
        """Draw X, its reconstruction U∘V, and where they differ; rows and columns in the order of the components."""
        rows = self._model.new_rows(X)[0]
        U = np.asarray(self._model.transform(rows))
        drawn = picture(rows, U, self._model.components_)
        figure, colours = _make_notebook_figure((10.5, 4.2)), _color_map("light")
        titles = {"data": "data", "reconstruction": "reconstruction", "residual": "explained, missed, wrong"}
        for axes, (name, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
            codes = getattr(drawn, name)
            axes.imshow(codes, cmap=colours, vmin=0, vmax=colours.N - 1, aspect="auto", interpolation="nearest")
            axes.set_title(title, fontsize=10, loc="left")
            axes.set(xticks=[], yticks=[])
        from matplotlib.patches import Patch

        words = {"explained": "kept", "missed": "accent", "wrong": "wrong"}
        patches = [Patch(color=LIGHT[name], label=word) for word, name in words.items()]
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.01)}
        axes.legend(handles=patches, ncols=3, fontsize=8, frameon=False, **place)
        n, m = drawn.shape
        part = " An even selection is shown." if drawn.is_selection else ""
        figure.supxlabel(f"{n} records x {m} features.{part}", fontsize=8)
        return figure

    def rounds(self) -> Any:
        """Draw the metrics of the rounds: loss, integrality gap, wrong cells and others that the method reports."""
        found = find_curves(self._model.history_) if len(getattr(self._model, "history_", ())) else {}
        if not found:
            raise InputError(f"{type(self._model).__name__} has no metrics of rounds to draw")
        return _paint_rounds(_make_notebook_figure, found)

    def stability(self, found: Any = None) -> Any:
        """Draw how well each component is found again in refits, from the result of `felb.stability`.

        Parameters
        ----------
        found : has ``mean``, the mean match of each component, and ``interval``, components × 2
        """
        if found is None or not all(hasattr(found, name) for name in ("mean", "interval")):
            raise InputError("give the result of felb.stability(model, X), which has the means and intervals to draw")
        means, interval = np.asarray(found.mean, dtype=float), np.asarray(found.interval, dtype=float)
        k = len(self._model.components_)
        if means.shape != (k,) or interval.shape != (k, 2):
            raise InputError(f"the stability is of {means.size} components, and the model has {k}")
        figure = _make_notebook_figure((5.2, 1.2 + 0.3 * k))
        axes, places = figure.subplots(), np.arange(k)
        axes.hlines(places, interval[:, 0], interval[:, 1], color=LIGHT["accent"], linewidth=2)
        axes.plot(means, places, "o", color=LIGHT["accent"], markersize=6)
        axes.set_xlim(-0.02, 1.02)
        axes.set_yticks(places)
        axes.invert_yaxis()
        axes.set_ylabel("component", fontsize=9)
        axes.set_xlabel("Jaccard index of a component and its match in refits: mean, 95% of refits", fontsize=8)
        axes.grid(axis="x", color=LIGHT["line"], linewidth=0.6)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right", "left"]].set_visible(False)
        return figure


def _make_notebook_figure(size: tuple[float, float]) -> Any:
    """Return a figure that a notebook shows once, when it is the value of a cell."""
    check_matplotlib()
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=size, layout="constrained", facecolor="white")
    pyplot.close(figure)  # not kept by pyplot, which would show it a second time
    return figure


# -- The choice of k: held-out cells, error, stability and description length ----------------------------------------


def write_choice(choice: RankChoice, path: str | os.PathLike[str]) -> None:
    """Draw the scores over the number of components into a PNG file.

    Examples
    --------
    >>> import felb
    >>> choice = felb.choose_k(felb.data.load("zoo"), range(2, 5), cv=2, n_resamples=0)
    >>> write_choice(choice, "choice.png")
    """
    check_drawable(path)
    rows = choice.scores
    held_out, length = "F1 of held-out cells", "Description length, kbit"
    panels = {held_out: [row.mean for row in rows], "Wrong cells of the fit, %": [100 * row.error_rate for row in rows]}
    if all(row.stability is not None for row in rows):
        panels["Components found by refits, %"] = [100 * (row.stability or 0.0) for row in rows]
    panels[length] = [row.description_length / 1000 for row in rows]
    k, chosen = [row.n_components for row in rows], {length: choice.shortest_k, held_out: choice.best_k}
    with drawing():
        figure = make_figure((3.2 * len(panels), 2.8))
        for axes, (title, values) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            _paint_curves(axes, [Series(title, k, values)], x_label="components k", log_y=False)
            axes.set_title(title, fontsize=9, loc="left", color=LIGHT["ink"])
            if title == held_out:
                errors = [row.standard_error for row in rows]
                axes.errorbar(k, values, yerr=errors, color=LIGHT["accent"], linewidth=0, elinewidth=1)
            if title in chosen:
                _mark_choice(axes, chosen[title], values[k.index(chosen[title])], values)
        write_png(figure, path)


def _mark_choice(axes: Any, k: int, value: float, values: Sequence[float]) -> None:
    """Mark a number of components by a line, a point and its number, away from the curve."""
    axes.axvline(k, color=LIGHT["wrong"], linewidth=1, linestyle=":")
    axes.plot([k], [value], color=LIGHT["wrong"], marker="o", markersize=6)
    height = 0.92 if value < (min(values) + max(values)) / 2 else 0.04
    where = {"xycoords": ("data", "axes fraction"), "xytext": (4, 0), "textcoords": "offset points"}
    axes.annotate(f"k = {k}", (k, height), fontsize=8, color=LIGHT["wrong"], **where)
