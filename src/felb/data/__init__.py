"""Binary matrices, readers, included and planted data sets, and partitions of rows among clients."""

from felb.data import partition
from felb.data.binary import BinaryMatrix
from felb.data.conversion import convert
from felb.data.files import Table, read
from felb.data.registry import load
from felb.data.synthetic import Planted, planted

__all__ = ["BinaryMatrix", "Planted", "Table", "convert", "load", "partition", "planted", "read"]
