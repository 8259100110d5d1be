"""`BinaryMatrix`: a sparse 0/1 matrix that stores where the ones are and nothing else; its checks and unknown cells."""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from felb.errors import CellError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from os import PathLike

    import scipy.sparse as sp
    from numpy.typing import DTypeLike, NDArray

    Locate = Callable[[tuple[int, ...]], str]


# A compiled kernel does not compare an index with the size of what it indexes. So whatever comes from outside (a file,
# a data frame, a message, a matrix of SciPy) passes the checks below before.

CHUNK = 1 << 19
"""Column numbers that are looked at together: few enough to stay in the processor's cache."""


def check_indptr(indptr: NDArray[Any], n_lines: int, n_entries: int) -> None:
    """Raise unless `indptr` cuts entries into lines; it may begin after the first entry and end before the last."""
    if indptr.ndim != 1:
        raise InputError(f"indptr must be 1D, not {indptr.ndim}D")
    if indptr.size != n_lines + 1:
        raise InputError(
            f"indptr has {indptr.size} entries for {n_lines} rows; it needs one entry more than there are rows"
        )
    if indptr.dtype.kind not in "ui":
        raise InputError(f"indptr must be integers, not {indptr.dtype}")
    if indptr[0] < 0 or indptr[-1] > n_entries or np.any(indptr[1:] < indptr[:-1]):
        raise InputError(f"indptr must ascend from 0 or more to at most {n_entries}, the number of column numbers")


def check_range(indices: NDArray[Any], size: int, what: str = "column") -> None:
    """Raise unless all `indices` are integers from 0 to below `size`."""
    if indices.ndim != 1:
        raise InputError(f"{what} numbers must be 1D, not {indices.ndim}D")
    if indices.size and indices.dtype.kind not in "ui":
        raise InputError(f"{what} numbers must be integers, not {indices.dtype}")
    for start in range(0, indices.size, CHUNK):
        chunk = indices[start : start + CHUNK]
        # Read without a sign, a negative number is larger than any size.
        if int(chunk.view(chunk.dtype.str.replace("i", "u")).max()) >= size:
            outside = int(chunk.min()) if chunk.min() < 0 else int(chunk.max())
            raise InputError(f"there is no {what} {outside}; the {what}s are numbered from 0 to {size - 1}")


def check_order(indptr: NDArray[Any], indices: NDArray[Any]) -> None:
    """Raise unless the column numbers of every row of a checked `indptr` strictly ascend."""
    row = _first_unsorted(indptr, indices, int(indptr[0]), int(indptr[-1]))
    if row is not None:
        _refuse_order(row, indptr, indices)


def check_chunk(indptr: NDArray[np.int64], indices: NDArray[Any], start: int, stop: int, n_columns: int) -> None:
    """Raise as `check_range` and `check_order` do, but look only at the entries from `start` to before `stop`.

    Over consecutive chunks that is one streaming pass. Where entries ascend, those at the ends of rows are the largest,
    and no others need to be compared with the number of columns. Read without a sign, a negative number is the largest.
    """
    plain = indices.view(indices.dtype.str.replace("i", "u"))
    row = _first_unsorted(indptr, plain, max(int(indptr[0]), start - 1), stop)
    first, last = np.searchsorted(indptr, (start, stop), side="right")
    ends = plain[indptr[first:last] - 1]
    if row is not None or plain[stop - 1] >= n_columns or np.any(ends >= n_columns):
        check_range(indices[start:stop], n_columns)
        _refuse_order(0 if row is None else row, indptr, indices)


def is_canonical(indptr: NDArray[Any], indices: NDArray[Any]) -> bool:
    """Whether the column numbers of every row of a checked `indptr` strictly ascend."""
    return _first_unsorted(indptr, indices, int(indptr[0]), int(indptr[-1])) is None


def check_disjoint(ones: BinaryMatrix, unknown: BinaryMatrix) -> None:
    """Raise if a cell is both a one and unknown, looking at a few rows at a time."""
    blocks = zip(ones.row_blocks(ROWS_AT_A_TIME), unknown.row_blocks(ROWS_AT_A_TIME), strict=True)
    both = sum(a.to_scipy(bool).multiply(b.to_scipy(bool)).nnz for a, b in blocks)
    if both:
        raise InputError(
            f"{both} cells are marked as unknown and are ones of the data; set them to 0 there, or do not mark them"
        )


