"""The list of methods by name, methods of other packages, and the publications they come from."""

from __future__ import annotations

import hashlib
import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.choices import AGGREGATIONS
from felb.errors import InputError

if TYPE_CHECKING:
    from felb.centralized.base import BooleanFactorization
    from felb.sklearn.base import FederatedEstimator


# -- The list of methods by their names on the command line ----------------------------------------------------------

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
        from felb.sklearn.base import FederatedEstimator

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


_POST_HOC = "felb.sklearn.federated:PostHoc"

DEFAULT = "bmf"
"""The default method."""

FEDERATED = (
    Method(
        DEFAULT,
        "felb.sklearn.bmf:FederatedBMF",
        "sums over clients; the result is that of centralized data; recommended",
    ),
    Method(
        "felb",
        "felb.sklearn.federated:FELB",
        "proximal steps of Lipschitz size at the clients, proximal averaging (paper, Alg. 1)",
    ),
    Method(
        "felb-mu",
        "felb.sklearn.federated:FELBMU",
        "FELB with multiplicative steps, one step size per entry",
    ),
    Method(
        "fednmf",
        "felb.sklearn.federated:FedNMF",
        "competitor: non-negative factorization from summed statistics, thresholded once",
    ),
    Method(
        "fedprox",
        "felb.sklearn.federated:FedProx",
        "competitor: the objective of FELB with a proximal term towards V, plain averages",
    ),
    Method(
        "scaffold",
        "felb.sklearn.federated:Scaffold",
        "competitor: the objective of FELB with control variates against drift",
    ),
    Method(
        "proxskip",
        "felb.sklearn.federated:ProxSkip",
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
    from felb.centralized.base import CentralizedFactorization
    from felb.sklearn.federated import PostHoc

    inner, aggregation = name.split(JOIN)
    outer = {key: parameters.pop(key) for key in PostHoc._get_param_names() if key in parameters}
    model = make(inner, **parameters)
    assert isinstance(model, CentralizedFactorization)
    return PostHoc(model, aggregation, **outer)


def make_federated(name: str, **parameters: Any) -> FederatedEstimator:
    """Return the estimator of a federated method."""
    from felb.sklearn.base import FederatedEstimator

    model = make(name, **parameters)
    if not isinstance(model, FederatedEstimator):
        raise InputError(
            f"method {name!r} is for centralized data; use `felb fit`, or {name}{JOIN}vote to run it at every client"
        )
    return model


# -- The publications that methods come from, as BibTeX; ``references.bib`` beside this file holds them --------------

PAPER = "dalleiger2025federated"
SOFTWARE = "felb"
ALIGNED = "dalleiger2025creating"
"""Of aggregations that match the clients' components first."""

KEYS = {
    "bmf": (SOFTWARE,),
    "felb": (PAPER,),
    "felb-mu": (PAPER,),
    "fednmf": ("li2021federated", "si2022federated"),
    "fedprox": ("li2020federated",),
    "scaffold": ("karimireddy2020scaffold",),
    "proxskip": ("mishchenko2022proxskip",),
    "elbmf": ("dalleiger2022efficiently",),
    "asso": ("miettinen2008discrete",),
    "grecond": ("belohlavek2010discovery",),
    "mebf": ("wan2020fast",),
    "zhang": ("zhang2007binary",),
}
"""Keys of the publications of each method; a post-hoc method has those of its centralized method and of the paper."""


def entries() -> dict[str, str]:
    """Return all entries by their keys."""
    text = (files("felb.sklearn") / "references.bib").read_text(encoding="utf-8")
    found = re.split(r"\n(?=@)", text)
    return {entry.partition("{")[2].partition(",")[0]: entry.strip() for entry in found}


def citation_keys(method: str) -> tuple[str, ...]:
    """Return the keys of the publications to cite for a method.

    Examples
    --------
    >>> citation_keys("asso+aligned-vote")
    ('miettinen2008discrete', 'dalleiger2025federated', 'dalleiger2025creating')
    """
    check_known(method)
    if not METHODS[method].post_hoc:
        return KEYS[method]
    inner, aggregation = method.split(JOIN)
    return (*KEYS[inner], PAPER, *((ALIGNED,) if aggregation.startswith("aligned") else ()))


def bibtex(method: str | None = None) -> str:
    """Return the BibTeX entries of a method, or of all methods."""
    known = entries()
    keys = tuple(known) if method is None else citation_keys(method)
    return "\n\n".join(known[key] for key in keys) + "\n"


# -- Methods of other packages by their import path, ``package.module:Class`` ----------------------------------------
#
# Importing runs code. So a path is taken only from the person at the keyboard: the command lines of `felb compare` and
# `felb experiment`. Names in files, plans and messages are those of `felb.sklearn.methods`, and no path is among them.

SEPARATOR = ":"


def is_path(name: str) -> bool:
    """Whether a method is named by an import path."""
    return SEPARATOR in name


def own_class(path: str) -> type[Any]:
    """Import the class of ``package.module:Class``; an aggregation at its end (``+vote``) is left out.

    Examples
    --------
    >>> own_class("felb.centralized.asso:Asso").__name__
    'Asso'
    """
    module, _, name = path.partition(JOIN)[0].partition(SEPARATOR)
    try:
        found = getattr(import_module(module), name)
    except ImportError as error:
        raise InputError(
            f"the method {path!r} cannot be imported ({error}); start felb in the folder of the package, or set "
            "PYTHONPATH",
            parameter="methods",
        ) from error
    except AttributeError as error:
        raise InputError(f"the module {module!r} has no class {name!r}", parameter="methods") from error
    except Exception as error:  # whatever the module does when it is imported
        raise InputError(f"importing {module!r} fails: {type(error).__name__}: {error}", parameter="methods") from error
    if not (inspect.isclass(found) and callable(getattr(found, "fit", None))):
        raise InputError(f"{path!r} is no class with a method fit(X)", parameter="methods")
    return found


def own_parameters(path: str) -> list[str]:
    """Return the parameters of the class, by its constructor."""
    accepted = inspect.signature(own_class(path)).parameters.values()
    return sorted(each.name for each in accepted if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY))


def own_model(path: str, **parameters: Any) -> Any:
    """Return an instance; with an aggregation (``package.module:Class+vote``) every client fits one, see `PostHoc`."""
    kind, (_, _, aggregation) = own_class(path), path.partition(JOIN)
    known = own_parameters(path)
    missing = sorted(set(parameters) - {*known, "random_state"})
    if missing:
        raise InputError(f"{path!r} has no parameter {missing[0]!r}; it has {', '.join(known)}", parameter="methods")
    model = kind(**{name: value for name, value in parameters.items() if name in known})
    if not aggregation:
        return model
    from felb.centralized.base import CentralizedFactorization
    from felb.sklearn.federated import PostHoc

    if not isinstance(model, CentralizedFactorization):
        raise InputError(
            f"{path!r}: only a subclass of felb.centralized.base.CentralizedFactorization is run at every client",
            parameter="methods",
        )
    outer = {"random_state": parameters["random_state"]} if "random_state" in parameters else {}
    return PostHoc(model, aggregation, **outer)


def any_model(name: str, **parameters: Any) -> BooleanFactorization | Any:
    """Return the estimator of a method of felb, or of an import path that was typed by the user."""
    return own_model(name, **parameters) if is_path(name) else make(name, **parameters)


def source_digest(path: str) -> str:
    """Return a digest of the file that defines the class, so that cells of an edited method are measured again."""
    try:
        content = Path(inspect.getfile(own_class(path))).read_bytes()
    except (OSError, TypeError):  # typed at a prompt
        return ""
    return hashlib.blake2b(content, digest_size=8).hexdigest()
