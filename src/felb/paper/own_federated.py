"""Federated methods of experiments: those of felb, and a user's own by their import path."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.estimators.methods import make_federated
from felb.estimators.own_methods import is_path, own_model
from felb.paper.experiment_cells import MethodUse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from felb.estimators.federated_estimator import FederatedEstimator
    from felb.paper.experiment_spec import Study


def make_any_federated(name: str, **parameters: Any) -> FederatedEstimator:
    """Return the estimator of a federated method, or of an import path that the user typed."""
    if not is_path(name):
        return make_federated(name, **parameters)
    from felb.estimators.federated_estimator import FederatedEstimator

    model = own_model(name, **parameters)
    if not isinstance(model, FederatedEstimator):
        raise InputError(
            f"{name!r} does not run over clients; derive it from felb.estimators.federated_estimator."
            "FederatedEstimator, or from CentralizedFactorization with an aggregation, as in package.module:Class+vote",
            parameter="method",
        )
    return model


def with_own_methods(study: Study, paths: Sequence[str]) -> Study:
    """Return an experiment that also runs the methods of these import paths, which are tried first."""
    if not paths:
        return study
    if "methods" not in {entry.name for entry in fields(study)}:
        raise InputError(
            f"the experiment {study.name!r} has its own list of methods; choose another", parameter="method"
        )
    for path in paths:
        if not is_path(path):
            raise InputError(f"{path!r} is no import path, package.module:Class", parameter="method")
        make_any_federated(path, n_components=2)
    own = tuple(MethodUse(path.rpartition(":")[2], path) for path in paths)
    return replace(study, methods=(*study.methods, *own))  # type: ignore[attr-defined,call-arg]
