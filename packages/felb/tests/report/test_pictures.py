"""Pictures show exactly the cells they were given."""

from __future__ import annotations

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from felb.data import planted
from felb.data.binary import BinaryMatrix
from felb.errors import InputError, MissingExtraError
from felb.kernels.boolean import boolean_product_dense
from felb.report import draw_matrices, tile_order
from felb.report.figures import BAND_GAP, FRAME, FRAME_WIDTH, INK, LINE, MARGIN, PANEL_GAP, PAPER, cell_size


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


@pytest.mark.parametrize("width", [*range(1, 40), 57, 113, 205])
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

    monkeypatch.setattr(FigureCanvasAgg, "print_png", disk_full)
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
