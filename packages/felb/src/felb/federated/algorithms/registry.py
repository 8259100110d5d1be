"""The one table of methods: by name and plain parameters, the method and its algorithm.

What a method needs is imported when it is asked for, so that help texts are printed without it. Neither scikit-learn
nor an engine is imported for any of them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.centralized.base import CentralizedMethod, Method
    from felb.federated.protocol import Algorithm, Participation
    from felb.privacy.spec import Population, Privacy

JOIN = "+"
"""Between a method for centralized data and the aggregation that federates it: asso+vote."""
AGGREGATIONS = ("mean", "vote", "or")
"""Of Boolean components, see `felb.federated.aggregate`; each also as aligned-WORD."""
MDL = "mdl"
"""In place of a number of components: the method finds it by minimum description length."""
FELB_SETTINGS = ("recommended", "unweighted", "literal")
"""Of FELB and FELB-MU, see `felb.federated.algorithms.felb`."""
OF_THE_RUN = frozenset({"participation", "secure", "privacy", "n_jobs", "random_state", "binarize_threshold"})
"""Parameters of estimators that belong to a run and its data rather than to the method."""


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """A method in the table.

    Parameters
    ----------
    name : at the command line and in files
    place : "module:class" of the method as plain data, imported when it is asked for
    summary : for help texts
    publications : keys of the publications to cite
    """

    name: str
    place: str
    summary: str
    publications: tuple[str, ...]

    @property
    def kind(self) -> type[Method]:
        """The class of the method."""
        module, _, name = self.place.partition(":")
        found: type[Method] = getattr(import_module(module), name)
        return found

    @property
    def post_hoc(self) -> bool:
        """Whether it is a method for centralized data, run once at every client, its components aggregated."""
        return JOIN in self.name

    @property
    def federated(self) -> bool:
        """Whether it runs over several clients."""
        return not self.place.startswith("felb.centralized")

    def parameters(self) -> list[str]:
        """Return the names of the parameters that `make_method` takes, for a post-hoc method also of its model."""
        names = _field_names(self.kind)
        if self.post_hoc:
            names = (names | _field_names(METHODS[self.name.split(JOIN)[0]].kind)) - {"model", "aggregation"}
        return sorted(names)


def _field_names(kind: Any) -> set[str]:
    return {entry.name for entry in fields(kind) if entry.init}


_HERE, _PAPER, _ALIGNED = "felb.federated.algorithms", "dalleiger2025federated", "dalleiger2025creating"
DEFAULT = "bmf"
"""The default method."""

# fmt: off
FEDERATED = (
    MethodEntry(DEFAULT, f"{_HERE}.methods:FederatedBMFMethod",
                "sums over clients; the result is that of centralized data; recommended", ("felb",)),
    MethodEntry("felb", f"{_HERE}.felb_methods:FELBMethod",
                "proximal steps of Lipschitz size at the clients, proximal averaging (paper, Alg. 1)", (_PAPER,)),
    MethodEntry("felb-mu", f"{_HERE}.felb_methods:FELBMUMethod",
                "FELB with multiplicative steps, one step size per entry", (_PAPER,)),
    MethodEntry("fednmf", f"{_HERE}.competitor_methods:FedNMFMethod",
                "competitor: non-negative factorization from summed statistics, thresholded once",
                ("li2021federated", "si2022federated")),
    MethodEntry("fedprox", f"{_HERE}.competitor_methods:FedProxMethod",
                "competitor: the objective of FELB with a proximal term towards V, plain averages",
                ("li2020federated",)),
    MethodEntry("scaffold", f"{_HERE}.competitor_methods:ScaffoldMethod",
                "competitor: the objective of FELB with control variates against drift", ("karimireddy2020scaffold",)),
    MethodEntry("proxskip", f"{_HERE}.competitor_methods:ProxSkipMethod",
                "competitor: the objective of FELB, gradient steps and an occasional proximal step",
                ("mishchenko2022proxskip",)),
)
CENTRALIZED = (
    MethodEntry("elbmf", "felb.centralized.elbmf:ELBMFMethod",
                "the optimisation of FELB on centralized data", ("dalleiger2022efficiently",)),
    MethodEntry("asso", "felb.centralized.asso:AssoMethod",
                "greedy cover by rows of the association between columns", ("miettinen2008discrete",)),
    MethodEntry("grecond", "felb.centralized.grecond:GreConDMethod",
                "greedy formal concepts, never a false positive", ("belohlavek2010discovery",)),
    MethodEntry("mebf", "felb.centralized.mebf:MEBFMethod",
                "geometric segmentation around the median column or row", ("wan2020fast",)),
    MethodEntry("zhang", "felb.centralized.zhang:ZhangMethod",
                "multiplicative steps with a penalty, thresholds by a grid", ("zhang2007binary",)),
    MethodEntry("grecond-plus", "felb.centralized.grecond_plus:GreConDPlusMethod",
                "formal concepts that grow beyond the ones, at a penalty", ("belohlavek2018new",)),
    MethodEntry("greess", "felb.centralized.greess:GreEssMethod",
                "formal concepts from intervals of essential ones, never a false positive", ("belohlavek2015below",)),
    MethodEntry("primp", "felb.centralized.primp:PrimpMethod",
                "proximal steps; finds the number of components by description length", ("hess2017primping",)),
    MethodEntry("panpal", "felb.centralized.primp:PanPalMethod",
                "PRIMP with the ones of the factors as their cost", ("hess2017primping",)),
    MethodEntry("sofa", "felb.centralized.sofa:SofaMethod",
                "one pass over a stream of rows, in memory that does not depend on their number",
                ("neumann2020biclustering",)),
    MethodEntry("faststep", "felb.centralized.faststep:FastStepMethod",
                "non-negative factors whose product is cut by a step", ("araujo2016faststep",)),
    MethodEntry("c-salt", "felb.centralized.csalt:CSaltMethod",
                "components that classes of records share, with alterations in single classes", ("hess2017csalt",)),
)
# fmt: on
POST_HOC = tuple(
    MethodEntry(
        f"{method.name}{JOIN}{prefix}{word}",
        f"{_HERE}.post_hoc_methods:PostHocMethod",
        f"{method.name} at every client, aggregated by {prefix}{word}",
        (*method.publications, _PAPER, *matched),
    )
    for method in CENTRALIZED
    for prefix, matched in (("", ()), ("aligned-", (_ALIGNED,)))
    for word in AGGREGATIONS
)
METHODS: dict[str, MethodEntry] = {method.name: method for method in FEDERATED + CENTRALIZED + POST_HOC}


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


def check_parameter_names(name: str, parameters: Mapping[str, Any], known: list[str]) -> None:
    """Raise for a parameter that a method does not have; the error lists those it has."""
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        own = ", ".join(each for each in known if each not in OF_THE_RUN)
        raise InputError(f"method {name!r} has no parameter {unknown[0]!r}; it has {own}")


def check_of_the_method(parameters: Mapping[str, Any]) -> None:
    """Raise for a parameter that belongs to a run and not to its method."""
    for name in sorted(OF_THE_RUN.intersection(parameters)):
        raise InputError(
            f"{name} belongs to the run, not to the method; leave it out of the parameters", parameter=name
        )


def make_method(name: str, **parameters: Any) -> Method:
    """Return a method with these parameters."""
    check_known(name)
    entry = METHODS[name]
    check_parameter_names(name, parameters, entry.parameters())
    if not entry.post_hoc:
        return entry.kind(**parameters)
    inner, aggregation = name.split(JOIN)
    own = _field_names(entry.kind)
    outer = {key: value for key, value in parameters.items() if key in own}
    model = make_method(inner, **{key: value for key, value in parameters.items() if key not in own})
    return entry.kind(model=model, aggregation=aggregation, **outer)  # type: ignore[call-arg]


def check_federated(name: str) -> None:
    """Raise unless a method of this name runs over several clients."""
    check_known(name)
    if not METHODS[name].federated:
        raise InputError(
            f"method {name!r} is for centralized data; use `felb fit`, or {name}{JOIN}vote to run it at every client"
        )


def make_algorithm(
    method: str,
    n_features: int,
    n_components: int | str,
    parameters: Mapping[str, Any],
    *,
    privacy: Privacy | None = None,
    population: Population | None = None,
    participation: Participation | None = None,
    centralized: bool = False,
) -> Algorithm:
    """Return the algorithm of a method by its name and plain parameters, all of which are checked.

    Parameters
    ----------
    method : a name in `METHODS`
    parameters : of the method; those of the run are given apart
    privacy : specification, for methods that have one
    population : numbers of records and clients, from which noise is calibrated; required with privacy
    participation : who plays a round; everybody without it
    centralized : the only client owns all rows; more computations are possible than in a federation

    Examples
    --------
    >>> make_algorithm("asso+aligned-vote", 17, 4, {"tau": 0.9}).name
    'Asso+vote, aligned'
    """
    from felb.centralized.base import check_parameters

    check_of_the_method(parameters)
    of_run = {"participation": participation, **({} if privacy is None else {"privacy": privacy})}
    check_federated(method)
    made: Any = make_method(method, **{**parameters, "n_components": n_components, **of_run})
    check_parameters(made)
    algorithm: Algorithm = made.algorithm(n_features, population=population, centralized=centralized)
    return algorithm


def plain_parameters(method: Method) -> dict[str, Any]:
    """Return the parameters of a method as plain data; those of a model within it are named as scikit-learn does."""
    found: dict[str, Any] = {}
    for name in sorted(_field_names(type(method)) - (OF_THE_RUN - {"privacy"})):
        value = getattr(method, name)
        if name == "model":
            inner: CentralizedMethod = method._model()  # type: ignore[attr-defined]
            found |= {f"model__{key}": value for key, value in plain_parameters(inner).items()}
        else:
            found[name] = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    return found
