"""Reads the missing mask of a data file from another file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from felb.data.binary import BinaryMatrix
    from felb.data.files import Table

SAME = "mark each unknown cell by a 1 in a matrix of the same shape"


def marked(tables: Iterable[Table], marks: BinaryMatrix, name: str) -> Iterator[Table]:
    """Yield blocks of rows with the missing mask `marks`, which was read from the file `name`."""
    n = 0
    for table in tables:
        rows, columns = table.matrix.shape
        if columns != marks.shape[1]:
            raise InputError(f"{name} has {marks.shape[1]} columns, but the data has {columns}; {SAME}")
        if None not in (table.matrix.columns, marks.columns) and table.matrix.columns != marks.columns:
            raise InputError(f"{name} has other column names than the data; bring its columns into the same order")
        if n + rows <= len(marks):
            yield replace(table, matrix=table.matrix.with_unknown(marks.rows(n, n + rows)))
        n += rows
    if n != len(marks):
        raise InputError(f"{name} has {len(marks)} rows, but the data has {n}; {SAME}")
