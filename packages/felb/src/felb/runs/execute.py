"""Runs a job into a result folder: centralized, as a simulated federation, or on a Dask cluster."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
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
from felb.privacy.statement import guarantee
from felb.progress import Deadline
from felb.runs.folder import RunFolder
from felb.runs.result import Provenance, Result
from felb.tables.sources import source_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from felb.centralized.base import Factors, Method
    from felb.data.binary import BinaryMatrix
    from felb.federated.loop import Run, RunProgress
    from felb.federated.protocol import Algorithm
    from felb.metrics.counts import FeatureCounts, History
    from felb.privacy.spec import PrivacyPlan
    from felb.runs.job import Job
    from felb.tables.schema import Schema


CENTRALIZED = "centralized"
BLOCK_ROWS = 1 << 18
"""Rows of a block of a ``.felb`` file on Dask at most, unless the job says otherwise."""


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
    method = job.make_method() if job.dask is None else federated_method(job)
    if isinstance(method, FederatedMethod):
        data = job.data if job.dask is None else str(Path(job.data).absolute())  # which workers read
        alone = replace(job, data=data, centralized=True)
        return _start(alone, method, folder, force=force, on_plan=on_plan, on_round=on_round)
    assert isinstance(method, CentralizedMethod)
    check_parameters(method)
    table, schema = job.read(), job.read_schema()
    matrix = table.matrix
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
            data=describe_data(job, matrix),
            schema=schema,
            features=feature_counts(matrix, found.U, found.V),
        )
        folder.finish(result, {CENTRALIZED: found.U}, None if table.rows is None else {CENTRALIZED: table.rows})
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
    return _start(job, federated_method(job), folder, force=force, on_plan=on_plan, on_round=on_round)


def _start(
    job: Job,
    method: FederatedMethod,
    folder: RunFolder,
    *,
    force: bool,
    on_plan: Callable[[int | None], None],
    on_round: Callable[[RunProgress], None],
) -> Result:
    with _prepared(job, method) as ready:  # wrong input should not claim the folder
        started = replace(
            job,
            data=_absolute(job.data),
            unknown=None if job.unknown is None else _absolute(job.unknown),
            schema=None if job.schema is None else _absolute(job.schema),
            fingerprint=ready.fingerprint,
            version=__version__,
        )
        folder.begin(started, force=force)
        return _play(replace(ready, job=started), folder, on_plan, on_round)


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
    if dask is not None and job.dask is None:
        raise InputError(f"the run at {out} was not started on Dask and cannot go on there; leave out --dask")
    job = replace(job, dask=dask or job.dask)
    with _prepared(job, federated_method(job)) as ready:
        if ready.fingerprint != job.fingerprint:
            files = job.data if job.unknown is None else f"{job.data} or {job.unknown}"
            raise InputError(f"{files} has changed since the run was started; start it again with --force")
        folder.reopen()
        return _play(ready, folder, on_plan, on_round)


RECORDED = (
    "clients",
    "split",
    "client_column",
    "record_column",
    "participation",
    "secure",
    "header",
    "binarize_threshold",
    "missing",
)
"""What a result says about its job beside the parameters of the method, in this order."""


def unfinished_job(out: str | os.PathLike[str]) -> Job | None:
    """Return the job that `resume` would go on with, if there is one."""
    folder = RunFolder(out)
    return folder.job() if folder.resumable else None


def federated_method(job: Job) -> FederatedMethod:
    """Return the method of a job over several clients."""
    check_federated(job.method)
    method = job.make_method()
    assert isinstance(method, FederatedMethod)
    return method


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job made ready to run: everything is read and checked.

    Parameters
    ----------
    job, method, algorithm : what is run
    clients : rows of each
    columns : column names
    data : rows, columns, and what identifies the cells
    fingerprint : what a resumed run must find again
    run : plays the algorithm on the engine that holds the data; takes the options that engines have in common
    features : counts how the records are explained after the run, feature by feature; None if it is not known
    schema : by which the data was read
    records : names of the records of each client, if they are known
    """

    job: Job
    method: FederatedMethod
    algorithm: Algorithm
    clients: Mapping[str, int]
    columns: tuple[str, ...] | None
    data: Mapping[str, Any]
    fingerprint: str
    run: Callable[..., Run]
    features: Callable[[Run], FeatureCounts | None] = lambda _: None
    schema: Schema | None = None
    records: Mapping[str, tuple[str, ...]] | None = None


@contextmanager
def _prepared(job: Job, method: FederatedMethod) -> Iterator[Prepared]:
    """Yield a job made ready, in this process or on the cluster that it names."""
    if job.dask is None:
        yield prepare(job, method)
        return
    from felb.engines.dask.worker import connected

    with connected(job.dask) as client:
        yield _prepare_on_cluster(job, method, client)


