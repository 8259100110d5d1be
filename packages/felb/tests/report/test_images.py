"""Pictures show the cells they were given, in the colours of the page."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from felb.data.binary import BinaryMatrix
from felb.kernels.boolean import boolean_product_dense
from felb.report.evidence import Measured, gather
from felb.report.figures import (
    INK_INDEX,
    KEPT,
    MISSED,
    MOST,
    PALETTES,
    PAPER_INDEX,
    WRONG,
    data_uri,
    enlarged,
    pictures_of,
    png,
)
from felb.report.parts import asset
from felb.report.result_page import purity


@pytest.mark.parametrize("theme", PALETTES)
def test_a_png_holds_the_colours_of_its_codes(theme):
    codes = np.random.default_rng(0).integers(0, 5, (13, 7)).astype(np.uint8)
    with Image.open(io.BytesIO(png(codes, PALETTES[theme]))) as image:
        assert image.size == (7, 13)
        pixels = np.asarray(image.convert("RGB"))
    for code, colour in enumerate(PALETTES[theme]):
        np.testing.assert_array_equal((pixels == list(bytes.fromhex(colour[1:]))).all(axis=2), codes == code)


def test_an_address_holds_the_same_file():
    codes = np.eye(3, dtype=np.uint8)
    head, _, body = data_uri(codes, PALETTES["light"]).partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(body) == png(codes, PALETTES["light"])


@pytest.mark.parametrize("theme", PALETTES)
def test_the_colours_are_those_of_the_style_sheet(theme):
    style = asset("page.css")
    for name, colour in zip(("surface", "ink", "kept", "accent", "wrong"), PALETTES[theme], strict=True):
        assert f"--{name}: {colour};" in style


def test_cells_are_whole_pixels():
    codes = np.random.default_rng(1).integers(0, 5, (30, 17)).astype(np.uint8)
    large = enlarged(codes)
    down, across = large.shape[0] // 30, large.shape[1] // 17
    assert min(down, across) > 5
    np.testing.assert_array_equal(large[::down, ::across], codes)


def measured(A, U, V):
    return Measured(A, U, V, "data", same=True, stored=True, rows_of=None)


def test_the_residual_says_what_is_wrong_with_every_cell(run):
    drawn = pictures_of(measured(run.matrix.rows(0, 100), run.U[:100], run.result.components))
    A, R = drawn.data.astype(bool), drawn.reconstruction.astype(bool)
    assert not drawn.chosen
    assert A.sum() == run.matrix.rows(0, 100).nnz
    assert R.sum() == boolean_product_dense(run.U[:100], run.result.components).sum()
    for code, cells in ((KEPT, A & R), (MISSED, A & ~R), (WRONG, ~A & R), (PAPER_INDEX, ~A & ~R)):
        np.testing.assert_array_equal(drawn.residual == code, cells)
    assert set(np.unique(drawn.data)) <= {PAPER_INDEX, INK_INDEX}


def test_unknown_cells_are_neither_right_nor_wrong():
    A, U, V = BinaryMatrix.of([[1, 0, 0, 1]]), np.ones((1, 1), dtype=bool), np.array([[True, True, True, False]])
    held = measured(A.with_unknown([[0, 1, 0, 0]]), U, V)
    assert pictures_of(held).residual.tolist() == [[KEPT, PAPER_INDEX, WRONG, MISSED]]
    assert purity(held).tolist() == [0.5]


def test_a_large_matrix_is_chosen_from_and_tiles_keep_their_room(make_run, tmp_path):
    stored = make_run(tmp_path, k=3, shape=(2000, 600))
    found = gather(stored.folder).measured
    drawn = pictures_of(found)
    assert drawn.chosen
    assert drawn.data.shape == MOST
    described = boolean_product_dense(found.U, found.V).any(axis=1).sum()
    shown = drawn.reconstruction.any(axis=1).sum()
    assert shown >= min(described, 0.7 * MOST[0])
