"""Where data comes from: files, shipped data sets, planted data, and how it is split among clients."""

from felb.datasets import partition
from felb.datasets.conversion import convert
from felb.datasets.files import Table, read
from felb.datasets.registry import load
from felb.datasets.synthetic import Planted, planted

__all__ = ["Planted", "Table", "convert", "load", "partition", "planted", "read"]
