"""Anything tabular into a `BinaryMatrix`, without ever densifying what is sparse."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import (
    BinaryMatrix,
    check_column_names,
    check_indptr,
    check_threshold,
    index_dtype,
    is_canonical,
    missing_cells,
    name_cell,
    where_one,
)
from felb.errors import InputError, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray


DENSE_BLOCK_CELLS = 1 << 22
"""Dense input is scanned in row blocks of about this many cells, so that temporaries stay small."""

SPARSE_BLOCK_ENTRIES = 1 << 20
"""Sparse input that is on disk is read in row blocks of about this many entries."""


def to_binary(
    data: Any, *, columns: Sequence[str] | None = None, binarize_threshold: float | None = None
) -> BinaryMatrix:
    """Build a `BinaryMatrix` from an array, SciPy sparse matrix, frame of pandas, polars or Arrow, or AnnData.

    Parameters
    ----------
    data : array-like
        Boolean, or numbers that are all 0 or 1. A list of rows of numbers counts as an array; item sets go
        through `from_transactions`.
    columns : sequence of str, optional
        Column names; those of a frame or AnnData are kept if this is not given.
    binarize_threshold : float, optional
        Make a one of every value above it. Without it, any value but 0 and 1 is an error.
    """
    check_threshold(binarize_threshold)
    if is_dask(data):
        raise InputError(
            "this is a Dask collection, which only the federated methods take (FederatedBMF, FELB, FELBMU, …); for "
            "others, give data.compute()"
        )
    _check_tabular(data)
    if isinstance(data, BinaryMatrix):
        _check_binary_threshold(binarize_threshold)
        return data if columns is None else data.with_columns(columns)
    held = getattr(data, "binary_matrix", None)
    if isinstance(held, BinaryMatrix) and held.nnz == data.nnz and np.array_equal(data.indices, held.indices):
        return to_binary(held, columns=columns, binarize_threshold=binarize_threshold)
    if hasattr(data, "tocsr"):
        check_sparse(binarize_threshold, data.dtype, data.ndim)
        return from_csr(to_checked_csr(data), columns=columns, binarize_threshold=binarize_threshold)
    if hasattr(data, "X") and hasattr(data, "var_names") and hasattr(data, "obs_names"):
        return _from_anndata(data, columns, binarize_threshold)
    frame = Columns.of(data)
    if frame is not None:
        return _from_frame(frame, columns, binarize_threshold)
    return BinaryMatrix.vstack(list(convert_dense(data, columns=columns, binarize_threshold=binarize_threshold)))


def _check_tabular(data: Any) -> None:
    """Raise for the name of a file and for a dict, which an array would be made of."""
    if isinstance(data, str | PathLike):
        raise InputError(f"{os.fspath(data)!r} is a name; read the file first: felb.data.read(NAME).matrix")
    if isinstance(data, Mapping) and not hasattr(data, "tocsr"):  # SciPy derives its DOK format from dict
        raise InputError("this is a dict; make a frame of it (pandas.DataFrame), or read a file by felb.data.read")


def is_dask(data: Any) -> bool:
    """Tell a Dask collection by what it can do, so that Dask need not be there."""
    return callable(getattr(type(data), "__dask_graph__", None))


def from_columns(ones: Sequence[NDArray[Any]], n_rows: int, *, columns: Sequence[str] | None = None) -> BinaryMatrix:
    """Build from the row numbers of the ones of each column (ascending); the way column stores give data."""
    import scipy.sparse as sp

    indptr = np.cumsum([0] + [rows.size for rows in ones])
    indices = np.concatenate(ones) if ones else np.zeros(0, np.int64)
    by_column = sp.csc_array((np.ones(indices.size, np.int8), indices, indptr), shape=(n_rows, len(ones)))
    by_row = by_column.tocsr()
    by_row.sort_indices()
    return BinaryMatrix(by_row.indptr.astype(np.int64), by_row.indices, len(ones), columns)


def from_values(
    columns: Iterable[NDArray[Any]],
    n_rows: int,
    names: Sequence[str] | None,
    *,
    binarize_threshold: float | None,
    missing: str,
    first_row: int = 0,
) -> BinaryMatrix:
    """Build from the values of each column; `missing` says what missing cells are, one of `MISSING_MEANS`."""
    ones, unknown = [], []
    for position, values in enumerate(columns):
        found, absent = where_one(
            values,
            binarize_threshold,
            lambda at, column=position: name_cell(names, first_row + at[0], column),  # type: ignore[misc]
            missing=missing,
        )
        ones.append(np.flatnonzero(found))
        unknown.append(np.zeros(0, np.int64) if absent is None else np.flatnonzero(absent))
    matrix = from_columns(ones, n_rows, columns=names)
    return matrix.with_unknown(from_columns(unknown, n_rows)) if any(rows.size for rows in unknown) else matrix


def convert_dense(
    data: Any,
    *,
    columns: Sequence[str] | None = None,
    binarize_threshold: float | None = None,
    missing: str | None = None,
) -> Iterator[BinaryMatrix]:
    """Yield the rows of a dense array block by block, at least one block; the array may be on disk.

    `missing` says what missing cells of a file are, one of `MISSING_MEANS`; elsewhere they are an error.
    """
    masked = np.ma.is_masked(data)
    if masked and missing is None:
        raise InputError("some cells are masked, that is, missing; fill them or remove their rows")
    try:
        # Datasets of an HDF5 file stay on disk: their rows are read block by block below.
        values = data if masked or type(data).__module__.startswith("h5py") else np.asarray(data)
    except ValueError:
        raise InputError("rows have different lengths; item sets go through from_transactions()") from None
    if values.ndim != 2:
        raise InputError(
            f"expected 2D data (records x features), got {values.ndim}D. Reshape your data: "
            "one row per record; a single record is X.reshape(1, -1)"
        )
    if values.dtype.kind == "c":
        raise InputError("Complex data not supported; values must be 0 or 1")
    n, m = values.shape
    names = check_column_names(columns, m)
    step = max(1, DENSE_BLOCK_CELLS // max(1, m))
    for start in range(0, max(1, n), step):
        ones, unknown = where_one(
            values[start : start + step],
            binarize_threshold,
            lambda at, first=start: name_cell(names, first + at[0], at[1]),  # type: ignore[misc]
            missing=missing,
        )
        yield _of_mask(ones, names).with_unknown(None if unknown is None else _of_mask(unknown, None))


def _of_mask(ones: NDArray[np.bool_], names: Sequence[str] | None) -> BinaryMatrix:
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(ones, axis=1))])
    return BinaryMatrix(indptr, np.nonzero(ones)[1].astype(index_dtype(ones.shape[1])), ones.shape[1], names)


def from_csr(
    csr: Any, *, columns: Sequence[str] | None = None, binarize_threshold: float | None = None, first_row: int = 0
) -> BinaryMatrix:
    """Build from a CSR matrix of `to_checked_csr`; `first_row` is the number of its first row in all of the data."""
    if not is_canonical(csr.indptr, csr.indices):  # what the matrix itself says of its order may be out of date
        csr = csr.copy()  # duplicates are summed in place, and the caller's matrix is not ours to change
        csr.sum_duplicates()
    names = check_column_names(columns, csr.shape[1])
    indptr = csr.indptr.astype(np.int64)
    indices, values = csr.indices[: indptr[-1]], csr.data[: indptr[-1]]

    def locate(at: tuple[int, ...]) -> str:
        row = np.searchsorted(indptr, at[0], side="right") - 1
        return name_cell(names, first_row + int(row), int(indices[at[0]]))

    ones, _ = where_one(values, binarize_threshold, locate)
    if not ones.all():
        indptr = np.concatenate(([0], np.cumsum(ones, dtype=np.int64)))[indptr]
        indices = indices[ones]
    return BinaryMatrix(indptr, indices, csr.shape[1], names)


def convert_anndata(
    data: Any, *, binarize_threshold: float | None = None, missing: str | None = None
) -> Iterator[BinaryMatrix]:
    """Yield the rows of AnnData whose `X` is still in its file, block by block if it is dense or in CSR form.

    `missing` says what missing cells of a dense `X` are; in a sparse one they are an error.
    """
    values, names = data.X, [str(name) for name in data.var_names]
    if type(values).__module__.startswith("h5py"):
        yield from convert_dense(values, columns=names, binarize_threshold=binarize_threshold, missing=missing)
    elif hasattr(values, "to_memory") and values.format == "csr":
        yield from convert_csr(values.group, values.shape, columns=names, binarize_threshold=binarize_threshold)
    else:
        yield _from_anndata(data, None, binarize_threshold)


def convert_csr(
    parts: Mapping[str, Any],
    shape: tuple[int, int],
    *,
    columns: Sequence[str] | None = None,
    binarize_threshold: float | None = None,
) -> Iterator[BinaryMatrix]:
    """Yield the rows of a matrix in CSR form block by block, at least one block; its arrays may be on disk."""
    (n, m), data, indices = shape, parts["data"], parts["indices"]
    check_sparse(binarize_threshold, data.dtype, 2)
    indptr = np.asarray(parts["indptr"][:])
    try:
        check_indptr(indptr, n, min(indices.shape[0], data.shape[0]))
        if indptr[0] != 0:
            raise InputError(f"indptr begins with {indptr[0]} instead of 0")
    except InputError as error:
        raise InputError(f"the sparse matrix is damaged or incomplete ({error}); write it again") from error
    start = 0
    while start < max(1, n):
        last = int(np.searchsorted(indptr, indptr[start] + SPARSE_BLOCK_ENTRIES, side="right")) - 1
        stop = min(n, max(start + 1, last))
        at = slice(int(indptr[start]), int(indptr[stop]))
        ends = indptr[start : stop + 1].astype(np.int64) - at.start
        values, ones = data[at], indices[at]
        block = _make_sparse("csr", (values, ones, ends), (stop - start, m))
        yield from_csr(block, columns=columns, binarize_threshold=binarize_threshold, first_row=start)
        start = max(stop, 1)


def _check_binary_threshold(threshold: float | None) -> None:
    if threshold is not None and not 0 <= threshold < 1:
        raise InputError(
            f"binarize_threshold={threshold} makes all cells of 0/1 data equal; omit it", parameter="binarize_threshold"
        )


def check_sparse(threshold: float | None, dtype: np.dtype[Any], ndim: int) -> None:
    """Raise unless sparse data of that type can be made binary."""
    if threshold is not None and threshold < 0:
        raise InputError(
            f"binarize_threshold={threshold} would turn every zero of sparse data into a one",
            parameter="binarize_threshold",
        )
    if threshold is not None and dtype.kind == "b":
        _check_binary_threshold(threshold)
    if dtype.kind == "c":
        raise InputError("Complex data not supported; values must be 0 or 1")
    if ndim != 2:
        raise InputError(f"expected 2D data (records x features), got {ndim}D")


def to_checked_csr(data: Any) -> Any:
    """Return a 2D SciPy matrix of any format in CSR form, looked at before SciPy's compiled code walks it."""
    if data.format in ("csr", "csc", "bsr"):
        return _make_sparse(data.format, (data.data, data.indices, data.indptr), data.shape).tocsr()
    if data.format == "dia":
        data = _make_sparse("dia", (data.data, data.offsets), data.shape)
    elif data.format == "lil":
        lists = [*data.rows, *data.data] if data.rows.shape == data.data.shape == data.shape[:1] else [None]
        if not all(isinstance(entry, list) for entry in lists) or [*map(len, data.rows)] != [*map(len, data.data)]:
            raise InputError("the sparse matrix is damaged: its arrays are inconsistent; create it again")
    try:
        pairs = data.tocoo()
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        raise InputError(f"the sparse matrix is damaged ({shortened(error)}); create it again") from error
    return _make_sparse("coo", (pairs.data, (pairs.row, pairs.col)), pairs.shape).tocsr()


