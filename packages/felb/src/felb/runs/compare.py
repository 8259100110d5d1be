"""Compare methods on one data set: every method with every number of components and every seed is a cell.

comparison.json      data, methods, numbers of components, clients, seeds, date and machine
cells/*.json         one cell each: scores, seconds, parameters, provenance

A comparison is resumed by running it again: cells that are there are kept, also when methods, numbers of components or
seeds are added. Another version of felb, other data or an edited method of one's own are other cells.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import time
import warnings
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from felb._version import __version__
from felb.data import partition, planted
from felb.errors import InputError
from felb.federated.algorithms.registry import check_known
from felb.kernels.assign import assign_rows
from felb.metrics import confusion
from felb.metrics.comparison import Interval, mean_interval
from felb.records import replace_nonfinite, replacing
from felb.runs.cells import CELLS, CellRecord, Cells, claim_folder, measure_cells, provenance, serve
from felb.runs.job import Job
from felb.sklearn.base import BooleanFactorization
from felb.sklearn.methods import any_model, is_path, own_parameters, parameters_of, source_digest
from felb.tables.sources import source_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.data.files import Table
    from felb.runs.cells import Progress, Status


FORMAT = "felb-comparison-1"
MANIFEST = "comparison.json"
WORKER = "felb.runs.compare"
READING = ("data", "clients", "split", "client_column", "header", "binarize_threshold", "missing", "unknown", "schema")
"""What a job says about its data."""

PLACES = ("data", "unknown", "schema")
"""Files among them."""

TIME_LIMIT = 600.0
"""Seconds that a cell may take."""


@dataclass(frozen=True, slots=True)
class Score:
    """A score of the cells: its key, what to call it, which direction is good, and its digits."""

    key: str
    label: str
    better: Literal["high", "low", ""]
    digits: int = 3


SCORES = (
    Score("f1", "F1", "high"),
    Score("rmsd", "RMSD", "low"),
    Score("precision", "precision", "high"),
    Score("recall", "recall", "high"),
    Score("coverage", "coverage", "high"),
    Score("errors", "wrong cells", "low", 0),
    Score("seconds", "seconds", "low", 3),
)
"""What is measured of every cell, see docs/reference/scores.md."""

SHOWN = ("f1", "rmsd", "seconds")
"""Scores that tables show; the others are in the CSV file."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What to compare.

    Parameters
    ----------
    job : the data and how it is read and split; its method, number of components and seed are not used
    methods : names in the table of methods, or import paths that the user typed, see `felb.sklearn.methods`
    components : numbers of components
    seeds : number of trials, with seeds 0, 1, …; a seed is that of the split and of the method
    parameters : further parameters of a method, by its name; "" for all methods that have them
    """

    job: Job
    methods: tuple[str, ...]
    components: tuple[int, ...]
    seeds: int = 3
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in (("methods", self.methods), ("components", self.components)):
            if not values:
                raise InputError(f"a comparison needs at least one of {name}", parameter=name)
        if self.seeds < 1 or min(self.components) < 1:
            raise InputError("a comparison needs at least one seed, and numbers of components of at least 1")
        for method in self.methods:
            if not is_path(method):
                check_known(method)
        for method in self.parameters:
            if method and method not in self.methods:
                raise InputError(f"there are parameters of {method!r}, which is not compared", parameter="param")
        known = {name for method in self.methods for name in _parameters(method)}
        unknown = sorted(set(self.parameters.get("", {})) - known)
        if unknown:
            raise InputError(f"none of the methods has a parameter {unknown[0]!r}", parameter="param")

    def of_method(self, method: str) -> dict[str, Any]:
        """Return the further parameters of a method."""
        own = set(_parameters(method)) if self.parameters.get("") else set()
        common = {name: value for name, value in self.parameters.get("", {}).items() if name in own}
        return {**common, **self.parameters.get(method, {})}

    def settings(self, fingerprint: str) -> dict[str, Any]:
        """Return what all cells have in common, as plain data."""
        return {**{name: getattr(self.job, name) for name in READING}, "fingerprint": fingerprint, "felb": __version__}

    def cells(self, fingerprint: str) -> dict[tuple[str, int, int], dict[str, Any]]:
        """Return the parameters of each cell by method, number of components and seed, seed by seed."""
        common = self.settings(fingerprint)
        digests = {method: source_digest(method) for method in self.methods if is_path(method)}
        return {
            (method, k, seed): {
                **common,
                "method": method,
                "source": digests.get(method),
                "n_components": k,
                "seed": seed,
                "parameters": self.of_method(method),
            }
            for seed in range(self.seeds)
            for k in self.components
            for method in self.methods
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison and what is there of its cells."""

    source: str
    shape: tuple[int, int]
    methods: tuple[str, ...]
    components: tuple[int, ...]
    seeds: int
    clients: int | None
    provenance: Mapping[str, Any]
    cells: Mapping[tuple[str, int, int], CellRecord]

    def statuses(self, method: str, k: int) -> list[Status | None]:
        """How the cells of a method ended, seed by seed; None: not run."""
        found = (self.cells.get((method, k, seed)) for seed in range(self.seeds))
        return [None if cell is None else cell.status for cell in found]

    def interval(self, score: str, method: str, k: int) -> Interval | None:
        """Mean and 95% interval of a score over the seeds; None where no cell is done."""
        found = (self.cells.get((method, k, seed)) for seed in range(self.seeds))
        values = [cell.figures.get(score) for cell in found if cell is not None and cell.status == "done"]
        return mean_interval([value for value in values if value is not None])

    @property
    def done(self) -> int:
        """Number of cells that have scores."""
        return sum(cell.status == "done" for cell in self.cells.values())

    @property
    def planned(self) -> int:
        """Number of all cells."""
        return len(self.methods) * len(self.components) * self.seeds

    def failures(self) -> dict[str, list[str]]:
        """Return the cells without scores by what went wrong."""
        reasons: dict[str, list[str]] = {}
        for (method, k, _), cell in self.cells.items():
            if cell.status != "done":
                reasons.setdefault(cell.message, []).append(f"{method} k={k}")
        return {reason: list(dict.fromkeys(where)) for reason, where in reasons.items()}


