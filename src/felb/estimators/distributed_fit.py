"""Estimators on data in blocks: which engine they run on, and what they fit there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from felb.data.blocks import Blocks
from felb.deadline import Deadline
from felb.engines.dask.connection import current_client, has_client
from felb.errors import InputError
from felb.privacy.spec import Population

if TYPE_CHECKING:
    from collections.abc import Callable

    from felb.engines.dask.distributed_rows import DistributedRows
    from felb.estimators.federated_estimator import FederatedEstimator
    from felb.federated.loop import Run, RunProgress
    from felb.federated.protocol import Algorithm


def runs_here(X: Any) -> bool:
    """Tell data in files that this process reads itself, since there is no Dask client."""
    return isinstance(X, Blocks) and not has_client()


def fit_on_dask(
    model: FederatedEstimator, X: Any, on_round: Callable[[RunProgress], None] | None
) -> tuple[Run, Algorithm]:
    """Run the estimator's algorithm on the workers of the current client; a block is what a client is elsewhere."""
    if model.secure:
        raise InputError(
            "all blocks on Dask workers belong to one owner, so secure aggregation protects nobody; leave out secure",
            parameter="secure",
        )
    client = current_client()
    from felb.engines.dask.cluster_runner import run
    from felb.engines.dask.distributed_rows import DistributedRows

    deadline = Deadline(model.limit())
    rows = DistributedRows.of(X, client, read=reader(model))
    model._check_columns(rows.template, reset=True)
    model.check_rank(model.rank(), rows.shape)
    model.n_records_ = rows.shape[0]
    algorithm = distributed_algorithm(model, rows)
    finished = run(
        algorithm,
        rows.blocks,
        client=client,
        seed=model._seed(),
        participation=model.participation,
        deadline=deadline,
        on_round=on_round or (lambda _: None),
    )
    return finished, algorithm


def reader(model: FederatedEstimator) -> Callable[[Any], Any]:
    """Return what makes a chunk a `BinaryMatrix` as this estimator does, without what it has fitted."""
    return clone(model)._read  # type: ignore[no-any-return]


def distributed_algorithm(model: FederatedEstimator, rows: DistributedRows) -> Algorithm:
    """Return the algorithm for these blocks. Where records are protected, the owner of all blocks is the one client."""
    if getattr(model, "privacy", None) is not None and any(fact.unknown is not None for fact in rows.facts.values()):
        raise InputError("under privacy, all cells must be known; fill the unknown ones, or leave out privacy")
    n_records, n_features = rows.shape
    algorithm = model.algorithm(n_features, population=Population(n_records=n_records, n_clients=len(rows.blocks)))
    if algorithm.privacy is None or algorithm.privacy.uploads is not None:
        return algorithm
    return model.algorithm(n_features, population=Population(n_records=n_records, n_clients=1))