def _first_unsorted(indptr: NDArray[Any], indices: NDArray[Any], start: int, stop: int) -> int | None:
    """Return the first row with an entry from `start` + 1 to `stop` that is not above the one before it in its row."""
    for at in range(start, stop - 1, CHUNK):
        chunk = indices[at : min(at + CHUNK + 1, stop)]  # one more, to compare across the border
        falls = chunk[1:] <= chunk[:-1]
        first, last = np.searchsorted(indptr, at, side="right"), np.searchsorted(indptr, at + chunk.size)
        falls[indptr[first:last].astype(np.int64) - (at + 1)] = False  # a new row may begin anywhere
        if falls.any():
            entry = at + 1 + int(np.argmax(falls))
            return int(np.searchsorted(indptr, entry, side="right")) - 1
    return None


def _refuse_order(row: int, indptr: NDArray[Any], indices: NDArray[Any]) -> NoReturn:
    columns = indices[int(indptr[row]) : int(indptr[row + 1])]
    at = int(np.argmax(columns[1:] <= columns[:-1]))
    if columns[at] == columns[at + 1]:
        raise InputError(f"row {row} names column {columns[at]} twice; the columns of a row are ascending and unique")
    raise InputError(
        f"row {row} names column {columns[at + 1]} after column {columns[at]}; the columns of a row are ascending"
    )


NOT_BINARY = "values must be 0 or 1; set binarize_threshold to convert values above it to 1"
MISSING = "is missing (NaN or empty); fill it or remove its row"
SAY_MISSING = ", or set missing to 'unknown' (left out of all counts; FederatedBMF only) or to 'zero'"
MISSING_MEANS = ("error", "unknown", "zero")
"""What a missing cell of a file may be taken for."""


def where_one(
    values: NDArray[Any], threshold: float | None, locate: Locate, *, missing: str | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | None]:
    """Return the mask of ones of `values`, and that of unknown cells or None if there are none.

    Any cell that is neither 0 nor 1 is an error that names it: `locate` turns a position in `values` into words that a
    user would recognise. `missing` is one of `MISSING_MEANS`; None is an error that names no option.
    """
    absent = None if missing is None else missing_cells(values)
    if absent is None:
        return _where_one(np.asarray(values), threshold, locate), None
    if missing == "error":
        _refuse(values, absent, locate, MISSING + SAY_MISSING)
    ones = _where_one(np.where(absent, 0, values), threshold, locate) & ~absent
    return ones, absent if missing == "unknown" else None


def _where_one(values: NDArray[Any], threshold: float | None, locate: Locate) -> NDArray[np.bool_]:
    if values.dtype == bool:
        return values if threshold is None else np.asarray(values > float(threshold))
    if threshold is not None and values.dtype.kind == "f" and np.isinf(values).any():
        _refuse(values, np.isinf(values), locate, "is infinite (inf); replace it by a number")
    if values.dtype.kind in "mM":
        first = tuple(0 for _ in values.shape)
        raise InputError(
            f"{locate(first)} holds {values[first]}, a date or a time; make a category of it (felb schema)"
        )
    if values.dtype.kind not in "uif":
        values = _to_numbers(values, locate)
    if values.dtype.kind == "f" and np.isnan(values).any():
        _refuse(values, np.isnan(values), locate, MISSING)
    if threshold is not None:
        if values.dtype.kind == "f" and abs(threshold) > float(np.finfo(values.dtype).max):
            values = values.astype(np.float64)  # a narrow type would take the threshold for infinity
        return np.asarray(values > float(threshold))
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
        raise InputError(f"binarize_threshold={threshold!r} is not a finite number", parameter="binarize_threshold")


def name_cell(names: Sequence[str] | None, row: int, column: int) -> str:
    """Return "row 3, column 17 ('name')" for an error message."""
    return f"row {row}, column {column}" + (f" ({names[column]!r})" if names is not None else "")


def _refuse(values: NDArray[Any], bad: NDArray[np.bool_], locate: Locate, what: str | None) -> NoReturn:
    position = tuple(int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))
    where = locate(position)
    if what is None:
        said, place = f"{where} holds {values[position]!s}; {NOT_BINARY}", _name_position(position)
        raise CellError(said, place=place, parameter="binarize_threshold")
    parameter = "missing" if SAY_MISSING in what else None
    raise CellError(f"{where} {what}", place=_name_position(position), parameter=parameter)


