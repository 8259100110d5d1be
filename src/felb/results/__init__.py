"""Plain records of what was found, written atomically, read back by anyone."""

from felb.results.history import History
from felb.results.result import Component, Provenance, Result, read_assignment

__all__ = ["Component", "History", "Provenance", "Result", "read_assignment"]