def _make_sparse(form: str, parts: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """Return a SciPy array of these parts, of which SciPy compares lengths and every index with the shape."""
    import scipy.sparse as sp

    try:
        if any(np.asarray(places).dtype.kind not in "ui" for places in (parts[1] if form == "coo" else parts[1:])):
            raise TypeError("row and column numbers must be integers")
        matrix = getattr(sp, f"{form}_array")(parts, shape=shape)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
    except (ValueError, IndexError, TypeError) as error:
        raise InputError(
            f"the sparse matrix is damaged: its arrays do not fit its shape ({shortened(error)}); create it again"
        ) from error
    return matrix


@dataclass(frozen=True, slots=True)
class Columns:
    """A frame by its columns: that of pandas, polars or Arrow.

    Columns are taken by position, since names may repeat.
    """

    frame: Any
    names: list[Any]

    @classmethod
    def of(cls, data: Any) -> Columns | None:
        """Return the columns of a frame; None for anything else."""
        if hasattr(data, "collect") and hasattr(data, "collect_schema"):
            data = data.collect()  # a lazy frame of polars
        if hasattr(data, "columns") and hasattr(data, "dtypes"):
            return cls(data, list(data.columns))
        if hasattr(data, "column_names") and hasattr(data, "num_columns") and hasattr(data, "schema"):
            return cls(data, list(data.column_names))  # a table or a record batch of Arrow
        return None

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.frame.shape[0])

    def series(self, position: int) -> Any:
        """Return a column as the library of the frame has it; it has `to_numpy`."""
        if hasattr(self.frame, "iloc"):
            return self.frame.iloc[:, position]
        return self.frame.to_series(position) if hasattr(self.frame, "to_series") else self.frame.column(position)

    def values(self, position: int) -> NDArray[Any]:
        """Return the values of a column; missing ones are NaN, None or NA."""
        # A column of Arrow refuses to copy unless it is told to; the others copy where they must.
        options = {"zero_copy_only": False} if hasattr(self.frame, "num_columns") else {}
        return np.asarray(self.series(position).to_numpy(**options))

    def select(self, positions: Sequence[int]) -> Any:
        """Return the frame with the given columns only."""
        if hasattr(self.frame, "iloc"):
            return self.frame.iloc[:, list(positions)]
        return self.frame.select([self.names[position] for position in positions])


