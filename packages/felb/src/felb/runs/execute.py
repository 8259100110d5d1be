"""Runs a job into a result folder: centralized, as a simulated federation, or on a Dask cluster."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb._version import __version__
from felb.centralized.base import CentralizedMethod, check_parameters
from felb.data.files import open_blocks
from felb.data.partition import check_shards, split
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.algorithms.methods import FederatedMethod
from felb.federated.algorithms.registry import check_federated, plain_parameters
from felb.federated.protocol import Outcome
from felb.metrics import confusion
from felb.metrics.counts import feature_counts
from felb.privacy.spec import guarantee
from felb.progress import Deadline
from felb.runs.folder import RunFolder
from felb.runs.result import Provenance, Result
from felb.tables.sources import source_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from felb.centralized.base import Factors, Method
    from felb.data.binary import BinaryMatrix
    from felb.engines.dask.cluster import DistributedRows
    from felb.federated.loop import Run, RunProgress
    from felb.federated.protocol import Algorithm
    from felb.metrics.counts import FeatureCounts, History
    from felb.privacy.spec import PrivacyPlan
    from felb.runs.job import Job
    from felb.tables.schema import Schema


# -- Runs a job into a result folder: centralized (`fit`) or as a simulated federation (`simulate`, `resume`) --------

CENTRALIZED = "centralized"


def fit(
    job: Job,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    on_plan: Callable[[int | None], None] = lambda _: None,
    on_round: Callable[[RunProgress], None] = lambda _: None,
) -> Result:
    """Fit a method on centralized data and leave the result in the folder `out`.

    A method that has rounds is run like a simulation of one client, and `resume` goes on with it.

    Examples
    --------
    >>> from felb import Job
    >>> fit(Job("zoo", "grecond", 4), "centralized-run").components.shape
    (4, 17)
    """
    folder = RunFolder(out)
    folder.check(force=force)
    method = job.make_method()
    if job.dask is not None:
        return fit_on_cluster(job, folder, force=force, on_round=on_round)
    if isinstance(method, FederatedMethod):
        alone = replace(job, centralized=True)
        return _simulate(alone, method, folder, force=force, on_plan=on_plan, on_round=on_round)
    assert isinstance(method, CentralizedMethod)
    check_parameters(method)
    matrix, schema = job.read().matrix, job.read_schema()
    check_shards({CENTRALIZED: matrix})
    method.check_cells(matrix)
    folder.begin(job, force=force)
    try:
        found = method.search(matrix, seed=job.seed)
        result = make_result(
            job,
            method,
            outcome_of(found, matrix),
            history=found.attributes["history_"],
            clients={CENTRALIZED: len(matrix)},
            columns=matrix.columns,
            data=_facts_of(job, matrix),
            schema=schema,
            features=feature_counts(matrix, found.U, found.V),
        )
        folder.finish(result, {CENTRALIZED: found.U})
    except BaseException:
        folder.discard()  # keeps no journal
        raise
    return result


def simulate(
    job: Job,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    on_plan: Callable[[int | None], None] = lambda _: None,
    on_round: Callable[[RunProgress], None] = lambda _: None,
) -> Result:
    """Run a federated method over simulated clients and leave the result in the folder `out`.

    Interrupted at any point, the last completed round is kept, and `resume` goes on from it.

    Parameters
    ----------
    on_plan : called before the first round with the rounds at most, the assignment included; None if that is not known
    on_round : called after each round

    Examples
    --------
    >>> from felb import Job
    >>> result = simulate(Job("zoo", "grecond+or", 4, clients=3), "shared-run")
    >>> list(result.clients), result.components.shape
    (['client-01', 'client-02', 'client-03'], (4, 17))
    """
    folder = RunFolder(out)
    folder.check(force=force)
    return _simulate(job, federated_method(job), folder, force=force, on_plan=on_plan, on_round=on_round)


def _simulate(
    job: Job,
    method: FederatedMethod,
    folder: RunFolder,
    *,
    force: bool,
    on_plan: Callable[[int | None], None],
    on_round: Callable[[RunProgress], None],
) -> Result:
    federation = Federation.of(job, method)  # wrong input should not claim the folder
    started = replace(
        job,
        data=_absolute(job.data),
        unknown=None if job.unknown is None else _absolute(job.unknown),
        schema=None if job.schema is None else _absolute(job.schema),
        fingerprint=federation.matrix.fingerprint(),
        version=__version__,
    )
    folder.begin(started, force=force)
    return _play(replace(federation, job=started), folder, on_plan, on_round)


def resume(
    out: str | os.PathLike[str],
    *,
    dask: str | None = None,
    on_plan: Callable[[int | None], None] = lambda _: None,
    on_round: Callable[[RunProgress], None] = lambda _: None,
) -> Result:
    """Go on with an interrupted run; the result is the one an undisturbed run gives.

    A run on Dask goes on at the scheduler it was started on, or at the one whose address is `dask`.

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
        raise InputError(f"nothing to resume: {job.method} on centralized data cannot be resumed; start {out} again")
    if job.version != __version__:
        raise InputError(
            f"the run at {out} was started by felb {job.version}, and felb {__version__} may compute differently; "
            f"resume it with felb {job.version}, or start the run again with --force"
        )
    if job.dask is not None:
        return resume_on_cluster(replace(job, dask=dask or job.dask), folder, on_round=on_round)
    if dask is not None:
        raise InputError(f"the run at {out} was not started on Dask and cannot go on there; leave out --dask")
    federation = Federation.of(job, federated_method(job))
    check_unchanged(job, federation.matrix.fingerprint())
    folder.reopen()
    return _play(federation, folder, on_plan, on_round)


