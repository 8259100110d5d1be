"""Fitted estimators from results, results from fitted estimators, and model files of them."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from felb.centralized.base import check_parameters
from felb.errors import InputError
from felb.federated.algorithms.bmf import Effort
from felb.federated.algorithms.felb import Setting
from felb.federated.algorithms.registry import JOIN, METHODS, OF_THE_RUN, plain_parameters
from felb.federated.protocol import Outcome
from felb.federated.steps.belief import ASSIGN_BY_BELIEF
from felb.metrics.counts import confusion, feature_counts
from felb.optim.prox import check_weights
from felb.privacy.spec import read_privacy
from felb.records import as_record
from felb.runs.result import Provenance, Result
from felb.sklearn.base import FederatedEstimator
from felb.sklearn.centralized import ELBMF
from felb.sklearn.federated import FederatedBMF, PostHoc
from felb.sklearn.methods import estimator_of, make, parameters_of

if TYPE_CHECKING:
    import os

    from felb.sklearn.base import BooleanFactorization

RECORDS: dict[str, type[Any]] = {"effort": Effort, "setting": Setting}
"""Parameters that are records of their own."""


def method_of(model: Any) -> str:
    """Return the name of the method of an estimator."""
    if isinstance(model, PostHoc):
        return f"{method_of(ELBMF() if model.model is None else model.model)}{JOIN}{model.aggregation}"
    for name, entry in METHODS.items():
        if not entry.post_hoc and estimator_of(name) is type(model):
            return name
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
    outcome = Outcome(
        model.components_,
        n_iter=int(model.n_iter_),
        relaxed=getattr(model, "relaxed_components_", None),
        integrality_gap=float(model.integrality_gap_),
        converged=bool(model.converged_),
        counts=counts,
        supports=supports,
        weights=getattr(model, "weights_", (1.0, -1.0)),
        complete=bool(model.complete_),
        belief=getattr(model, "belief_", None),
    )
    return Result.of(
        outcome,
        columns=None if names is None else tuple(map(str, names)),
        clients={},
        history=model.history_,
        provenance=Provenance(
            method_of(model),
            plain_parameters(model) | {"binarize_threshold": model.binarize_threshold},
            _seed_of(model),
            {"source": source, **facts},
        ),
        privacy=getattr(model, "privacy_guarantee_", None),
        features=features,
    )


def model_of(result: Result) -> BooleanFactorization:
    """Return the fitted estimator of a result."""
    made = result.provenance
    if made.method not in METHODS:
        raise InputError(f"the result is of the method {made.method!r}, which this felb does not have")
    model = make(made.method, **_parameters(made))
    check_parameters(model)
    model.n_features_in_ = result.components.shape[1]
    if result.columns is not None:
        model.feature_names_in_ = np.array(result.columns, dtype=object)
    model.n_records_ = made.data.get("rows")
    supports = None if None in result.supports else np.array(result.supports, dtype=np.int64)
    outcome = replace(result.outcome, supports=supports, counts=result.counts)
    if isinstance(model, FederatedEstimator):
        model._show(outcome, result.history, result.privacy)
    else:
        model.components_, model.supports_, model.history_ = outcome.components, supports, result.history
        model.n_iter_, model.complete_ = outcome.n_iter, outcome.complete
        model.converged_, model.integrality_gap_ = outcome.converged, outcome.integrality_gap
    if isinstance(model, FederatedBMF):
        check_weights(node_cap=(model.node_cap, 1))
        _warn_of_lost_belief(result)
        one, zero = outcome.weights
        if not (one >= 0 >= zero and math.isfinite(one - zero)):
            raise InputError(f"the weights {one} and {zero} of the result are damaged; make the result again")
    return model


def _warn_of_lost_belief(result: Result) -> None:
    """Warn if rows were inferred under a model of the noise that is not kept."""
    tasks = [row.get("task") for row in result.history]
    if result.outcome.belief is None and ASSIGN_BY_BELIEF.name in tasks[-1:]:
        warnings.warn(
            "the records of this run were assigned under a model of the noise, which results under disclosure rules do "
            "not keep; new records are assigned for the fewest wrong cells instead",
            UserWarning,
            stacklevel=4,
        )


def _parameters(made: Provenance) -> dict[str, Any]:
    """Return the keywords that make the estimator of a result again."""
    known = set(parameters_of(made.method)) - (OF_THE_RUN - {"privacy", "binarize_threshold"})
    found: dict[str, Any] = {}
    for name, value in made.parameters.items():
        short = name.removeprefix("model__")
        if short in known:
            found[short] = _value(short, value)
    return {**found, "random_state": made.seed}


def _value(name: str, value: Any) -> Any:
    if name == "privacy" and isinstance(value, dict):
        return read_privacy(value)
    if name not in RECORDS or not isinstance(value, dict):
        return value
    return as_record(value, RECORDS[name], source=f"the parameter {name} of the result", advice="make it again")


def _seed_of(model: BooleanFactorization) -> int:
    """Return the seed, if the estimator was given one; a generator cannot be kept."""
    state = model.random_state
    return int(state) if isinstance(state, int | np.integer) else 0


def save(model: BooleanFactorization, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a fitted estimator to a file; `felb.load` reads it back.

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(300, 40, 3, noise=0.02, seed=0)
    >>> model = felb.FederatedBMF(3, random_state=0).fit(data.A)
    >>> felb.save(model, "model.felbmodel", force=True)
    >>> bool((felb.load("model.felbmodel").transform(data.A) == model.transform(data.A)).all())
    True
    """
    Result.from_model(model).save(path, force=force)


def load(path: str | os.PathLike[str]) -> BooleanFactorization:
    """Read a fitted estimator from a model file or from the folder of a result.

    Examples
    --------
    >>> import felb
    >>> _ = felb.fit(felb.Job("zoo", "grecond", 4), "zoo-run")
    >>> felb.load("zoo-run").component_features()[0][:2]
    ('hair', 'milk')
    """
    return Result.read(path).model()