def compare(
    comparison: Comparison,
    out: str | os.PathLike[str],
    *,
    jobs: int = 1,
    time_limit: float = TIME_LIMIT,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Compared:
    """Measure the cells that are not in the folder `out` yet, and return all of them.

    Parameters
    ----------
    comparison : what to compare
    out : folder of the comparison; made if it is not there
    jobs : cells at the same time
    time_limit : seconds for each cell
    on_progress : called at the start and after each cell
    """
    matrix = comparison.job.read().matrix
    if max(comparison.components) > min(matrix.shape):
        raise InputError(
            f"there are {max(comparison.components)} components for data of {matrix.shape[0]} x {matrix.shape[1]}",
            parameter="components",
        )
    folder, planned = Path(out), comparison.cells(matrix.fingerprint())
    keys = {place: _key(parameters) for place, parameters in planned.items()}
    cells = Cells(
        WORKER,
        {keys[place]: parameters for place, parameters in planned.items()},
        {keys[place]: f"{place[0]} k={place[1]}" for place in planned},
    )
    with claim_folder(folder, manifest=MANIFEST, what="comparison"):
        facts: dict[str, Any] = {
            "source": source_name(comparison.job.data),
            "shape": matrix.shape,
            "methods": comparison.methods,
            "components": comparison.components,
            "seeds": comparison.seeds,
            "clients": comparison.job.clients,
            "provenance": provenance(),
        }
        manifest = {"format": FORMAT, **facts, "settings": comparison.settings(matrix.fingerprint())}
        with replacing(folder / MANIFEST) as partial:
            text = json.dumps(replace_nonfinite(manifest), indent=1, allow_nan=False)
            partial.write_text(text + "\n", encoding="utf-8")
        measure_cells(cells, folder, limit=time_limit, jobs=jobs, on_progress=on_progress)
    found = {place: CellRecord.read(folder / CELLS / f"{key}.json") for place, key in keys.items()}
    return Compared(**facts, cells={place: cell for place, cell in found.items() if cell is not None})


def _parameters(method: str) -> list[str]:
    return own_parameters(method) if is_path(method) else parameters_of(method)


def _key(parameters: Mapping[str, Any]) -> str:
    """Return the name of a cell's file: readable, and different for different parameters.

    The data is known by its fingerprint, so that it may be read from another place.
    """
    decides = {name: value for name, value in parameters.items() if name not in PLACES}
    text = json.dumps(decides, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    word = re.sub(r"[^A-Za-z0-9.+-]+", "_", parameters["method"])[-40:]
    return f"{word}.{parameters['n_components']}.{parameters['seed']}.{digest}"


def job_of(parameters: Mapping[str, Any]) -> Job:
    """Return the job of a cell by its parameters: the data, and its split by the seed."""
    read_by = {name: parameters[name] for name in READING}
    # A method of one's own is not the name of a job's; what the cell runs is made of its parameters.
    return Job(method="bmf", n_components=parameters["n_components"], seed=parameters["seed"], **read_by)


def measured(request: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of a cell; seconds are processor time of the fit, compilation left out."""
    cell = request["parameters"]
    job = job_of(cell)
    table = _read_once(*((name, cell[name]) for name in READING if name not in ("clients", "split")))
    model = any_model(
        cell["method"], n_components=cell["n_components"], random_state=cell["seed"], **cell["parameters"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a method collapses is what the scores show
        start = time.process_time()
        U, V = factorized(model, table.matrix, job.labels(table))
        seconds = time.process_time() - start
    scores = confusion(table.matrix, U, V).scores()
    used = int(np.count_nonzero(V.any(axis=1) & U.any(axis=0)))
    return {"figures": {**scores, "seconds": seconds, "components": float(used)}}


def factorized(model: Any, A: BinaryMatrix, clients: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Fit a model, over the clients if it can be, and return U and V.

    A class that does not derive from those of felb gets a dense array, and its rows are assigned by felb.
    """
    federated = "groups" in inspect.signature(model.fit).parameters
    groups = {"groups": clients} if federated else {}
    if isinstance(model, BooleanFactorization):
        U = np.asarray(model.fit_transform(A, **groups))
        return U, model.components_
    model.fit(A.toarray(), **groups)
    V = np.asarray(getattr(model, "components_", None))
    if V.ndim != 2 or V.shape[1] != A.shape[1]:
        raise InputError(f"{type(model).__name__} must leave components_, an array of components x features")
    V = np.asarray(V > 0.5)
    return assign_rows(A, V), V


@lru_cache(maxsize=1)
def _read_once(*reading: tuple[str, Any]) -> Table:
    """Read the data once for all cells of this process."""
    return Job(method="bmf", n_components=1, **dict(reading)).read()


@cache
def _warm_up(method: str) -> None:
    toy = planted(60, 12, 2, noise=0.05, heights=(0.3, 0.5), widths=(0.3, 0.5), seed=0)
    factorized(any_model(method, n_components=2, random_state=0), toy.A, partition.even(60, 2))


if __name__ == "__main__":
    serve(measured, warm_up=lambda request: _warm_up(request["parameters"]["method"]))