def check_unchanged(job: Job, fingerprint: str) -> None:
    """Raise unless the data is that which the job was started on."""
    if fingerprint != job.fingerprint:
        files = job.data if job.unknown is None else f"{job.data} or {job.unknown}"
        raise InputError(f"{files} has changed since the run was started; start it again with --force")


def unfinished_job(out: str | os.PathLike[str]) -> Job | None:
    """Return the job that `resume` would go on with, if there is one."""
    folder = RunFolder(out)
    return folder.job() if folder.resumable else None


@dataclass(frozen=True, slots=True)
class Federation:
    """A job made ready to run: everything is read and checked."""

    job: Job
    method: FederatedMethod
    matrix: BinaryMatrix
    shards: Mapping[str, BinaryMatrix]
    algorithm: Algorithm
    schema: Schema | None = None

    @classmethod
    def of(cls, job: Job, method: FederatedMethod) -> Federation:
        """Read the data and check every parameter; the quick checks come first."""
        check_parameters(method)
        table = job.read()
        shards = {CENTRALIZED: table.matrix} if job.centralized else split(table.matrix, job.labels(table))[0]
        check_shards(shards)
        method.check_rank(job.n_components, table.matrix.shape)
        if not job.centralized:
            _check_disclosure(job, method, shards)
        algorithm = method.algorithm_for(shards, centralized=job.centralized, restricted=job.rules is not None)
        return cls(job, method, table.matrix, shards, algorithm, job.read_schema())


def federated_method(job: Job) -> FederatedMethod:
    """Return the method of a job over several clients."""
    check_federated(job.method)
    method = job.make_method()
    assert isinstance(method, FederatedMethod)
    return method


def _play(
    federation: Federation,
    folder: RunFolder,
    on_plan: Callable[[int | None], None],
    on_round: Callable[[RunProgress], None],
) -> Result:
    job, method, matrix = federation.job, federation.method, federation.matrix
    on_plan(None if method.max_rounds is None else method.max_rounds + 1)
    plan = federation.algorithm.privacy
    with folder.keeping():
        finished = run(
            federation.algorithm,
            federation.shards,
            seed=job.seed,
            participation=method.participation,
            workers=job.workers,
            journal=folder.journal(federation.algorithm),
            on_round=on_round,
            # From the owner of all rows nothing leaves but what is released in private.
            outbound=(lambda _: lambda _: None) if job.centralized and plan is None else folder.outbound,
            deadline=Deadline(method.time_limit),
            responses=None if plan is None else partial(folder.responses, plan=plan),
            disclosure=job.rules,
            secure=job.secure,
        )
        method.warn_about_outcome(finished.outcome)
        result = make_result(
            job,
            method,
            finished.outcome,
            history=finished.history,
            plan=plan,
            clients={name: len(shard) for name, shard in federation.shards.items()},
            columns=matrix.columns,
            data=_facts_of(job, matrix),
            schema=federation.schema,
            features=_features_of(federation, finished),
        )
        if job.rules is not None:
            result = result.disclosed(job.rules)
        folder.finish(result, finished.assignments)
    return result


