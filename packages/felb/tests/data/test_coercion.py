import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.data import BinaryMatrix
from felb.data import coercion as convert_module
from felb.data.coercion import from_columns
from felb.errors import InputError

DENSE = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]])
FORMATS = ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"]
KINDS = [f"{form}_{kind}" for form in FORMATS for kind in ("array", "matrix")]


def dense_of(matrix):
    return matrix.toarray().astype(int)


# -- NumPy and lists -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint64", "float16", "float64", "longdouble", "O", "U1", "S1"],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_types(dtype, order):
    data = np.asarray(DENSE.astype(dtype), order=order)
    before = data.copy()
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of(data)), DENSE)
    np.testing.assert_array_equal(data, before)


def test_views_and_subclasses():
    wide = np.repeat(DENSE, 2, axis=1)
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of(wide[:, ::2])), DENSE)
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of(DENSE[::-1])), DENSE[::-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        old = np.matrix(DENSE)
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of(old)), DENSE)


def test_lists():
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of(DENSE.tolist())), DENSE)
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of([(True, False), (1, 0.0)])), [[1, 0], [1, 0]])
    assert BinaryMatrix.of([[]]).shape == (1, 0)


@pytest.mark.parametrize("cells", [1, 9, 1 << 24])
def test_dense_data_is_scanned_in_blocks(cells, monkeypatch):
    monkeypatch.setattr(convert_module, "DENSE_BLOCK_CELLS", cells)
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of(DENSE)), DENSE)
    bad = DENSE.astype(float)
    bad[3, 2] = 0.5
    with pytest.raises(InputError, match=r"row 3, column 2 holds 0\.5"):
        BinaryMatrix.of(bad)


def test_binary_matrix_passes_through():
    matrix = BinaryMatrix.of(DENSE)
    assert BinaryMatrix.of(matrix) is matrix
    assert BinaryMatrix.of(matrix, columns=list("abcd")).columns == ("a", "b", "c", "d")
    assert BinaryMatrix.of(matrix, binarize_threshold=0.5) is matrix
    for threshold in (-1, 1):
        with pytest.raises(InputError, match=r"cells .* equal"):
            BinaryMatrix.of(matrix, binarize_threshold=threshold)


@pytest.mark.parametrize("value", [0.5, -1, 1e308, np.inf, 1 + 1e-12, 5e-324])
@pytest.mark.parametrize("form", ["dense", "csr", "pandas", "polars"])
def test_other_values_are_named(value, form):
    data = DENSE.astype(float)
    data[2, 3] = value
    names = ["sex", "smoker", "fever", "age"]
    given_data = {
        "dense": lambda: data,
        "csr": lambda: sp.csr_array(data),
        "pandas": lambda: pd.DataFrame(data, columns=names),
        "polars": lambda: pl.DataFrame(data, schema=names),
    }[form]()
    with pytest.raises(InputError) as error:
        BinaryMatrix.of(given_data, columns=names)
    assert str(error.value).startswith(f"row 2, column 3 ('age') holds {np.float64(value)}; ")
    assert error.value.parameter == "binarize_threshold"


def test_message_without_names():
    data = np.zeros((4, 18))
    data[3, 17] = 0.5
    with pytest.raises(InputError, match=r"^row 3, column 17 holds 0\.5; .* binarize_threshold"):
        BinaryMatrix.of(data)


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, 2**100, 10**400, -(10**400), -(2**62)])
def test_huge_integers(value):
    with pytest.raises(InputError, match="row 0, column 1 holds"):
        BinaryMatrix.of([[0, value]])
    assert dense_of(BinaryMatrix.of([[0, value]], binarize_threshold=5)).tolist() == [[0, int(value > 5)]]


def test_first_bad_cell_in_reading_order_is_named():
    data = DENSE.astype(float)
    data[1, 3] = data[2, 0] = 7
    with pytest.raises(InputError, match="row 1, column 3 holds 7"):
        BinaryMatrix.of(data)


@pytest.mark.parametrize("threshold", [None, -1.0])
@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, pd.NaT, "nan"])
def test_missing_cells(missing, threshold):
    data = DENSE.astype(object)
    data[1, 2] = missing
    with pytest.raises(InputError, match=r"^row 1, column 2 is missing"):
        BinaryMatrix.of(data, binarize_threshold=threshold)
    with pytest.raises(InputError, match=r"row 1, column 2 \('c'\) is missing"):
        BinaryMatrix.of(pd.DataFrame(data, columns=list("abcd")), binarize_threshold=threshold)


