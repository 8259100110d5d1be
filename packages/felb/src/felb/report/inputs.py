"""What a report is made from: a stored result, its data where that is at hand, scores with intervals, stability.

Nothing is fitted again, except to measure stability. A private run keeps its assignments out of its report, since its
guarantee does not cover them; who gives the data asks for exact figures.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binomtest

from felb.analysis.refits import FILE, Stability, cheapest_refit, refitted, stability_among
from felb.data.files import SHIPPED, check_labels, names_column, read_labels
from felb.data.partition import PARTITIONS, dealt, split
from felb.errors import FelbError, InputError
from felb.federated.steps.belief import ASSIGN_BY_BELIEF
from felb.kernels.boolean import boolean_product
from felb.metrics import Counts
from felb.metrics.comparison import jaccard_matrix
from felb.metrics.counts import BLOCK, feature_counts
from felb.metrics.interpretation import enrichment, profile_components
from felb.privacy.outbound_log import read_outbound_log
from felb.runs import OUTBOUND, result_folder
from felb.runs.apply import table_for
from felb.runs.execute import CENTRALIZED
from felb.runs.result import RESAMPLED, Result, read_assignment

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from felb.data import Table
    from felb.data.binary import BinaryMatrix
    from felb.metrics.interpretation import ComponentProfile, Enrichment
    from felb.runs.result import Component

    Bounds = tuple[float, float]


LEVEL = 0.95
"""Of every interval."""

RESAMPLES, FEWER_RESAMPLES, MANY_KINDS = 2000, 400, 20_000
"""Of the bootstrap; fewer where records differ in so many ways that each resample takes long."""


def count_by_row(A: BinaryMatrix, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return tp, fp, fn and known cells of every row of U∘V against A, n × 4.

    Their sums are `felb.metrics.confusion`; unknown cells count nowhere.
    """
    blocks = [np.empty((0, 4), dtype=np.int64)]
    for start in range(0, len(A), BLOCK):
        rows, cover = A.rows(start, start + BLOCK), boolean_product(U[start : start + BLOCK], V).to_scipy(np.int64)
        tp, claimed = rows.to_scipy(np.int64).multiply(cover).sum(axis=1), cover.sum(axis=1)
        known = np.full(len(rows), A.shape[1])
        if rows.unknown is not None:
            claimed = claimed - rows.unknown.to_scipy(np.int64).multiply(cover).sum(axis=1)
            known -= rows.unknown.row_sums()
        blocks.append(np.column_stack([tp, claimed - tp, rows.row_sums() - tp, known]))
    return np.vstack(blocks)


def sum_counts(rows: NDArray[np.int64]) -> Counts:
    """Return the counts of all rows together."""
    tp, fp, fn, cells = (int(count) for count in rows.sum(axis=0))
    return Counts(tp, fp, fn, cells)


def bootstrap_scores(rows: NDArray[np.int64], *, seed: int = 0) -> tuple[dict[str, Bounds], int]:
    """Return the percentile interval of every score under resampling of records, and the number of resamples.

    Records with equal counts are drawn together by a multinomial, which is the same as drawing them one by one.
    """
    kinds, times = np.unique(rows, axis=0, return_counts=True)
    resamples = RESAMPLES if len(kinds) <= MANY_KINDS else FEWER_RESAMPLES
    rng, drawn = np.random.default_rng(seed), np.empty((resamples, 4), dtype=np.int64)
    batch = max(1, 2_000_000 // len(kinds))
    for start in range(0, resamples, batch):
        size = min(batch, resamples - start)
        drawn[start : start + size] = rng.multinomial(len(rows), times / len(rows), size=size) @ kinds
    scores = [sum_counts(sums[None]).scores() for sums in drawn]
    tails = (50 * (1 - LEVEL), 50 * (1 + LEVEL))
    ends = {name: np.percentile([score[name] for score in scores], tails) for name in scores[0]}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}, resamples


