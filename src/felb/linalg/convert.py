"""Anything tabular into a `BinaryMatrix`, without ever densifying what is sparse.

Every entrance checks that the values are 0 and 1 and says where they are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from felb.errors import InputError
from felb.linalg.binary import BinaryMatrix, check_column_names, index_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

DENSE_BLOCK_CELLS = 1 << 24
"""Dense input is scanned in row blocks of about this many cells, so that temporaries stay small."""


def to_binary(
    data: Any, *, columns: Sequence[str] | None = None, binarize_threshold: float | None = None
) -> BinaryMatrix:
    """Build a `BinaryMatrix` from a NumPy array, SciPy sparse matrix, pandas or polars frame, or AnnData.

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
    if isinstance(data, BinaryMatrix):
        return data if columns is None else data.with_columns(columns)
    if hasattr(data, "tocsr"):
        return _from_scipy(data, columns, binarize_threshold)
    if _is_anndata(data):
        names = columns if columns is not None else [str(name) for name in data.var_names]
        return to_binary(data.X, columns=names, binarize_threshold=binarize_threshold)
    if hasattr(data, "columns") and hasattr(data, "dtypes"):
        return _from_frame(data, columns, binarize_threshold)
    return _from_dense(data, columns, binarize_threshold)


def from_transactions(transactions: Iterable[Iterable[Any]], *, columns: Sequence[Any] | None = None) -> BinaryMatrix:
    """Build from item sets, one per record; repeated items in a record count once.

    Without `columns`, the columns are all items in sorted order (integers numerically); with it, an unknown item
    is an error.
    """
    ids: dict[Any, int] = {item: position for position, item in enumerate(columns or ())}
    rows: list[NDArray[np.int64]] = []
    for number, items in enumerate(transactions):
        if isinstance(items, str | bytes):
            raise InputError(f"transaction {number} is the text {items!r}; give a list of items")
        if columns is None:
            row = {ids.setdefault(item, len(ids)) for item in items}
        else:
            unknown = next((item for item in items if item not in ids), None)
            if unknown is not None:
                raise InputError(f"transaction {number} holds {unknown!r}, which is not among the columns")
            row = {ids[item] for item in items}
        rows.append(np.fromiter(row, dtype=np.int64, count=len(row)))
    names = list(ids)
    rank = np.arange(len(ids))
    if columns is None and ids:
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


def where_one(values: NDArray[Any], threshold: float | None, *, locate: LocateCell | None = None) -> NDArray[np.bool_]:
    """Return the mask of ones of `values`; any cell that is neither 0 nor 1 is an error that names the cell.

    `locate` turns a position in `values` into the (row, column) that a user would recognise.
    """
    values = np.asarray(values)
    if values.dtype == bool:
        return values
    if values.dtype.kind not in "uif":
        values = _to_numbers(values, locate)
    if values.dtype.kind == "f" and np.isnan(values).any():
        _refuse(values, np.isnan(values), locate, "is missing (NaN); drop or fill it, felb does not guess")
    if threshold is not None:
        return np.asarray(values > threshold)
    ones: NDArray[np.bool_] = np.asarray(values == 1)
    if not np.all(ones | (values == 0)):
        _refuse(values, ~(ones | (values == 0)), locate, None)
    return ones


class LocateCell:
    """Names a cell of the original data for an error message."""

    def __init__(self, columns: Sequence[str] | None = None, first_row: int = 0, column: int | None = None):
        self._columns, self._first_row, self._column = columns, first_row, column

    def __call__(self, position: tuple[int, ...]) -> str:
        """Return "row 3, column 17 ('name')" for a position in a block."""
        row = position[0] + self._first_row
        column = self._column if self._column is not None else position[1]
        name = f" ({self._columns[column]!r})" if self._columns is not None else ""
        return f"row {row}, column {column}{name}"


