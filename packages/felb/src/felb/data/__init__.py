"""Binary matrices, readers of files and databases, included and planted data sets, and partitions of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb._lazy import import_when_used

if TYPE_CHECKING:
    from felb.data import partition
    from felb.data.binary import BinaryMatrix
    from felb.data.files import Blocks, Table, convert, load, open_blocks, read
    from felb.data.readers import Limits
    from felb.data.synthetic import Planted, planted
    from felb.tables.schema import Feature, Schema

__all__ = [
    "BinaryMatrix",
    "Blocks",
    "Feature",
    "Limits",
    "Planted",
    "Schema",
    "Table",
    "convert",
    "load",
    "open_blocks",
    "partition",
    "planted",
    "read",
]

__getattr__ = import_when_used(
    __name__,
    {
        "BinaryMatrix": "felb.data.binary",
        "Blocks": "felb.data.files",
        "Feature": "felb.tables.schema",
        "Limits": "felb.data.readers",
        "Planted": "felb.data.synthetic",
        "Schema": "felb.tables.schema",
        "Table": "felb.data.files",
        "convert": "felb.data.files",
        "load": "felb.data.files",
        "open_blocks": "felb.data.files",
        "partition": "felb.data.partition:",
        "planted": "felb.data.synthetic",
        "read": "felb.data.files",
    },
)
