"""Measure one cell: make the data, run the method over simulated clients, score what it found."""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data import partition, planted
from felb.data.binary import BinaryMatrix
from felb.data.partition import split
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.algorithms.felb import LOCAL_FACTOR
from felb.kernels.assign import assign_rows
from felb.metrics import confusion
from felb.privacy.spec import Privacy
from felb.runs.cells import serve
from felb.sklearn.centralized import GreConD
from felb.sklearn.methods import is_path, make_federated, own_model
from felb_paper.cells import Cell, InvaderData, MethodUse, PlantedData, SourceData, cell_of
from felb_paper.data import load_source
from felb_paper.upload_noise import NoisyUploads, total_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from felb.federated.loop import Run, RunProgress
    from felb.privacy.outbound_log import OutboundRecord
    from felb.sklearn.base import FederatedEstimator
    from felb_paper.cells import Study


# -- Federated methods of experiments: those of felb, and a user's own by their import path --------------------------


def make_any_federated(name: str, **parameters: Any) -> FederatedEstimator:
    """Return the estimator of a federated method, or of an import path that the user typed."""
    if not is_path(name):
        return make_federated(name, **parameters)
    from felb.sklearn.base import FederatedEstimator

    model = own_model(name, **parameters)
    if not isinstance(model, FederatedEstimator):
        raise InputError(
            f"{name!r} does not run over clients; derive it from felb.sklearn.base."
            "FederatedEstimator, or from CentralizedFactorization with an aggregation, as in package.module:Class+vote",
            parameter="method",
        )
    return model


def with_own_methods(study: Study, paths: Sequence[str]) -> Study:
    """Return an experiment that also runs the methods of these import paths, which are tried first."""
    if not paths:
        return study
    if "methods" not in {entry.name for entry in fields(study)}:
        raise InputError(
            f"the experiment {study.name!r} has its own list of methods; choose another", parameter="method"
        )
    for path in paths:
        if not is_path(path):
            raise InputError(f"{path!r} is no import path, package.module:Class", parameter="method")
        make_any_federated(path, n_components=2)
    own = tuple(MethodUse(path.rpartition(":")[2], path) for path in paths)
    return replace(study, methods=(*study.methods, *own))  # type: ignore[attr-defined,call-arg]


# -- The part of a large data set on which methods are compared quickly: some random rows, the heaviest columns ------

ROWS, COLUMNS = 10_000, 1_000
"""Of the part that is compared if nothing else is said."""


def subset(A: BinaryMatrix, rows: int | None = ROWS, columns: int | None = COLUMNS, *, seed: int = 0) -> BinaryMatrix:
    """Return random rows, drawn by the seed, and of these rows the columns with the most ones; both in their order.

    Parameters
    ----------
    A : the whole data
    rows, columns : how many; None for all, as where there are no more
    seed : fixes the rows; of columns with equally many ones the first are taken

    Examples
    --------
    >>> import felb
    >>> subset(felb.data.load("zoo"), 50, 5)
    BinaryMatrix(50 x 5 named, 203 ones, 0.812 dense)
    """
    if rows is not None and rows < len(A):
        A = A.take(np.sort(np.random.default_rng(seed).choice(len(A), rows, replace=False)))
    if columns is not None and columns < A.shape[1]:
        picked = np.sort(np.argsort(-A.column_sums(), kind="stable")[:columns])
        names = None if A.columns is None else [A.columns[j] for j in picked]
        A = BinaryMatrix.of(A.to_scipy()[:, picked], columns=names)
    return A


SPRITE = (
    "..#.....#..",
    "...#...#...",
    "..#######..",
    ".##.###.##.",
    "###########",
    "#.#######.#",
    "#.#.....#.#",
    "...##.##...",
)


def invader_clients(data: InvaderData, clients: int, *, seed: int) -> tuple[list[NDArray[np.bool_]], NDArray[np.bool_]]:
    """Return each client's picture under additive noise (0 → 1), and the picture itself.

    It has a margin of one sprite pixel, each of which is `scale` × `scale` cells.
    """
    sprite = np.pad(np.array([[mark == "#" for mark in row] for row in SPRITE]), 1)
    signal = np.asarray(np.kron(sprite, np.ones((data.scale, data.scale), dtype=bool)))
    streams = np.random.SeedSequence(seed).spawn(clients)
    return [signal | (np.random.default_rng(stream).random(signal.shape) < data.noise) for stream in streams], signal


def picture(matrix: NDArray[Any]) -> list[str]:
    """Write a binary matrix as rows of 0 and 1."""
    return ["".join("1" if cell else "0" for cell in row) for row in matrix]