def _from_frame(frame: Columns, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    names = check_column_names(columns if columns is not None else frame.names, len(frame.names))
    ones = [_ones_of_column(frame, at, threshold, names) for at in range(len(frame.names))]
    return from_columns(ones, len(frame), columns=names)


def _ones_of_column(frame: Columns, at: int, threshold: float | None, names: Sequence[str] | None) -> NDArray[Any]:
    """Return the row numbers of the ones; a sparse column of pandas is looked at only where it stores a value."""
    array: Any = getattr(frame.series(at), "array", None)
    if not hasattr(array, "sp_index") or array.fill_value != 0 or (threshold is not None and threshold < 0):
        return np.flatnonzero(where_one(frame.values(at), threshold, lambda i: name_cell(names, i[0], at))[0])
    rows: NDArray[Any] = array.sp_index.indices
    return rows[where_one(array.sp_values, threshold, lambda i: name_cell(names, rows[i[0]], at))[0]]


def _from_anndata(data: Any, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    values = data.X
    if values is None:
        raise InputError("the AnnData object has no X; put the matrix there, for example from one of its layers")
    if hasattr(values, "to_memory"):  # a sparse matrix that is still in its file
        check_sparse(None, values.dtype, len(values.shape))
        parts = tuple(np.asarray(values.group[name][...]) for name in ("data", "indices", "indptr"))
        values = _make_sparse(values.format, parts, values.shape)
    names = columns if columns is not None else [str(name) for name in data.var_names]
    return to_binary(values, columns=names, binarize_threshold=threshold)


SHOWN = 5
"""Names that a message lists."""


def drop_numbered_names(X: Any, matrix: BinaryMatrix) -> BinaryMatrix:
    """Return the matrix that was read from X without names, if X is a frame whose columns are only numbered.

    As in scikit-learn, names are texts: numbers are positions, and a mixture of both is a `TypeError`.
    """
    columns = Columns.of(X)
    if columns is None:
        return matrix
    texts = {isinstance(name, str) for name in columns.names}
    if len(texts) > 1:
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your input has both; "
            "convert them with X.columns = X.columns.astype(str)"
        )
    return matrix if texts == {True} else matrix.with_columns(None)


def describe_mismatch(fitted: Sequence[str], given: Sequence[str]) -> str:
    """Say how names differ from those of the fit, in the words of scikit-learn."""
    known, present = set(fitted), set(given)
    unseen, missing = sorted(present - known), sorted(known - present)
    text = "The feature names should match those that were passed during fit.\n"
    if unseen:
        text += "Feature names unseen at fit time:\n" + _listed(unseen)
    if missing:
        text += "Feature names seen at fit time, yet now missing:\n" + _listed(missing)
    if not unseen and not missing:
        text += "Feature names must be in the same order as they were in fit.\n"
    return f'{text}align="name" brings the columns into the order of the fit'


def _listed(names: Sequence[str]) -> str:
    lines = [f"- {name}\n" for name in names[:SHOWN]]
    return "".join([*lines, "- ...\n"] if len(names) > SHOWN else lines)


@dataclass(frozen=True, slots=True)
class Alignment:
    """How the columns of new data stand to the features of a model.

    Parameters
    ----------
    missing : features of the model that the data does not have; their cells are unknown
    new : columns of the data that the model does not have; they are ignored
    reordered : whether the common features are in another order than in the model
    """

    missing: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    reordered: bool = False

    @classmethod
    def of(cls, fitted: Sequence[str], given: Sequence[str]) -> Alignment:
        """Compare names by their text; having none in common is an error."""
        known, present = set(fitted), set(given)
        common = [name for name in given if name in known]
        if not common:
            raise InputError(
                f"none of the {len(given)} columns has the name of a feature of the model, such as {fitted[0]!r}; "
                "check that this is the same kind of data"
            )
        return cls(
            missing=tuple(name for name in fitted if name not in present),
            new=tuple(name for name in given if name not in known),
            reordered=common != [name for name in fitted if name in present],
        )


def select_known(X: Any, fitted: Sequence[str]) -> tuple[Any, Alignment]:
    """Return tabular data without the columns that are new, which need not be binary, and how its columns stand."""
    given = get_column_names(X)
    if given is None:
        raise InputError("align='name' needs data with column names: a frame, AnnData, or BinaryMatrix with columns")
    found, known = Alignment.of(fitted, given), set(fitted)
    if isinstance(X, BinaryMatrix) or not found.new:
        return X, found
    kept = [at for at, name in enumerate(given) if name in known]
    columns = Columns.of(X)
    if columns is not None:
        return columns.select(kept), found
    # AnnData, which has no views of views whose X is still in its file.
    return (X.to_memory() if X.isbacked and X.is_view else X)[:, kept], found


def get_column_names(X: Any) -> tuple[str, ...] | None:
    """Return the column names of tabular data; None if it has none."""
    if isinstance(X, BinaryMatrix):
        return X.columns
    columns = Columns.of(X)
    if columns is not None:
        return tuple(map(str, columns.names))
    return tuple(map(str, X.var_names)) if hasattr(X, "var_names") else None


def align_columns(fitted: Sequence[str], matrix: BinaryMatrix) -> BinaryMatrix:
    """Return the matrix with the features of the fit as its columns; cells of those it does not have are unknown."""
    import scipy.sparse as sp

    if matrix.columns is None:
        raise InputError("the data has no column names to align; name its columns, or leave out align")
    if matrix.columns == tuple(fitted):
        return matrix
    place = {name: at for at, name in enumerate(fitted)}
    kept = np.array([at for at, name in enumerate(matrix.columns) if name in place], dtype=np.int64)
    target = np.array([place[matrix.columns[at]] for at in kept], dtype=np.int64)
    moves = sp.csr_array((np.ones(kept.size, bool), (kept, target)), shape=(len(matrix.columns), len(fitted)))
    absent = np.ones(len(fitted), bool)
    absent[target] = False
    unknown = sp.csr_array((len(matrix), len(fitted)), dtype=bool)
    if absent.any():
        unknown += sp.csr_array(np.ones((len(matrix), 1), bool)) @ sp.csr_array(absent[None, :])
    if matrix.unknown is not None:
        unknown += matrix.unknown.to_scipy(bool) @ moves
    return BinaryMatrix.of(matrix.to_scipy(bool) @ moves, columns=fitted).with_unknown(unknown)


def read_partly_known(data: Any, *, binarize_threshold: float | None = None) -> BinaryMatrix:
    """Build a `BinaryMatrix` as `BinaryMatrix.of` does, but take missing cells (NaN, None, NA, masked) as unknown.

    Sparse data has none: what it does not store is 0, and a NaN in it is refused.
    """
    _check_tabular(data)
    frame = Columns.of(data)
    if frame is not None:
        names = check_column_names(frame.names, len(frame.names))
        columns = [frame.values(position) for position in range(len(frame.names))]
        if all(missing_cells(values) is None for values in columns):
            return BinaryMatrix.of(frame.frame, binarize_threshold=binarize_threshold)
        return from_values(columns, len(frame), names, binarize_threshold=binarize_threshold, missing="unknown")
    on_disk = type(data).__module__.startswith("h5py")
    if isinstance(data, BinaryMatrix) or hasattr(data, "tocsr") or hasattr(data, "var_names") or on_disk:
        return BinaryMatrix.of(data, binarize_threshold=binarize_threshold)
    check_threshold(binarize_threshold)
    return BinaryMatrix.vstack(list(convert_dense(data, binarize_threshold=binarize_threshold, missing="unknown")))
