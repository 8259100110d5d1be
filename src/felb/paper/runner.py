"""Run an experiment into a folder, cell by cell; what is there already is not run again."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import FelbError, InputError
from felb.paper.experiment_cells import SourceData
from felb.paper.real_data import keep_source
from felb.paper.study import MANIFEST, StudyRecord, name_of, write_claims
from felb.runs.cell_runner import Cells, claim_folder, measure_cells, missing_cells, provenance

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import closing

    from felb.paper.experiment_cells import Cell
    from felb.paper.experiment_spec import Study
    from felb.runs.cell_runner import Progress

DATA = "data"


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
    folder, planned = Path(out), {cell.key: cell for cell in study.cells()}
    cells = Cells(
        "felb.paper.worker",
        {key: cell.parameters for key, cell in planned.items()},
        {key: f"{cell.use.label} {cell.place}" for key, cell in planned.items()},
        _folders(study, folder),
    )
    with _claimed(folder, study):
        _manifest(study).write_manifest(folder)
        _convert([planned[key] for key in missing_cells(cells, folder, limit=limit)], cells.folders)
        measure_cells(cells, folder, limit=limit, jobs=jobs, on_progress=on_progress)
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
        provenance=provenance(),
    )


def _claimed(folder: Path, study: Study) -> closing[Any]:
    """Take the folder for this process; only a folder of the same experiment, or an empty one, is taken."""
    if (folder / MANIFEST).is_file():
        other = name_of(folder)
        if other not in (study.name, None):
            raise InputError(f"{folder} holds the experiment {other!r}, not {study.name!r}; choose another folder")
    return claim_folder(folder, manifest=MANIFEST, what="experiment")
