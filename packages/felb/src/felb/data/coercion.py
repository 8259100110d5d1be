"""Anything tabular into a `BinaryMatrix`, without ever densifying what is sparse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import (
    BinaryMatrix,
    LocateCell,
    LocateEntry,
    check_column_names,
    check_compressed,
    check_coordinates,
    check_disjoint,
    check_indptr,
    check_parts,
    check_threshold,
    check_uncompressed,
    index_dtype,
    is_canonical,
    missing_cells,
    to_python,
    where_known_one,
    where_one,
)
from felb.errors import InputError, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray


# -- Anything tabular into a `BinaryMatrix`, without ever densifying what is sparse ----------------------------------
#
# Every entrance checks that the values are 0 and 1 and says where they are not.

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
    if callable(getattr(type(data), "__dask_graph__", None)):
        raise InputError(
            "this is a Dask collection, which only the federated methods take (FederatedBMF, FELB, FELBMU, …); for "
            "others, give data.compute()"
        )
    if isinstance(data, BinaryMatrix):
        _check_binary_threshold(binarize_threshold)
        return data if columns is None else data.with_columns(columns)
    if hasattr(data, "tocsr"):
        return _from_scipy(data, columns, binarize_threshold)
    if _is_anndata(data):
        return _from_anndata(data, columns, binarize_threshold)
    frame = Columns.of(data)
    if frame is not None:
        return _from_frame(frame, columns, binarize_threshold)
    return BinaryMatrix.vstack(list(convert_dense(data, columns=columns, binarize_threshold=binarize_threshold)))


def from_transactions(transactions: Iterable[Iterable[Any]], *, columns: Sequence[Any] | None = None) -> BinaryMatrix:
    """Build from item sets, one per record; repeated items in a record count once.

    Without `columns`, the columns are all items in sorted order (integers numerically); with it, an unknown item
    is an error.
    """
    known = () if columns is None else columns
    check_column_names(known, len(known))
    ids: dict[Any, int] = {item: position for position, item in enumerate(known)}
    rows: list[NDArray[np.int64]] = []
    for number, items in enumerate(transactions):
        if isinstance(items, str | bytes):
            raise InputError(f"transaction {number} is the text {items!r}; give a list of items")
        try:
            row = {ids.setdefault(item, len(ids)) for item in items} if columns is None else {ids[i] for i in items}
        except KeyError as error:
            unknown = to_python(error.args[0])
            raise InputError(f"transaction {number} holds {unknown!r}, which is not among the columns") from None
        except TypeError as error:
            raise InputError(f"transaction {number} is no list of items (numbers or names): {items!r}") from error
        rows.append(np.fromiter(row, dtype=np.int64, count=len(row)))
    names = list(ids)
    rank = np.arange(len(ids))
    if columns is None:
        order = sorted(range(len(names)), key=lambda i: _sort_key(names[i]))
        rank[order] = np.arange(len(ids))
        names = [names[i] for i in order]
    indptr = np.cumsum([0] + [row.size for row in rows])
    indices = np.concatenate([np.sort(rank[row]) for row in rows]) if rows else np.zeros(0, np.int64)
    return BinaryMatrix(indptr, indices, len(ids), [str(name) for name in names])


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
        locate = LocateCell(names, first_row, position)
        found, absent = where_known_one(values, binarize_threshold, missing=missing, locate=locate)
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
        block, locate = values[start : start + step], LocateCell(names, start)
        if missing is None:
            yield _of_mask(where_one(block, binarize_threshold, locate=locate), names)
        else:
            ones, unknown = where_known_one(block, binarize_threshold, missing=missing, locate=locate)
            yield _of_mask(ones, names).with_unknown(None if unknown is None else _of_mask(unknown, None))


def _of_mask(ones: NDArray[np.bool_], names: Sequence[str] | None) -> BinaryMatrix:
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(ones, axis=1))])
    return BinaryMatrix(indptr, np.nonzero(ones)[1].astype(index_dtype(ones.shape[1])), ones.shape[1], names)


def from_csr(
    csr: Any, *, columns: Sequence[str] | None = None, binarize_threshold: float | None = None, first_row: int = 0
) -> BinaryMatrix:
    """Build from a SciPy CSR matrix; `first_row` is the number of its first row in all of the data."""
    import scipy.sparse as sp

    check_compressed(csr)
    if not is_canonical(csr.indptr, csr.indices):  # what the matrix itself says of its order may be out of date
        # A copy: duplicates are summed in place, and the caller's matrix is not ours to change.
        csr = sp.csr_array((csr.data, csr.indices, csr.indptr), shape=csr.shape, copy=True)
        csr.sum_duplicates()
    names = check_column_names(columns, csr.shape[1])
    indptr = csr.indptr.astype(np.int64)
    indices, values = csr.indices[: indptr[-1]], csr.data[: indptr[-1]]
    ones = where_one(values, binarize_threshold, locate=LocateEntry(indptr, indices, LocateCell(names, first_row)))
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
    """Yield the rows of a matrix in CSR form block by block, at least one block; its arrays may be on disk.

    Parameters
    ----------
    parts : the arrays data, indices and indptr, of which slices are taken one after the other
    shape : of the matrix
    columns, binarize_threshold : as in `to_binary`
    """
    import scipy.sparse as sp

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
        check_parts(ends, ones, values.size, (stop - start, m))
        block = sp.csr_array((values, ones, ends), shape=(stop - start, m))
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


def _from_scipy(data: Any, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    check_sparse(threshold, data.dtype, data.ndim)
    return from_csr(to_checked_csr(data), columns=columns, binarize_threshold=threshold)


def to_checked_csr(data: Any) -> Any:
    """Return a 2D SciPy matrix of any format in CSR form, looked at before SciPy's compiled code walks it."""
    if data.format in ("csr", "csc", "bsr"):
        check_compressed(data)
        return data.tocsr()
    check_uncompressed(data)
    try:
        pairs = data.tocoo()
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        raise InputError(f"the sparse matrix is damaged ({shortened(error)}); create it again") from error
    check_coordinates(np.asarray(pairs.row), np.asarray(pairs.col), len(pairs.data), pairs.shape)
    return pairs.tocsr()


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
    ones = [_ones_of_column(frame, at, threshold, locate=LocateCell(names, 0, at)) for at in range(len(frame.names))]
    return from_columns(ones, len(frame), columns=names)