def test_missing_in_float_and_sparse():
    data = DENSE.astype(np.float32)
    data[1, 2] = np.nan
    for form in (data, sp.csc_array(data)):
        with pytest.raises(InputError, match="row 1, column 2 is missing"):
            BinaryMatrix.of(form, binarize_threshold=0)


def test_masked_arrays():
    masked = np.ma.masked_array(DENSE, mask=DENSE > 5)
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of(masked)), DENSE)
    masked[0, 0] = np.ma.masked
    with pytest.raises(InputError, match="masked"):
        BinaryMatrix.of(masked)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("yes", "'yes'"),
        ("", "''"),
        (b"no", "b'no'"),
        (1j, "1j"),
        ({1}, "{1}"),
        (np.datetime64("2020-01-01"), "datetime.date"),
    ],
)
def test_cells_that_are_no_numbers(cell, shown):
    data = DENSE.astype(object)
    data[3, 0] = cell
    with pytest.raises(InputError) as error:
        BinaryMatrix.of(data)
    assert str(error.value).startswith(f"row 3, column 0 holds {shown}")
    assert "not a number" in str(error.value)


def test_text_arrays_and_dates():
    with pytest.raises(InputError, match="row 0, column 1 holds 'x'"):
        BinaryMatrix.of([["1", "x"]])
    with pytest.raises(InputError, match=r"row 0, column 0 holds .*a date or a time"):
        BinaryMatrix.of(np.array([["2020-01-01"]], dtype="M8[D]"))
    assert BinaryMatrix.of([[Decimal(1), Decimal(0)]]).nnz == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([1, 0, 1], "expected 2D data .* got 1D"),
        (np.zeros((2, 2, 2)), "got 3D"),
        (None, "got 0D"),
        ("text", "read the file first"),
        ([], "got 1D"),
        (pd.Series([0, 1]), "got 1D"),
        (np.zeros((2, 2), dtype=complex), "Complex data not supported"),
        (sp.csr_array(np.eye(2) * 1j), "Complex data not supported"),
        ([[1, 0], [1]], "different lengths; .*from_transactions"),
        (sp.coo_array(np.array([1, 0])), "got 1D"),
        (sp.coo_array(np.ones((2, 2, 2))), "got 3D"),
    ],
    ids=str,
)
def test_shapes_and_kinds_that_are_refused(data, message):
    with pytest.raises(InputError, match=message):
        BinaryMatrix.of(data)


@settings(deadline=None)
@given(hnp.arrays(np.float64, (5, 4), elements=st.floats(-3, 3)), st.floats(0, 2))
def test_threshold_is_strictly_above_in_every_form(data, threshold):
    expected = data > threshold
    forms = [data, sp.csr_array(data), sp.csc_array(data), pd.DataFrame(data), data.astype(object), data.tolist()]
    for form in forms:
        np.testing.assert_array_equal(BinaryMatrix.of(form, binarize_threshold=threshold).toarray(), expected)


@pytest.mark.parametrize("threshold", [-0.5, 0, 0.5, 1, 1.5])
def test_threshold_does_not_depend_on_the_type(threshold):
    for dtype in (bool, np.int8, np.uint64, np.float32, object):
        matrix = BinaryMatrix.of(DENSE.astype(dtype), binarize_threshold=threshold)
        np.testing.assert_array_equal(matrix.toarray(), threshold < DENSE)


def test_threshold_beyond_a_narrow_type():
    data = np.array([[1, 6e4, -6e4]], dtype=np.float16)
    assert dense_of(BinaryMatrix.of(data, binarize_threshold=1e300)).tolist() == [[0, 0, 0]]
    assert dense_of(BinaryMatrix.of(data, binarize_threshold=-1e300)).tolist() == [[1, 1, 1]]


def test_infinite_cells_are_refused():
    with pytest.raises(InputError, match=r"row 0, column 1 is infinite \(inf\)"):
        BinaryMatrix.of(np.array([[1, -np.inf]]), binarize_threshold=0.5)


@pytest.mark.parametrize("threshold", [np.nan, np.inf, -np.inf, "0.5", [1]])
def test_thresholds_that_are_none(threshold):
    with pytest.raises(InputError, match="finite"):
        BinaryMatrix.of(DENSE, binarize_threshold=threshold)


