"""What came of one measurement of an experiment or a comparison: a cell, in a JSON file of its own."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from felb.runs.result import finite
from felb.safe_files import replacing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CELLS = "cells"
"""Folder of the cells."""

Status = Literal["done", "failed", "timeout"]
STATUSES: tuple[Status, ...] = ("done", "failed", "timeout")


@dataclass(frozen=True, slots=True)
class CellRecord:
    """What came of a cell.

    Parameters
    ----------
    status : ``done``, or why there are no figures
    figures, curves, pictures : numbers by name, numbers per round by name, rows of 0 and 1 by name
    message : what went wrong
    seconds : the whole cell took, data and scores included
    limit : seconds it was allowed
    parameters : everything that decides the figures
    provenance : felb, machine, date
    """

    key: str
    status: Status
    figures: Mapping[str, float | None] = field(default_factory=dict)
    curves: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    pictures: Mapping[str, Sequence[str]] = field(default_factory=dict)
    message: str = ""
    seconds: float = 0.0
    limit: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the cell into the folder of its experiment; the file appears complete or not at all."""
        with replacing(folder / CELLS / f"{self.key}.json") as partial:
            partial.write_text(json.dumps(finite(asdict(self)), allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> CellRecord | None:
        """Read a cell; None if there is none, or one that is damaged or of another key."""
        try:
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return found if found.key == path.stem and found.status in STATUSES else None
