"""Binary matrices and where they come from: files, shipped and planted data; how rows are split among clients."""

from felb.data import partition
from felb.data.binary import BinaryMatrix
from felb.data.conversion import convert
from felb.data.files import Table, read
from felb.data.limits import Limits
from felb.data.registry import load
from felb.data.synthetic import Planted, planted

__all__ = ["BinaryMatrix", "Limits", "Planted", "Table", "convert", "load", "partition", "planted", "read"]
