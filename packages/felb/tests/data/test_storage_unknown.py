"""Unknown cells in files: what is written is mapped back, block by block too, and files without them are as ever."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.data import BinaryMatrix
from felb.data.storage import MatrixWriter
from felb.errors import InputError

CELLS = hnp.arrays(
    np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=9), elements=st.integers(0, 2)
)


def partly(cells, columns=None):
    """Return the matrix of 0, 1 and 2, where 2 is unknown."""
    return BinaryMatrix.of(cells == 1, columns=columns).with_unknown(cells == 2)


@given(cells=CELLS, block=st.integers(1, 4), named=st.booleans())
@settings(deadline=None, max_examples=60, derandomize=True)
def test_round_trip_at_once_and_block_by_block(cells, block, named, tmp_path_factory):
    folder = tmp_path_factory.mktemp("m")
    matrix = partly(cells, [f"c{j}" for j in range(cells.shape[1])] if named else None)
    matrix.save(folder / "whole.felb")
    with MatrixWriter(folder / "blocks.felb") as writer:
        writer.append(matrix.rows(0, 0))
        for rows in matrix.row_blocks(block):
            writer.append(rows)
    opened = BinaryMatrix.open(folder / "whole.felb")
    assert opened == matrix
    assert (opened.unknown is None) == (not (cells == 2).any())
    assert opened.fingerprint() == matrix.fingerprint()
    assert (folder / "whole.felb").read_bytes() == (folder / "blocks.felb").read_bytes()


def test_a_slice_saves_its_own_unknown_cells(tmp_path):
    cells = np.random.default_rng(0).integers(0, 3, (40, 11))
    partly(cells).rows(10, 20).save(tmp_path / "part.felb")
    opened = BinaryMatrix.open(tmp_path / "part.felb")
    assert opened == partly(cells[10:20])
    assert opened.rows(3, 7) == partly(cells[13:17])
    assert opened.take([5, 0, 9]) == partly(cells[[15, 10, 19]])


def test_unknown_cells_are_mapped(tmp_path):
    partly(np.random.default_rng(0).integers(0, 3, (40, 11))).save(tmp_path / "m.felb")
    base = BinaryMatrix.open(tmp_path / "m.felb").unknown.indices
    assert not base.flags.writeable
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_every_truncation_is_refused(tmp_path):
    partly(np.random.default_rng(0).integers(0, 3, (20, 7))).save(tmp_path / "m.felb")
    content = (tmp_path / "m.felb").read_bytes()
    for length in [*range(0, len(content), 17), len(content) - 1]:
        (tmp_path / "cut.felb").write_bytes(content[:length])
        with pytest.raises(InputError, match=r"cut\.felb is (not a felb matrix|damaged|truncated)"):
            BinaryMatrix.open(tmp_path / "cut.felb")


@pytest.mark.parametrize("number", [b"-3", b"1.5", b"nil", b"9e9"])
def test_a_wrong_number_of_unknown_cells_is_refused(number, tmp_path):
    path = tmp_path / "m.felb"
    partly(np.full((4, 4), 2)).save(path)
    content = path.read_bytes()
    length = int.from_bytes(content[8:16], "little")
    header = content[24 : 24 + length]
    assert header.count(b'"unknown":16') == 1
    changed = header.replace(b'"unknown":16', b'"unknown":' + number).ljust(length)
    sizes = np.array([len(changed), zlib.crc32(changed)], "<u8").tobytes()
    path.write_bytes(content[:8] + sizes + changed + content[24 + length :])
    with pytest.raises(InputError, match="damaged"):
        BinaryMatrix.open(path)


def test_a_one_that_is_unknown_is_refused(tmp_path):
    path = tmp_path / "m.felb"
    matrix = partly(np.array([[1, 0, 2], [0, 1, 2]]))
    clash = BinaryMatrix.of([[1, 0, 1], [0, 0, 1]])
    matrix._with_rows(matrix.indptr, matrix.indices, clash).save(path)
    with pytest.raises(InputError, match=r"1 cells .*unknown"):
        BinaryMatrix.open(path)
