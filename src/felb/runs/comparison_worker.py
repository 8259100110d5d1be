"""The process that measures cells of comparisons, see `felb.runs.cell_server`."""

from __future__ import annotations

import inspect
import time
import warnings
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.centralized.base import BooleanFactorization
from felb.data import partition, planted
from felb.errors import InputError
from felb.estimators.own_methods import any_model
from felb.kernels.assign import assign_rows
from felb.metrics import confusion
from felb.runs.cell_server import serve
from felb.runs.comparison import job_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.data.files import Table
    from felb.runs.job import Job


def measured(request: dict[str, Any]) -> dict[str, Any]:
    """Return the scores of a cell; seconds are processor time of the fit, compilation left out."""
    cell = request["parameters"]
    job = job_of(cell)
    table = _read(job)
    model = any_model(
        cell["method"], n_components=cell["n_components"], random_state=cell["seed"], **cell["parameters"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a method collapses is what the scores show
        start = time.process_time()
        U, V = factorized(model, table.matrix, job.labels(table))
        seconds = time.process_time() - start
    scores = confusion(table.matrix, U, V).scores()
    used = int(np.count_nonzero(V.any(axis=1) & U.any(axis=0)))
    return {"figures": {**scores, "seconds": seconds, "components": float(used)}}


def factorized(model: Any, A: BinaryMatrix, clients: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Fit a model, over the clients if it can be, and return U and V.

    A class that does not derive from those of felb gets a dense array, and its rows are assigned by felb.
    """
    federated = "groups" in inspect.signature(model.fit).parameters
    groups = {"groups": clients} if federated else {}
    if isinstance(model, BooleanFactorization):
        U = np.asarray(model.fit_transform(A, **groups))
        return U, model.components_
    model.fit(A.toarray(), **groups)
    V = np.asarray(getattr(model, "components_", None))
    if V.ndim != 2 or V.shape[1] != A.shape[1]:
        raise InputError(f"{type(model).__name__} must leave components_, an array of components x features")
    V = np.asarray(V > 0.5)
    return assign_rows(A, V), V


@lru_cache(maxsize=1)
def _read_by(*options: tuple[str, Any]) -> Table:
    return job_of(dict(options)).read()


def _read(job: Job) -> Table:
    """Read the data once for all cells of this process."""
    names = ("data", "client_column", "header", "binarize_threshold", "missing", "unknown", "schema")
    fixed = {"clients": None, "split": "even", "n_components": 1, "seed": 0}
    return _read_by(*{**{name: getattr(job, name) for name in names}, **fixed}.items())


@cache
def _warm_up(method: str) -> None:
    toy = planted(60, 12, 2, noise=0.05, heights=(0.3, 0.5), widths=(0.3, 0.5), seed=0)
    factorized(any_model(method, n_components=2, random_state=0), toy.A, partition.even(60, 2))


if __name__ == "__main__":
    serve(measured, warm_up=lambda request: _warm_up(request["parameters"]["method"]))