def _refuse(values: NDArray[Any], bad: NDArray[np.bool_], locate: LocateCell | None, what: str | None) -> NoReturn:
    position = tuple(int(i) for i in np.argwhere(bad)[0])
    where = locate(position) if locate else f"cell {position}"
    advice = "pass binarize_threshold= (a one is what lies above it) or 0/1 data"
    raise InputError(f"{where} {what or f'holds {values[position]!s}; {advice}'}")


def _to_numbers(values: NDArray[Any], locate: LocateCell | None) -> NDArray[Any]:
    """Read objects or strings as numbers; True/False and 0/1 in any spelling of numbers are understood."""
    flat = np.empty(values.shape, dtype=np.float64)
    for position, value in np.ndenumerate(values):
        try:
            flat[position] = np.nan if value is None else float(value)
        except (TypeError, ValueError):
            where = locate(position) if locate else f"cell {position}"
            raise InputError(f"{where} holds {value!r}, which is not a number; felb wants 0/1 data") from None
    return flat


def _from_dense(data: Any, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    try:
        values = np.asarray(data)
    except ValueError:
        raise InputError("rows have different lengths; item sets go through from_transactions()") from None
    if values.ndim != 2:
        raise InputError(
            f"expected 2D data (records x features), got {values.ndim}D. Reshape your data: "
            "one row per record; a single record is X.reshape(1, -1)"
        )
    if np.iscomplexobj(values):
        raise InputError("Complex data not supported; felb wants 0/1 data")
    n, m = values.shape
    names = check_column_names(columns, m)
    counts, indices = [np.zeros(1, np.int64)], [np.zeros(0, index_dtype(m))]
    step = max(1, DENSE_BLOCK_CELLS // max(1, m))
    for start in range(0, n, step):
        ones = where_one(values[start : start + step], threshold, locate=LocateCell(names, start))
        counts.append(np.count_nonzero(ones, axis=1))
        indices.append(np.nonzero(ones)[1].astype(index_dtype(m)))
    return BinaryMatrix(np.cumsum(np.concatenate(counts)), np.concatenate(indices), m, names)


def _from_scipy(data: Any, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    if threshold is not None and threshold < 0:
        raise InputError(f"binarize_threshold={threshold} would turn every empty cell of sparse data into a one")
    if np.iscomplexobj(data):
        raise InputError("Complex data not supported; felb wants 0/1 data")
    csr = data.tocsr()
    if csr.ndim != 2:
        raise InputError(f"expected 2D data (records x features), got {csr.ndim}D")
    if not csr.has_canonical_format:
        csr = csr.copy()  # duplicates are summed in place, and the caller's matrix is not ours to change
        csr.sum_duplicates()
    rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    names = check_column_names(columns, csr.shape[1])

    class Locate(LocateCell):
        def __call__(self, position: tuple[int, ...]) -> str:
            return super().__call__((int(rows[position[0]]), int(csr.indices[position[0]])))

    ones = where_one(csr.data, threshold, locate=Locate(names))
    if ones.all():
        return BinaryMatrix(csr.indptr.astype(np.int64), csr.indices, csr.shape[1], names)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows[ones], minlength=csr.shape[0]))))
    return BinaryMatrix(indptr, csr.indices[ones], csr.shape[1], names)


def _from_frame(frame: Any, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    names = check_column_names(columns if columns is not None else list(frame.columns), len(frame.columns))
    ones = []
    for position, column in enumerate(frame.columns):
        series = frame[column]
        values = series.to_numpy()
        ones.append(np.flatnonzero(where_one(values, threshold, locate=LocateCell(names, 0, position))))
    return from_columns(ones, len(frame), columns=names)


def _is_anndata(data: Any) -> bool:
    return hasattr(data, "X") and hasattr(data, "var_names") and hasattr(data, "obs_names")


def _sort_key(item: Any) -> tuple[bool, Any]:
    return (True, str(item)) if not isinstance(item, int | np.integer) else (False, int(item))