@dataclass(frozen=True, slots=True)
class Measured:
    """Numbers, numbers per round, and pictures, by name."""

    figures: Mapping[str, float | None]
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)
    pictures: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ready:
    """Data split among clients; `signal` is what was planted, if that is known."""

    A: BinaryMatrix
    clients: NDArray[Any]
    signal: BinaryMatrix | None


def measure(cell: Cell, *, cache: Path | None = None, folder: Path | None = None) -> Measured:
    """Return the figures of a cell.

    ``rmsd``, ``f1`` compare with the data, ``f1_star`` with the planted signal; ``seconds_per_client`` is the wall time
    of the run over the number of clients, which work one after the other, without compilation; ``rows`` and ``columns``
    are those of the data.

    Parameters
    ----------
    cell : what to measure
    cache : folder with matrices of public data that were made before
    folder : with data that does not come with felb; None for `felb_paper.data.data_folder`
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a method collapses is what the figures show
        ready = prepare(cell, cache=cache, folder=folder)
        warm_up(cell.use.method)
        if cell.watch == "pictures":
            return _pictured(cell, ready)
        return _measured(cell, ready)


def prepare(cell: Cell, *, cache: Path | None = None, folder: Path | None = None) -> Ready:
    """Make the data of a cell and deal it out; the trial is the seed of both."""
    data, seed = cell.data, cell.trial
    if isinstance(data, InvaderData):
        parts, signal = invader_clients(data, cell.clients, seed=seed)
        clients = np.repeat(np.arange(cell.clients), len(signal))
        return Ready(
            BinaryMatrix.of(np.vstack(parts)), _named(clients), BinaryMatrix.of(np.vstack([signal] * cell.clients))
        )
    if isinstance(data, SourceData):
        A = subset(load_source(data.name, cache=cache, folder=folder), data.rows, data.columns, seed=seed)
        return Ready(A, _named(_dealt_out(A, cell)), None)
    assert isinstance(data, PlantedData)
    made = planted(
        data.rows,
        data.columns,
        data.components,
        noise=data.noise,
        heights=data.heights,
        widths=data.widths,
        seed=seed,
    )
    return Ready(made.A, _named(partition.even(data.rows, cell.clients, seed=seed)), made.signal)


def _dealt_out(A: BinaryMatrix, cell: Cell) -> NDArray[np.int64]:
    """Return the client of each row."""
    if cell.split == "even":
        return partition.even(len(A), cell.clients, seed=cell.trial)
    if cell.split == "uneven":
        return partition.uneven(len(A), cell.clients, seed=cell.trial)
    concepts = GreConD(cell.data.components).find(A, cell.data.components, seed=cell.trial)
    return partition.by_component(concepts.U, cell.clients, seed=cell.trial)


@cache
def warm_up(method: str) -> None:
    """Run a method once on a toy, so that compilation is not timed."""
    toy = planted(60, 12, 2, noise=0.05, heights=(0.3, 0.5), widths=(0.3, 0.5), seed=0)
    make_any_federated(method, n_components=2, random_state=0).fit(toy.A, groups=partition.even(60, 2))


def _measured(cell: Cell, ready: Ready) -> Measured:
    uploads: list[OutboundRecord] = []
    curves = _Curves(ready) if cell.watch == "rounds" else None
    finished, seconds, U = _play(cell, ready, uploads=uploads, on_round=None if curves is None else curves.add)
    if curves is not None:
        seconds -= curves.seconds
    outcome = finished.outcome
    counts = confusion(ready.A, U, outcome.components)
    losses = finished.history["loss"]
    figures: dict[str, float | None] = {
        "rmsd": counts.rmsd,
        "rmsd_table": counts.rmsd_table,
        "f1": counts.f1,
        "seconds": seconds,
        "seconds_per_client": seconds / cell.clients,
        "loss": float(losses[-1]) if len(losses) else None,
        "integrality_gap": outcome.integrality_gap,
        "rounds": float(outcome.n_iter),
        "ones": float(np.count_nonzero(outcome.components)),
        "rows": float(ready.A.shape[0]),
        "columns": float(ready.A.shape[1]),
    }
    if ready.signal is not None:
        figures["f1_star"] = confusion(ready.signal, U, outcome.components).f1
    if cell.noise is not None:
        figures |= total_cost(cell.noise, uploads)
    return Measured(figures, {} if curves is None else curves.curves)


def _play(
    cell: Cell,
    ready: Ready,
    *,
    uploads: list[OutboundRecord] | None = None,
    on_round: Callable[[RunProgress], None] | None = None,
) -> tuple[Run, float, NDArray[np.bool_]]:
    """Run the method; return the run, its seconds, and the assignments in the order of the rows."""
    noise, extra = cell.noise, {}
    if noise is not None and noise.mechanism == "record":
        extra["privacy"] = Privacy(noise.level)
    model = make_any_federated(
        cell.use.method,
        n_components=cell.data.components,
        random_state=cell.trial,
        **{**cell.use.parameters, **extra},
    )
    shards, rows = split(ready.A, ready.clients)
    model.check_rank(cell.data.components, ready.A.shape)
    algorithm = model.algorithm_for(shards)
    watched = min(shards)  # every client spends the same
    kept: list[OutboundRecord] = [] if uploads is None else uploads
    start = time.perf_counter()
    finished = run(
        algorithm,
        shards,
        seed=cell.trial,
        mechanism=NoisyUploads.of(noise),
        on_round=on_round or (lambda _: None),
        outbound=lambda name: kept.append if name == watched else lambda _: None,
    )
    seconds = time.perf_counter() - start
    U = np.empty((len(ready.A), finished.outcome.components.shape[0]), dtype=bool)
    for name, picked in rows.items():
        U[picked] = finished.assignments[name]
    return finished, seconds, U


class _Curves:
    """Figures of every round: loss, integrality gap, and F1 if V̂ were cut at ½ now."""

    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        self.seconds = 0.0
        self.curves: dict[str, list[float]] = {"loss": [], "integrality_gap": [], "f1": [], "f1_star": []}

    def add(self, progress: RunProgress) -> None:
        """Take the figures after a round; the time this takes is not the method's."""
        start = time.perf_counter()
        last = progress.history[-1]
        if last["task"] == LOCAL_FACTOR:
            V = _next_components(progress)
            U = assign_rows(self.ready.A, V)
            self.curves["loss"].append(float(last["loss"]))
            self.curves["integrality_gap"].append(float(last["integrality_gap"]))
            self.curves["f1"].append(confusion(self.ready.A, U, V).f1)
            if self.ready.signal is not None:
                self.curves["f1_star"].append(confusion(self.ready.signal, U, V).f1)
        self.seconds += time.perf_counter() - start


