"""Fitted estimators from results, and results from fitted estimators."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from felb.centralized.elbmf import ELBMF
from felb.centralized.parameters import check_parameters
from felb.choices import MDL
from felb.errors import InputError
from felb.estimators.bmf_estimator import FederatedBMF, chosen_objective, rank_curve
from felb.estimators.federated_estimator import FederatedEstimator
from felb.estimators.methods import JOIN, METHODS, make
from felb.estimators.post_hoc_estimator import PostHoc
from felb.federated.algorithms.efforts import Effort
from felb.federated.algorithms.felb_setting import Setting
from felb.federated.steps.belief_propagation import ASSIGN_BY_BELIEF
from felb.metrics import confusion
from felb.metrics.features import feature_counts
from felb.optim.checks import check_weights
from felb.privacy import Privacy
from felb.records import as_record
from felb.runs.job import SAID_BY_THE_JOB, plain_parameters
from felb.runs.result import Provenance, Result

if TYPE_CHECKING:
    from felb.centralized.base import BooleanFactorization

RECORDS: dict[str, type[Any]] = {"privacy": Privacy, "effort": Effort, "setting": Setting}
"""Parameters that are records of their own."""


def method_of(model: BooleanFactorization) -> str:
    """Return the name of the method of an estimator."""
    if isinstance(model, PostHoc):
        return f"{method_of(ELBMF() if model.model is None else model.model)}{JOIN}{model.aggregation}"
    for method in METHODS.values():
        if method.estimator is type(model):
            return method.name
    raise InputError(
        f"{type(model).__name__} is none of the methods of felb, so felb could not make it again; keep components_ "
        "and your own settings instead"
    )


def result_from(model: BooleanFactorization, data: Any, *, source: str) -> Result:
    """Return the result of a fitted estimator; with the data it was fitted on, also what is counted on it."""
    check_is_fitted(model)
    names = getattr(model, "feature_names_in_", None)
    counts, supports, features = getattr(model, "counts_", None), model.supports_, None
    facts: dict[str, Any] = {"rows": None, "columns": model.n_features_in_, "ones": None, "fingerprint": None}
    if getattr(model, "privacy", None) is None:  # one record would show in these
        facts |= {"rows": model.n_records_, "ones": None if counts is None else counts.tp + counts.fn}
    if data is not None:
        rows, _ = model.new_rows(data)
        U = model._assign(rows)
        counts, supports = confusion(rows, U, model.components_), np.count_nonzero(U, axis=0)
        features = feature_counts(rows, U, model.components_)
        unknown = 0 if rows.unknown is None else rows.unknown.nnz
        facts |= {"rows": len(rows), "ones": rows.nnz, "unknown": unknown, "fingerprint": rows.fingerprint()}
    return Result(
        components=model.components_,
        columns=None if names is None else tuple(map(str, names)),
        supports=(None,) * len(model.components_) if supports is None else tuple(int(s) for s in supports),
        clients={},
        scores={} if counts is None else counts.scores(),
        converged=bool(model.converged_),
        integrality_gap=float(model.integrality_gap_),
        history=model.history_,
        provenance=Provenance(
            method_of(model),
            plain_parameters(model) | {"binarize_threshold": model.binarize_threshold},
            _seed_of(model),
            {"source": source, **facts},
        ),
        complete=bool(model.complete_),
        privacy=getattr(model, "privacy_guarantee_", None),
        weights=getattr(model, "weights_", None),
        belief=getattr(model, "belief_", None),
        n_iter=int(model.n_iter_),
        features=features,
    )


def model_of(result: Result) -> BooleanFactorization:
    """Return the fitted estimator of a result."""
    made = result.provenance
    if made.method not in METHODS:
        raise InputError(f"the result is of the method {made.method!r}, which this felb does not have")
    model = make(made.method, **_parameters(made))
    check_parameters(model)
    model.components_ = result.components
    model.n_features_in_ = result.components.shape[1]
    if result.columns is not None:
        model.feature_names_in_ = np.array(result.columns, dtype=object)
    model.n_records_ = made.data.get("rows")
    model.supports_ = None if None in result.supports else np.array(result.supports, dtype=np.int64)
    model.history_, model.complete_ = result.history, result.complete
    model.converged_, model.integrality_gap_ = result.converged, result.integrality_gap
    model.n_iter_ = len(result.history) if result.n_iter is None else result.n_iter
    if isinstance(model, FederatedEstimator):
        model.relaxed_components_, model.counts_ = None, result.counts
        model.privacy_guarantee_ = result.privacy
        model.privacy_statement_ = None if result.privacy is None else str(result.privacy["text"])
    if isinstance(model, FederatedBMF):
        check_weights(node_cap=(model.node_cap, 1))
        _warn_of_lost_belief(result)
        model.weights_ = _weights(model, result)
        model.belief_ = result.belief
        model.objective_ = chosen_objective(model.objective, result.belief)
        if model.n_components == MDL:
            model.rank_curve_ = rank_curve(result.history)
    return model


def _warn_of_lost_belief(result: Result) -> None:
    """Warn if rows were inferred under a model of the noise that is not kept."""
    tasks = [row.get("task") for row in result.history]
    if result.belief is None and ASSIGN_BY_BELIEF in tasks[-1:]:
        warnings.warn(
            "the records of this run were assigned under a model of the noise, which results of earlier versions and "
            "under disclosure rules do not keep; new records are assigned for the fewest wrong cells instead",
            UserWarning,
            stacklevel=4,
        )


def _weights(model: FederatedBMF, result: Result) -> tuple[float, float]:
    """Return the weights of the assignment; a result of the first format does not tell them, but its costs do."""
    costs = model.false_positive_cost, model.false_negative_cost
    one, zero = (float(costs[1]), -float(costs[0])) if result.weights is None else result.weights
    if not (one >= 0 >= zero and math.isfinite(one - zero)):
        raise InputError(f"the weights {one} and {zero} of the result are damaged; make the result again")
    return one, zero


def _parameters(made: Provenance) -> dict[str, Any]:
    """Return the keywords that make the estimator of a result again."""
    known = METHODS[made.method].parameters()
    found: dict[str, Any] = {}
    for name, value in made.parameters.items():
        short = name.removeprefix("model__")
        if short in known and short not in SAID_BY_THE_JOB - {"binarize_threshold"}:
            found[short] = _value(short, value)
    return {**found, "random_state": made.seed}


def _value(name: str, value: Any) -> Any:
    if name not in RECORDS or not isinstance(value, dict):
        return value
    return as_record(value, RECORDS[name], source=f"the parameter {name} of the result", advice="make it again")


def _seed_of(model: BooleanFactorization) -> int:
    """Return the seed, if the estimator was given one; a generator cannot be kept."""
    state = model.random_state
    return int(state) if isinstance(state, int | np.integer) else 0
