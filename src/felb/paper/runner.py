"""Run an experiment into a folder, cell by cell; what is there already is not run again."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb._version import __version__
from felb.atomic import try_lock
from felb.errors import FelbError, InputError
from felb.paper.experiment_cells import SourceData
from felb.paper.pool import Pool
from felb.paper.real_data import keep_source
from felb.paper.study import CELLS, MANIFEST, CellRecord, StudyRecord, name_of, write_claims
from felb.runs.result import machine_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from felb.paper.experiment_cells import Cell
    from felb.paper.experiment_spec import Study

LOCK, DATA = ".lock", "data"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an experiment is: cells there from before, cells measured now, cells in all, and the last one."""

    kept: int
    measured: int
    total: int
    last: str = ""


def run_study(
    study: Study,
    out: str | os.PathLike[str],
    *,
    jobs: int = 1,
    time_limit: float | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> StudyRecord:
    """Measure the cells of an experiment that are not in the folder `out` yet; return all of them.

    Every cell is written as soon as it is measured, so an interruption costs the cells under way and nothing else.
    Cells that failed are tried again, and those that ran out of time if they have more of it now.

    Parameters
    ----------
    study : what to measure
    out : folder of the experiment; made if it is not there
    jobs : cells at the same time
    time_limit : seconds for each cell, in place of the experiment's own
    on_progress : called at the start and after each cell
    """
    limit = study.time_limit if time_limit is None else time_limit
    cells = {cell.key: cell for cell in study.cells()}
    folder = Path(out)
    with _claimed(folder, study):
        record = _manifest(study)
        record.write_manifest(folder)
        open_cells = [cell for cell in cells.values() if not _settled(folder, cell, limit)]
        kept, total = len(cells) - len(open_cells), len(cells)
        on_progress(Progress(kept, 0, total))
        folders = _folders(study, folder)
        _convert(open_cells, folders)
        with Pool(jobs) as pool:
            requests = [(cell.key, cell.parameters) for cell in open_cells]
            for number, (key, found) in enumerate(pool.measure(requests, limit=limit, folders=folders), start=1):
                _record(cells[key], found, limit).write(folder)
                on_progress(Progress(kept, number, total, last=f"{cells[key].use.label} {cells[key].place}"))
        finished = StudyRecord.read(folder)
        write_claims(folder, study.judge(finished))
    return finished


def _folders(study: Study, folder: Path) -> dict[str, Path]:
    """Return where a cell finds its data: the cache of the experiment, and the data folder if one was named."""
    named = {} if study.data is None else {"folder": Path(study.data).resolve()}
    return {"cache": folder.resolve() / DATA, **named}


def _convert(cells: Sequence[Cell], folders: Mapping[str, Path]) -> None:
    """Make matrices of raw files once, before the time of any cell begins; what fails is told by the cells."""
    for name in dict.fromkeys(cell.data.name for cell in cells if isinstance(cell.data, SourceData)):
        with suppress(FelbError, OSError):
            keep_source(name, **folders)


def _manifest(study: Study) -> StudyRecord:
    return StudyRecord(
        name=study.name,
        title=study.title,
        question=study.question,
        form=study.form,
        view=study.view(),
        planned=tuple(cell.planned() for cell in study.cells()),
        settings=study.settings(),
        provenance=_provenance(),
    )


def _provenance() -> dict[str, Any]:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None  # times say little on a busy machine
    return {"felb": __version__, "date": date, "machine": machine_facts(), "load": load}


def _record(cell: Cell, found: dict[str, Any], limit: float) -> CellRecord:
    return CellRecord(key=cell.key, limit=limit, parameters=cell.parameters, provenance=_provenance(), **found)


def _settled(folder: Path, cell: Cell, limit: float) -> bool:
    """Whether a cell needs no run: it is done, or had as much time before as it would have now."""
    kept = CellRecord.read(folder / CELLS / f"{cell.key}.json")
    if kept is None or kept.status == "failed":
        return False
    return kept.status == "done" or (kept.limit is not None and kept.limit >= limit)


def _claimed(folder: Path, study: Study) -> closing[Any]:
    """Take the folder for this process; only a folder of the same experiment, or an empty one, is taken."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose another folder")
    if (folder / MANIFEST).is_file():
        other = name_of(folder)
        if other not in (study.name, None):
            raise InputError(f"{folder} holds the experiment {other!r}, not {study.name!r}; choose another folder")
    elif folder.is_dir() and any(path.name not in (LOCK, CELLS) for path in folder.iterdir()):
        raise InputError(f"{folder} is not empty and holds no experiment; choose another folder")
    try:
        (folder / CELLS).mkdir(parents=True, exist_ok=True)
        lock = try_lock(folder / LOCK)
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror}); choose another folder") from error
    if lock is None:
        raise InputError(f"another process runs the experiment in {folder}; wait for it, or choose another folder")
    _clear(folder)
    return closing(lock)


def _clear(folder: Path) -> None:
    """Remove what a killed process left half-written."""
    for partial in _partials(folder):
        partial.unlink(missing_ok=True)


def _partials(folder: Path) -> Iterator[Path]:
    yield from folder.glob(".*.partial")
    yield from (folder / CELLS).glob(".*.partial")
