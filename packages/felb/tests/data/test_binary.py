import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.data import BinaryMatrix
from felb.data import binary as binary_module
from felb.data.binary import index_dtype
from felb.errors import InputError

SMALL = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1], [1, 1, 1]], dtype=bool)
booleans = hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=9))


@pytest.fixture
def small():
    return BinaryMatrix.of(SMALL, columns=["a", "b", "c"])


def test_facts(small):
    assert small.shape == (4, 3)
    assert len(small) == 4
    assert small.nnz == 7
    assert small.density == 7 / 12
    assert small.columns == ("a", "b", "c")
    np.testing.assert_array_equal(small.row_sums(), SMALL.sum(axis=1))
    np.testing.assert_array_equal(small.column_sums(), SMALL.sum(axis=0))
    assert repr(small) == "BinaryMatrix(4 x 3 named, 7 ones, 0.5833 dense)"


@settings(deadline=None)
@given(booleans)
def test_there_and_back(dense):
    matrix = BinaryMatrix.of(dense)
    np.testing.assert_array_equal(matrix.toarray(), dense)
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), dense)
    np.testing.assert_array_equal(matrix.row_sums(), dense.sum(axis=1))
    np.testing.assert_array_equal(matrix.column_sums(), dense.sum(axis=0))
    assert BinaryMatrix.of(matrix.to_scipy()) == matrix


def test_empty_shapes():
    for shape in [(0, 0), (0, 3), (3, 0)]:
        matrix = BinaryMatrix.of(np.zeros(shape))
        assert matrix.shape == shape
        assert matrix.nnz == 0
        assert matrix.density == 0.0
        assert matrix.toarray().shape == shape
        assert matrix.column_sums().shape == (shape[1],)
        assert len(matrix.fingerprint()) == 64


@pytest.mark.parametrize(
    ("n_columns", "dtype"), [(0, np.uint16), (65535, np.uint16), (65536, np.uint16), (65537, np.int32)]
)
def test_index_type_boundary(n_columns, dtype):
    assert index_dtype(n_columns) == dtype


@pytest.mark.parametrize("n_columns", [65535, 65536, 65537])
@pytest.mark.parametrize("source", ["coo", "dense", "csc", "slices"])
def test_last_column_survives_the_index_boundary(n_columns, source):
    last = sp.coo_array(([1, 1, 1], ([0, 1, 1], [n_columns - 1, 0, n_columns - 1])), shape=(3, n_columns))
    data = {"coo": last, "dense": last.toarray(), "csc": last.tocsc(), "slices": last}[source]
    matrix = BinaryMatrix.of(data)
    if source == "slices":
        matrix = BinaryMatrix.vstack([matrix.rows(0, 1), matrix.take([1]), matrix.rows(2, 3)])
    assert matrix.indices.dtype == (np.uint16 if n_columns <= 65536 else np.int32)
    np.testing.assert_array_equal(matrix.indices, [n_columns - 1, 0, n_columns - 1])
    np.testing.assert_array_equal(matrix.row_sums(), [1, 2, 0])
    assert matrix.column_sums()[[0, -1]].tolist() == [1, 2]
    assert matrix.to_scipy()[1, n_columns - 1] == 1


def test_too_many_columns():
    with pytest.raises(InputError, match="2147483648 columns"):
        index_dtype(2**31)


@pytest.mark.parametrize(
    ("indptr", "indices", "n_columns", "message"),
    [
        ([0, 1], [3], 3, "no column 3; .*0 to 2"),
        ([0, 1], [-1], 3, "no column -1"),
        ([0, 1], [65536 + 1], 3, "no column 65537"),
        ([0, 1], [1.5], 3, "must be integers"),
        ([0, 2], [1], 3, "indptr must ascend"),
        ([-1, 1], [1], 3, "indptr must ascend"),
        ([0, 1, 0], [1], 3, "indptr must ascend"),
        ([], [], 3, "one entry more"),
        ([[0]], [1], 3, "must be 1D"),
        ([0, 1], [1], -1, "-1 columns"),
        ([0, 2], [1, 1], 3, "row 0 names column 1 twice"),
        ([0, 0, 2], [2, 1], 3, "row 1 names column 1 after column 2"),
    ],
)
def test_constructor_refuses_what_would_point_outside(indptr, indices, n_columns, message):
    with pytest.raises(InputError, match=message):
        BinaryMatrix(np.array(indptr, dtype=np.int64), np.array(indices), n_columns)