def _name_position(position: tuple[int, ...]) -> str:
    return "position " + ", ".join(map(str, position))


def _to_numbers(values: NDArray[Any], locate: Locate) -> NDArray[Any]:
    """Read objects or strings as numbers; True/False and 0/1 in any spelling of numbers are understood."""
    flat = np.empty(values.shape, dtype=np.float64)
    for position, value in np.ndenumerate(values):
        try:
            flat[position] = np.nan if _is_missing(value) else float(value)
        except OverflowError:
            flat[position] = np.inf if value > 0 else -np.inf
        except (TypeError, ValueError):
            raise CellError(
                f"{locate(position)} holds {to_python(value)!r}, which is not a number; values must be 0 or 1",
                place=_name_position(position),
            ) from None
    return flat


def to_python(value: Any) -> Any:
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


MAX_UINT16_COLUMNS = 1 << 16
"""Up to this many columns, two bytes address a column."""

ONES_AT_A_TIME, ROWS_AT_A_TIME = 1 << 22, 1 << 16
"""Passes over all ones, or over two matrices, go in chunks, so that temporaries stay small beside a memory map."""


def index_dtype(n_columns: int) -> np.dtype[Any]:
    """Return the smallest index type for `n_columns`: uint16 up to 65536 columns, int32 beyond."""
    if n_columns <= MAX_UINT16_COLUMNS:
        return np.dtype(np.uint16)
    if n_columns <= np.iinfo(np.int32).max:
        return np.dtype(np.int32)
    raise InputError(f"{n_columns} columns are more than the {np.iinfo(np.int32).max} felb can address")


