"""Run a job on a Dask cluster into a result folder: `felb fit --dask`.

Data is named by files that all workers can read; neither this process nor the scheduler holds rows of it. States of
blocks are kept in the unfinished run, so that it can go on after the scheduler has died, on another cluster too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb._version import __version__
from felb.data.blocks import open_blocks
from felb.deadline import Deadline
from felb.engines.dask.connection import check_alive, connected
from felb.estimators.distributed_fit import distributed_algorithm, reader
from felb.estimators.methods import make_federated
from felb.runs.job_runner import CENTRALIZED, check_unchanged, data_facts, method_parameters, result_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from felb.engines.dask.distributed_rows import DistributedRows
    from felb.estimators.federated_estimator import FederatedEstimator
    from felb.federated.loop import RunProgress
    from felb.federated.protocol import Algorithm
    from felb.runs.folder import RunFolder
    from felb.runs.job import Job
    from felb.runs.result import Result

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
        from felb.engines.dask.distributed_rows import DistributedRows

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
        from felb.engines.dask.cluster_runner import run

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
