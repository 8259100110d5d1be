"""The methods by the words used at the command line; the one list of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.estimators.federated import FederatedEstimator
from felb.estimators.felb import FELB, FELBMU
from felb.models.elbmf import ELBMF

if TYPE_CHECKING:
    from felb.models.base import BooleanFactorization


@dataclass(frozen=True, slots=True)
class Method:
    """A method and what to say about it in one line."""

    name: str
    estimator: type[BooleanFactorization]
    summary: str

    @property
    def federated(self) -> bool:
        """Whether it runs over several clients."""
        return issubclass(self.estimator, FederatedEstimator)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("felb", FELB, "proximal steps of Lipschitz size at the clients, proximal averaging (paper, Alg. 1)"),
        Method("felb-mu", FELBMU, "FELB with multiplicative steps, one step size per entry"),
        Method("elbmf", ELBMF, "the same optimisation on pooled data (not federated)"),
    )
}


def make(name: str, **parameters: Any) -> BooleanFactorization:
    """Return the estimator of a method; a parameter the method does not have is an error that lists those it has."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}; use one of {', '.join(METHODS)}")
    estimator = METHODS[name].estimator
    known = set(estimator._get_param_names())
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise InputError(f"method {name!r} has no parameter {unknown[0]!r}; it has {', '.join(sorted(known))}")
    return estimator(**parameters)


def make_federated(name: str, **parameters: Any) -> FederatedEstimator:
    """Return the estimator of a federated method."""
    model = make(name, **parameters)
    if not isinstance(model, FederatedEstimator):
        choices = ", ".join(method.name for method in METHODS.values() if method.federated)
        raise InputError(f"method {name!r} is not federated; use one of {choices}, or `felb fit` on pooled data")
    return model
