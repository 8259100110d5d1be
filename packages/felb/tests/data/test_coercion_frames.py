"""Frames and AnnData as a `BinaryMatrix`."""

from collections import namedtuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

from felb.data import BinaryMatrix
from felb.errors import InputError

DENSE = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 1]])


def dense_of(matrix):
    return matrix.toarray().astype(int)


@pytest.mark.parametrize(
    "dtype", ["bool", "int64", "uint8", "float32", "Int64", "boolean", "Float64", "object", "category", "Sparse[int]"]
)
def test_pandas_types(dtype):
    frame = pd.DataFrame(DENSE, columns=list("wxyz")).astype(dtype)
    before = frame.copy()
    matrix = BinaryMatrix.of(frame)
    np.testing.assert_array_equal(dense_of(matrix), DENSE)
    assert matrix.columns == ("w", "x", "y", "z")
    pd.testing.assert_frame_equal(frame, before)


def test_pandas_mixed_columns_and_index():
    frame = pd.DataFrame(
        {"a": [True, False], "b": pd.array([0, 1], dtype="Int8"), 3: [1.0, 0.0], "d": pd.arrays.SparseArray([0, 1])},
        index=["p", "q"],
    )
    matrix = BinaryMatrix.of(frame)
    assert matrix.columns == ("a", "b", "3", "d")
    assert dense_of(matrix).tolist() == [[1, 0, 1, 0], [0, 1, 0, 1]]
    assert BinaryMatrix.of(frame, columns=list("wxyz")).columns == ("w", "x", "y", "z")


@pytest.mark.parametrize("dtype", ["Int64", "boolean", "Float64", "Int8"])
@pytest.mark.parametrize("threshold", [None, 0.5])
def test_pandas_missing(dtype, threshold):
    frame = pd.DataFrame({"a": [1, 0, 1], "b": [1, 0, 1]}).astype(dtype)
    frame.loc[2, "b"] = pd.NA
    with pytest.raises(InputError, match=r"row 2, column 1 \('b'\) is missing"):
        BinaryMatrix.of(frame, binarize_threshold=threshold)


def test_pandas_text_column():
    frame = pd.DataFrame({"a": [1, 0], "name": ["Ann", "Bob"]})
    with pytest.raises(InputError, match=r"row 0, column 1 \('name'\) holds 'Ann'"):
        BinaryMatrix.of(frame)


def test_pandas_repeated_names():
    frame = pd.DataFrame(DENSE, columns=["a", "b", "a", "c"])
    with pytest.raises(InputError, match=r"'a' .*once"):
        BinaryMatrix.of(frame)
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of(frame, columns=list("abcd"))), DENSE)


def test_pandas_without_columns_or_rows():
    assert BinaryMatrix.of(pd.DataFrame(index=range(3))).shape == (3, 0)
    assert BinaryMatrix.of(pd.DataFrame(columns=["a", "b"], dtype=bool)).shape == (0, 2)


def test_sparse_pandas_columns_are_not_densified(monkeypatch):
    ones = sp.coo_array((np.ones(2, np.int8), ([0, 10**6 - 1], [1, 0])), shape=(10**6, 2))
    frame = pd.DataFrame.sparse.from_spmatrix(sp.coo_matrix(ones), columns=["a", "b"])

    def densified(self, *args, **kwargs):
        raise AssertionError("a sparse column was densified")

    monkeypatch.setattr(pd.Series, "to_numpy", densified)
    matrix = BinaryMatrix.of(frame)
    assert matrix.shape == (10**6, 2)
    assert matrix.indices.tolist() == [1, 0]


@pytest.mark.parametrize("fill", [0, 1, False, True, 0.0])
def test_sparse_pandas_fill_values(fill):
    values = np.array([0, 1, 1, 0, 1]).astype(type(fill))
    frame = pd.DataFrame({"a": pd.arrays.SparseArray(values, fill_value=fill)})
    assert dense_of(BinaryMatrix.of(frame)).ravel().tolist() == [0, 1, 1, 0, 1]
    assert BinaryMatrix.of(frame, binarize_threshold=-1).nnz == 5


def test_sparse_pandas_errors_name_the_row():
    frame = pd.DataFrame({"a": pd.arrays.SparseArray([0, 0, 0, 3], fill_value=0)})
    with pytest.raises(InputError, match=r"row 3, column 0 \('a'\) holds 3"):
        BinaryMatrix.of(frame)
    holes = pd.DataFrame({"a": pd.arrays.SparseArray([1.0, np.nan, 0.0])})
    with pytest.raises(InputError, match=r"row 1, column 0 \('a'\) is missing"):
        BinaryMatrix.of(holes)


@pytest.mark.parametrize("dtype", [pl.Boolean, pl.Int64, pl.UInt8, pl.Float32])
def test_polars_types(dtype):
    frame = pl.DataFrame(DENSE, schema=list("wxyz")).cast(dtype)
    for data in (frame, frame.lazy()):
        matrix = BinaryMatrix.of(data)
        np.testing.assert_array_equal(dense_of(matrix), DENSE)
        assert matrix.columns == ("w", "x", "y", "z")


@pytest.mark.parametrize("dtype", [pl.Boolean, pl.Int64, pl.Float64])
def test_polars_missing(dtype):
    frame = pl.DataFrame({"a": [1, 0], "b": [1, None]}).cast(dtype)
    with pytest.raises(InputError, match=r"row 1, column 1 \('b'\) is missing"):
        BinaryMatrix.of(frame)


def test_polars_text():
    with pytest.raises(InputError, match=r"column 0 \('a'\) holds 'x'"):
        BinaryMatrix.of(pl.DataFrame({"a": ["x"]}))


def anndata_of(values):
    anndata = pytest.importorskip("anndata")
    n, m = values.shape
    return anndata.AnnData(
        values,
        obs=pd.DataFrame(index=[f"cell{i}" for i in range(n)]),
        var=pd.DataFrame(index=[f"gene{i}" for i in range(m)]),
    )


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_anndata(kind):
    data = anndata_of(kind(DENSE.astype(np.float32)))
    matrix = BinaryMatrix.of(data)
    np.testing.assert_array_equal(dense_of(matrix), DENSE)
    assert matrix.columns == ("gene0", "gene1", "gene2", "gene3")
    part = BinaryMatrix.of(data[[3, 0], [1, 2]])
    np.testing.assert_array_equal(dense_of(part), DENSE[[3, 0]][:, [1, 2]])
    assert part.columns == ("gene1", "gene2")


def test_anndata_counts():
    data = anndata_of(sp.csr_matrix(DENSE * 5.0))
    with pytest.raises(InputError, match=r"row 0, column 0 \('gene0'\) holds 5.0; .* binarize_threshold"):
        BinaryMatrix.of(data)
    np.testing.assert_array_equal(dense_of(BinaryMatrix.of(data, binarize_threshold=0)), DENSE)


def test_anndata_without_x():
    anndata = pytest.importorskip("anndata")
    with pytest.raises(InputError, match="has no X"):
        BinaryMatrix.of(anndata.AnnData(obs=pd.DataFrame(index=["a"])))


def test_lookalikes_need_no_package():
    """AnnData is known by what it has, so that felb does not import it."""
    Annotated = namedtuple("Annotated", "X var_names obs_names")
    matrix = BinaryMatrix.of(Annotated(DENSE, list("abcd"), range(4)))
    assert matrix.columns == ("a", "b", "c", "d")