# -- SciPy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [bool, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_scipy_formats(kind, dtype):
    data = getattr(sp, kind)(DENSE.astype(dtype))
    before = data.copy()
    matrix = BinaryMatrix.of(data, columns=list("abcd"))
    np.testing.assert_array_equal(dense_of(matrix), DENSE)
    assert matrix.columns == ("a", "b", "c", "d")
    assert type(data) is type(before)
    assert (data != before).nnz == 0


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_is_never_densified(kind):
    size = 10**5 if kind.startswith("lil") else 10**6  # lil makes a list for each row
    cells = [(0, size - 1), (3, 5), (size - 1, 0), (size - 1, size - 1)]
    if kind.startswith("dia"):
        cells = [(5, 5), (size - 1, size - 1)]  # this format stores whole diagonals
        values = np.zeros((1, size), dtype=np.int8)
        values[0, [5, size - 1]] = 1
        data = getattr(sp, kind)((values, [0]), shape=(size, size))
    else:
        rows, columns = np.array(cells).T
        data = sp.coo_array((np.ones(len(cells), np.int8), (rows, columns)), shape=(size, size))
        data = getattr(sp, kind)(data, **({"blocksize": (2, 2)} if kind.startswith("bsr") else {}))
    matrix = BinaryMatrix.of(data)
    assert matrix.shape == (size, size)
    rows, columns = matrix.to_scipy().nonzero()
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == cells
    assert BinaryMatrix.of(data, binarize_threshold=0).nnz == len(cells)


def test_never_densified_with_zeros_and_bad_values():
    size = 10**6
    data = sp.coo_array(([1.0, 0.0, 1.0], ([0, 1, size - 1], [7, 8, 9])), shape=(size, size)).tocsr()
    assert BinaryMatrix.of(data).indices.tolist() == [7, 9]
    data.data[2] = 0.25
    with pytest.raises(InputError, match=r"row 999999, column 9 holds 0\.25"):
        BinaryMatrix.of(data)


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "coo_array", "bsr_array"])
def test_explicit_zeros_are_zeros(kind):
    values = np.array([1, 0, 1, 0], dtype=np.int8)
    data = getattr(sp, kind)(sp.coo_array((values, ([0, 0, 2, 1], [1, 2, 0, 1])), shape=(3, 4)))
    before = data.copy()
    matrix = BinaryMatrix.of(data)
    np.testing.assert_array_equal(dense_of(matrix), [[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    np.testing.assert_array_equal(data.data, before.data)


def test_duplicates_add_up_as_in_scipy():
    rows, columns = [0, 0, 1], [2, 2, 0]
    booleans = sp.coo_array((np.ones(3, dtype=bool), (rows, columns)), shape=(2, 3))
    assert dense_of(BinaryMatrix.of(booleans)).tolist() == [[0, 0, 1], [1, 0, 0]]
    halves = sp.coo_array(([0.5, 0.5, 1], (rows, columns)), shape=(2, 3))
    assert dense_of(BinaryMatrix.of(halves)).tolist() == [[0, 0, 1], [1, 0, 0]]
    twice = sp.coo_array(([1, 1, 1], (rows, columns)), shape=(2, 3))
    with pytest.raises(InputError, match="row 0, column 2 holds 2"):
        BinaryMatrix.of(twice)
    assert twice.nnz == 3


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array])
def test_unsorted_and_repeated_indices(kind):
    indices, indptr = np.array([2, 0, 1, 1]), np.array([0, 2, 4, 4])
    data = kind((np.array([1, 1, 1, -1 + 1]), indices.copy(), indptr.copy()), shape=(3, 3))
    expected = data.toarray()
    matrix = BinaryMatrix.of(data)
    np.testing.assert_array_equal(dense_of(matrix), expected)
    for row in range(3):
        ones = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist()
        assert ones == sorted(set(ones))
    np.testing.assert_array_equal(data.indices, indices)
    np.testing.assert_array_equal(data.indptr, indptr)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.bsr_array])
def test_sparse_entries_outside_the_shape_are_refused_not_followed(kind):
    data = kind(np.eye(4, dtype=np.int8))
    for attribute, position, value in [("indices", 1, 99), ("indices", 1, -1), ("indptr", 1, 99), ("indptr", -1, 99)]:
        broken = data.copy()
        getattr(broken, attribute)[position] = value
        with pytest.raises(InputError, match=r"damaged: .*shape"):
            BinaryMatrix.of(broken)


def test_spare_room_in_a_sparse_matrix_is_not_data():
    data = sp.csr_array(np.eye(3, dtype=np.int8))
    data.indices, data.data = np.append(data.indices, [0, 0]), np.append(data.data, [7, 7])
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of(data)), np.eye(3))
    assert data.data.size == 5


