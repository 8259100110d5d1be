"""The list of methods by their names on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from felb.centralized.asso import Asso
from felb.centralized.elbmf import ELBMF
from felb.centralized.grecond import GreConD
from felb.centralized.mebf import MEBF
from felb.centralized.method import PooledFactorization
from felb.centralized.zhang import Zhang
from felb.errors import InputError
from felb.estimators.bmf_estimator import FederatedBMF
from felb.estimators.competitor_estimators import FedNMF, FedProx, ProxSkip, Scaffold
from felb.estimators.federated_estimator import FederatedEstimator
from felb.estimators.felb_estimators import FELB, FELBMU
from felb.estimators.post_hoc_estimator import PostHoc
from felb.federated.aggregate import ALIGNED_AGGREGATIONS, BOOLEAN_AGGREGATIONS

if TYPE_CHECKING:
    from felb.centralized.base import BooleanFactorization

JOIN = "+"
"""Between a method for pooled data and the aggregation that federates it: asso+vote."""


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

    @property
    def post_hoc(self) -> bool:
        """Whether it is a method for pooled data, run once at every client, its components aggregated."""
        return self.estimator is PostHoc

    def parameters(self) -> list[str]:
        """Return the names of the parameters that `make` takes; for a post-hoc method also those of its model."""
        names = set(self.estimator._get_param_names())
        if self.post_hoc:
            names = (names | set(METHODS[self.name.split(JOIN)[0]].estimator._get_param_names())) - {
                "model",
                "aggregation",
            }
        return sorted(names)


DEFAULT = "bmf"
"""The default method."""

FEDERATED = (
    Method(DEFAULT, FederatedBMF, "sums over clients, the same result as pooling; recommended"),
    Method("felb", FELB, "proximal steps of Lipschitz size at the clients, proximal averaging (paper, Alg. 1)"),
    Method("felb-mu", FELBMU, "FELB with multiplicative steps, one step size per entry"),
    Method("fednmf", FedNMF, "competitor: non-negative factorization from summed statistics, thresholded once"),
    Method("fedprox", FedProx, "competitor: the objective of FELB with a pull towards V, plain averages"),
    Method("scaffold", Scaffold, "competitor: the objective of FELB with control variates against drift"),
    Method("proxskip", ProxSkip, "competitor: the objective of FELB, gradient steps and a prox now and then"),
)
POOLED = (
    Method("elbmf", ELBMF, "the optimisation of FELB on pooled data"),
    Method("asso", Asso, "greedy cover by rows of the association between columns"),
    Method("grecond", GreConD, "greedy formal concepts, never a false positive"),
    Method("mebf", MEBF, "geometric segmentation around the median column or row"),
    Method("zhang", Zhang, "multiplicative steps with a penalty, thresholds by a grid"),
)
POST_HOC = tuple(
    Method(f"{method.name}{JOIN}{aggregation}", PostHoc, f"{method.name} at every client, aggregated by {aggregation}")
    for method in POOLED
    for aggregation in (*BOOLEAN_AGGREGATIONS, *ALIGNED_AGGREGATIONS)
)
METHODS: dict[str, Method] = {method.name: method for method in FEDERATED + POOLED + POST_HOC}


def summaries(*, pooled: bool = True) -> list[tuple[str, str]]:
    """Return names and summaries for a help text; the post-hoc methods, which are many, in one line."""
    methods = FEDERATED + (POOLED if pooled else ())
    models, words = ("|".join(names) for names in ([method.name for method in POOLED], BOOLEAN_AGGREGATIONS))
    combined = (
        f"({models}){JOIN}({words}), e.g. asso+vote: a pooled method at every client, aggregated once by component; "
        "asso+aligned-vote etc. match the clients' components first"
    )
    return [*((method.name, method.summary) for method in methods), ("post-hoc", combined)]


def make(name: str, **parameters: Any) -> BooleanFactorization:
    """Return the estimator of a method; a parameter the method does not have is an error that lists those it has."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}; use one of {', '.join(METHODS)}")
    method = METHODS[name]
    unknown = sorted(set(parameters) - set(method.parameters()))
    if unknown:
        raise InputError(f"method {name!r} has no parameter {unknown[0]!r}; it has {', '.join(method.parameters())}")
    if not method.post_hoc:
        return method.estimator(**parameters)
    inner, aggregation = name.split(JOIN)
    outer = {key: parameters.pop(key) for key in PostHoc._get_param_names() if key in parameters}
    model = make(inner, **parameters)
    assert isinstance(model, PooledFactorization)
    return PostHoc(model, aggregation, **outer)


def make_federated(name: str, **parameters: Any) -> FederatedEstimator:
    """Return the estimator of a federated method."""
    model = make(name, **parameters)
    if not isinstance(model, FederatedEstimator):
        choices = ", ".join(method.name for method in METHODS.values() if method.federated)
        raise InputError(
            f"method {name!r} is for pooled data; use `felb fit`, {name}{JOIN}vote, or another of {choices}"
        )
    return model
