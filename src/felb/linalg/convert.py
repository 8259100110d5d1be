"""Anything tabular into a `BinaryMatrix`, without ever densifying what is sparse.

Every entrance checks that the values are 0 and 1 and says where they are not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from felb.errors import InputError
from felb.linalg.binary import BinaryMatrix, check_column_names, index_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Locate = Callable[[tuple[int, ...]], str]

DENSE_BLOCK_CELLS = 1 << 22
"""Dense input is scanned in row blocks of about this many cells, so that temporaries stay small."""

SPARSE_BLOCK_ENTRIES = 1 << 20
"""Sparse input that is on disk is read in row blocks of about this many entries."""

NOT_BINARY = "pass binarize_threshold= (a one is what lies above it) or 0/1 data"
DAMAGED = "the sparse matrix is damaged: it has entries outside its own shape; build it anew"
MISSING = "is missing (NaN or empty); drop or fill it, felb does not guess"
SAY_MISSING = (
    ", unless told: missing='unknown' for a cell that counts neither way (FederatedBMF), missing='zero' for a 0"
)
MISSING_MEANS = ("error", "unknown", "zero")
"""What a missing cell of a file may be taken for."""


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
    check_threshold(binarize_threshold)
    if isinstance(data, BinaryMatrix):
        if binarize_threshold is not None and not 0 <= binarize_threshold < 1:
            raise InputError(f"binarize_threshold={binarize_threshold} makes all cells of 0/1 data equal; leave it out")
        return data if columns is None else data.with_columns(columns)
    if hasattr(data, "tocsr"):
        return _from_scipy(data, columns, binarize_threshold)
    if _is_anndata(data):
        return _from_anndata(data, columns, binarize_threshold)
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        data = data.collect()  # a lazy frame of polars
    if hasattr(data, "columns") and hasattr(data, "dtypes"):
        return _from_frame(data, columns, binarize_threshold)
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
            unknown = _plain(error.args[0])
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


def where_one(values: NDArray[Any], threshold: float | None, *, locate: Locate | None = None) -> NDArray[np.bool_]:
    """Return the mask of ones of `values`; any cell that is neither 0 nor 1 is an error that names the cell.

    `locate` turns a position in `values` into the (row, column) that a user would recognise.
    """
    values = np.asarray(values)
    if values.dtype == bool:
        return values if threshold is None else np.asarray(values > float(threshold))
    if threshold is not None and values.dtype.kind == "f" and np.isinf(values).any():
        _refuse(values, np.isinf(values), locate, "is infinite (inf); clip it, felb does not guess")
    if values.dtype.kind not in "uif":
        values = _to_numbers(values, locate)
    if values.dtype.kind == "f" and np.isnan(values).any():
        _refuse(values, np.isnan(values), locate, MISSING)
    if threshold is not None:
        return _above(values, float(threshold))
    ones: NDArray[np.bool_] = np.asarray(values == 1)
    if not np.all(ones | (values == 0)):
        _refuse(values, ~(ones | (values == 0)), locate, None)
    return ones


def check_threshold(threshold: float | None) -> None:
    """Raise unless `threshold` is None or an ordinary number."""
    try:
        usable = threshold is None or math.isfinite(threshold)
    except (TypeError, OverflowError):
        usable = False
    if not usable:
        raise InputError(f"binarize_threshold={threshold!r} is not a finite number")


class LocateCell:
    """Names a cell of the original data for an error message.

    Parameters
    ----------
    columns : column names, if there are any
    first_row : number of the first row of the block that is looked at
    column : number of the column, if the block is a single one
    """

    def __init__(self, columns: Sequence[str] | None = None, first_row: int = 0, column: int | None = None) -> None:
        self._columns, self._first_row, self._column = columns, first_row, column
        self._rows: NDArray[Any] | None = None

    def among(self, rows: NDArray[Any]) -> LocateCell:
        """Return a locator for values that stand in the given rows only."""
        other = LocateCell(self._columns, self._first_row, self._column)
        other._rows = rows
        return other

    def __call__(self, position: tuple[int, ...]) -> str:
        """Return "row 3, column 17 ('name')" for a position in a block."""
        row = position[0] + self._first_row if self._rows is None else self._rows[position[0]]
        column = self._column if self._column is not None else position[1]
        name = f" ({self._columns[column]!r})" if self._columns is not None else ""
        return f"row {row}, column {column}{name}"


class _LocateEntry:
    """Names the cell of an entry of sparse rows."""

    def __init__(self, indptr: NDArray[Any], indices: NDArray[Any], locate: LocateCell) -> None:
        self._indptr, self._indices, self._locate = indptr, indices, locate

    def __call__(self, position: tuple[int, ...]) -> str:
        row = np.searchsorted(self._indptr, position[0], side="right") - 1
        return self._locate((int(row), int(self._indices[position[0]])))


def _refuse(values: NDArray[Any], bad: NDArray[np.bool_], locate: Locate | None, what: str | None) -> NoReturn:
    position = tuple(int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))
    where = locate(position) if locate else f"cell {position}"
    raise InputError(f"{where} {what or f'holds {values[position]!s}; {NOT_BINARY}'}")


def _to_numbers(values: NDArray[Any], locate: Locate | None) -> NDArray[Any]:
    """Read objects or strings as numbers; True/False and 0/1 in any spelling of numbers are understood."""
    flat = np.empty(values.shape, dtype=np.float64)
    for position, value in np.ndenumerate(values):
        try:
            # pandas' own marks for missing values, known by name because pandas need not be there
            missing = value is None or type(value).__name__ in {"NAType", "NaTType"}
            flat[position] = np.nan if missing else float(value)
        except OverflowError:
            flat[position] = np.inf if value > 0 else -np.inf
        except (TypeError, ValueError):
            where = locate(position) if locate else f"cell {position}"
            raise InputError(f"{where} holds {_plain(value)!r}, which is not a number; felb wants 0/1 data") from None
    return flat


def _above(values: NDArray[Any], threshold: float) -> NDArray[np.bool_]:
    if values.dtype.kind == "f" and abs(threshold) > float(np.finfo(values.dtype).max):
        values = values.astype(np.float64)  # a narrow type would take the threshold for infinity
    return np.asarray(values > threshold)


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as the Python value it stands for, which prints without its type."""
    return value.item() if isinstance(value, np.generic) else value


