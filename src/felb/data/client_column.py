"""The columns of a table: which one says to which client a row belongs, and which ones are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


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
