"""All experiments as one job that goes on anywhere: stored runs in a file each, and the cost of what remains."""

from __future__ import annotations

import gzip
import json
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.records import replacing
from felb.runs.cells import CELLS, CellRecord
from felb_paper.cells import InvaderData, PlantedData, SourceData, _manifest, fingerprint_method
from felb_paper.study import read_codes, write_codes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from felb_paper.cells import Cell, Study

GROWTH = 0.7
"""How the time of a run grows with its size, between overhead and proportion, for forecasts."""

DIGITS = 7
"""Significant digits of figures that are kept."""

LEFT_OUT = ("parameters", "provenance", "message")
"""Of a run: parameters follow from its key, which names them by a digest; of the machine the date is kept."""


def store_file(store: Path, study: Study) -> Path:
    """Return where the runs of an experiment are stored."""
    return store / f"{study.name}-{study.form}.jsonl.gz"


def pack_runs(study: Study, folder: Path, store: Path) -> int:
    """Write the planned runs of a folder that have ended into the file of the experiment; return how many.

    A line holds a run: its key, how it ended, its figures, when, and the fingerprint of the method that made it. The
    same runs make the same file.
    """
    lines, codes = [], read_codes(folder)
    for cell in sorted(study.cells(), key=lambda cell: cell.key):
        found = CellRecord.read(folder / CELLS / f"{cell.key}.json")
        if found is not None and found.status != "failed":
            kept = {key: value for key, value in asdict(found).items() if key not in LEFT_OUT and value}
            kept["date"], kept["code"] = found.provenance.get("date"), codes.get(cell.key, "")
            lines.append(json.dumps(_rounded(kept), separators=(",", ":")))
    store.mkdir(parents=True, exist_ok=True)
    with replacing(store_file(store, study)) as partial:
        partial.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))
    return len(lines)


def unpack_runs(study: Study, store: Path, folder: Path) -> tuple[int, int]:
    """Put stored runs into the folder of an experiment; return how many were kept, and how many are stale.

    A run is stale if its method gives another result on a small problem today. It is left out, and so measured again. A
    run that is in the folder already stays.
    """
    kept = stale = 0
    codes, planned = read_codes(folder), {cell.key: cell for cell in study.cells()}
    for key, raw in read_runs(store_file(store, study)).items():
        code, date = raw.pop("code", ""), raw.pop("date", None)
        if key not in planned:
            continue
        if code != fingerprint_method(planned[key].use):
            stale += 1
            continue
        kept += 1
        if not (folder / CELLS / f"{key}.json").is_file():
            (folder / CELLS).mkdir(parents=True, exist_ok=True)
            parameters = {**raw, "parameters": planned[key].parameters, "provenance": {"date": date}}
            CellRecord(**parameters).write(folder)
            codes[key] = code
    if kept:
        _manifest(study).write_manifest(folder)
        write_codes(folder, codes)
    return kept, stale


def read_runs(path: Path) -> dict[str, dict[str, Any]]:
    """Return the stored runs of a file by their keys; none if there is no file."""
    if not path.is_file():
        return {}
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return {raw["key"]: raw for raw in map(json.loads, file)}
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error}); take the file from the repository again") from error


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list | tuple) else value


# -- what remains, and what it will cost -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forecast:
    """What an experiment still needs: runs that are done and planned, processor seconds for the rest; None: unknown."""

    name: str
    done: int
    planned: int
    seconds: float | None


def forecast_costs(studies: Iterable[Study], folders: Mapping[str, Path]) -> list[Forecast]:
    """Return the cost of what is missing, from the time of what is done.

    The time of a run is taken to grow with (rows x columns x components)^0.7, with a constant for each method: the
    median of its runs in the experiment, or of its runs anywhere, or of all runs for a method that has none. It is
    a time of the clock, and too long if the machine was busy.

    Parameters
    ----------
    studies : the experiments
    folders : of each experiment, by its name
    """
    missing: dict[str, list[Cell]] = {}
    counts: dict[str, tuple[int, int]] = {}
    rates: dict[tuple[str, str], list[float]] = {}
    for study in studies:
        cells = study.cells()
        found = {cell.key: CellRecord.read(folders[study.name] / CELLS / f"{cell.key}.json") for cell in cells}
        for cell in cells:
            record = found[cell.key]
            if record is not None and record.status == "done":
                rate = record.seconds / _size(cell, record) ** GROWTH
                for of in ((study.name, cell.use.label), ("", cell.use.label), ("", "")):
                    rates.setdefault(of, []).append(rate)
        missing[study.name] = [cell for cell in cells if found[cell.key] is None]
        counts[study.name] = len(cells) - len(missing[study.name]), len(cells)
    typical = {of: statistics.median(values) for of, values in rates.items()}
    forecasts = []
    for name, left in missing.items():
        labels = [cell.use.label for cell in left]
        parts = [typical.get((name, label), typical.get(("", label), typical.get(("", "")))) for label in labels]
        known = [rate * _size(cell) ** GROWTH for rate, cell in zip(parts, left, strict=True) if rate is not None]
        forecasts.append(Forecast(name, *counts[name], sum(known) if len(known) == len(left) else None))
    return forecasts


def _size(cell: Cell, record: CellRecord | None = None) -> float:
    """Return rows x columns x components of the data of a run."""
    data = cell.data
    figures: Mapping[str, float | None] = {} if record is None else record.figures
    if isinstance(data, PlantedData):
        return float(data.rows * data.columns * data.components)
    if isinstance(data, InvaderData):
        return float(data.scale**2 * 130 * data.components * cell.clients)
    assert isinstance(data, SourceData)
    rows, columns = figures.get("rows"), figures.get("columns")
    return float((rows or data.rows or 10_000) * (columns or data.columns or 1_000) * data.components)
