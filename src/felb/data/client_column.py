"""The column of a table that says to which client a row belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
