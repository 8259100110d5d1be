"""Anything tabular into a `BinaryMatrix`, without ever densifying what is sparse.

Every entrance checks that the values are 0 and 1 and says where they are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix, check_column_names, index_dtype
from felb.data.cells import LocateCell, LocateEntry, check_threshold, plain, where_known_one, where_one
from felb.data.validation import (
    check_compressed,
    check_coordinates,
    check_indptr,
    check_parts,
    check_uncompressed,
    is_canonical,
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
    if callable(getattr(type(data), "__dask_graph__", None)):
        raise InputError(
            "this is a Dask collection, which only the federated methods take (FederatedBMF, FELB, FELBMU, …); for "
            "others, give data.compute()"
        )
    if isinstance(data, BinaryMatrix):
        if binarize_threshold is not None and not 0 <= binarize_threshold < 1:
            raise InputError(
                f"binarize_threshold={binarize_threshold} makes all cells of 0/1 data equal; omit it",
                parameter="binarize_threshold",
            )
        return data if columns is None else data.with_columns(columns)
    if hasattr(data, "tocsr"):
        return _from_scipy(data, columns, binarize_threshold)
    if _is_anndata(data):
        return _from_anndata(data, columns, binarize_threshold)
    frame = Columns.of(data)
    if frame is not None:
        return _from_frame(frame, columns, binarize_threshold)
    return BinaryMatrix.vstack(list(dense_blocks(data, columns=columns, binarize_threshold=binarize_threshold)))


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
            unknown = plain(error.args[0])
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


def dense_blocks(
    data: Any,
    *,
    columns: Sequence[str] | None = None,
    binarize_threshold: float | None = None,
    missing: str | None = None,
) -> Iterator[BinaryMatrix]:
    """Yield the rows of a dense array block by block, at least one block; the array may be on disk.

    `missing` says what missing cells of a file are, one of `MISSING_MEANS`; elsewhere they are an error.
    """
    if np.ma.is_masked(data):
        raise InputError("some cells are masked, that is, missing; fill them or remove their rows")
    try:
        # Datasets of an HDF5 file stay on disk: their rows are read block by block below.
        values = data if type(data).__module__.startswith("h5py") else np.asarray(data)
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


def sparse_rows(
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


def anndata_blocks(
    data: Any, *, binarize_threshold: float | None = None, missing: str | None = None
) -> Iterator[BinaryMatrix]:
    """Yield the rows of AnnData whose `X` is still in its file, block by block if it is dense or in CSR form.

    `missing` says what missing cells of a dense `X` are; in a sparse one they are an error.
    """
    values, names = data.X, [str(name) for name in data.var_names]
    if type(values).__module__.startswith("h5py"):
        yield from dense_blocks(values, columns=names, binarize_threshold=binarize_threshold, missing=missing)
    elif hasattr(values, "to_memory") and values.format == "csr":
        yield from _csr_blocks_on_disk(values, names, binarize_threshold)
    else:
        yield _from_anndata(data, None, binarize_threshold)


def _csr_blocks_on_disk(values: Any, names: Sequence[str], threshold: float | None) -> Iterator[BinaryMatrix]:
    """Yield the rows of a matrix in CSR form that is still in its file."""
    import scipy.sparse as sp

    check_sparse(threshold, values.dtype, len(values.shape))
    (n, m), group = values.shape, values.group
    indptr = np.asarray(group["indptr"][...])
    check_indptr(indptr, n, min(group["indices"].shape[0], group["data"].shape[0]))
    start = 0
    while start < max(1, n):
        stop = min(
            n, max(start + 1, int(np.searchsorted(indptr, indptr[start] + SPARSE_BLOCK_ENTRIES, side="right")) - 1)
        )
        first, last = int(indptr[start]), int(indptr[stop])
        data, indices = group["data"][first:last], group["indices"][first:last]
        ends = indptr[start : stop + 1].astype(np.int64) - first
        check_parts(ends, indices, data.size, (stop - start, m))
        block = sp.csr_array((data, indices, ends), shape=(stop - start, m))
        yield sparse_rows(block, columns=names, binarize_threshold=threshold, first_row=start)
        start = max(stop, 1)


def check_sparse(threshold: float | None, dtype: np.dtype[Any], ndim: int) -> None:
    """Raise unless sparse data of that type can be made binary."""
    if threshold is not None and threshold < 0:
        raise InputError(
            f"binarize_threshold={threshold} would turn every zero of sparse data into a one",
            parameter="binarize_threshold",
        )
    if dtype.kind == "c":
        raise InputError("Complex data not supported; values must be 0 or 1")
    if ndim != 2:
        raise InputError(f"expected 2D data (records x features), got {ndim}D")


def _from_scipy(data: Any, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    check_sparse(threshold, data.dtype, data.ndim)
    return sparse_rows(checked_csr(data), columns=columns, binarize_threshold=threshold)


def checked_csr(data: Any) -> Any:
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