def _next_components(progress: RunProgress) -> NDArray[np.bool_]:
    """Return V̂ after a round, cut at ½, from what is asked next: the next round, or the assignment."""
    assert progress.request is not None
    asked = progress.request.values
    return np.asarray(asked["V"] > 0.5) if "V" in asked else asked["components"]


def _pictured(cell: Cell, ready: Ready) -> Measured:
    """Measure, and keep pictures of the data, of what each client finds alone, and of what all find together."""
    finished, seconds, U = _play(cell, ready)
    V = finished.outcome.components
    found, alone = (U.astype(int) @ V.astype(int)) > 0, np.empty(ready.A.shape, dtype=bool)
    shards, rows = split(ready.A, ready.clients)
    for name, shard in shards.items():
        own = Ready(shard, np.full(len(shard), name), None)
        outcome, _, own_U = _play(cell, own)
        alone[rows[name]] = (own_U.astype(int) @ outcome.outcome.components.astype(int)) > 0
    assert ready.signal is not None
    signal, data = ready.signal.toarray(), ready.A.toarray()
    pictures = {"signal": picture(signal[: len(signal) // cell.clients])}
    for number, name in enumerate(sorted(rows), start=1):
        for kind, matrix in (("data", data), ("local", alone), ("aggregated", found)):
            pictures[f"{kind}/{number}"] = picture(matrix[rows[name]])
    stars = {
        kind: confusion(ready.signal, matrix, np.eye(matrix.shape[1], dtype=bool))
        for kind, matrix in (("local", alone), ("aggregated", found))
    }
    figures = {
        "f1_star": stars["aggregated"].f1,
        "precision": stars["aggregated"].precision,
        "recall": stars["aggregated"].recall,
        "f1_star_local": stars["local"].f1,
        "f1": confusion(ready.A, U, V).f1,
        "seconds": seconds,
        "seconds_per_client": seconds / cell.clients,
    }
    return Measured(figures, pictures=pictures)


def _named(clients: NDArray[Any]) -> NDArray[Any]:
    width = max(2, len(str(int(clients.max()) + 1)))
    return np.array([f"client-{number + 1:0{width}}" for number in clients])


def measured(request: dict[str, Any]) -> dict[str, Any]:
    """Return the figures, curves and pictures of the cell of a request, for the process of `felb.runs.cells`."""
    folders = {name: Path(path) for name in ("cache", "folder") if (path := request.get(name)) is not None}
    return asdict(measure(cell_of(request["parameters"]), **folders))


if __name__ == "__main__":
    serve(measured, warm_up=lambda request: warm_up(request["parameters"]["method"]))