def missing_cells(values: Any) -> NDArray[np.bool_] | None:
    """Return which cells are missing (NaN, None, NA, masked); None if all are there."""
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    if np.ma.is_masked(values):
        masked = np.ma.getmaskarray(values)
        inside = missing_cells(np.ma.getdata(values))
        return masked if inside is None else masked | inside
    if kind == "f":
        missing = np.isnan(values)
    elif kind == "O":
        missing = np.array([_is_missing(value) for value in values.flat], dtype=bool).reshape(values.shape)
    else:
        return None
    return np.asarray(missing) if missing.any() else None


def _is_missing(value: Any) -> bool:
    # pandas' own marks, known by name because pandas need not be there; NaN is not itself
    return (
        value is None
        or type(value).__name__ in {"NAType", "NaTType"}
        or (isinstance(value, float | np.floating) and value != value)
    )


def where_known_one(
    values: NDArray[Any], threshold: float | None, *, missing: str, locate: Locate | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | None]:
    """Return the mask of ones as `where_one` does, and that of unknown cells; None if there are none.

    `missing` is one of `MISSING_MEANS`.
    """
    absent = missing_cells(values)
    if absent is None:
        return where_one(values, threshold, locate=locate), None
    if missing == "error":
        _refuse(values, absent, locate, MISSING + SAY_MISSING)
    ones = where_one(np.where(absent, 0, values), threshold, locate=locate) & ~absent
    return ones, absent if missing == "unknown" else None


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
        raise InputError("some cells are masked, that is missing; drop or fill them, felb does not guess")
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
        raise InputError("Complex data not supported; felb wants 0/1 data")
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
    if not csr.has_canonical_format:
        csr = csr.copy()  # duplicates are summed in place, and the caller's matrix is not ours to change
        csr.sum_duplicates()
    names = check_column_names(columns, csr.shape[1])
    indptr = csr.indptr.astype(np.int64)
    indices, values = csr.indices[: indptr[-1]], csr.data[: indptr[-1]]
    ones = where_one(values, binarize_threshold, locate=_LocateEntry(indptr, indices, LocateCell(names, first_row)))
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
        check_sparse(binarize_threshold, values.dtype, len(values.shape))
        n = values.shape[0]
        entries_per_row = values.group["indices"].shape[0] // max(1, n) + 1
        step = max(1, SPARSE_BLOCK_ENTRIES // entries_per_row)
        for start in range(0, max(1, n), step):
            block = values[start : start + step]
            _check_compressed(block)
            yield sparse_rows(block, columns=names, binarize_threshold=binarize_threshold, first_row=start)
    else:
        yield _from_anndata(data, None, binarize_threshold)


def check_sparse(threshold: float | None, dtype: np.dtype[Any], ndim: int) -> None:
    """Raise unless sparse data of that type can be made binary."""
    if threshold is not None and threshold < 0:
        raise InputError(f"binarize_threshold={threshold} would turn every empty cell of sparse data into a one")
    if dtype.kind == "c":
        raise InputError("Complex data not supported; felb wants 0/1 data")
    if ndim != 2:
        raise InputError(f"expected 2D data (records x features), got {ndim}D")


def _from_scipy(data: Any, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    check_sparse(threshold, data.dtype, data.ndim)
    if data.format in ("csr", "csc", "bsr"):
        _check_compressed(data)
    return sparse_rows(data.tocsr(), columns=columns, binarize_threshold=threshold)


def _check_compressed(data: Any) -> None:
    """Raise if an index points outside the matrix: SciPy's compiled code does not look, and would crash."""
    indptr, used = data.indptr, data.indices[: max(0, data.indptr[-1])]
    size = data.shape[0] if data.format == "csc" else data.shape[1]
    if data.format == "bsr":
        size //= data.blocksize[1]
    sound = indptr[0] == 0 and indptr[-1] <= min(data.indices.size, len(data.data)) and np.all(np.diff(indptr) >= 0)
    if not sound or (used.size and (used.min() < 0 or used.max() >= size)):
        raise InputError(DAMAGED)


def _from_frame(frame: Any, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    names = check_column_names(columns if columns is not None else list(frame.columns), len(frame.columns))
    ones = []
    for position in range(len(frame.columns)):
        # by position, since names may repeat; pandas has `iloc`, polars `to_series`
        series = frame.iloc[:, position] if hasattr(frame, "iloc") else frame.to_series(position)
        ones.append(_ones_of_column(series, threshold, locate=LocateCell(names, 0, position)))
    return from_columns(ones, len(frame), columns=names)


def _ones_of_column(series: Any, threshold: float | None, *, locate: LocateCell) -> NDArray[Any]:
    """Return the row numbers of the ones; a sparse column of pandas is looked at only where it stores a value."""
    array: Any = getattr(series, "array", None)
    if not hasattr(array, "sp_index") or array.fill_value != 0 or (threshold is not None and threshold < 0):
        return np.flatnonzero(where_one(series.to_numpy(), threshold, locate=locate))
    rows: NDArray[Any] = array.sp_index.indices
    return rows[where_one(array.sp_values, threshold, locate=locate.among(rows))]


def _from_anndata(data: Any, columns: Sequence[str] | None, threshold: float | None) -> BinaryMatrix:
    values = data.X
    if values is None:
        raise InputError("the AnnData object has no X; put the matrix there, for example from one of its layers")
    if hasattr(values, "to_memory"):
        values = values.to_memory()  # sparse and still in its file
    names = columns if columns is not None else [str(name) for name in data.var_names]
    return to_binary(values, columns=names, binarize_threshold=threshold)


def _is_anndata(data: Any) -> bool:
    return hasattr(data, "X") and hasattr(data, "var_names") and hasattr(data, "obs_names")


def _sort_key(item: Any) -> tuple[bool, Any]:
    return (True, str(item)) if not isinstance(item, int | np.integer) else (False, int(item))
