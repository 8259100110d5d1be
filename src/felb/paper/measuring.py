"""Measure one cell: make the data, run the method over simulated clients, score what it found."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.centralized.grecond import GreConD
from felb.data import partition, planted
from felb.data.binary import BinaryMatrix
from felb.data.shards import split
from felb.engines.local import run
from felb.federated.algorithms.felb import LOCAL_FACTOR
from felb.kernels.assign import assign_rows
from felb.metrics import confusion
from felb.paper.experiment_cells import Cell, InvaderData, PlantedData, SourceData
from felb.paper.own_federated import make_any_federated
from felb.paper.real_data import load_source
from felb.paper.subset import subset
from felb.paper.toy_picture import invader_clients, picture
from felb.paper.upload_noise import NoisyUploads, total_cost
from felb.privacy.spec import Privacy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.federated.loop import Run, RunProgress
    from felb.privacy.outbound_log import OutboundRecord


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
    folder : with data that does not come with felb; None for `felb.paper.public_data.data_folder`
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
        mechanism=None if noise is None or noise.mechanism == "record" else NoisyUploads.of(noise),
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
