"""Run a job into a result folder: pooled (`fit`) or as a simulated federation (`simulate`, `resume`)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb._version import __version__
from felb.centralized.base import BooleanFactorization
from felb.data.database_url import source_name
from felb.data.shards import check_shards, split
from felb.deadline import Deadline
from felb.engines.local import Participation, run
from felb.errors import InputError
from felb.estimators.federated_estimator import FederatedEstimator
from felb.estimators.methods import METHODS, make, make_federated
from felb.metrics import confusion
from felb.privacy import Privacy
from felb.runs.folder import RunFolder
from felb.runs.guarantee import guarantee
from felb.runs.result import Provenance, Result

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from felb.data.binary import BinaryMatrix
    from felb.data.schema import Schema
    from felb.federated.loop import RunProgress
    from felb.federated.protocol import Algorithm
    from felb.runs.job import Job

POOLED = "pooled"
NOT_OF_THE_METHOD = {"participation", "n_jobs", "random_state", "binarize_threshold"}
"""Parameters of estimators that a job says in another way."""


def fit(
    job: Job,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    on_round: Callable[[RunProgress], None] = lambda _: None,
) -> Result:
    """Fit a method on pooled data and leave the result in the folder `out`.

    A method that has rounds is run like a simulation of one client, and `resume` goes on with it.

    Examples
    --------
    >>> from felb import Job
    >>> fit(Job("zoo", "grecond", 4), "pooled-run").components.shape
    (4, 17)
    """
    folder = RunFolder(out)
    folder.check(force=force)
    model = make(job.method, **_parameters(job))
    if isinstance(model, FederatedEstimator):
        return simulate(replace(job, pooled=True), out, force=force, on_round=on_round)
    matrix, schema = job.read().matrix, job.read_schema()
    folder.begin(job, force=force)
    try:
        U = model.fit_transform(matrix)
        result = Result(
            components=model.components_,
            columns=matrix.columns,
            supports=tuple(np.count_nonzero(U, axis=0).tolist()),
            clients={POOLED: len(matrix)},
            scores=confusion(matrix, U, model.components_).scores(),
            converged=bool(model.converged_),
            integrality_gap=float(model.integrality_gap_),
            history=model.history_,
            provenance=_provenance(job, model, matrix),
            complete=model.complete_,
            schema=schema,
        )
        folder.finish(result, {POOLED: U})
    except BaseException:
        folder.discard()  # keeps no journal
        raise
    return result


def simulate(
    job: Job,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    on_round: Callable[[RunProgress], None] = lambda _: None,
) -> Result:
    """Run a federated method over simulated clients and leave the result in the folder `out`.

    Interrupted at any point, the last completed round is kept, and `resume` goes on from it.

    Examples
    --------
    >>> from felb import Job
    >>> result = simulate(Job("zoo", "grecond+or", 4, clients=3), "shared-run")
    >>> list(result.clients), result.components.shape
    (['client-01', 'client-02', 'client-03'], (4, 17))
    """
    folder = RunFolder(out)
    folder.check(force=force)
    federation = Federation.of(job)  # wrong input should not claim the folder
    started = replace(
        job,
        data=_absolute(job.data),
        unknown=None if job.unknown is None else _absolute(job.unknown),
        schema=None if job.schema is None else _absolute(job.schema),
        fingerprint=federation.matrix.fingerprint(),
        version=__version__,
    )
    folder.begin(started, force=force)
    return _play(replace(federation, job=started), folder, on_round)


def resume(out: str | os.PathLike[str], *, on_round: Callable[[RunProgress], None] = lambda _: None) -> Result:
    """Go on with an interrupted simulation; the result is the one an undisturbed run gives.

    Examples
    --------
    >>> from felb import resume
    >>> resume("zoo-run")
    Traceback (most recent call last):
    ...
    felb.errors.InputError: nothing to resume: the run at zoo-run was never started
    """
    folder = RunFolder(out)
    job = folder.job()
    if job.fingerprint is None:
        raise InputError(f"nothing to resume: {job.method} on pooled data keeps no progress; start {out} anew")
    if job.version != __version__:
        raise InputError(
            f"the run at {out} was started by felb {job.version}, and felb {__version__} may compute differently; "
            f"go on with felb {job.version}, or start the run anew with --force"
        )
    federation = Federation.of(job)
    if federation.matrix.fingerprint() != job.fingerprint:
        files = job.data if job.unknown is None else f"{job.data} or {job.unknown}"
        raise InputError(f"{files} has changed since the run was started; start it anew with --force")
    folder.reopen()
    return _play(federation, folder, on_round)


def unfinished_job(out: str | os.PathLike[str]) -> Job | None:
    """Return the job that `resume` would go on with, if there is one."""
    folder = RunFolder(out)
    return folder.job() if folder.resumable else None


@dataclass(frozen=True, slots=True)
class Federation:
    """A job made ready to run: everything is read and checked."""

    job: Job
    model: FederatedEstimator
    participation: Participation
    matrix: BinaryMatrix
    shards: Mapping[str, BinaryMatrix]
    algorithm: Algorithm
    schema: Schema | None = None

    @classmethod
    def of(cls, job: Job) -> Federation:
        """Read the data and check every parameter; the quick checks come first."""
        model, participation = make_federated(job.method, **_parameters(job)), Participation(**job.participation)
        # A method does without comparing rounds where only a sample of the clients plays them.
        model.set_params(participation=participation)
        table = job.read()
        model.check_cells({job.data: table.matrix})
        shards = {POOLED: table.matrix} if job.pooled else split(table.matrix, job.labels(table))[0]
        check_shards(shards)
        model.check_rank(job.n_components, table.matrix.shape)
        algorithm = model.algorithm_for(shards, centralized=job.pooled)
        return cls(job, model, participation, table.matrix, shards, algorithm, job.read_schema())


def _play(federation: Federation, folder: RunFolder, on_round: Callable[[RunProgress], None]) -> Result:
    job, model, matrix = federation.job, federation.model, federation.matrix
    plan = federation.algorithm.privacy
    with folder.keeping():
        finished = run(
            federation.algorithm,
            federation.shards,
            seed=job.seed,
            participation=federation.participation,
            workers=job.workers,
            journal=folder.journal(federation.algorithm),
            on_round=on_round,
            # From the owner of all rows nothing leaves but what is released in private.
            outbound=(lambda _: lambda _: None) if job.pooled and plan is None else folder.outbound,
            deadline=Deadline(model.time_limit),
            responses=None if plan is None else partial(folder.responses, plan=plan),
        )
        outcome = finished.outcome
        model.warn_about_outcome(outcome)
        result = Result(
            components=outcome.components,
            columns=matrix.columns,
            supports=(None,) * len(outcome.components)
            if outcome.supports is None
            else tuple(outcome.supports.tolist()),
            # How many records a client has is not part of a guarantee, nor does a private server learn it.
            clients={name: len(shard) if plan is None else None for name, shard in federation.shards.items()},
            scores={} if outcome.counts is None else outcome.counts.scores(),
            converged=outcome.converged,
            integrality_gap=outcome.integrality_gap,
            history=finished.history,
            provenance=_provenance(job, model, matrix),
            complete=outcome.complete,
            privacy=None if plan is None else guarantee(plan, finished.history),
            schema=federation.schema,
        )
        folder.finish(result, finished.assignments)
    return result


def _parameters(job: Job) -> dict[str, Any]:
    parameters = {"n_components": job.n_components, "random_state": job.seed, **job.parameters}
    if job.spec is None:
        return parameters
    able = [method.name for method in METHODS.values() if "privacy" in method.parameters()]
    if job.method in METHODS and job.method not in able:
        raise InputError(f"method {job.method!r} adds no noise and can guarantee no privacy; use {' or '.join(able)}")
    return {**parameters, "privacy": job.spec}


def _provenance(job: Job, model: BooleanFactorization, matrix: BinaryMatrix) -> Provenance:
    return Provenance(
        method=job.method,
        parameters={
            **_plain_parameters(model),
            "clients": job.clients,
            "split": job.split,
            "client_column": job.client_column,
            "participation": dict(job.participation),
            "header": job.header,
            "binarize_threshold": job.binarize_threshold,
            "missing": job.missing,
            "unknown": None if job.unknown is None else Path(job.unknown).name,
        },
        seed=job.seed,
        data={
            "source": source_name(job.data),
            "rows": matrix.shape[0],
            "columns": matrix.shape[1],
            **_exact_facts(job, matrix),
        },
    )


def _exact_facts(job: Job, matrix: BinaryMatrix) -> dict[str, Any]:
    """Return what identifies the data; under privacy nothing, since one record more or less would show in it."""
    if job.privacy is not None:
        return {"ones": None, "fingerprint": None}
    return {
        "ones": matrix.nnz,
        "unknown": 0 if matrix.unknown is None else matrix.unknown.nnz,
        "fingerprint": job.fingerprint or matrix.fingerprint(),  # known in a simulation
    }


def _plain_parameters(model: BooleanFactorization) -> dict[str, Any]:
    """Return the parameters of a method; those of a model within it are named as scikit-learn does, model__tau."""
    return {
        name: asdict(value) if isinstance(value, Privacy) else value
        for name, value in model.get_params().items()
        if name.rpartition("__")[2] not in NOT_OF_THE_METHOD and not isinstance(value, BooleanFactorization)
    }


def _absolute(data: str) -> str:
    return str(Path(data).absolute()) if Path(data).is_file() else data
