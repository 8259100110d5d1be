"""Measure the cells that are not in a folder yet, in processes of their own; each is written as soon as it is there.

An interruption costs the cells under way and nothing else.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from felb._version import __version__
from felb.errors import InputError
from felb.runs.cell_pool import Pool
from felb.runs.cell_records import CELLS, CellRecord
from felb.runs.result import machine_facts
from felb.safe_files import PARTIAL, try_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

LOCK = ".lock"
LEFTOVER = f".*.{PARTIAL}"
"""What a process leaves that is killed while it writes a cell or the manifest."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: cells there from before, cells measured now, cells in all, and the last one."""

    kept: int
    measured: int
    total: int
    last: str = ""


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells to measure: parameters by key.

    Parameters
    ----------
    worker : module that measures, see `felb.runs.cell_server`
    parameters : everything that decides the figures of a cell, by its key
    labels : what to call the cells while they are measured
    folders : part of every request, by their names
    """

    worker: str
    parameters: Mapping[str, Mapping[str, Any]]
    labels: Mapping[str, str]
    folders: Mapping[str, Path] = field(default_factory=dict)


def missing_cells(cells: Cells, folder: Path, *, limit: float) -> list[str]:
    """Return the keys of the cells that need a run."""
    return [key for key in cells.parameters if not settled(folder, key, limit)]


def measure_cells(
    cells: Cells,
    folder: Path,
    *,
    limit: float,
    jobs: int = 1,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Measure the cells that are not in `folder` yet, `jobs` at a time and each for at most `limit` seconds.

    Cells that failed are tried again, and those that ran out of time if they have more of it now.
    """
    missing, total = missing_cells(cells, folder, limit=limit), len(cells.parameters)
    kept = total - len(missing)
    on_progress(Progress(kept, 0, total))
    with Pool(cells.worker, jobs) as pool:
        requests = [(key, cells.parameters[key]) for key in missing]
        for number, (key, found) in enumerate(pool.measure(requests, limit=limit, folders=cells.folders), start=1):
            parameters = cells.parameters[key]
            CellRecord(key=key, parameters=parameters, provenance=provenance(), limit=limit, **found).write(folder)
            on_progress(Progress(kept, number, total, last=cells.labels[key]))


def settled(folder: Path, key: str, limit: float) -> bool:
    """Whether a cell needs no run: it is done, or had as much time before as it would have now."""
    kept = CellRecord.read(folder / CELLS / f"{key}.json")
    if kept is None or kept.status == "failed":
        return False
    return kept.status == "done" or (kept.limit is not None and kept.limit >= limit)


def provenance() -> dict[str, Any]:
    """Return what measured, when and where."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None  # times say little on a busy machine
    return {"felb": __version__, "date": date, "machine": machine_facts(), "load": load}


def claim_folder(folder: Path, *, manifest: str, what: str) -> closing[Any]:
    """Take a folder for this process: one that has the manifest, or an empty one; errors name `what` it holds."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose another folder")
    known = (folder / manifest).is_file() or not folder.is_dir()
    if not known and any(path.name not in (LOCK, CELLS) and not path.match(LEFTOVER) for path in folder.iterdir()):
        raise InputError(f"{folder} is not empty and holds no {what}; choose another folder")
    try:
        (folder / CELLS).mkdir(parents=True, exist_ok=True)
        lock = try_lock(folder / LOCK)
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror}); choose another folder") from error
    if lock is None:
        raise InputError(f"another process runs the {what} in {folder}; wait for it, or choose another folder")
    for partial in (*folder.glob(LEFTOVER), *(folder / CELLS).glob(LEFTOVER)):
        partial.unlink(missing_ok=True)
    return closing(lock)