def _features_of(federation: Federation, finished: Run) -> FeatureCounts:
    """Count how the records of all clients that took part are explained, feature by feature."""
    V = finished.outcome.components
    parts = [feature_counts(federation.shards[name], U, V) for name, U in finished.assignments.items()]
    return sum(parts[1:], parts[0])


def _check_disclosure(job: Job, method: FederatedMethod, shards: Mapping[str, BinaryMatrix]) -> None:
    """Raise if the federation does not satisfy the rules that must hold before anything leaves."""
    rules = job.rules
    if rules is None:
        return
    if not rules.sites_suffice(len(shards)):
        raise InputError(
            f"the disclosure rules ask for at least {rules.min_sites} clients, and there are {len(shards)}"
        )
    most = job.n_components if isinstance(job.n_components, int) else method.max_components  # type: ignore[attr-defined]
    for name, shard in sorted(shards.items()):
        n, m = shard.shape
        if not rules.rows_suffice(n, n_features=m, n_components=most):
            raise InputError(
                f"{name} has {n} records, and the disclosure rules allow {m} features x {most} components at "
                f"{m * most / (rules.max_parameters or 1):.0f} or more; take fewer components, or larger clients"
            )


def outcome_of(found: Factors, A: BinaryMatrix) -> Outcome:
    """Return what a centralized method has found, as a run would."""
    return Outcome(
        found.V,
        n_iter=int(found.attributes["n_iter_"]),
        relaxed=found.attributes.get("relaxed_components_"),
        integrality_gap=float(found.attributes["integrality_gap_"]),
        converged=bool(found.attributes["converged_"]),
        counts=confusion(A, found.U, found.V),
        supports=np.count_nonzero(found.U, axis=0),
        complete=found.complete,
    )


def make_result(
    job: Job,
    method: Method,
    outcome: Outcome,
    *,
    history: History,
    plan: PrivacyPlan | None = None,
    clients: Mapping[str, int],
    columns: tuple[str, ...] | None,
    data: Mapping[str, Any],
    schema: Schema | None = None,
    features: FeatureCounts | None = None,
) -> Result:
    """Return the result of a finished job.

    Parameters
    ----------
    plan : of a private run
    clients : rows of each
    columns : column names
    data : rows, columns, and what identifies the cells
    schema : by which the data was read
    features : how the records are explained, feature by feature; left out under privacy
    """
    return Result.of(
        outcome,
        columns=columns,
        # How many records a client has is not part of a guarantee, nor does a private server learn it.
        clients={name: rows if plan is None else None for name, rows in clients.items()},
        history=history,
        provenance=_provenance(job, method, data),
        privacy=None if plan is None else guarantee(plan, history),
        schema=schema,
        features=features if plan is None else None,
    )


def _provenance(job: Job, method: Method, data: Mapping[str, Any]) -> Provenance:
    return Provenance(
        method=job.method,
        parameters={
            **plain_parameters(method),
            "clients": job.clients,
            "split": job.split,
            "client_column": job.client_column,
            "participation": dict(job.participation),
            "secure": job.secure,
            "header": job.header,
            "binarize_threshold": job.binarize_threshold,
            "missing": job.missing,
            "unknown": None if job.unknown is None else Path(job.unknown).name,
        },
        seed=job.seed,
        data={"source": source_name(job.data), **data},
    )


def _facts_of(job: Job, matrix: BinaryMatrix) -> dict[str, Any]:
    unknown = 0 if matrix.unknown is None else matrix.unknown.nnz
    # A simulation knows the fingerprint.
    return data_facts(job, matrix.shape, matrix.nnz, unknown, lambda: job.fingerprint or matrix.fingerprint())


def data_facts(
    job: Job, shape: tuple[int, int], ones: int, unknown: int, fingerprint: Callable[[], str]
) -> dict[str, Any]:
    """Return what identifies the data; under privacy its columns alone, as one record would show in everything else."""
    facts: dict[str, Any] = {"rows": shape[0], "columns": shape[1]}
    if job.privacy is not None:
        return {**facts, "rows": None, "ones": None, "fingerprint": None}
    return {**facts, "ones": ones, "unknown": unknown, "fingerprint": fingerprint()}