def _ones_of_column(frame: Columns, at: int, threshold: float | None, *, locate: LocateCell) -> NDArray[Any]:
    """Return the row numbers of the ones; a sparse column of pandas is looked at only where it stores a value."""
    array: Any = getattr(frame.series(at), "array", None)
    if not hasattr(array, "sp_index") or array.fill_value != 0 or (threshold is not None and threshold < 0):
        return np.flatnonzero(where_one(frame.values(at), threshold, locate=locate))
    rows: NDArray[Any] = array.sp_index.indices
    return rows[where_one(array.sp_values, threshold, locate=locate.among(rows))]


def _from_anndata(data: Any, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    values = data.X
    if values is None:
        raise InputError("the AnnData object has no X; put the matrix there, for example from one of its layers")
    if hasattr(values, "to_memory"):
        values = _in_memory(values)
    names = columns if columns is not None else [str(name) for name in data.var_names]
    return to_binary(values, columns=names, binarize_threshold=threshold)


def _in_memory(values: Any) -> Any:
    """Return a sparse matrix that is still in its file as one of SciPy; its parts are looked at first."""
    import scipy.sparse as sp

    check_sparse(None, values.dtype, len(values.shape))
    group, by_column = values.group, values.format == "csc"
    data, indices, indptr = (np.asarray(group[name][...]) for name in ("data", "indices", "indptr"))
    check_parts(indptr, indices, data.size, values.shape, by_column=by_column)
    return (sp.csc_array if by_column else sp.csr_array)((data, indices, indptr), shape=values.shape)


def _is_anndata(data: Any) -> bool:
    return hasattr(data, "X") and hasattr(data, "var_names") and hasattr(data, "obs_names")


def _sort_key(item: Any) -> tuple[bool, Any]:
    return (True, str(item)) if not isinstance(item, int | np.integer) else (False, int(item))


# -- Feature names of tabular data, and the columns of new data by the names of a fitted model -----------------------

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

    @property
    def same(self) -> bool:
        """Whether the columns are the features of the model, in their order."""
        return not (self.missing or self.new or self.reordered)


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
    if matrix.columns is None:
        raise InputError("the data has no column names to align; name its columns, or leave out align")
    if matrix.columns == tuple(fitted):
        return matrix
    place = {name: at for at, name in enumerate(fitted)}
    target = np.array([place.get(name, -1) for name in matrix.columns], dtype=np.int64)
    ordered = _move_columns(matrix, target, len(fitted)).with_columns(fitted)
    absent = np.setdiff1d(np.arange(len(fitted)), target)
    unknown = None if matrix.unknown is None else _move_columns(matrix.unknown, target, len(fitted)).to_scipy(bool)
    if absent.size:
        whole = _fill_columns(absent, (len(matrix), len(fitted))).to_scipy(bool)
        unknown = whole if unknown is None else unknown + whole
    return ordered if unknown is None else ordered.with_unknown(unknown)


def _move_columns(matrix: BinaryMatrix, target: NDArray[np.int64], n_columns: int) -> BinaryMatrix:
    """Return the ones of column j in column target[j]; without those of a negative target."""
    import scipy.sparse as sp

    ones = matrix.to_scipy(bool)
    place = target[ones.indices]
    kept = place >= 0
    indptr = np.concatenate(([0], np.cumsum(kept)))[ones.indptr]
    moved = sp.csr_array((ones.data[kept], place[kept], indptr), shape=(len(matrix), n_columns))
    moved.sort_indices()
    return BinaryMatrix(moved.indptr.astype(np.int64), moved.indices, n_columns)


def _fill_columns(columns: NDArray[np.int64], shape: tuple[int, int]) -> BinaryMatrix:
    """Return a matrix whose ones are all cells of the given columns."""
    n, m = shape
    return BinaryMatrix(np.arange(n + 1, dtype=np.int64) * columns.size, np.tile(columns, n), m)


# -- Unknown cells: neither one nor zero, and left out of all counts -------------------------------------------------
#
# A `BinaryMatrix` may carry them as the ones of another of the same shape (`BinaryMatrix.unknown`). They are no ones of
# the data itself, so that nothing can depend on what stands there.


def mark_unknown(A: BinaryMatrix, unknown: Any) -> BinaryMatrix:
    """Return A with the unknown cells that the ones of a 0/1 matrix name, beside those it had; with none, if None."""
    if unknown is None:
        return A._with_rows(A.indptr, A.indices, None)
    marked = BinaryMatrix.of(unknown).with_columns(None)
    if marked.shape != A.shape:
        raise InputError(
            f"unknown is {marked.shape[0]} x {marked.shape[1]}, but the data is {A.shape[0]} x {A.shape[1]}; mark each "
            "unknown cell by a 1 in a matrix of the same shape"
        )
    check_disjoint((A.indptr, A.indices), (marked.indptr, marked.indices), A.shape[1])
    if A.unknown is not None:
        marked = BinaryMatrix.of(marked.to_scipy().maximum(A.unknown.to_scipy()))
    return A._with_rows(A.indptr, A.indices, marked if marked.nnz else None)


def read_partly_known(data: Any, *, binarize_threshold: float | None = None) -> BinaryMatrix:
    """Build a `BinaryMatrix` as `BinaryMatrix.of` does, but take missing cells (NaN, None, NA, masked) as unknown.

    Sparse data has none: what it does not store is 0, and a NaN in it is refused.
    """
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