def test_constructor_checks_indices_that_already_have_the_right_type():
    with pytest.raises(InputError, match="no column 3"):
        BinaryMatrix(np.array([0, 1]), np.array([3], dtype=np.uint16), 3)


def test_constructor_keeps_arrays_that_fit():
    indptr, indices = np.array([0, 1], dtype=np.int64), np.array([2], dtype=np.uint16)
    matrix = BinaryMatrix(indptr, indices, 3)
    assert np.shares_memory(matrix.indices, indices)
    assert np.shares_memory(matrix.indptr, indptr)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["a", "b"], "2 column names .*3 columns"),
        (["a", "b", "a"], "'a' occurs more than once"),
        ([1, "1", 2], "'1' occurs more than once"),
        ("abc", "must be a list of names"),
    ],
)
def test_bad_column_names(columns, message):
    with pytest.raises(InputError, match=message):
        BinaryMatrix.of(SMALL, columns=columns)


def test_with_columns(small):
    renamed = small.with_columns([1, 2, 3])
    assert renamed.columns == ("1", "2", "3")
    assert small.columns == ("a", "b", "c")
    assert np.shares_memory(renamed.indices, small.indices)
    assert small.with_columns(None).columns is None
    with pytest.raises(InputError, match="1 column names"):
        small.with_columns(["a"])


# -- slices, blocks, picks, stacks -----------------------------------------------------------------------------


@settings(deadline=None)
@given(booleans, st.integers(-12, 12), st.integers(-12, 12))
def test_rows_is_a_python_slice(dense, start, stop):
    part = BinaryMatrix.of(dense).rows(start, stop)
    np.testing.assert_array_equal(part.toarray(), dense[start:stop])
    assert part == BinaryMatrix.of(dense[start:stop])


def test_slices_share_memory_and_know_their_own_ones(small):
    part = small.rows(2, 4)
    assert np.shares_memory(part.indices, small.indices)
    assert part.indptr[0] == 2  # a slice does not start anew
    assert part.nnz == 5
    assert part.columns == small.columns
    np.testing.assert_array_equal(part.column_sums(), SMALL[2:].sum(axis=0))
    np.testing.assert_array_equal(part.to_scipy().toarray(), SMALL[2:])
    np.testing.assert_array_equal(part.rows(1, 2).toarray(), SMALL[3:])
    np.testing.assert_array_equal(part.take([1, 0]).toarray(), SMALL[[3, 2]])
    np.testing.assert_array_equal(part.with_columns(None).toarray(), SMALL[2:])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100])
def test_row_blocks_cover_every_row_once(small, size):
    blocks = list(small.row_blocks(size))
    assert all(0 < len(block) <= size for block in blocks)
    np.testing.assert_array_equal(np.vstack([block.toarray() for block in blocks]), SMALL)
    assert BinaryMatrix.vstack(blocks) == small


def test_row_blocks_need_a_size(small):
    with pytest.raises(InputError, match="size=0"):
        next(small.row_blocks(0))


@settings(deadline=None)
@given(booleans, st.data())
def test_take_is_numpy_indexing(dense, data):
    rows = data.draw(st.lists(st.integers(0, dense.shape[0] - 1), max_size=12)) if dense.shape[0] else []
    taken = BinaryMatrix.of(dense).take(rows)
    np.testing.assert_array_equal(taken.toarray(), dense[np.array(rows, dtype=int)])


def test_take_by_mask(small):
    mask = np.array([True, False, False, True])
    np.testing.assert_array_equal(small.take(mask).toarray(), SMALL[mask])
    np.testing.assert_array_equal(small.take(np.array([3], dtype=np.uint8)).toarray(), SMALL[3:])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([-1], "row -1 .*0 to 3"),
        ([0, 4], "row 4 does not exist"),
        ([0.5], "mask of length 4"),
        ([True, False], "mask of length 4"),
        ([[0, 1]], "list of row numbers"),
        (["a"], "list of row numbers"),
    ],
)
def test_take_refuses(small, rows, message):
    with pytest.raises(InputError, match=message):
        small.take(rows)


def test_take_is_a_copy(small):
    assert not np.shares_memory(small.take([0, 1, 2, 3]).indices, small.indices)


@settings(deadline=None)
@given(booleans, st.integers(0, 9), st.integers(0, 9))
def test_vstack_undoes_splitting(dense, one, two):
    matrix = BinaryMatrix.of(dense)
    first, second = sorted([one, two])
    parts = [matrix.rows(0, first), matrix.rows(first, second), matrix.rows(second, dense.shape[0])]
    assert BinaryMatrix.vstack(parts) == matrix


