"""The stability of a stored result: refits of its method on its data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.analysis.refits import cheapest_refit, refitted
from felb.analysis.stability_record import Stability
from felb.errors import InputError
from felb.estimators.methods import METHODS, make
from felb.federated.steps.belief_propagation import ASSIGN_BY_BELIEF

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from felb.centralized.base import BooleanFactorization
    from felb.report.evidence import Evidence
    from felb.runs.result import Result


def stability_of(
    evidence: Evidence,
    *,
    n_resamples: int = 50,
    seed: int = 0,
    on_refit: Callable[[int], None] = lambda _: None,
) -> Stability:
    """Refit the method of a result on bootstrap samples of its data, client by client; see `felb.stability`.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> stability_of(gather("zoo-run"), n_resamples=3).match.shape
    (3, 4)
    """
    result, measured = evidence.result, evidence.measured
    if measured is None:
        raise InputError(f"{evidence.absent} Refits need the data; name it", parameter="data")
    if evidence.private:
        raise InputError("every refit of a private run spends its privacy budget again; fit without privacy instead")
    model = estimator_of(result)
    rows_of = measured.rows_of or {next(iter(result.clients), "pooled"): np.arange(len(measured.matrix))}
    shards = {name: measured.matrix.take(rows) for name, rows in rows_of.items()}
    recovered = ASSIGN_BY_BELIEF in result.rounds()
    refit = cheapest_refit(model, result.components, shards, recovered=recovered)
    return refitted(result.components, refit, shards, rows_of, n_resamples=n_resamples, seed=seed, on_refit=on_refit)


def estimator_of(result: Result) -> BooleanFactorization:
    """Return the estimator, not fitted, that a result was made with."""
    made = result.provenance
    if made.method not in METHODS:
        raise InputError(f"the method {made.method!r} of the result is not one of felb's; refit it in Python")
    known = set(METHODS[made.method].parameters()) - {"participation", "binarize_threshold"}
    parameters: dict[str, Any] = {
        name.rpartition("__")[2]: value
        for name, value in made.parameters.items()
        if name.rpartition("__")[2] in known and not isinstance(value, dict)
    }
    return make(made.method, **parameters | {"random_state": made.seed})


def stored_stability(folder: Path, n_components: int) -> Stability | None:
    """Return the stability that is stored beside a result, or None."""
    try:
        found = Stability.read(folder)
    except FileNotFoundError:
        return None
    if found.match.shape[1] != n_components:
        raise InputError(f"the stability in {folder} is of another result; run `felb stability` again")
    return found
