"""Conversion of values to cells: ones, missing cells, and errors that name the place of any other value."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Locate = Callable[[tuple[int, ...]], str]

NOT_BINARY = "values must be 0 or 1; set binarize_threshold to convert values above it to 1"
MISSING = "is missing (NaN or empty); fill it or remove its row"
SAY_MISSING = ", or set missing to 'unknown' (left out of all counts; FederatedBMF only) or to 'zero'"
MISSING_MEANS = ("error", "unknown", "zero")
"""What a missing cell of a file may be taken for."""


def where_one(values: NDArray[Any], threshold: float | None, *, locate: Locate | None = None) -> NDArray[np.bool_]:
    """Return the mask of ones of `values`; any cell that is neither 0 nor 1 is an error that names the cell.

    `locate` turns a position in `values` into the (row, column) that a user would recognise.
    """
    values = np.asarray(values)
    if values.dtype == bool:
        return values if threshold is None else np.asarray(values > float(threshold))
    if threshold is not None and values.dtype.kind == "f" and np.isinf(values).any():
        _refuse(values, np.isinf(values), locate, "is infinite (inf); replace it by a number")
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
        raise InputError(f"binarize_threshold={threshold!r} is not a finite number", parameter="binarize_threshold")


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


class LocateEntry:
    """Names the cell of an entry of sparse rows."""

    def __init__(self, indptr: NDArray[Any], indices: NDArray[Any], locate: LocateCell) -> None:
        self._indptr, self._indices, self._locate = indptr, indices, locate

    def __call__(self, position: tuple[int, ...]) -> str:
        """Return where the entry of this number stands."""
        row = np.searchsorted(self._indptr, position[0], side="right") - 1
        return self._locate((int(row), int(self._indices[position[0]])))


def _refuse(values: NDArray[Any], bad: NDArray[np.bool_], locate: Locate | None, what: str | None) -> NoReturn:
    position = tuple(int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))
    where = locate(position) if locate else f"cell {position}"
    if what is None:
        raise InputError(f"{where} holds {values[position]!s}; {NOT_BINARY}", parameter="binarize_threshold")
    raise InputError(f"{where} {what}", parameter="missing" if SAY_MISSING in what else None)


def _to_numbers(values: NDArray[Any], locate: Locate | None) -> NDArray[Any]:
    """Read objects or strings as numbers; True/False and 0/1 in any spelling of numbers are understood."""
    flat = np.empty(values.shape, dtype=np.float64)
    for position, value in np.ndenumerate(values):
        try:
            flat[position] = np.nan if _is_missing(value) else float(value)
        except OverflowError:
            flat[position] = np.inf if value > 0 else -np.inf
        except (TypeError, ValueError):
            where = locate(position) if locate else f"cell {position}"
            raise InputError(f"{where} holds {plain(value)!r}, which is not a number; values must be 0 or 1") from None
    return flat


def _above(values: NDArray[Any], threshold: float) -> NDArray[np.bool_]:
    if values.dtype.kind == "f" and abs(threshold) > float(np.finfo(values.dtype).max):
        values = values.astype(np.float64)  # a narrow type would take the threshold for infinity
    return np.asarray(values > threshold)


def plain(value: Any) -> Any:
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