def test_vstack_refuses(small):
    with pytest.raises(InputError, match="nothing to stack"):
        BinaryMatrix.vstack([])
    with pytest.raises(InputError, match=r"\[3, 2\] columns"):
        BinaryMatrix.vstack([small, BinaryMatrix.of(np.eye(2))])
    with pytest.raises(InputError, match="different column names"):
        BinaryMatrix.vstack([small, small.with_columns(["a", "c", "b"])])


def test_vstack_takes_the_names_there_are(small):
    stacked = BinaryMatrix.vstack([small.with_columns(None), small, small.with_columns(None)])
    assert stacked.columns == small.columns
    np.testing.assert_array_equal(stacked.toarray(), np.vstack([SMALL] * 3))
    assert BinaryMatrix.vstack([small.with_columns(None)] * 2).columns is None


# -- equality and fingerprint ----------------------------------------------------------------------------------


def test_equality(small):
    assert small == BinaryMatrix.of(SMALL, columns=["a", "b", "c"])
    assert small != BinaryMatrix.of(SMALL)
    assert small != BinaryMatrix.of(~SMALL, columns=["a", "b", "c"])
    assert small != SMALL.tolist()
    assert small.rows(0, 2) != small.rows(1, 3)
    moved = SMALL.copy()
    moved[0] = [0, 1, 1]  # as many ones in every row, elsewhere
    assert small != BinaryMatrix.of(moved, columns=["a", "b", "c"])
    with pytest.raises(TypeError, match="unhashable"):
        hash(small)


def test_copies_and_pickles_are_equal(small):
    assert copy.copy(small) is small
    assert copy.deepcopy(small) == small
    assert pickle.loads(pickle.dumps(small)) == small  # noqa: S301  # our own bytes; worker processes do this


@pytest.mark.parametrize("chunk", [1, 3, 1 << 22])
def test_fingerprint_does_not_depend_on_storage(small, tmp_path, monkeypatch, chunk):
    expected = small.fingerprint()
    monkeypatch.setattr(binary_module, "ONES_AT_A_TIME", chunk)
    around = BinaryMatrix.vstack([small, small, small])
    small.save(tmp_path / "a.felb")
    around.save(tmp_path / "b.felb")
    same = {
        "itself": small,
        "slice": around.rows(4, 8),
        "taken": around.take(np.arange(4, 8)),
        "mapped": BinaryMatrix.open(tmp_path / "a.felb"),
        "slice of mapped": BinaryMatrix.open(tmp_path / "b.felb").rows(8, 12),
        "from float": BinaryMatrix.of(SMALL.astype(np.float32), columns=["a", "b", "c"]),
        "from csc": BinaryMatrix.of(sp.csc_array(SMALL.astype(np.int64)), columns=["a", "b", "c"]),
    }
    for name, matrix in same.items():
        assert matrix == small, name
        assert matrix.fingerprint() == expected, name
        np.testing.assert_array_equal(matrix.column_sums(), SMALL.sum(axis=0))


def test_fingerprint_tells_data_and_names_apart(small):
    one_moved = SMALL.copy()
    one_moved[0] = [0, 1, 1]
    different = [
        small,
        small.with_columns(None),
        small.with_columns(["a", "c", "b"]),
        small.with_columns(["a\0b", "", "c"]),
        small.with_columns(["a", "\0b", "c"]),
        small.rows(0, 3),
        small.take([1, 0, 2, 3]),
        BinaryMatrix.of(one_moved, columns=["a", "b", "c"]),
        BinaryMatrix.of(np.hstack([SMALL, np.zeros((4, 1), bool)])),
        BinaryMatrix.of(np.vstack([SMALL, np.zeros((1, 3), bool)])),
        BinaryMatrix.of(SMALL.reshape(3, 4)),
        BinaryMatrix.of(np.zeros((0, 3))),
        BinaryMatrix.of(np.zeros((3, 0))),
    ]
    assert len({matrix.fingerprint() for matrix in different}) == len(different)


def test_fingerprint_survives_odd_names(small):
    assert len(small.with_columns(["\ud800", "ü", ""]).fingerprint()) == 64


def test_to_scipy_dtype(small):
    assert small.to_scipy().dtype == np.uint8
    product = small.rows(2, 4).to_scipy(np.float32) @ np.eye(3, dtype=np.float32)
    assert product.dtype == np.float32
    np.testing.assert_array_equal(product, SMALL[2:])