def test_sparse_threshold():
    data = sp.csr_array(np.array([[0, 3, 0.5], [1, 0, 2]]))
    assert dense_of(BinaryMatrix.of(data, binarize_threshold=0)).tolist() == [[0, 1, 1], [1, 0, 1]]
    assert dense_of(BinaryMatrix.of(data, binarize_threshold=1)).tolist() == [[0, 1, 0], [0, 0, 1]]
    with pytest.raises(InputError, match=r"binarize_threshold=-0\.5"):
        BinaryMatrix.of(data, binarize_threshold=-0.5)


def test_sparse_with_wide_indices():
    data = sp.csr_array(DENSE.astype(np.int8))
    data.indices, data.indptr = data.indices.astype(np.int64), data.indptr.astype(np.int64)
    matrix = BinaryMatrix.of(data)
    assert matrix.indices.dtype == np.uint16
    np.testing.assert_array_equal(dense_of(matrix), DENSE)


# -- transactions and columns ----------------------------------------------------------------------------------


def test_transactions_of_names():
    matrix = BinaryMatrix.from_transactions([["milk", "bread"], [], ("beer",), {"bread"}, ["beer", "beer", "milk"]])
    assert matrix.columns == ("beer", "bread", "milk")
    assert dense_of(matrix).tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 1]]


def test_transactions_of_numbers_sort_numerically():
    matrix = BinaryMatrix.from_transactions([[10, 9], np.array([100, 9]), [np.int64(10)]])
    assert matrix.columns == ("9", "10", "100")
    assert dense_of(matrix).tolist() == [[1, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_transactions_may_be_generators():
    def items(*values):
        yield from values

    for columns in (None, ["a", "b"]):
        matrix = BinaryMatrix.from_transactions((items("a"), items("b", "a")), columns=columns)
        assert dense_of(matrix).tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    "columns", [["c", "a", "b"], ("c", "a", "b"), np.array(["c", "a", "b"]), pd.Index(list("cab"))]
)
def test_transactions_with_fixed_columns(columns):
    matrix = BinaryMatrix.from_transactions([["a"], ["c", "a", "c"], []], columns=columns)
    assert matrix.columns == ("c", "a", "b")
    assert dense_of(matrix).tolist() == [[0, 1, 0], [1, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("unknown", ["z", None, 7, np.str_("z")])
def test_transactions_with_an_unknown_item(unknown):
    with pytest.raises(InputError, match=r"transaction 1 holds ('z'|None|7)"):
        BinaryMatrix.from_transactions([["a"], ["a", unknown]], columns=["a", "b"])


def test_transactions_empty():
    assert BinaryMatrix.from_transactions([]).shape == (0, 0)
    assert BinaryMatrix.from_transactions([[], []]).shape == (2, 0)
    assert BinaryMatrix.from_transactions([], columns=["a"]).shape == (0, 1)
    assert BinaryMatrix.from_transactions([[]], columns=[]).shape == (1, 0)


@pytest.mark.parametrize(
    ("transactions", "columns", "message"),
    [
        (["milk"], None, "transaction 0 .*'milk'"),
        ([["a"], b"xy"], None, "transaction 1 is the text"),
        ([["a"], 5], None, "transaction 1 "),
        ([[["a"]]], None, "transaction 0 "),
        ([[{}]], ["a"], "transaction 0 "),
        ([["a"]], ["a", "a"], "'a' occurs more than once"),
        ([["a"]], "ab", "must be a list of names"),
        ([[1, "1"]], None, "'1' occurs more than once"),
    ],
)
def test_transactions_refused(transactions, columns, message):
    with pytest.raises(InputError, match=message):
        BinaryMatrix.from_transactions(transactions, columns=columns)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-50, 50), max_size=8), max_size=12))
def test_transactions_agree_with_sets(transactions):
    matrix = BinaryMatrix.from_transactions(transactions)
    items = [int(name) for name in matrix.columns]
    assert items == sorted({item for row in transactions for item in row})
    found = [{items[j] for j in np.flatnonzero(row)} for row in matrix.toarray()]
    assert found == [set(row) for row in transactions]


@settings(deadline=None)
@given(hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=8)))
def test_from_columns(dense):
    matrix = from_columns([np.flatnonzero(column) for column in dense.T], dense.shape[0])
    np.testing.assert_array_equal(matrix.toarray(), dense)
    assert matrix == BinaryMatrix.of(dense)
