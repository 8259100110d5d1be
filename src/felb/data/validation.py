"""The one validator of sparse rows: what it has passed, a compiled kernel may walk without looking.

A kernel does not compare an index with the size of what it indexes. So whatever comes from outside (a file, a data
frame, a message, a matrix of SciPy) passes here before: the index pointer ascends and is as long as the shape says,
the column numbers of a row ascend, occur once and exist, and no cell is both a one and unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 1 << 19
"""Column numbers that are looked at together: few enough to stay in the processor's cache."""


def check_indptr(indptr: NDArray[Any], n_lines: int, n_entries: int) -> None:
    """Raise unless `indptr` cuts entries into lines; it may begin after the first entry and end before the last.

    Parameters
    ----------
    indptr : where each line starts, and where the last one ends
    n_lines : rows of a matrix in CSR form, columns of one in CSC form
    n_entries : length of the array that is cut
    """
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


def check_rows(indptr: NDArray[Any], indices: NDArray[Any], n_columns: int) -> None:
    """Raise unless every row of a checked `indptr` has column numbers that exist and strictly ascend."""
    first, last = int(indptr[0]), int(indptr[-1])
    check_range(indices, n_columns)
    row = _first_unsorted(indptr, indices, first, last)
    if row is not None:
        _refuse_order(row, indptr, indices)


def check_chunk(indptr: NDArray[np.int64], indices: NDArray[Any], start: int, stop: int, n_columns: int) -> None:
    """Raise as `check_rows` does, but look only at the entries from `start` to before `stop` and the one before them.

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


def check_disjoint(
    ones: tuple[NDArray[Any], NDArray[Any]], unknown: tuple[NDArray[Any], NDArray[Any]], n_columns: int
) -> None:
    """Raise if a cell is both a one and unknown; both are (indptr, indices) of checked rows."""
    both = count_common(ones, unknown, n_columns)
    if both:
        raise InputError(
            f"{both} cells are marked as unknown and are ones of the data; set them to 0 there, or do not mark them"
        )


def count_common(a: tuple[NDArray[Any], NDArray[Any]], b: tuple[NDArray[Any], NDArray[Any]], n_columns: int) -> int:
    """Return how many cells two sets of checked rows have in common, looking at a few rows at a time."""
    n_rows, common, start = a[0].size - 1, 0, 0
    entries = (a[0] - a[0][0]) + (b[0] - b[0][0])
    while start < n_rows:
        stop = max(start + 1, int(np.searchsorted(entries, entries[start] + CHUNK, side="right")) - 1)
        common += np.intersect1d(
            _cells(*a, start, stop, n_columns), _cells(*b, start, stop, n_columns), assume_unique=True
        ).size
        start = stop
    return common


def check_compressed(matrix: Any) -> None:
    """Raise unless a CSR, CSC or BSR matrix of SciPy fits its own shape: SciPy's compiled code does not look."""
    n, m = matrix.shape
    data = np.asarray(matrix.data)
    if matrix.format == "bsr":
        if data.ndim != 3 or min(data.shape[1:]) < 1 or n % data.shape[1] or m % data.shape[2]:
            raise InputError("the sparse matrix is damaged: its blocks do not match its shape; create it again")
        n, m = n // data.shape[1], m // data.shape[2]
    lines, places = (m, n) if matrix.format == "csc" else (n, m)
    indptr, indices = np.asarray(matrix.indptr), np.asarray(matrix.indices)
    _check_triple(indptr, indices, len(data), lines, places)


def check_uncompressed(matrix: Any) -> None:
    """Raise unless the arrays of a DIA or LIL matrix of SciPy belong together; other formats are pairs already."""
    if matrix.format == "dia":
        data, offsets = np.asarray(matrix.data), np.asarray(matrix.offsets)
        sound = data.ndim == 2 and offsets.shape == (len(data),) and offsets.dtype.kind in "ui"
        sound = sound and np.unique(offsets).size == offsets.size
    elif matrix.format == "lil":
        rows, data = np.asarray(matrix.rows, dtype=object), np.asarray(matrix.data, dtype=object)
        sound = rows.shape == data.shape == (matrix.shape[0],)
        sound = sound and all(
            isinstance(columns, list) and isinstance(values, list) and len(columns) == len(values)
            for columns, values in zip(rows, data, strict=True)
        )
    else:
        return
    if not sound:
        raise InputError("the sparse matrix is damaged: its arrays are inconsistent; create it again")


def check_parts(
    indptr: NDArray[Any], indices: NDArray[Any], n_values: int, shape: tuple[int, int], *, by_column: bool = False
) -> None:
    """Raise unless the three arrays of a compressed matrix fit a shape, before a matrix of SciPy is made of them."""
    lines, places = shape[::-1] if by_column else shape
    _check_triple(indptr, indices, n_values, lines, places)


def check_coordinates(rows: NDArray[Any], columns: NDArray[Any], n_values: int, shape: tuple[int, int]) -> None:
    """Raise unless (row, column) pairs are as many as their values and inside a shape."""
    if not rows.size == columns.size == n_values:
        raise InputError(
            "the sparse matrix is damaged: its arrays of rows, columns and values differ in length; create it again"
        )
    for indices, size, what in ((rows, shape[0], "row"), (columns, shape[1], "column")):
        try:
            check_range(indices, size, what)
        except InputError as error:
            _refuse_matrix(error)


def _check_triple(indptr: NDArray[Any], indices: NDArray[Any], n_values: int, lines: int, places: int) -> None:
    try:
        check_indptr(indptr, lines, min(indices.size, n_values))
        if indptr[0] != 0:
            raise InputError(f"indptr begins with {indptr[0]} instead of 0")
        check_range(indices[: indptr[-1]], places)
    except InputError as error:
        _refuse_matrix(error)


def _refuse_matrix(error: InputError) -> NoReturn:
    raise InputError(
        f"the sparse matrix is damaged: it has entries outside its shape ({error}); create it again"
    ) from error


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


def _cells(indptr: NDArray[Any], indices: NDArray[Any], start: int, stop: int, n_columns: int) -> NDArray[np.int64]:
    """Return the numbers row × n_columns + column of the ones of some rows."""
    rows = np.repeat(np.arange(start, stop, dtype=np.int64), np.diff(indptr[start : stop + 1]))
    return np.asarray(rows * n_columns + indices[int(indptr[start]) : int(indptr[stop])], dtype=np.int64)