class BinaryMatrix:
    """A binary matrix (records × features) in CSR form without values.

    Row r has its ones in the columns ``indices[indptr[r]:indptr[r + 1]]``, ascending and unique. Row slices share
    memory with the matrix they come from, so splitting data among clients costs nothing, and both arrays may be
    memory maps. Treat it as immutable.

    Parameters
    ----------
    indptr : int64 array of length n_rows + 1
    indices : array of column numbers; kept if it already has the smallest type that fits
    n_columns : number of columns
    columns : optional unique column names

    See Also
    --------
    BinaryMatrix.of : from arrays, sparse matrices, data frames, AnnData.
    BinaryMatrix.open : memory-mapped from a file written by `save`.
    felb.data.read : from data files of many formats.

    Examples
    --------
    >>> import felb
    >>> matrix = felb.BinaryMatrix.of([[1, 0, 1], [0, 0, 1]], columns=["fever", "rash", "cough"])
    >>> matrix
    BinaryMatrix(2 x 3 named, 3 ones, 0.5 dense)
    >>> matrix.column_sums()
    array([1, 0, 2])
    >>> felb.BinaryMatrix.from_transactions([{"cough", "fever"}, {"cough"}]).columns
    ('cough', 'fever')
    """

    __slots__ = ("_columns", "_indices", "_indptr", "_n_columns", "_unknown")

    def __init__(
        self,
        indptr: NDArray[np.int64],
        indices: NDArray[Any],
        n_columns: int,
        columns: Sequence[str] | None = None,
    ) -> None:
        if n_columns < 0:
            raise InputError(f"a matrix cannot have {n_columns} columns")
        self._n_columns, indices, starts = int(n_columns), np.asarray(indices), np.asarray(indptr)
        check_range(indices, self._n_columns)
        check_indptr(starts, max(0, starts.size - 1), indices.size)
        self._indices = np.asarray(indices, dtype=index_dtype(self._n_columns))
        self._indptr = starts.astype(np.int64, copy=False)
        check_order(self._indptr, self._indices)
        self._columns = check_column_names(columns, self._n_columns)
        self._unknown: BinaryMatrix | None = None

    @classmethod
    def of_valid_rows(
        cls, indptr: NDArray[np.int64], indices: NDArray[Any], n_columns: int, columns: Sequence[str] | None = None
    ) -> BinaryMatrix:
        """Make a matrix of rows that are known to be valid and of the smallest index type, without looking at them.

        For what felb itself has computed, and for files that were checked; anything else goes to the constructor.
        """
        matrix = object.__new__(cls)
        matrix._indptr, matrix._indices, matrix._n_columns = indptr, indices, n_columns
        matrix._columns, matrix._unknown = check_column_names(columns, n_columns), None
        return matrix

    @classmethod
    def of(
        cls, data: Any, *, columns: Sequence[str] | None = None, binarize_threshold: float | None = None
    ) -> BinaryMatrix:
        """Build from anything tabular; see `felb.data.coercion.to_binary` for what is accepted."""
        from felb.data.coercion import to_binary

        return to_binary(data, columns=columns, binarize_threshold=binarize_threshold)

    @classmethod
    def from_transactions(
        cls, transactions: Iterable[Iterable[Any]], *, columns: Sequence[Any] | None = None
    ) -> BinaryMatrix:
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
                row = {ids.setdefault(item, len(ids)) if columns is None else ids[item] for item in items}
            except KeyError as error:
                unknown = to_python(error.args[0])
                raise InputError(f"transaction {number} holds {unknown!r}, which is not among the columns") from None
            except TypeError as error:
                raise InputError(f"transaction {number} is no list of items (numbers or names): {items!r}") from error
            rows.append(np.fromiter(row, dtype=np.int64, count=len(row)))
        order = list(ids)
        if columns is None:
            order.sort(key=lambda item: (0, int(item)) if isinstance(item, int | np.integer) else (1, str(item)))
        rank = np.empty(len(ids), np.int64)
        rank[[ids[item] for item in order]] = np.arange(len(ids))
        indptr = np.cumsum([0] + [row.size for row in rows])
        indices = np.concatenate([np.sort(rank[row]) for row in rows]) if rows else np.zeros(0, np.int64)
        return cls(indptr, indices, len(ids), [str(item) for item in order])

    @classmethod
    def open(cls, path: str | PathLike[str]) -> BinaryMatrix:
        """Open a file written by `save`, memory-mapped: rows are read from disk when they are used."""
        from felb.data.storage import open_matrix

        return open_matrix(path)

    def with_unknown(self, unknown: Any) -> BinaryMatrix:
        """Return the matrix with a missing mask: `unknown` (0/1, of the same shape) is 1 for each unknown cell.

        Cells that were unknown before stay so; None makes zeros of them.
        """
        if unknown is None:
            return self._with_rows(self._indptr, self._indices, None)
        marked = BinaryMatrix.of(unknown).with_columns(None)
        if marked.shape != self.shape:
            raise InputError(
                f"unknown is {marked.shape[0]} x {marked.shape[1]}, but the data is {self.shape[0]} x {self.shape[1]}; "
                "mark each unknown cell by a 1 in a matrix of the same shape"
            )
        check_disjoint(self, marked)
        if self._unknown is not None:
            marked = BinaryMatrix.of(marked.to_scipy().maximum(self._unknown.to_scipy()))
        return self._with_rows(self._indptr, self._indices, marked if marked.nnz else None)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the matrix to one file that `open` maps back; the file appears complete or not at all."""
        from felb.data.storage import save_matrix

        save_matrix(self, path)

    @property
    def shape(self) -> tuple[int, int]:
        """(number of rows, number of columns)."""
        return self._indptr.size - 1, self._n_columns

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Where each row starts in `indices`; the first entry need not be 0 in a slice of rows."""
        return self._indptr

    @property
    def indices(self) -> NDArray[Any]:
        """Column numbers of the ones, row after row."""
        return self._indices

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Column names, if there are any."""
        return self._columns

    @property
    def unknown(self) -> BinaryMatrix | None:
        """The unknown cells as the ones of a matrix of the same shape; None where all cells are known."""
        return self._unknown

    @property
    def nnz(self) -> int:
        """Number of ones."""
        return int(self._indptr[-1] - self._indptr[0])

    @property
    def known_cells(self) -> int:
        """Number of cells that are one or zero: rows × columns without the unknown ones."""
        return self.shape[0] * self.shape[1] - (0 if self._unknown is None else self._unknown.nnz)

    @property
    def density(self) -> float:
        """Fraction of the known cells that are one."""
        return self.nnz / self.known_cells if self.known_cells else 0.0

    def row_sums(self) -> NDArray[np.int64]:
        """Ones in each row."""
        return np.diff(self._indptr)

    def column_sums(self) -> NDArray[np.int64]:
        """Ones in each column."""
        sums = np.zeros(self._n_columns, dtype=np.int64)
        for ones in self.chunks_of_ones():  # bincount widens its argument to eight bytes a one
            sums += np.bincount(ones, minlength=self._n_columns)
        return sums

    def fingerprint(self) -> str:
        """SHA-256 over shape, ones and column names: equal for equal data, however it was stored or sliced."""
        digest = hashlib.sha256(f"felb-binary-2:{self.shape[0]}x{self.shape[1]}".encode())
        digest.update(self.row_sums().astype("<i8").tobytes())
        for ones in self.chunks_of_ones():  # their type follows from the shape, so equal data has equal bytes
            digest.update(ones.astype(ones.dtype.newbyteorder("<"), copy=False).tobytes())
        digest.update(json.dumps(self._columns).encode())
        if self._unknown is not None:
            digest.update(self._unknown.fingerprint().encode())
        return digest.hexdigest()

    def rows(self, start: int, stop: int) -> BinaryMatrix:
        """Rows ``start`` to ``stop`` (exclusive), without copying."""
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        unknown = None if self._unknown is None else self._unknown.rows(start, stop)
        return self._with_rows(self._indptr[start : max(start, stop) + 1], self._indices, unknown)

    def row_blocks(self, size: int) -> Iterator[BinaryMatrix]:
        """Consecutive blocks of at most `size` rows, without copying."""
        if size < 1:
            raise InputError(f"a row block needs at least one row, got size={size}")
        for start in range(0, self.shape[0], size):
            yield self.rows(start, start + size)

    def chunks_of_ones(self) -> Iterator[NDArray[Any]]:
        """Column numbers of all ones, row after row, in pieces of bounded size and without copying."""
        ones = self._ones()
        for start in range(0, ones.size, ONES_AT_A_TIME):
            yield ones[start : start + ONES_AT_A_TIME]

    def take(self, rows: NDArray[np.integer[Any]] | Sequence[int]) -> BinaryMatrix:
        """Return the given rows, in the given order, as a copy; a Boolean mask picks the rows where it is true."""
        picked = self._row_numbers(np.asarray(rows))
        lengths = self.row_sums()[picked]
        indptr = np.concatenate(([0], np.cumsum(lengths)))
        ones = np.empty(indptr[-1], dtype=self._indices.dtype)
        start = 0
        while start < picked.size:  # in pieces, since a position takes four times the memory of a one, and more
            stop = max(start + 1, int(np.searchsorted(indptr, indptr[start] + ONES_AT_A_TIME, side="right")) - 1)
            first, last = indptr[start], indptr[stop]
            # Position of every copied one: its offset inside its row plus where that row starts in the source.
            shift = np.repeat(self._indptr[picked[start:stop]] - indptr[start:stop], lengths[start:stop])
            ones[first:last] = self._indices[np.arange(first, last) + shift]
            start = stop
        return self._with_rows(indptr, ones, None if self._unknown is None else self._unknown.take(picked))

    def with_columns(self, columns: Sequence[str] | None) -> BinaryMatrix:
        """Return the same ones under other column names."""
        other = self._with_rows(self._indptr, self._indices, self._unknown)
        other._columns = check_column_names(columns, self._n_columns)
        return other

    @staticmethod
    def vstack(parts: Sequence[BinaryMatrix]) -> BinaryMatrix:
        """Stack matrices with the same columns; unnamed parts take the names of the named ones."""
        if not parts:
            raise InputError("nothing to stack: no matrices were given")
        if len(parts) == 1:
            return parts[0]  # perhaps a memory map, and immutable anyway
        if len({part.shape[1] for part in parts}) > 1:
            raise InputError(f"cannot stack matrices with {[part.shape[1] for part in parts]} columns")
        named = [part for part in parts if part.columns is not None] or list(parts)
        if any(part.columns != named[0].columns for part in named):
            raise InputError("cannot stack matrices with different column names; bring the columns into one order")
        starts = np.cumsum([0] + [part.nnz for part in parts])
        indptr = [part.indptr[1:] - part.indptr[0] + start for part, start in zip(parts, starts, strict=False)]
        indices = [part.indices[part.indptr[0] : part.indptr[-1]] for part in parts]
        unknown = None
        if any(part.unknown is not None for part in parts):
            unknown = BinaryMatrix.vstack([_unknown_of(part) for part in parts])
        return named[0]._with_rows(np.concatenate([[0], *indptr]), np.concatenate(indices), unknown)

    def to_scipy(self, dtype: DTypeLike = np.uint8) -> sp.csr_array:
        """Return a SciPy CSR array holding a value for every one."""
        import scipy.sparse as sp

        first, last = self._indptr[0], self._indptr[-1]
        indices = self._indices[first:last].astype(np.int32)
        ones = np.ones(int(last - first), dtype=dtype)
        return sp.csr_array((ones, indices, self._indptr - first), shape=self.shape)

    def toarray(self) -> NDArray[np.bool_]:
        """Return a dense Boolean array; for small matrices and plots."""
        dense = np.zeros(self.shape, dtype=bool)
        dense[np.repeat(np.arange(self.shape[0]), self.row_sums()), self._ones()] = True
        return dense

    def _ones(self) -> NDArray[Any]:
        return self._indices[self._indptr[0] : self._indptr[-1]]

    def _row_numbers(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return `rows` as row numbers that exist, or raise."""
        n_rows = self.shape[0]
        if rows.dtype == bool and rows.shape == (n_rows,):
            return np.flatnonzero(rows)
        if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "ui"):
            raise InputError(f"rows are picked by a list of row numbers or a mask of length {n_rows}")
        if rows.size and not (rows.min() >= 0 and rows.max() < n_rows):
            outside = rows.min() if rows.min() < 0 else rows.max()
            raise InputError(f"row {outside} does not exist; the rows are numbered from 0 to {n_rows - 1}")
        return rows.astype(np.int64)

    def _with_rows(
        self, indptr: NDArray[np.int64], indices: NDArray[Any], unknown: BinaryMatrix | None
    ) -> BinaryMatrix:
        """Return other rows over the same, already checked columns."""
        other = object.__new__(BinaryMatrix)
        other._indptr, other._indices, other._unknown = indptr, indices, unknown
        other._n_columns, other._columns = self._n_columns, self._columns
        return other

    def __len__(self) -> int:
        return self.shape[0]

    def __sizeof__(self) -> int:
        """Bytes of the arrays in memory; what is mapped from a file takes none."""
        parts = [part for part in (self._indptr, self._ones()) if not isinstance(part, np.memmap)]
        return sum(part.nbytes for part in parts) + (0 if self._unknown is None else self._unknown.__sizeof__())

    def __repr__(self) -> str:
        named = " named" if self._columns else ""
        unknown = "" if self._unknown is None else f"{self._unknown.nnz} unknown, "
        shape = f"{self.shape[0]} x {self.shape[1]}{named}"
        return f"BinaryMatrix({shape}, {self.nnz} ones, {unknown}{self.density:.4g} dense)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BinaryMatrix):
            return NotImplemented
        return (
            self.shape == other.shape
            and self._columns == other._columns
            and np.array_equal(self.row_sums(), other.row_sums())
            and np.array_equal(self._ones(), other._ones())
            and (self._unknown is other._unknown or _unknown_of(self) == _unknown_of(other))
        )

    __hash__ = None  # type: ignore[assignment]  # compared by content, possibly of a mapped file

    def __copy__(self) -> Self:
        return self


def _unknown_of(matrix: BinaryMatrix) -> BinaryMatrix:
    """Return the unknown cells, also where there are none."""
    if matrix.unknown is not None:
        return matrix.unknown
    n_rows, n_columns = matrix.shape
    return BinaryMatrix(np.zeros(n_rows + 1, dtype=np.int64), np.zeros(0, dtype=np.int64), n_columns)


def check_column_names(columns: Sequence[Any] | None, n_columns: int) -> tuple[str, ...] | None:
    """Return the names as a tuple of strings, one per column and unique, or raise."""
    if columns is None:
        return None
    if isinstance(columns, str):
        raise InputError(f"column names must be a list of names, not the text {columns!r}")
    names = tuple(str(name) for name in columns)
    if len(names) != n_columns:
        raise InputError(f"{len(names)} column names were given for {n_columns} columns")
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"column name {twice!r} occurs more than once; make the names unique")
    return names
