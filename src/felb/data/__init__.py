"""Binary matrices, readers of files and databases, included and planted data sets, and partitions of rows."""

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
