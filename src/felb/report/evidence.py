"""What a report is made from: a stored result, and the data it is about where that is at hand.

Nothing is fitted again. A private run keeps its assignments out of its report, since its guarantee does not cover
them; who gives the data asks for exact figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.labels import read_labels
from felb.data.registry import SHIPPED, read_data
from felb.data.shards import PARTITIONS, dealt, split
from felb.errors import FelbError, InputError
from felb.metrics.component_profile import profile_components
from felb.metrics.enrichment import enrichment
from felb.privacy.outbound_log import read_outbound_log
from felb.report.measures import row_counts, total
from felb.report.result_stability import stored_stability
from felb.runs.result import Result, read_assignment
from felb.runs.result_places import OUTBOUND, result_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.analysis.stability_record import Stability
    from felb.data import Table
    from felb.data.binary import BinaryMatrix
    from felb.metrics import Counts
    from felb.metrics.component_profile import ComponentProfile
    from felb.metrics.enrichment import Enrichment

READING = ("client_column", "header", "binarize_threshold", "missing", "unknown")
"""How data was read; a result remembers it."""


@dataclass(frozen=True)
class Measured:
    """A result held against data.

    Parameters
    ----------
    matrix : the data
    U : which components each row has
    V : the components
    source : its name
    same : whether it is the very data of the run; None if the run does not identify its data
    stored : whether U is the assignment that the run stored, rather than made anew for this data
    rows_of : row numbers of each client, where they are known
    """

    matrix: BinaryMatrix
    U: NDArray[np.bool_]
    V: NDArray[np.bool_]
    source: str
    same: bool | None
    stored: bool
    rows_of: Mapping[str, NDArray[np.int64]] | None

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Tp, fp, fn and known cells of each row."""
        return row_counts(self.matrix, self.U, self.V)

    @cached_property
    def profile(self) -> ComponentProfile:
        """What the components mean: lift, coverage and gain."""
        return profile_components(self.matrix, self.U, self.V)

    @property
    def counts(self) -> Counts:
        """Counts of all rows."""
        return total(self.rows)

    def counts_of_clients(self) -> dict[str, Counts]:
        """Counts of the rows of each client."""
        return {name: total(self.rows[at]) for name, at in (self.rows_of or {}).items()}


