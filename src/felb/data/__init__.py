"""Binary matrices, readers of files and databases, included and planted data sets, and partitions of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.late import late_names

if TYPE_CHECKING:
    from felb.data import partition
    from felb.data.binary import BinaryMatrix
    from felb.data.blocks import Blocks, open_blocks
    from felb.data.conversion import convert
    from felb.data.files import Table, read
    from felb.data.limits import Limits
    from felb.data.registry import load
    from felb.data.schema import Feature, Schema
    from felb.data.synthetic import Planted, planted

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

__getattr__ = late_names(
    __name__,
    {
        "BinaryMatrix": "felb.data.binary",
        "Blocks": "felb.data.blocks",
        "Feature": "felb.data.schema",
        "Limits": "felb.data.limits",
        "Planted": "felb.data.synthetic",
        "Schema": "felb.data.schema",
        "Table": "felb.data.files",
        "convert": "felb.data.conversion",
        "load": "felb.data.registry",
        "open_blocks": "felb.data.blocks",
        "partition": "felb.data.partition:",
        "planted": "felb.data.synthetic",
        "read": "felb.data.files",
    },
)