def _absolute(data: str) -> str:
    return str(Path(data).absolute()) if Path(data).is_file() else data


# -- Run a job on a Dask cluster into a result folder: `felb fit --dask` ---------------------------------------------
#
# Data is named by files that all workers can read; neither this process nor the scheduler holds rows of it. States of
# blocks are kept in the unfinished run, so that it can go on after the scheduler has died, on another cluster too.

BLOCK_ROWS = 1 << 18
"""Rows of a block of a ``.felb`` file at most, unless the job says otherwise."""


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """A job made ready to run on a cluster: its data is on the workers, and everything is checked."""

    job: Job
    client: Any  # only the engine knows Dask
    method: FederatedMethod
    rows: DistributedRows
    algorithm: Algorithm

    @classmethod
    def of(cls, job: Job, client: Any) -> ClusterRun:
        """Let the workers read the data, and check every parameter; the quick checks come first."""
        from felb.engines.dask.cluster import DistributedRows
        from felb.engines.dask.worker import check_alive

        method = federated_method(job)
        blocks = open_blocks(
            job.data,
            rows=job.block_rows or BLOCK_ROWS,
            header=job.header,
            binarize_threshold=job.binarize_threshold,
            missing=None if job.missing == "error" else job.missing,
            client_column=job.client_column,
        )
        check_alive(client)
        rows = DistributedRows.of(blocks, client, read=method._read, fingerprint=True)
        method.check_rank(job.n_components, rows.shape)
        return cls(job, client, method, rows, method.algorithm_for_blocks(rows))

    @property
    def fingerprint(self) -> str:
        """What identifies the data and how it is cut into blocks, on which states depend."""
        prints = [str(fact.fingerprint) for fact in self.rows.facts.values()]
        return hashlib.sha256("\n".join(prints).encode()).hexdigest()

    def play(self, folder: RunFolder, on_round: Callable[[RunProgress], None]) -> Result:
        """Play the run to its end and leave the result in the folder."""
        from felb.engines.dask.cluster import run

        job, facts, plan = self.job, self.rows.facts, self.algorithm.privacy
        with folder.keeping():
            finished = run(
                self.algorithm,
                self.rows.blocks,
                client=self.client,
                seed=job.seed,
                # States and sums are kept together, whenever the workers have written states.
                journal=folder.journal(self.algorithm, pace=False),
                states=folder.states,
                on_round=on_round,
                outbound=(lambda _: lambda _: None) if plan is None else folder.outbound,
                deadline=Deadline(self.method.time_limit),
                responses=None if plan is None else partial(folder.responses, plan=plan),
                owner=CENTRALIZED,
            )
            self.method.warn_about_outcome(finished.outcome)
            result = make_result(
                job,
                self.method,
                finished.outcome,
                history=finished.history,
                plan=plan,
                clients={name: fact.rows for name, fact in facts.items()},
                columns=self.rows.columns,
                data=data_facts(
                    job,
                    self.rows.shape,
                    sum(fact.ones for fact in facts.values()),
                    sum(fact.unknown or 0 for fact in facts.values()),
                    lambda: self.fingerprint,
                ),
            )
            folder.finish(result, finished.assignments)
        return result


def fit_on_cluster(job: Job, folder: RunFolder, *, force: bool, on_round: Callable[[RunProgress], None]) -> Result:
    """Start a job on the cluster that it names."""
    from felb.engines.dask.worker import connected

    assert job.dask is not None
    federated_method(job)  # wrong input should not start a cluster
    with connected(job.dask) as client:
        prepared = ClusterRun.of(replace(job, data=str(Path(job.data).absolute()), centralized=True), client)
        started = replace(prepared.job, fingerprint=prepared.fingerprint, version=__version__)
        folder.begin(started, force=force)
        return replace(prepared, job=started).play(folder, on_round)


def resume_on_cluster(job: Job, folder: RunFolder, *, on_round: Callable[[RunProgress], None]) -> Result:
    """Go on with a job on the cluster that it names."""
    from felb.engines.dask.worker import connected

    assert job.dask is not None
    with connected(job.dask) as client:
        prepared = ClusterRun.of(job, client)
        check_unchanged(job, prepared.fingerprint)
        folder.reopen()
        return prepared.play(folder, on_round)
