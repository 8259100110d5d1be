"""Runs a job into a result folder: centralized, as a simulated federation, or on a Dask cluster."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb._version import __version__
from felb.centralized.base import check_parameters
from felb.data import planted
from felb.data.files import open_blocks
from felb.data.partition import check_shards, split
from felb.engines.dask.worker import check_alive, connected
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.protocol import Participation
from felb.metrics import confusion
from felb.metrics.counts import feature_counts
from felb.privacy.spec import guarantee
from felb.progress import Deadline
from felb.records import replacing
from felb.runs.folder import RunFolder
from felb.runs.job import plain_parameters
from felb.runs.result import Provenance, Result
from felb.sklearn.base import FederatedEstimator, distributed_algorithm, reader
from felb.sklearn.methods import METHODS, make, make_federated
from felb.tables.sources import source_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from felb.centralized.base import BooleanFactorization
    from felb.data.binary import BinaryMatrix
    from felb.engines.dask.cluster import DistributedRows
    from felb.federated.loop import Run, RunProgress
    from felb.federated.protocol import Algorithm
    from felb.metrics.counts import FeatureCounts
    from felb.runs.job import Job
    from felb.tables.schema import Schema


# -- Runs a job into a result folder: centralized (`fit`) or as a simulated federation (`simulate`, `resume`) --------

CENTRALIZED = "centralized"
OF_THE_JOB = ("participation", "secure", "privacy")
"""Parameters of estimators that a job sets by fields of its own."""


def fit(
    job: Job,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
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
    model = make(job.method, **method_parameters(job))
    if job.dask is not None:
        return fit_on_cluster(job, folder, force=force, on_round=on_round)
    if isinstance(model, FederatedEstimator):
        return simulate(replace(job, centralized=True), out, force=force, on_round=on_round)
    matrix, schema = job.read().matrix, job.read_schema()
    folder.begin(job, force=force)
    try:
        U = model.fit_transform(matrix)
        result = Result(
            components=model.components_,
            columns=matrix.columns,
            supports=tuple(np.count_nonzero(U, axis=0).tolist()),
            clients={CENTRALIZED: len(matrix)},
            scores=confusion(matrix, U, model.components_).scores(),
            converged=bool(model.converged_),
            integrality_gap=float(model.integrality_gap_),
            history=model.history_,
            provenance=_provenance(job, model, _facts_of(job, matrix)),
            complete=model.complete_,
            schema=schema,
            n_iter=int(model.n_iter_),
            features=feature_counts(matrix, U, model.components_),
        )
        folder.finish(result, {CENTRALIZED: U})
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


def resume(
    out: str | os.PathLike[str], *, dask: str | None = None, on_round: Callable[[RunProgress], None] = lambda _: None
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
    federation = Federation.of(job)
    check_unchanged(job, federation.matrix.fingerprint())
    folder.reopen()
    return _play(federation, folder, on_round)


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
    model: FederatedEstimator
    participation: Participation
    matrix: BinaryMatrix
    shards: Mapping[str, BinaryMatrix]
    algorithm: Algorithm
    schema: Schema | None = None

    @classmethod
    def of(cls, job: Job) -> Federation:
        """Read the data and check every parameter; the quick checks come first."""
        model, participation = make_federated(job.method, **method_parameters(job)), Participation(**job.participation)
        # A method does without comparing rounds where only a sample of the clients plays them.
        model.set_params(participation=participation, secure=job.secure)
        check_parameters(model)
        table = job.read()
        shards = {CENTRALIZED: table.matrix} if job.centralized else split(table.matrix, job.labels(table))[0]
        check_shards(shards)
        model.check_rank(job.n_components, table.matrix.shape)
        if not job.centralized:
            _check_disclosure(job, model, shards)
        algorithm = model.algorithm_for(shards, centralized=job.centralized)
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
            outbound=(lambda _: lambda _: None) if job.centralized and plan is None else folder.outbound,
            deadline=Deadline(model.time_limit),
            responses=None if plan is None else partial(folder.responses, plan=plan),
            disclosure=job.rules,
            secure=job.secure,
        )
        result = result_of(
            job,
            model,
            finished,
            algorithm=federation.algorithm,
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


def _check_disclosure(job: Job, model: FederatedEstimator, shards: Mapping[str, BinaryMatrix]) -> None:
    """Raise if the federation does not satisfy the rules that must hold before anything leaves."""
    rules = job.rules
    if rules is None:
        return
    if not rules.sites_suffice(len(shards)):
        raise InputError(
            f"the disclosure rules ask for at least {rules.min_sites} clients, and there are {len(shards)}"
        )
    most = job.n_components if isinstance(job.n_components, int) else model.get_params()["max_components"]
    for name, shard in sorted(shards.items()):
        n, m = shard.shape
        if not rules.rows_suffice(n, n_features=m, n_components=most):
            raise InputError(
                f"{name} has {n} records, and the disclosure rules allow {m} features x {most} components at "
                f"{m * most / (rules.max_parameters or 1):.0f} or more; take fewer components, or larger clients"
            )


def result_of(
    job: Job,
    model: FederatedEstimator,
    finished: Run,
    *,
    algorithm: Algorithm,
    clients: Mapping[str, int],
    columns: tuple[str, ...] | None,
    data: Mapping[str, Any],
    schema: Schema | None = None,
    features: FeatureCounts | None = None,
) -> Result:
    """Return the result of a finished run, and warn about what is not as hoped for.

    Parameters
    ----------
    clients : rows of each
    columns : column names
    data : rows, columns, and what identifies the cells
    schema : by which the data was read
    features : how the records are explained, feature by feature; left out under privacy
    """
    outcome, plan = finished.outcome, algorithm.privacy
    model.warn_about_outcome(outcome)
    return Result(
        components=outcome.components,
        columns=columns,
        supports=(None,) * len(outcome.components) if outcome.supports is None else tuple(outcome.supports.tolist()),
        # How many records a client has is not part of a guarantee, nor does a private server learn it.
        clients={name: rows if plan is None else None for name, rows in clients.items()},
        scores={} if outcome.counts is None else outcome.counts.scores(),
        converged=outcome.converged,
        integrality_gap=outcome.integrality_gap,
        history=finished.history,
        provenance=_provenance(job, model, data),
        complete=outcome.complete,
        privacy=None if plan is None else guarantee(plan, finished.history),
        schema=schema,
        weights=outcome.weights,
        belief=outcome.belief,
        n_iter=outcome.n_iter,
        features=features if plan is None else None,
    )


def method_parameters(job: Job) -> dict[str, Any]:
    """Return the parameters of the estimator of a job, or say why it cannot have them."""
    for name in OF_THE_JOB:
        if name in job.parameters:
            raise InputError(
                f"{name} belongs to the run, not to the method; leave it out of the parameters", parameter=name
            )
    parameters = {"n_components": job.n_components, "random_state": job.seed, **job.parameters}
    if job.spec is None:
        return parameters
    able = [method.name for method in METHODS.values() if "privacy" in method.parameters()]
    if job.method in METHODS and job.method not in able:
        raise InputError(f"method {job.method!r} adds no noise and can guarantee no privacy; use {' or '.join(able)}")
    return {**parameters, "privacy": job.spec}


def _provenance(job: Job, model: BooleanFactorization, data: Mapping[str, Any]) -> Provenance:
    return Provenance(
        method=job.method,
        parameters={
            **plain_parameters(model),
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
    model: FederatedEstimator
    rows: DistributedRows
    algorithm: Algorithm

    @classmethod
    def of(cls, job: Job, client: Any) -> ClusterRun:
        """Let the workers read the data, and check every parameter; the quick checks come first."""
        from felb.engines.dask.cluster import DistributedRows

        model = make_federated(job.method, **method_parameters(job))
        blocks = open_blocks(
            job.data,
            rows=job.block_rows or BLOCK_ROWS,
            header=job.header,
            binarize_threshold=job.binarize_threshold,
            missing=None if job.missing == "error" else job.missing,
            client_column=job.client_column,
        )
        check_alive(client)
        rows = DistributedRows.of(blocks, client, read=reader(model), fingerprint=True)
        model.check_rank(job.n_components, rows.shape)
        return cls(job, client, model, rows, distributed_algorithm(model, rows))

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
                deadline=Deadline(self.model.time_limit),
                responses=None if plan is None else partial(folder.responses, plan=plan),
                owner=CENTRALIZED,
            )
            result = result_of(
                job,
                self.model,
                finished,
                algorithm=self.algorithm,
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
    assert job.dask is not None
    make_federated(job.method, **method_parameters(job))  # wrong input should not start a cluster
    with connected(job.dask) as client:
        prepared = ClusterRun.of(replace(job, data=str(Path(job.data).absolute()), centralized=True), client)
        started = replace(prepared.job, fingerprint=prepared.fingerprint, version=__version__)
        folder.begin(started, force=force)
        return replace(prepared, job=started).play(folder, on_round)


def resume_on_cluster(job: Job, folder: RunFolder, *, on_round: Callable[[RunProgress], None]) -> Result:
    """Go on with a job on the cluster that it names."""
    assert job.dask is not None
    with connected(job.dask) as client:
        prepared = ClusterRun.of(job, client)
        check_unchanged(job, prepared.fingerprint)
        folder.reopen()
        return prepared.play(folder, on_round)


# -- Writes planted data to files ------------------------------------------------------------------------------------


def generate(
    out: str | os.PathLike[str], n: int, m: int, *, k: int, force: bool = False, **options: Any
) -> dict[str, Path]:
    """Write planted data and its answer as SciPy ``.npz`` files; return their paths by what they hold."""
    stem = Path(out)
    stem = stem.with_suffix("") if stem.suffix == ".npz" else stem
    if stem.name in ("", ".."):
        raise InputError(f"{out} is a folder; give a file name in it, such as {stem / 'planted'}")
    paths = {
        "data": stem.with_name(f"{stem.name}.npz"),
        "signal": stem.with_name(f"{stem.name}.signal.npz"),
        "U": stem.with_name(f"{stem.name}.U.npz"),
        "V": stem.with_name(f"{stem.name}.V.npz"),
    }
    taken = [str(path) for path in paths.values() if path.exists()]
    if taken and not force:
        raise InputError(f"{taken[0]} exists; choose another name or replace it with --force")
    data = planted(n, m, k, **options)
    stem.parent.mkdir(parents=True, exist_ok=True)
    matrices: dict[str, Any] = {"data": data.A.to_scipy(), "signal": data.signal.to_scipy(), "U": data.U, "V": data.V}
    for name, path in paths.items():
        with replacing(path) as partial, partial.open("wb") as file:
            sp.save_npz(file, sp.csr_array(matrices[name], dtype="uint8"))
    return paths
