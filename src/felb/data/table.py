"""What a data file holds, as a whole or block of rows after block of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from felb.data.apply_schema import Applied
    from felb.data.binary import BinaryMatrix


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
