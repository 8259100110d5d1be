"""Binary matrices and where they come from: files, databases, shipped and planted data; how rows go to clients."""

from felb.data import partition
from felb.data.binary import BinaryMatrix
from felb.data.conversion import convert
from felb.data.files import Table, read
from felb.data.registry import load
from felb.data.schema import Feature, Schema
from felb.data.synthetic import Planted, planted

__all__ = [
    "BinaryMatrix",
    "Feature",
    "Planted",
    "Schema",
    "Table",
    "convert",
    "load",
    "partition",
    "planted",
    "read",
]