def wilson(successes: int, trials: int) -> Bounds:
    """Return Wilson's interval of a share.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(5, 10)]
    [0.237, 0.763]
    """
    if trials <= 0:
        return 0.0, 1.0
    found = binomtest(successes, trials).proportion_ci(LEVEL, method="wilson")
    return float(found.low), float(found.high)


def estimate_cell_intervals(counts: Counts) -> dict[str, Bounds]:
    """Return an interval of every score as if cells were independent, from Wilson's of the share behind it.

    Precision and recall are shares; F1 = 2J/(1 + J) is increasing in the share J = tp/(tp + fp + fn); errors, RMSD and
    coverage are monotone in the share of wrong cells.
    """
    tp, fp, fn, cells = counts.tp, counts.fp, counts.fn, counts.cells
    low, high = wilson(counts.errors, cells)
    same_low, same_high = wilson(tp, tp + fp + fn)
    ones = tp + fn
    found = {
        "f1": (2 * same_low / (1 + same_low), 2 * same_high / (1 + same_high)),
        "precision": wilson(tp, tp + fp),
        "recall": wilson(tp, ones),
        "rmsd": (math.sqrt(low), math.sqrt(high)),
        "rmsd_table": (50 * math.sqrt(low), 50 * math.sqrt(high)),
        "errors": (low * cells, high * cells),
    }
    if ones:
        found["coverage"] = (1 - high * cells / ones, 1 - low * cells / ones)
    return found


def measure_stability(
    inputs: ReportInputs,
    *,
    n_resamples: int = 50,
    seed: int = 0,
    on_refit: Callable[[int], None] = lambda _: None,
) -> Stability:
    """Refit the method of a result on bootstrap samples of its data, client by client; see `felb.stability`.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> measure_stability(gather("zoo-run"), n_resamples=3).match.shape
    (3, 4)
    """
    result, measured = inputs.result, inputs.require_data("Refits need the data")
    if inputs.is_private:
        raise InputError("every refit of a private run spends its privacy budget again; fit without privacy instead")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # how new records are assigned does not matter here
        model = result.model()
    rows_of = measured.rows_of or {next(iter(result.clients), CENTRALIZED): np.arange(len(measured.matrix))}
    shards = {name: measured.matrix.take(rows) for name, rows in rows_of.items()}
    recovered = ASSIGN_BY_BELIEF.name in result.rounds()
    refit = cheapest_refit(model, result.components, shards, recovered=recovered, seed=seed)
    return refitted(
        result.components,
        refit,
        shards,
        rows_of=rows_of,
        n_resamples=n_resamples,
        seed=seed,
        on_refit=on_refit,
    )


def compare_refits(folder: str | PathLike[str], refits: Sequence[str | PathLike[str]]) -> Stability:
    """Tell from refits over sites (`felb run --refit`) how often they have found the components of a result.

    Parameters
    ----------
    folder : of the result, or its model file
    refits : folders of the results of refits
    """
    result = Result.read(folder)
    fitted: dict[str, NDArray[np.bool_]] = {}
    for place in refits:
        refit = Result.read(place)
        if not refit.provenance.data.get(RESAMPLED):
            raise InputError(f"{place} is no refit; make one by `felb run --refit N`", parameter="refit")
        kinds = [(r.provenance.method, r.columns, r.components.shape[1]) for r in (result, refit)]
        if kinds[0] != kinds[1]:
            raise InputError(f"{place} is a refit of another run: its method or features differ", parameter="refit")
        fitted[str(refit.provenance.data.get("source"))] = refit.components  # the run, given twice, counts once
    return stability_among(result.components, list(fitted.values()), seed=result.provenance.seed)


def _read_stability(folder: Path, n_components: int) -> Stability | None:
    """Return the stability that is stored beside a result, or None."""
    try:
        found = Stability.read(folder / FILE)
    except (FileNotFoundError, NotADirectoryError):  # a model file has none beside it
        return None
    if found.match.shape[1] != n_components:
        raise InputError(f"the stability in {folder} is of another result; run `felb stability` again")
    return found


