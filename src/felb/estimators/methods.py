"""The list of methods by their names on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from felb.choices import AGGREGATIONS
from felb.errors import InputError

if TYPE_CHECKING:
    from felb.centralized.base import BooleanFactorization
    from felb.estimators.federated_estimator import FederatedEstimator

JOIN = "+"
"""Between a method for centralized data and the aggregation that federates it: asso+vote."""


@dataclass(frozen=True, slots=True)
class Method:
    """A method and what to say about it in one line; its estimator is imported when it is asked for.

    Parameters
    ----------
    name : at the command line
    place : "module:class" of the estimator
    summary : for help texts
    """

    name: str
    place: str
    summary: str

    @property
    def estimator(self) -> type[BooleanFactorization]:
        """The class of the estimator."""
        module, _, name = self.place.partition(":")
        found: type[BooleanFactorization] = getattr(import_module(module), name)
        return found

    @property
    def federated(self) -> bool:
        """Whether it runs over several clients."""
        from felb.estimators.federated_estimator import FederatedEstimator

        return issubclass(self.estimator, FederatedEstimator)

    @property
    def post_hoc(self) -> bool:
        """Whether it is a method for centralized data, run once at every client, its components aggregated."""
        return self.place == _POST_HOC

    def parameters(self) -> list[str]:
        """Return the names of the parameters that `make` takes; for a post-hoc method also those of its model."""
        names = set(self.estimator._get_param_names())
        if self.post_hoc:
            names = (names | set(METHODS[self.name.split(JOIN)[0]].estimator._get_param_names())) - {
                "model",
                "aggregation",
            }
        return sorted(names)


_POST_HOC = "felb.estimators.post_hoc_estimator:PostHoc"

DEFAULT = "bmf"
"""The default method."""

FEDERATED = (
    Method(
        DEFAULT,
        "felb.estimators.bmf_estimator:FederatedBMF",
        "sums over clients; the result is that of centralized data; recommended",
    ),
    Method(
        "felb",
        "felb.estimators.felb_estimators:FELB",
        "proximal steps of Lipschitz size at the clients, proximal averaging (paper, Alg. 1)",
    ),
    Method(
        "felb-mu",
        "felb.estimators.felb_estimators:FELBMU",
        "FELB with multiplicative steps, one step size per entry",
    ),
    Method(
        "fednmf",
        "felb.estimators.competitor_estimators:FedNMF",
        "competitor: non-negative factorization from summed statistics, thresholded once",
    ),
    Method(
        "fedprox",
        "felb.estimators.competitor_estimators:FedProx",
        "competitor: the objective of FELB with a proximal term towards V, plain averages",
    ),
    Method(
        "scaffold",
        "felb.estimators.competitor_estimators:Scaffold",
        "competitor: the objective of FELB with control variates against drift",
    ),
    Method(
        "proxskip",
        "felb.estimators.competitor_estimators:ProxSkip",
        "competitor: the objective of FELB, gradient steps and an occasional proximal step",
    ),
)
CENTRALIZED = (
    Method("elbmf", "felb.centralized.elbmf:ELBMF", "the optimisation of FELB on centralized data"),
    Method("asso", "felb.centralized.asso:Asso", "greedy cover by rows of the association between columns"),
    Method("grecond", "felb.centralized.grecond:GreConD", "greedy formal concepts, never a false positive"),
    Method("mebf", "felb.centralized.mebf:MEBF", "geometric segmentation around the median column or row"),
    Method("zhang", "felb.centralized.zhang:Zhang", "multiplicative steps with a penalty, thresholds by a grid"),
)
POST_HOC = tuple(
    Method(f"{method.name}{JOIN}{word}", _POST_HOC, f"{method.name} at every client, aggregated by {word}")
    for method in CENTRALIZED
    for word in (*AGGREGATIONS, *(f"aligned-{word}" for word in AGGREGATIONS))
)
METHODS: dict[str, Method] = {method.name: method for method in FEDERATED + CENTRALIZED + POST_HOC}


def summaries(*, centralized: bool = True) -> list[tuple[str, str]]:
    """Return names and summaries for a help text; the post-hoc methods, which are many, in one line."""
    methods = FEDERATED + (CENTRALIZED if centralized else ())
    models, words = ("|".join(names) for names in ([method.name for method in CENTRALIZED], AGGREGATIONS))
    combined = (
        f"({models}){JOIN}({words}), e.g. asso+vote: a centralized method at every client, aggregated once by "
        "component; asso+aligned-vote etc. match the clients' components first"
    )
    return [*((method.name, method.summary) for method in methods), ("post-hoc", combined)]


def check_known(name: str) -> None:
    """Raise if there is no such method; nothing is imported for it."""
    if name not in METHODS:
        single = [known for known, method in METHODS.items() if not method.post_hoc]
        raise InputError(
            f"unknown method {name!r}; use one of {', '.join(single)}, or a centralized one with an aggregation, such "
            "as asso+vote"
        )


def make(name: str, **parameters: Any) -> BooleanFactorization:
    """Return the estimator of a method; a parameter the method does not have is an error that lists those it has."""
    check_known(name)
    method = METHODS[name]
    unknown = sorted(set(parameters) - set(method.parameters()))
    if unknown:
        raise InputError(f"method {name!r} has no parameter {unknown[0]!r}; it has {', '.join(method.parameters())}")
    if not method.post_hoc:
        return method.estimator(**parameters)
    from felb.centralized.method import CentralizedFactorization
    from felb.estimators.post_hoc_estimator import PostHoc

    inner, aggregation = name.split(JOIN)
    outer = {key: parameters.pop(key) for key in PostHoc._get_param_names() if key in parameters}
    model = make(inner, **parameters)
    assert isinstance(model, CentralizedFactorization)
    return PostHoc(model, aggregation, **outer)


def make_federated(name: str, **parameters: Any) -> FederatedEstimator:
    """Return the estimator of a federated method."""
    from felb.estimators.federated_estimator import FederatedEstimator

    model = make(name, **parameters)
    if not isinstance(model, FederatedEstimator):
        raise InputError(
            f"method {name!r} is for centralized data; use `felb fit`, or {name}{JOIN}vote to run it at every client"
        )
    return model
