"""Charts show exactly what they were given: cells, curves, shares, and the figures of a model."""

from __future__ import annotations

import base64
import io
import re
import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.figure import Figure
from PIL import Image
from sklearn.exceptions import NotFittedError

from felb import Asso, FederatedBMF, GreConD
from felb.data import load, partition, planted
from felb.data.binary import BinaryMatrix
from felb.errors import InputError, MissingExtraError
from felb.kernels.boolean import boolean_product_dense
from felb.metrics.counts import History
from felb.report import draw_matrices, gather, tile_order
from felb.report.figures import (
    BAND_GAP,
    CELL_COLOURS,
    FRAME,
    FRAME_WIDTH,
    INK,
    KEPT,
    LINE,
    MARGIN,
    MISSED,
    MOST,
    ONE,
    PANEL_GAP,
    PAPER,
    THEMES,
    WRONG,
    ZERO,
    Series,
    cell_size,
    draw_cells,
    draw_chart,
    draw_heat_map,
    draw_picture,
    find_curves,
    picture,
)
from felb.report.inputs import Measured

ZOO = load("zoo")


def random_cells(shape, seed=0, density=0.4):
    return np.random.default_rng(seed).random(shape) < density


def grey(path):
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("L"))


def cells_at(pixels, corner, shape, cell):
    """Read the cells of a panel whose frame starts at `corner` back, asserting that each is one flat colour."""
    top, left = corner[0] + FRAME_WIDTH, corner[1] + FRAME_WIDTH
    part = pixels[top : top + shape[0] * cell[0], left : left + shape[1] * cell[1]]
    blocks = part.reshape(shape[0], cell[0], shape[1], cell[1]).transpose(0, 2, 1, 3).reshape(*shape, -1)
    assert (blocks == blocks[:, :, :1]).all()
    assert np.isin(blocks, (INK, PAPER)).all()
    return blocks[:, :, 0] == INK


TOP = MARGIN + LINE


@pytest.mark.parametrize("shape", [(30, 20), (7, 90), (101, 17), (1, 1)])
def test_every_cell_is_whole_pixels_of_one_colour(tmp_path, shape):
    cells = random_cells(shape)
    draw_matrices({"data": cells}, tmp_path / "p.png")
    found = cells_at(grey(tmp_path / "p.png"), (TOP, MARGIN), shape, cell_size(shape, (640, 420)))
    np.testing.assert_array_equal(found, cells)