def prepare(job: Job, method: FederatedMethod) -> Prepared:
    """Read the data and check every parameter; the quick checks come first."""
    check_parameters(method)
    table = job.read()
    matrix = table.matrix
    if job.centralized:
        shards, rows_of = {CENTRALIZED: matrix}, {CENTRALIZED: np.arange(len(matrix))}
    else:
        shards, rows_of = split(matrix, job.labels(table))
    names = table.rows
    records = None if names is None else {who: tuple(names[i] for i in at) for who, at in rows_of.items()}
    check_shards(shards)
    method.check_rank(job.n_components, matrix.shape)
    if not job.centralized:
        _check_disclosure(job, method, shards)
    algorithm = method.algorithm_for(shards, centralized=job.centralized)

    def count_features(finished: Run) -> FeatureCounts:
        V = finished.outcome.components
        parts = [feature_counts(shards[name], U, V) for name, U in finished.assignments.items()]
        return sum(parts[1:], parts[0])

    play = partial(
        run,
        algorithm,
        shards,
        participation=method.participation,
        workers=job.workers,
        disclosure=job.rules,
        secure=job.secure,
    )
    rows, data = {name: len(shard) for name, shard in shards.items()}, describe_data(job, matrix)
    known = data["fingerprint"] or matrix.fingerprint()
    return Prepared(
        job, method, algorithm, rows, matrix.columns, data, known, play, count_features, job.read_schema(), records
    )


def _prepare_on_cluster(job: Job, method: FederatedMethod, client: Any) -> Prepared:
    """Let the workers of a Dask cluster read the data, and check every parameter.

    Data is named by files that all workers can read; neither this process nor the scheduler holds rows of it. The
    fingerprint identifies also how the data is cut into blocks, on which states depend.
    """
    from felb.engines.dask.cluster import DistributedRows
    from felb.engines.dask.cluster import run as run_on_dask
    from felb.engines.dask.worker import check_alive

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
    algorithm, facts = method.algorithm_for_blocks(rows), rows.facts.values()
    prints = "\n".join(str(fact.fingerprint) for fact in facts)
    fingerprint = hashlib.sha256(prints.encode()).hexdigest()
    counts = {"ones": sum(fact.ones for fact in facts), "unknown": sum(fact.unknown or 0 for fact in facts)}
    data = _shared_facts(job, rows.shape, {**counts, "fingerprint": fingerprint})
    play = partial(run_on_dask, algorithm, rows.blocks, client=client, owner=CENTRALIZED)
    sizes = {name: fact.rows for name, fact in rows.facts.items()}
    return Prepared(job, method, algorithm, sizes, rows.columns, data, fingerprint, play)


def _play(
    ready: Prepared, folder: RunFolder, on_plan: Callable[[int | None], None], on_round: Callable[[RunProgress], None]
) -> Result:
    job, method, plan = ready.job, ready.method, ready.algorithm.privacy
    on_plan(None if method.max_rounds is None else method.max_rounds + 1)
    with folder.keeping():
        finished = ready.run(
            seed=job.seed,
            # On Dask, states and sums are kept together, whenever the workers have written states, so that a run can
            # go on after the scheduler has died, on another cluster too.
            journal=folder.journal(ready.algorithm, pace=job.dask is None),
            **({} if job.dask is None else {"states": folder.states}),
            on_round=on_round,
            # From the owner of all rows nothing leaves but what is released in private.
            outbound=(lambda _: lambda _: None) if job.centralized and plan is None else folder.outbound,
            deadline=Deadline(method.time_limit),
            responses=None if plan is None else partial(folder.responses, plan=plan),
        )
        method.warn_about_outcome(finished.outcome)
        result = make_result(
            job,
            method,
            finished.outcome,
            history=finished.history,
            plan=plan,
            clients=ready.clients,
            columns=ready.columns,
            data=ready.data,
            schema=ready.schema,
            features=None if plan is not None else ready.features(finished),
        )
        if job.rules is not None:
            result = result.disclosed(job.rules)
        folder.finish(result, finished.assignments, ready.records)
    return result


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
    clients, columns, data, schema : as in `Prepared`
    features : how the records are explained, feature by feature; None under privacy
    """
    return Result.of(
        outcome,
        columns=columns,
        # How many records a client has is not part of a guarantee, nor does a private server learn it.
        clients={name: rows if plan is None else None for name, rows in clients.items()},
        history=history,
        provenance=Provenance(
            method=job.method,
            parameters={
                **plain_parameters(method),
                **{name: getattr(job, name) for name in RECORDED},
                "participation": dict(job.participation),
                "unknown": None if job.unknown is None else Path(job.unknown).name,
            },
            seed=job.seed,
            data={"source": source_name(job.data), **data},
        ),
        privacy=None if plan is None else guarantee(plan, history),
        schema=schema,
        features=features,
    )


def describe_data(job: Job, matrix: BinaryMatrix) -> dict[str, Any]:
    """Return what identifies the data; under privacy its columns alone, as one record would show in everything else."""
    unknown = 0 if matrix.unknown is None else matrix.unknown.nnz
    facts = {"ones": matrix.nnz, "unknown": unknown, "fingerprint": matrix.fingerprint()}
    return _shared_facts(job, matrix.shape, facts)


def _shared_facts(job: Job, shape: tuple[int, int], facts: Mapping[str, Any]) -> dict[str, Any]:
    if job.privacy is not None:
        return {"rows": None, "columns": shape[1], "ones": None, "fingerprint": None}
    return {"rows": shape[0], "columns": shape[1], **facts}


def _absolute(data: str) -> str:
    return str(Path(data).absolute()) if Path(data).is_file() else data
