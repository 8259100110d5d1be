"""`BinaryMatrix`: a sparse 0/1 matrix that stores where the ones are and nothing else."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from felb.data.validation import check_indptr, check_range, check_rows
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

    import scipy.sparse as sp
    from numpy.typing import DTypeLike, NDArray

MAX_UINT16_COLUMNS = 1 << 16
"""Up to this many columns, two bytes address a column."""

ONES_AT_A_TIME = 1 << 22
"""Passes over all ones go in chunks of this many, so that temporaries stay small beside a memory map."""


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
        self._n_columns = int(n_columns)
        self._indices = _compact(np.asarray(indices), self._n_columns)
        starts = np.asarray(indptr)
        check_indptr(starts, max(0, starts.size - 1), self._indices.size)
        self._indptr = starts.astype(np.int64, copy=False)
        check_rows(self._indptr, self._indices, self._n_columns)
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

    # -- construction ------------------------------------------------------------------------------------------

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
        """Build from item sets, one per record; `columns` fixes the items and their order."""
        from felb.data.coercion import from_transactions

        return from_transactions(transactions, columns=columns)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> BinaryMatrix:
        """Open a file written by `save`, memory-mapped: rows are read from disk when they are used."""
        from felb.data.mapping import open_matrix

        return open_matrix(path)

    def with_unknown(self, unknown: Any) -> BinaryMatrix:
        """Return the matrix with a missing mask: `unknown` (0/1, of the same shape) is 1 for each unknown cell.

        Cells that were unknown before stay so; None makes zeros of them.
        """
        from felb.data.unknown import mark_unknown

        return mark_unknown(self, unknown)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the matrix to one file that `open` maps back; the file appears complete or not at all."""
        from felb.data.storage import save_matrix

        save_matrix(self, path)

    # -- facts -------------------------------------------------------------------------------------------------

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

    # -- parts and other forms ---------------------------------------------------------------------------------

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

    # -- Python's own protocols --------------------------------------------------------------------------------

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


def _compact(indices: NDArray[Any], n_columns: int) -> NDArray[Any]:
    """Return column numbers in the smallest type that fits, or raise if one of them is no column."""
    if n_columns < 0:
        raise InputError(f"a matrix cannot have {n_columns} columns")
    wanted = index_dtype(n_columns)
    check_range(indices, n_columns)
    return np.asarray(indices, dtype=wanted)


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
