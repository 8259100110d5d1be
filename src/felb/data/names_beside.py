"""Column names in a text file beside a file that cannot hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.data.binary import check_column_names
from felb.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def names_beside(source: Path, n_columns: int) -> tuple[str, ...] | None:
    """Return the column names in NAME.columns.txt beside NAME.npz or NAME.mat, if that file is there and fits."""
    beside = source.with_suffix(".columns.txt")
    if not beside.is_file():
        return None
    try:
        names = beside.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
        return check_column_names(names, n_columns) if len(names) == n_columns else None
    except (OSError, UnicodeDecodeError, InputError) as error:
        raise InputError(f"column names in {beside.name}: {error}; mend that file or move it away") from error