@pytest.mark.parametrize(
    "form", [BinaryMatrix.of, sp.csr_array, np.asarray, lambda a: a.astype(float), np.ndarray.tolist]
)
def test_every_form_of_a_matrix_gives_the_same_file(tmp_path, form):
    cells = random_cells((12, 9))
    draw_matrices({"data": cells}, tmp_path / "a.png")
    draw_matrices({"data": form(cells.astype(int))}, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_panels_stand_side_by_side(tmp_path):
    first, second = random_cells((20, 10), 1), random_cells((20, 10), 2)
    draw_matrices({"first": first, "second": second}, tmp_path / "p.png")
    pixels, cell = grey(tmp_path / "p.png"), cell_size((20, 10), (640, 420))
    panel = 10 * cell[1] + 2 * FRAME_WIDTH
    assert pixels.shape[1] == 2 * MARGIN + 2 * panel + PANEL_GAP
    np.testing.assert_array_equal(cells_at(pixels, (TOP, MARGIN), (20, 10), cell), first)
    np.testing.assert_array_equal(cells_at(pixels, (TOP, MARGIN + panel + PANEL_GAP), (20, 10), cell), second)
    assert (pixels[:TOP] < 128).any(), "no title was drawn"


def test_a_list_of_matrices_is_drawn_as_bands(tmp_path):
    clients = [random_cells((n, 10), n) for n in (5, 3, 8)]
    draw_matrices({"clients": clients}, tmp_path / "p.png")
    pixels, cell = grey(tmp_path / "p.png"), cell_size((16, 10), (640, 420))
    top = TOP
    for rows in clients:
        assert (pixels[top, MARGIN : MARGIN + 10 * cell[1]] == FRAME).all()
        np.testing.assert_array_equal(cells_at(pixels, (top, MARGIN), rows.shape, cell), rows)
        top += len(rows) * cell[0] + 2 * FRAME_WIDTH + BAND_GAP


def test_panels_with_the_same_columns_line_up():
    assert len({cell_size((n, 100), (640, 420))[1] for n in (1, 6, 80, 150, 640, 5000)}) == 1


@pytest.mark.parametrize("width", [1, 2, 7, 31, 39, 57, 113, 205])
def test_no_size_loses_a_pixel(tmp_path, width):
    draw_matrices({"": np.eye(2, width)}, tmp_path / "p.png", width=width, height=2)
    pixels = grey(tmp_path / "p.png")
    assert pixels.shape == (2 + 2 * FRAME_WIDTH + TOP + MARGIN, width + 2 * (FRAME_WIDTH + MARGIN))
    np.testing.assert_array_equal(cells_at(pixels, (TOP, MARGIN), (2, width), (1, 1)), np.eye(2, width))


def test_a_large_matrix_is_thinned_out_evenly(tmp_path):
    stripes = np.zeros((6400, 4200), dtype=bool)
    stripes[3200:, :2100] = True
    draw_matrices({"large": BinaryMatrix.of(stripes)}, tmp_path / "p.png")
    pixels = grey(tmp_path / "p.png")
    assert pixels.shape[1] == 420 + 2 * (MARGIN + FRAME_WIDTH)
    found = cells_at(pixels, (TOP, MARGIN), (640, 420), (1, 1))
    assert found[320:, :210].all()
    assert found.sum() == 320 * 210


def test_further_lines_of_a_title_are_small_and_below(tmp_path):
    draw_matrices({"data": np.eye(30)}, tmp_path / "one.png")
    draw_matrices({"data\nsmall": np.eye(30)}, tmp_path / "two.png")
    one, two = grey(tmp_path / "one.png"), grey(tmp_path / "two.png")
    assert two.shape == (one.shape[0] + LINE, one.shape[1])
    np.testing.assert_array_equal(two[: MARGIN + LINE // 2], one[: MARGIN + LINE // 2])
    np.testing.assert_array_equal(two[TOP + LINE :], one[TOP:])
    assert two[TOP : TOP + LINE].min() > two[MARGIN:TOP].min(), "the note is not lighter than the heading"


def test_settings_of_the_user_neither_change_nor_matter(tmp_path):
    draw_matrices({"data": np.eye(5)}, tmp_path / "a.png")
    with mpl.rc_context({"savefig.bbox": "tight", "savefig.dpi": 50, "image.origin": "lower", "image.cmap": "jet"}):
        before = dict(mpl.rcParams)
        draw_matrices({"data": np.eye(5)}, tmp_path / "b.png")
        assert dict(mpl.rcParams) == before
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_matplotlib_is_loaded_to_draw_only_and_pyplot_never(tmp_path):
    code = """
import sys, numpy
from felb.report import draw_matrices
assert "matplotlib" not in sys.modules
draw_matrices({"data": numpy.eye(3)}, sys.argv[1])
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "p.png")], check=True)
    assert (tmp_path / "p.png").stat().st_size > 0


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(MissingExtraError, match=r"drawing needs .* pip install 'felb\[report\]'"):
        draw_matrices({"data": np.eye(3)}, tmp_path / "p.png")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "p.png"
    path.write_bytes(b"old")

    def disk_full(self, file, **_):
        file.write(b"half a pic")
        raise OSError("no space left on device")

    monkeypatch.setattr(Figure, "savefig", disk_full)
    with pytest.raises(OSError, match="no space left"):
        draw_matrices({"data": np.eye(3)}, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_folders_are_made(tmp_path):
    draw_matrices({"data": np.eye(3)}, tmp_path / "a" / "b" / "p.png")
    assert (tmp_path / "a" / "b" / "p.png").exists()


@pytest.mark.parametrize(
    ("panels", "name", "message"),
    [
        ({}, "p.png", "no panels"),
        ({"data": np.eye(3)}, "p.pdf", "p.pdf"),
        ({"data": np.zeros((0, 3))}, "p.png", "'data' has no cells: 0 rows"),
        ({"data": [np.eye(3), np.eye(4)]}, "p.png", r"'data' have \[3, 4\] columns"),
        ({"data": [[0.0, 0.5]]}, "p.png", "0.5"),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path, panels, name, message):
    with pytest.raises(InputError, match=message):
        draw_matrices(panels, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_tile_order_brings_scattered_tiles_together():
    data = planted(60, 40, 3, heights=(0.2, 0.4), widths=(0.2, 0.4), seed=5)
    order = tile_order(data.U, data.V)
    largest = np.argmax(data.U.sum(axis=0) * data.V.sum(axis=1))
    height, width = data.U[:, largest].sum(), data.V[largest].sum()
    shown = order.of(data.signal)
    assert shown[:height, :width].all(), "the largest tile is not the block in the corner"
    assert shown.sum() == data.signal.nnz
    np.testing.assert_array_equal(shown, boolean_product_dense(data.U[order.rows], data.V[:, order.columns]))


def test_tile_order_needs_factors_that_fit():
    with pytest.raises(InputError, match=r"U has 2 .*V has 3"):
        tile_order(np.zeros((4, 2)), np.zeros((3, 5)))


@given(st.integers(0, 4).flatmap(lambda k: st.tuples(arrays(bool, (7, k)), arrays(bool, (k, 5)))))
def test_tile_order_is_an_order_with_strangers_last(factors):
    U, V = factors
    order = tile_order(U, V)
    assert sorted(order.rows) == list(range(7))
    assert sorted(order.columns) == list(range(5))
    for members, positions in ((U, order.rows), (V.T, order.columns)):
        strangers = np.flatnonzero(~members.any(axis=1))
        np.testing.assert_array_equal(positions[len(members) - len(strangers) :], strangers)


@pytest.mark.parametrize("theme", THEMES)
def test_cells_are_whole_pixels_in_the_colours_of_the_theme(theme):
    codes = np.random.default_rng(0).integers(0, 5, (30, 17)).astype(np.uint8)
    with Image.open(io.BytesIO(draw_cells(codes, theme))) as image:
        pixels = np.asarray(image.convert("RGB"))
    down, across = pixels.shape[0] // 30, pixels.shape[1] // 17
    assert min(down, across) > 5
    expected = np.repeat(np.repeat(codes, down, axis=0), across, axis=1)
    for code, name in enumerate(CELL_COLOURS):
        shown = (pixels == list(bytes.fromhex(THEMES[theme][name][1:]))).all(axis=2)
        np.testing.assert_array_equal(shown, expected == code)


def test_an_image_of_a_page_holds_the_same_file():
    codes = np.eye(3, dtype=np.uint8)
    for theme, source in draw_picture(codes).sources.items():
        head, _, body = source.partition(",")
        assert head == "data:image/png;base64"
        assert base64.b64decode(body) == draw_cells(codes, theme)


def test_the_residual_says_what_is_wrong_with_every_cell(run):
    drawn = picture(run.matrix.rows(0, 100), run.U[:100], run.result.components)
    A, R = drawn.data.astype(bool), drawn.reconstruction.astype(bool)
    assert not drawn.is_selection
    assert A.sum() == run.matrix.rows(0, 100).nnz
    assert R.sum() == boolean_product_dense(run.U[:100], run.result.components).sum()
    for code, cells in ((KEPT, A & R), (MISSED, A & ~R), (WRONG, ~A & R), (ZERO, ~A & ~R)):
        np.testing.assert_array_equal(drawn.residual == code, cells)
    assert set(np.unique(drawn.data)) <= {ZERO, ONE}


def test_unknown_cells_are_neither_right_nor_wrong():
    A, U, V = BinaryMatrix.of([[1, 0, 0, 1]]), np.ones((1, 1), dtype=bool), np.array([[True, True, True, False]])
    data = A.with_unknown([[0, 1, 0, 0]])
    assert picture(data, U, V).residual.tolist() == [[KEPT, ZERO, WRONG, MISSED]]
    assert Measured(data, U, V, "data", same=True, stored=True, rows_of=None).purity.tolist() == [0.5]


def test_a_large_matrix_is_chosen_from_and_tiles_keep_their_room(make_run, tmp_path):
    stored = make_run(tmp_path, k=3, shape=(2000, 600))
    found = gather(stored.folder).measured
    drawn = picture(found.matrix, found.U, found.V)
    assert drawn.is_selection
    assert drawn.data.shape == MOST
    described = boolean_product_dense(found.U, found.V).any(axis=1).sum()
    shown = drawn.reconstruction.any(axis=1).sum()
    assert shown >= min(described, 0.7 * MOST[0])


def svg(image, theme="light"):
    """Parse an image of a page."""
    head, _, body = image.sources[theme].partition(",")
    assert head == "data:image/svg+xml;base64"
    return ElementTree.fromstring(base64.b64decode(body))


def paths(image, colour="accent"):
    """Return the points of the lines of a colour, piece by piece."""
    stroked = [
        path.get("d")
        for path in svg(image).iter("{http://www.w3.org/2000/svg}path")
        if f"stroke: {THEMES['light'][colour]}; stroke-width: 1.4" in path.get("style", "")
    ]
    pieces = [piece for d in stroked for piece in d.split("M")[1:]]
    return [np.array(re.findall(r"(\S+) (\S+)\s*(?:L|$)", piece), dtype=float) for piece in pieces]


def lengths(image):
    return sorted(len(piece) for colour in ("accent", "wrong") for piece in paths(image, colour))


def words(image):
    return [text.text for text in svg(image).iter("{http://www.w3.org/2000/svg}text")]


def test_the_curve_goes_through_its_points_and_its_axis_has_whole_numbers():
    drawn = draw_chart([Series("a", [0, 1, 2], [0.0, 10.0, 5.0])], x_label="components", x_range=(0, 2))
    [points] = paths(drawn)
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 == pytest.approx((x0 + x2) / 2)
    assert y2 == pytest.approx((y0 + y1) / 2)
    assert words(drawn)[:4] == ["0", "1", "2", "components"]


def test_a_missing_value_breaks_the_curve_and_a_curve_without_values_is_left_out():
    assert lengths(draw_chart([Series("a", range(5), [1, 2, None, 4, 5])], x_label="x")) == [2, 2]
    assert lengths(draw_chart([Series("a", [0, 1], [1, 2]), Series("b", [0, 1], [None, None])], x_label="x")) == [2]
    draw_chart([Series("a", [0, 0], [5.0, 5.0])], x_label="x", log_y=True, x_range=(0, 0))


def test_charts_differ_between_themes_in_colours_alone():
    drawn = draw_chart([Series(str(i), [0, 1], [i, 2 * i]) for i in range(10)], x_label="x")
    texts = {theme: base64.b64decode(source.partition(",")[2]).decode() for theme, source in drawn.sources.items()}
    assert texts["light"] != texts["dark"]
    plain = {re.sub("#[0-9a-f]{6}", "", text) for text in texts.values()}
    assert len(plain) == 1
    for name in ("accent", "wrong", "violet", "ochre", "rose", "muted", "line"):
        for theme, colours in THEMES.items():
            assert (colours[name] in texts[theme], colours[name] in texts[{"light": "dark"}.get(theme, "light")]) == (
                True,
                False,
            )


def test_a_chart_of_too_many_curves_is_refused():
    with pytest.raises(InputError, match="10 curves"):
        draw_chart([Series(str(i), [0], [1]) for i in range(11)], x_label="x")


@pytest.mark.filterwarnings("error")
def test_a_heat_map_shows_its_shares_and_any_name():
    names = ["$x^2$ & <b>", "\x00\ud800", "数据", "n" * 300]
    drawn = draw_heat_map([[0.125, None], [1.0, 0.0], [0.5, 0.25], [None, None]], names, ["1", "2"])
    shown = words(drawn)
    assert {"$x^2$ & <b>", "\ufffd?", "数据", "n" * 23 + "…", "12", "100", "0", "50", "25"} <= set(shown)
    assert len(shown) == 4 + 2 + 5


def test_a_history_becomes_one_chart_for_every_figure_that_varies():
    history = History(
        [
            {"round": i, "task": "factor_statistics", "loss": 9.0 - i, "lam": 10.0**i, "clients": 3, "note": "x"}
            for i in range(6)
        ]
        + [{"round": 6 + i, "task": "flip_gains", "loss": 2.0, "odd<": float(i), "f1": None} for i in range(4)]
    )
    found = find_curves(history)
    assert list(found) == ["loss", "lam", "odd<"]
    assert [one.name for one in found["loss"]] == ["relaxed", "Boolean"]
    assert found["lam"][0].y == [10.0**i for i in range(6)]
    assert find_curves(History()) == {}


def test_the_curve_of_a_search_that_starts_anew_is_broken():
    history = History(
        [{"round": i, "task": "factor_statistics", "loss": 9.0 - i} for i in range(3)]
        + [{"round": 3 + i, "task": "flip_gains", "loss": 5.0 - i} for i in range(2)]
        + [{"round": 5 + i, "task": "factor_statistics", "loss": 8.0 - i} for i in range(3)]
        + [{"round": 8, "task": "flip_gains", "loss": 1.0}]
    )
    relaxed, boolean = find_curves(history)["loss"]
    assert list(zip(relaxed.x, relaxed.y, strict=True)) == [(0, 9), (1, 8), (2, 7), (4, None), (5, 8), (6, 7), (7, 6)]
    assert boolean.y == [5.0, 4.0, 1.0]
    assert lengths(draw_chart([relaxed, boolean], x_label="round")) == [3, 3, 3]


@pytest.fixture(scope="module")
def model():
    return FederatedBMF(4, effort="fast", random_state=0).fit(ZOO, groups=partition.even(101, 3))


def image_of(figure):
    """Return the matrix that the first axes of a figure show."""
    return np.asarray(figure.axes[0].images[0].get_array())


def test_components_are_drawn_by_name_and_all_of_them(model):
    figure = model.plot.components()
    names = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    shown = image_of(figure)
    for row, features in zip(shown, model.component_features(), strict=True):
        assert {name for name, cell in zip(names, row, strict=True) if cell} == set(features)
    few = model.plot.components(max_features=3)
    assert image_of(few).shape == (4, 3)
    assert "more features are not shown" in few.axes[0].get_title(loc="left")


def test_the_residual_counts_what_is_wrong(model):
    figure = model.plot.reconstruction(ZOO)
    data, made, residual = (np.asarray(axes.images[0].get_array()) for axes in figure.axes[:3])
    assert data.sum() == ZOO.nnz
    assert np.count_nonzero(data != made) == np.count_nonzero(residual >= 3)
    assert np.count_nonzero(data != made) == model.counts_.fp + model.counts_.fn


def test_rounds_are_drawn_and_a_method_without_rounds_says_so(model):
    figure = model.plot.rounds()
    assert any(axes.lines for axes in figure.axes)
    with pytest.raises(InputError, match="rounds"):
        GreConD(3).fit(ZOO).plot.rounds()


def test_stability_takes_means_and_intervals(model):
    found = SimpleNamespace(mean=np.array([0.9, 0.8, 0.7, 0.6]), interval=np.array([[0.5, 1.0]] * 4))
    axes = model.plot.stability(found).axes[0]
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), found.mean)
    with pytest.raises(InputError, match=r"felb\.stability"):
        model.plot.stability()
    with pytest.raises(InputError, match="has 4"):
        model.plot.stability(SimpleNamespace(mean=np.ones(3), interval=np.ones((3, 2))))


def test_figures_are_not_kept_and_can_be_saved(model, tmp_path):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    model.plot.components().savefig(tmp_path / "components.png")
    assert (tmp_path / "components.png").stat().st_size > 1000
    assert pyplot.get_fignums() == before


def test_before_the_fit_there_is_nothing_to_draw():
    with pytest.raises(NotFittedError):
        _ = Asso(3).plot