READING = ("client_column", "record_column", "header", "binarize_threshold", "missing", "unknown")
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
    path : the file, or the name of a shipped data set
    labels : of the records, if a column of the data holds them and they were asked for
    """

    matrix: BinaryMatrix
    U: NDArray[np.bool_]
    V: NDArray[np.bool_]
    source: str
    same: bool | None
    stored: bool
    rows_of: Mapping[str, NDArray[np.int64]] | None
    path: str = ""
    labels: tuple[str | None, ...] | None = None

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Tp, fp, fn and known cells of each row."""
        return count_by_row(self.matrix, self.U, self.V)

    @cached_property
    def profile(self) -> ComponentProfile:
        """What the components mean: lift, coverage and gain."""
        return profile_components(self.matrix, self.U, self.V)

    @property
    def counts(self) -> Counts:
        """Counts of all rows."""
        return sum_counts(self.rows)

    @cached_property
    def purity(self) -> NDArray[np.float64]:
        """The share of ones among the known cells of the records and features of each component; NaN if it has none."""
        counted = feature_counts(self.matrix, self.U, self.V)
        ones, cells = np.array(counted.inside_ones, dtype=float), np.array(counted.inside, dtype=float)
        found: NDArray[np.float64] = np.divide(ones, cells, out=np.full(len(cells), np.nan), where=cells > 0)
        return found

    def counts_of_clients(self) -> dict[str, Counts]:
        """Counts of the rows of each client."""
        return {name: sum_counts(self.rows[at]) for name, at in (self.rows_of or {}).items()}


@dataclass(frozen=True)
class ReportInputs:
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
        """The words in which privacy was guaranteed."""
        return None if self.result.privacy is None else str(self.result.privacy["text"]).strip()

    @property
    def is_private(self) -> bool:
        """Whether the run was under differential privacy."""
        return _is_private(self.result)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; x0, x1, … if the data has none."""
        return self.result.feature_names

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

    def describe_components(self) -> list[Component]:
        """Return the components by name, with supports, most supported first; features by lift where there is data."""
        found = self.result.described(self.supports)
        if self.measured is None:
            return found
        names, profile = self.feature_names, self.measured.profile
        return [replace(c, features=tuple(names[j] for j in profile.order(c.number).tolist())) for c in found]

    def overlap(self) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return Jaccard's coefficient of any two components over features, and over records where these are known."""
        V, members = self.result.components, self.members
        U = None if members is None else np.vstack(list(members.values()))
        return jaccard_matrix(V, V), None if U is None else jaccard_matrix(U.T, U.T)

    def score(self) -> tuple[dict[str, float], dict[str, Bounds], int | None]:
        """Return the scores, their intervals as far as they are known, and the number of resamples of a bootstrap."""
        if self.measured is not None:
            return self.measured.counts.scores(), *bootstrap_scores(self.measured.rows)
        counts = self.result.counts
        return dict(self.result.scores), {} if counts is None else estimate_cell_intervals(counts), None

    def require_data(self, why: str) -> Measured:
        """Return the result held against its data, or raise because there is none."""
        if self.measured is None:
            raise InputError(f"{self.absent} {why}; name the data", parameter="data")
        return self.measured

    def seconds(self) -> float | None:
        """Return the time between the first and the last line of the logs."""
        try:
            times = [datetime.fromisoformat(str(line["time"])) for line in self.outbound]
        except (KeyError, ValueError):
            return None
        return (max(times) - min(times)).total_seconds() if times else None