@dataclass(frozen=True)
class Evidence:
    """A stored run and what is known about it.

    Parameters
    ----------
    folder : where it is stored
    result : what is stored
    assignments : U_i by client, where they are stored and may be shown
    outbound : lines of the clients' logs
    measured : the result held against data, or None
    absent : why there is no `measured`
    stability : how often refits find the components, if `felb stability` has stored it
    enrichment : labels of the records, if they were asked for
    """

    folder: Path
    result: Result
    assignments: Mapping[str, NDArray[np.bool_]] | None
    outbound: tuple[Mapping[str, Any], ...]
    measured: Measured | None
    absent: str | None
    stability: Stability | None = None
    enrichment: Enrichment | None = None

    @property
    def statement(self) -> str | None:
        """What was guaranteed to whom, in words."""
        return None if self.result.privacy is None else str(self.result.privacy["text"]).strip()

    @property
    def private(self) -> bool:
        """Whether the run was under differential privacy."""
        return _is_private(self.result)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; x0, x1, … if the data has none."""
        return self.result.columns or tuple(f"x{i}" for i in range(self.result.components.shape[1]))

    @property
    def members(self) -> Mapping[str, NDArray[np.bool_]] | None:
        """Which records have which component, by client: as stored, or as measured."""
        if self.assignments is not None:
            return self.assignments
        return None if self.measured is None else {self.measured.source: self.measured.U}

    @property
    def supports(self) -> tuple[int | None, ...]:
        """Records of each component: as stored, or as measured."""
        stored = self.result.supports
        if self.measured is not None and all(support is None for support in stored):
            return tuple(np.count_nonzero(self.measured.U, axis=0).tolist())
        return stored

    @property
    def n_records(self) -> int | None:
        """Number of records of the run, or of the data if the run does not store it."""
        rows = self.result.provenance.data.get("rows")
        return rows if rows is not None or self.measured is None else self.measured.matrix.shape[0]

    def seconds(self) -> float | None:
        """Return the time between the first and the last line of the logs."""
        try:
            times = [datetime.fromisoformat(str(line["time"])) for line in self.outbound]
        except (KeyError, ValueError):
            return None
        return (max(times) - min(times)).total_seconds() if times else None


def gather(
    result: str | os.PathLike[str], *, data: str | None = None, labels: str | None = None, **options: Any
) -> Evidence:
    """Read a result and hold it against data.

    Parameters
    ----------
    result : folder of a run, or its ``result.json``
    data : a file, or the name of a shipped data set; without it, data of the name and with the fingerprint that the
        result remembers is looked for in the working folder and beside the result
    labels : labels of the records, see `felb.data.labels.read_labels`
    options : how to read the data, where that differs from the run: client_column, header, binarize_threshold, missing,
        unknown. A file that marks unknown cells is looked for beside the data

    Examples
    --------
    >>> from felb import Job, fit
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> gather("zoo-run").measured.matrix.shape
    (101, 17)
    """
    folder = result_folder(result)
    found = Result.read(folder)
    # Under disclosure rules, how many records of which client have a component is not for a page that is passed on.
    assignments = None if _is_private(found) or found.disclosure is not None else _assignments(folder, found)
    if data is None:
        measured, absent = _search(found, folder, assignments)
    else:
        measured, absent = _measure(found, data, assignments, _reading(found, data) | options), None
    stable = stored_stability(folder, len(found.components)) if folder.is_dir() else None  # not in a model file
    enriched = None
    if labels is not None:
        if measured is None:
            raise InputError(f"{absent} Labels are those of its records; name the data", parameter="data")
        enriched = enrichment(measured.U, read_labels(labels, data, len(measured.matrix)))
    return Evidence(folder, found, assignments, tuple(_outbound(folder)), measured, absent, stable, enriched)


def _is_private(result: Result) -> bool:
    return result.privacy is not None or bool(result.provenance.parameters.get("privacy"))


def _assignments(folder: Path, result: Result) -> dict[str, NDArray[np.bool_]] | None:
    """Return U of every client, or None where they stayed at their sites."""
    found = {}
    for client, size in result.clients.items():
        try:
            U = read_assignment(folder, client)
        except InputError:
            return None
        if U.shape[1] != result.components.shape[0] or (size is not None and len(U) != size):
            return None
        found[client] = U
    return found or None


def _outbound(folder: Path) -> list[Mapping[str, Any]]:
    """Return the lines of all logs; a line that was cut short is left out."""
    return [line for log in sorted((folder / OUTBOUND).glob("*.jsonl")) for line in read_outbound_log(log)]


def _reading(result: Result, data: str) -> dict[str, Any]:
    """Return how the run read its data; a missing mask that is not beside `data` belongs to other data."""
    parameters = result.provenance.parameters
    found = {name: parameters[name] for name in READING if parameters.get(name) is not None}
    if "unknown" in found:
        beside = Path(data).parent / Path(str(found.pop("unknown"))).name
        if Path(data).name == result.provenance.data.get("source") and beside.is_file():
            found["unknown"] = str(beside)
    return found


def _search(
    result: Result, folder: Path, assignments: Mapping[str, NDArray[np.bool_]] | None
) -> tuple[Measured | None, str | None]:
    """Look for the very data of the run where it is likely to be."""
    source, fingerprint = (result.provenance.data.get(name) for name in ("source", "fingerprint"))
    if not source or not fingerprint:
        return None, "The run does not identify its data."
    name = Path(str(source)).name
    places = [name] if name in SHIPPED else []
    places += [str(path) for path in (Path(name), folder.resolve().parent / name) if path.exists()]
    for place in places:
        try:
            measured = _measure(result, place, assignments, _reading(result, place))
        except (FelbError, OSError):
            continue
        if measured.same:
            return measured, None
    return None, f"The data of the run ({source}) was not found."


def _measure(
    result: Result, data: str, assignments: Mapping[str, NDArray[np.bool_]] | None, options: Mapping[str, Any]
) -> Measured:
    if result.schema is not None and Path(data).suffix != ".felb":  # such a file holds features already
        options = {"schema": result.schema} | dict(options)
    table = read_data(data, **options)
    matrix = table.matrix
    _check_features(result, matrix, data)
    known = result.provenance.data.get("fingerprint")
    same = None if known is None else matrix.fingerprint() == known
    rows_of = _rows_of_clients(result, table) if same else None
    stored = _in_order(assignments, rows_of, len(matrix)) if same else None
    held = partial(Measured, matrix, V=result.components, source=Path(data).name, same=same, rows_of=rows_of)
    if stored is not None:
        measured = held(stored, stored=True)
        if not result.scores or measured.counts.errors == round(result.scores["errors"]):
            return measured
    return held(result.assign(matrix), stored=False)


def _rows_of_clients(result: Result, table: Table) -> Mapping[str, NDArray[np.int64]] | None:
    """Return which rows of the data each client had, as the run says they were dealt out."""
    parameters, n = result.provenance.parameters, len(table.matrix)
    if table.clients is not None:
        labels: Any = table.clients
    elif parameters.get("split") in PARTITIONS and parameters.get("clients"):
        labels = dealt(n, parameters["clients"], split=parameters["split"], seed=result.provenance.seed)
    else:
        return None
    rows = split(table.matrix, labels)[1]
    sizes = {name: len(at) for name, at in rows.items()}
    return rows if sizes == dict(result.clients) else None


def _in_order(
    assignments: Mapping[str, NDArray[np.bool_]] | None, rows_of: Mapping[str, NDArray[np.int64]] | None, n: int
) -> NDArray[np.bool_] | None:
    """Put the stored assignments into the order of the rows of the data."""
    if assignments is None:
        return None
    if len(assignments) == 1:
        U = next(iter(assignments.values()))
        return U if len(U) == n else None
    if rows_of is None:
        return None
    ordered = np.empty((n, next(iter(assignments.values())).shape[1]), dtype=bool)
    for name, at in rows_of.items():
        ordered[at] = assignments[name]
    return ordered


def _check_features(result: Result, matrix: BinaryMatrix, data: str) -> None:
    """Raise unless the data has the features of the result, in their order."""
    m = result.components.shape[1]
    if matrix.shape[1] != m:
        raise InputError(f"{data} has {matrix.shape[1]} columns, the result has {m}; they must be the same features")
    if result.columns is not None and matrix.columns is not None and result.columns != matrix.columns:
        at = next(i for i, (a, b) in enumerate(zip(result.columns, matrix.columns, strict=True)) if a != b)
        raise InputError(
            f"column {at} of {data} is {matrix.columns[at]!r}, in the result it is {result.columns[at]!r}; "
            "bring the columns into the order of the result"
        )
