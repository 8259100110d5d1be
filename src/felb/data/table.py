"""What a data file holds, as a whole or block of rows after block of rows.

Some of its columns may be left out, one may say to which client a row belongs, and files beside it may add column names
and a missing mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from felb.data.binary import check_column_names
from felb.errors import InputError
from felb.records import read_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from felb.data.apply_schema import Applied
    from felb.data.binary import BinaryMatrix

SAME = "mark each unknown cell by a 1 in a matrix of the same shape"


@dataclass(frozen=True)
class Table:
    """What a data file holds.

    Parameters
    ----------
    matrix : the 0/1 data, one row per record
    clients : the client each row belongs to, if the file says so
    rows : the name of each row, if the file says so and the loader keeps it
    applied : what the schema met, if the data was read by one
    ignored : names of the columns that were left out because they were not asked for
    """

    matrix: BinaryMatrix
    clients: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = field(default=None, repr=False)
    applied: Applied | None = None
    ignored: tuple[str, ...] = ()


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


def names_beside(source: Path, n_columns: int) -> tuple[str, ...] | None:
    """Return the column names in NAME.columns.txt beside NAME.npz or NAME.mat, if that file is there and fits."""
    beside = source.with_suffix(".columns.txt")
    if not beside.is_file():
        return None
    try:
        names = read_text(beside, advice="it holds one name per line").removesuffix("\n").split("\n")
        return check_column_names(names, n_columns) if len(names) == n_columns else None
    except InputError as error:
        raise InputError(
            f"column names in {beside.name}: {error}; correct that file or move it to another folder"
        ) from error


def find_client_column(name: str, columns: Sequence[str] | None) -> int:
    """Return where the column that names each row's client stands, or raise and say which columns there are."""
    if columns is None:
        raise InputError(
            f"client_column={name!r} needs column names, but the file has no header line", parameter="client_column"
        )
    if name not in columns:
        shown = ", ".join(repr(column) for column in columns[:10])
        more = f" and {len(columns) - 10} more" if len(columns) > 10 else ""
        raise InputError(
            f"client_column={name!r} is not a column; the columns are {shown or 'none'}{more}",
            parameter="client_column",
        )
    return list(columns).index(name)


def client_labels(values: Iterable[Any], first_row: int) -> list[str]:
    """Return the values as text, one string per client; a missing one is an error."""
    known: dict[str, str] = {}
    labels = []
    for row, value in enumerate(values, first_row):
        if value is None or value != value or value == "":
            raise InputError(f"row {row} has no client in the client column; fill it")
        text = str(value)
        labels.append(known.setdefault(text, text))
    return labels


def split_columns(
    names: Sequence[str] | int, wanted: Collection[str] | None, *, without: int | None = None
) -> tuple[list[int], tuple[str, ...]]:
    """Return the numbers of the columns to read, and the names of those that are left out because of `wanted`.

    Parameters
    ----------
    names : of all columns, or their number if they have none; then all are read
    wanted : names of the columns to read; None for all
    without : number of a column that is no feature
    """
    if isinstance(names, int) or wanted is None:
        count = names if isinstance(names, int) else len(names)
        return [i for i in range(count) if i != without], ()
    kept = [i for i, name in enumerate(names) if i != without and name in wanted]
    if not kept:
        raise InputError(f"none of the {len(names)} columns is a feature of the model, such as {min(wanted)!r}")
    return kept, tuple(name for i, name in enumerate(names) if i != without and name not in wanted)
