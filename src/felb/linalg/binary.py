"""`BinaryMatrix`: a sparse 0/1 matrix that stores where the ones are and nothing else."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

    import scipy.sparse as sp
    from numpy.typing import DTypeLike, NDArray

MAX_UINT16_COLUMNS = 1 << 16
"""Up to this many columns, two bytes address a column."""


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
    felb.datasets.read : from data files of many formats.
    """

    __slots__ = ("_columns", "_indices", "_indptr", "_n_columns")

    def __init__(
        self,
        indptr: NDArray[np.int64],
        indices: NDArray[Any],
        n_columns: int,
        columns: Sequence[str] | None = None,
    ) -> None:
        self._indptr = np.asarray(indptr, dtype=np.int64)
        self._indices = np.asarray(indices, dtype=index_dtype(n_columns))
        self._n_columns = int(n_columns)
        self._columns = check_column_names(columns, self._n_columns)

    # -- construction ------------------------------------------------------------------------------------------

    @classmethod
    def of(
        cls, data: Any, *, columns: Sequence[str] | None = None, binarize_threshold: float | None = None
    ) -> BinaryMatrix:
        """Build from anything tabular; see `felb.linalg.convert.to_binary` for what is accepted."""
        from felb.linalg.convert import to_binary

        return to_binary(data, columns=columns, binarize_threshold=binarize_threshold)

    @classmethod
    def from_transactions(
        cls, transactions: Iterable[Iterable[Any]], *, columns: Sequence[Any] | None = None
    ) -> BinaryMatrix:
        """Build from item sets, one per record; `columns` fixes the items and their order."""
        from felb.linalg.convert import from_transactions

        return from_transactions(transactions, columns=columns)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> BinaryMatrix:
        """Open a file written by `save`, memory-mapped: rows are read from disk when they are used."""
        from felb.linalg.storage import open_matrix

        return open_matrix(path)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the matrix to one file that `open` maps back; the file appears complete or not at all."""
        from felb.linalg.storage import save_matrix

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
    def nnz(self) -> int:
        """Number of ones."""
        return int(self._indptr[-1] - self._indptr[0])

    @property
    def density(self) -> float:
        """Fraction of cells that are one."""
        cells = self.shape[0] * self.shape[1]
        return self.nnz / cells if cells else 0.0

    def row_sums(self) -> NDArray[np.int64]:
        """Ones in each row."""
        return np.diff(self._indptr)

    def column_sums(self) -> NDArray[np.int64]:
        """Ones in each column."""
        ones = self._indices[self._indptr[0] : self._indptr[-1]]
        return np.bincount(ones, minlength=self._n_columns).astype(np.int64)

    def fingerprint(self) -> str:
        """SHA-256 over shape, ones and column names: equal for equal data, however it was stored or sliced."""
        digest = hashlib.sha256(f"felb-binary-1:{self.shape[0]}x{self.shape[1]}".encode())
        for block in self.row_blocks(1 << 16):
            digest.update((block.indptr - block.indptr[0]).astype("<i8").tobytes())
            digest.update(block.indices[block.indptr[0] : block.indptr[-1]].astype("<i8").tobytes())
        for name in self._columns or ():
            digest.update(name.encode() + b"\0")
        return digest.hexdigest()

    # -- parts and other forms ---------------------------------------------------------------------------------

    def rows(self, start: int, stop: int) -> BinaryMatrix:
        """Rows ``start`` to ``stop`` (exclusive), without copying."""
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        return self._with_rows(self._indptr[start : max(start, stop) + 1], self._indices)

    def row_blocks(self, size: int) -> Iterator[BinaryMatrix]:
        """Consecutive blocks of at most `size` rows, without copying."""
        if size < 1:
            raise InputError(f"a row block needs at least one row, got size={size}")
        for start in range(0, self.shape[0], size):
            yield self.rows(start, start + size)

    def take(self, rows: NDArray[np.integer[Any]] | Sequence[int]) -> BinaryMatrix:
        """Return the given rows, in the given order, as a copy."""
        picked = np.asarray(rows, dtype=np.int64)
        lengths = self.row_sums()[picked]
        indptr = np.concatenate(([0], np.cumsum(lengths)))
        # Position of every copied one: its offset inside its row plus where that row starts in the source.
        source = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - self._indptr[picked], lengths)
        return self._with_rows(indptr, self._indices[source])

    def with_columns(self, columns: Sequence[str] | None) -> BinaryMatrix:
        """Return the same ones under other column names."""
        return BinaryMatrix(self._indptr, self._indices, self._n_columns, columns)

    @staticmethod
    def vstack(parts: Sequence[BinaryMatrix]) -> BinaryMatrix:
        """Stack matrices with the same columns."""
        if not parts:
            raise InputError("nothing to stack: no matrices were given")
        if len({part.shape[1] for part in parts}) > 1:
            raise InputError(f"cannot stack matrices with {[part.shape[1] for part in parts]} columns")
        starts = np.cumsum([0] + [part.nnz for part in parts])
        indptr = [part.indptr[1:] - part.indptr[0] + start for part, start in zip(parts, starts, strict=False)]
        indices = [part.indices[part.indptr[0] : part.indptr[-1]] for part in parts]
        return parts[0]._with_rows(np.concatenate([[0], *indptr]), np.concatenate(indices))

    def to_scipy(self, dtype: DTypeLike = np.uint8) -> sp.csr_array:
        """Return a SciPy CSR array holding a value for every one."""
        import scipy.sparse as sp

        first, last = self._indptr[0], self._indptr[-1]
        indices = self._indices[first:last].astype(np.int32)
        ones = np.ones(int(last - first), dtype=dtype)
        return sp.csr_array((ones, indices, self._indptr - first), shape=self.shape)

    def toarray(self) -> NDArray[np.bool_]:
        """Return a dense Boolean array; for small matrices and pictures."""
        dense = np.zeros(self.shape, dtype=bool)
        dense[np.repeat(np.arange(self.shape[0]), self.row_sums()), self._ones()] = True
        return dense

    def _ones(self) -> NDArray[Any]:
        return self._indices[self._indptr[0] : self._indptr[-1]]

    def _with_rows(self, indptr: NDArray[np.int64], indices: NDArray[Any]) -> BinaryMatrix:
        """Return other rows over the same, already checked columns."""
        other = object.__new__(BinaryMatrix)
        other._indptr, other._indices = indptr, indices
        other._n_columns, other._columns = self._n_columns, self._columns
        return other

    # -- Python's own protocols --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        named = " named" if self._columns else ""
        return f"BinaryMatrix({self.shape[0]} x {self.shape[1]}{named}, {self.nnz} ones, {self.density:.4g} dense)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BinaryMatrix):
            return NotImplemented
        return (
            self.shape == other.shape
            and self._columns == other._columns
            and np.array_equal(self.row_sums(), other.row_sums())
            and np.array_equal(self._ones(), other._ones())
        )

    __hash__ = None  # type: ignore[assignment]  # compared by content, possibly of a mapped file

    def __copy__(self) -> Self:
        return self


def check_column_names(columns: Sequence[Any] | None, n_columns: int) -> tuple[str, ...] | None:
    """Return the names as a tuple of strings, one per column and unique, or raise."""
    if columns is None:
        return None
    names = tuple(str(name) for name in columns)
    if len(names) != n_columns:
        raise InputError(f"{len(names)} column names were given for {n_columns} columns")
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"column name {twice!r} occurs more than once; make the names unique")
    return names
