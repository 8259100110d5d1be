"""Run a job into a result folder: pooled (`fit`) or as a simulated federation (`simulate`, `resume`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.datasets.shards import check_shards, split
from felb.engines import Participation, run
from felb.errors import InputError
from felb.estimators.methods import make, make_federated
from felb.experiments.folder import RunFolder
from felb.metrics import confusion
from felb.results import Provenance, Result

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from felb.engines import Snapshot
    from felb.experiments.job import Job
    from felb.linalg.binary import BinaryMatrix
    from felb.metrics import Counts

POOLED = "pooled"


def fit(job: Job, out: str | os.PathLike[str], *, force: bool = False) -> Result:
    """Fit a method on pooled data and leave the result in the folder `out`."""
    model = make(job.method, n_components=job.n_components, random_state=job.seed, **job.parameters)
    folder = RunFolder(out)
    matrix = job.read().matrix
    folder.begin(job, force=force)
    try:
        U = model.fit_transform(matrix)
        result = Result(
            components=model.components_,
            columns=matrix.columns,
            supports=_supports([U]),
            clients={POOLED: len(matrix)},
            scores=confusion(matrix, U, model.components_).scores(),
            converged=bool(model.converged_),
            integrality_gap=float(model.integrality_gap_),
            history=model.history_,
            provenance=_provenance(job, matrix),
        )
    except BaseException:
        folder.discard()  # a pooled fit keeps no checkpoints
        raise
    folder.finish(result, {POOLED: U})
    return result


def simulate(
    job: Job,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    on_round: Callable[[Snapshot], None] = lambda _: None,
) -> Result:
    """Run a federated method over simulated clients and leave the result in the folder `out`.

    Interrupted at any point, the last completed round is kept, and `resume` goes on from it.
    """
    folder, matrix, shards = RunFolder(out), *_shards(job)
    _federated(job)  # a wrong parameter should not claim the folder
    folder.begin(replace(job, data=_absolute(job.data), fingerprint=matrix.fingerprint()), force=force)
    return _play(job, folder, matrix, shards, on_round)


def resume(out: str | os.PathLike[str], *, on_round: Callable[[Snapshot], None] = lambda _: None) -> Result:
    """Go on with an interrupted simulation; the result is the one an undisturbed run gives."""
    folder = RunFolder(out)
    job = folder.job()
    matrix, shards = _shards(job)
    if matrix.fingerprint() != job.fingerprint:
        raise InputError(f"{job.data} has changed since the run was started; start it anew with --force")
    return _play(job, folder, matrix, shards, on_round)


def _play(
    job: Job,
    folder: RunFolder,
    matrix: BinaryMatrix,
    shards: Mapping[str, BinaryMatrix],
    on_round: Callable[[Snapshot], None],
) -> Result:
    model = _federated(job)
    recipe = model.recipe(matrix.shape[1])
    with folder.keeping() as keep:

        def after_round(snapshot: Snapshot) -> None:
            keep(snapshot)
            on_round(snapshot)

        finished = run(
            recipe,
            shards,
            seed=job.seed,
            participation=Participation(**job.participation),
            workers=job.workers,
            resume=folder.snapshot(recipe),
            on_round=after_round,
            outbound=folder.outbound,
        )
    outcome = finished.outcome
    model.warn_about(outcome.components, outcome.integrality_gap)
    result = Result(
        components=outcome.components,
        columns=matrix.columns,
        supports=_supports(finished.assignments.values()),
        clients={name: len(shard) for name, shard in shards.items()},
        scores=_checked(outcome.counts).scores(),
        converged=outcome.converged,
        integrality_gap=outcome.integrality_gap,
        history=finished.history,
        provenance=_provenance(job, matrix),
    )
    folder.finish(result, finished.assignments)
    return result


def _federated(job: Job) -> Any:
    return make_federated(job.method, n_components=job.n_components, random_state=job.seed, **job.parameters)


def _shards(job: Job) -> tuple[BinaryMatrix, dict[str, BinaryMatrix]]:
    table = job.read()
    shards, _ = split(table.matrix, job.labels(table))
    check_shards(shards)
    return table.matrix, shards


def _provenance(job: Job, matrix: BinaryMatrix) -> Provenance:
    return Provenance(
        method=job.method,
        parameters={
            "n_components": job.n_components,
            **job.parameters,
            "clients": job.clients,
            "split": job.split,
            "client_column": job.client_column,
            "participation": dict(job.participation),
        },
        seed=job.seed,
        data={
            "source": Path(job.data).name,
            "rows": matrix.shape[0],
            "columns": matrix.shape[1],
            "ones": matrix.nnz,
            "fingerprint": matrix.fingerprint(),
        },
    )


def _supports(assignments: Any) -> tuple[int, ...]:
    return tuple(int(count) for count in sum(np.count_nonzero(U, axis=0) for U in assignments))


def _checked(counts: Counts) -> Counts:
    assert counts.cells > 0, "a finished run has counted its cells"
    return counts


def _absolute(data: str) -> str:
    return str(Path(data).absolute()) if Path(data).exists() else data