def gather(
    result: str | os.PathLike[str], *, data: str | None = None, labels: str | None = None, **options: Any
) -> ReportInputs:
    """Read a result and hold it against data.

    Parameters
    ----------
    result : folder of a run, or its ``result.json``
    data : a file, or the name of a shipped data set; without it, data of the name and with the fingerprint that the
        result remembers is looked for in the working folder and beside the result
    labels : labels of the records: ``obs:NAME`` of an ``.h5ad`` file, a file with one label per line, or a column of
        the data, which may be a feature of the result or not
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
    assignments = None if _is_private(found) or found.disclosure is not None else _read_assignments(folder, found)
    if labels is not None and names_column(labels):
        options["label_column"] = labels
    if data is None:
        measured, absent = _find_data(found, folder, assignments, options)
    else:
        measured, absent = _measure(found, data, assignments, _recall_reading(found, data) | options), None
    stable = _read_stability(folder, len(found.components)) if folder.is_dir() else None  # not in a model file
    enriched = None
    if labels is not None:
        if measured is None:
            raise InputError(f"{absent} Labels are those of its records; name the data", parameter="data")
        n = len(measured.matrix)
        given = measured.labels
        read = read_labels(labels, measured.path, n) if given is None else check_labels(given, labels, n)
        enriched = enrichment(measured.U, read)
    return ReportInputs(folder, found, assignments, tuple(_read_outbound(folder)), measured, absent, stable, enriched)


def _is_private(result: Result) -> bool:
    return result.privacy is not None or bool(result.provenance.parameters.get("privacy"))


def _read_assignments(folder: Path, result: Result) -> dict[str, NDArray[np.bool_]] | None:
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


def _read_outbound(folder: Path) -> list[Mapping[str, Any]]:
    """Return the lines of all logs; a line that was cut short is left out."""
    return [line for log in sorted((folder / OUTBOUND).glob("*.jsonl")) for line in read_outbound_log(log)]


def _recall_reading(result: Result, data: str) -> dict[str, Any]:
    """Return how the run read its data; a missing mask that is not beside `data` belongs to other data."""
    parameters = result.provenance.parameters
    found = {name: parameters[name] for name in READING if parameters.get(name) is not None}
    if "unknown" in found:
        beside = Path(data).parent / Path(str(found.pop("unknown"))).name
        if Path(data).name == result.provenance.data.get("source") and beside.is_file():
            found["unknown"] = str(beside)
    return found


def _find_data(
    result: Result, folder: Path, assignments: Mapping[str, NDArray[np.bool_]] | None, options: dict[str, Any]
) -> tuple[Measured | None, str | None]:
    """Look for the very data of the run where it is likely to be; a column of labels that it lacks is an error."""
    source, fingerprint = (result.provenance.data.get(name) for name in ("source", "fingerprint"))
    if not source or not fingerprint:
        return None, "The run does not identify its data."
    name = Path(str(source)).name
    places = [name] if name in SHIPPED else []
    places += [str(path) for path in (Path(name), folder.resolve().parent / name) if path.exists()]
    for place in places:
        try:
            measured = _measure(result, place, assignments, _recall_reading(result, place) | options)
        except (FelbError, OSError) as error:
            if getattr(error, "parameter", None) in options:
                raise
            continue
        if measured.same:
            return measured, None
    return None, f"The data of the run ({source}) was not found."


def _measure(
    result: Result, data: str, assignments: Mapping[str, NDArray[np.bool_]] | None, options: Mapping[str, Any]
) -> Measured:
    if "label_column" in options and result.schema is None and result.columns is not None:
        options = {**options, "columns": frozenset(result.columns)}
    table = table_for(result, data, **options)
    matrix = table.matrix
    known = result.provenance.data.get("fingerprint")
    same = None if known is None else matrix.fingerprint() == known
    rows_of = _rows_of_clients(result, table) if same else None
    stored = _order_assignments(assignments, rows_of, len(matrix)) if same else None
    hold = partial(
        Measured,
        matrix,
        V=result.components,
        source=Path(data).name,
        same=same,
        rows_of=rows_of,
        path=data,
        labels=table.labels,
    )
    if stored is not None:
        measured = hold(stored, stored=True)
        if not result.scores or measured.counts.errors == round(result.scores["errors"]):
            return measured
    return hold(result.assign(matrix), stored=False)


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


def _order_assignments(
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
