"""The estimators of methods by name, methods of other packages, and the publications they come from."""

from __future__ import annotations

import hashlib
import inspect
import re
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.federated.algorithms.registry import JOIN, METHODS, check_federated, check_known, check_parameter_names

if TYPE_CHECKING:
    from felb.sklearn.base import BooleanFactorization, FederatedEstimator


def estimator_of(name: str) -> type[BooleanFactorization]:
    """Return the class of the estimator of a method, which has the name of the method's class without "Method"."""
    check_known(name)
    family = "federated" if METHODS[name].federated else "centralized"
    label = METHODS[name].place.partition(":")[2].removesuffix("Method")
    found: type[BooleanFactorization] = getattr(import_module(f"felb.sklearn.{family}"), label)
    return found


def parameters_of(name: str) -> list[str]:
    """Return the names of the parameters that `make` takes: those of the method, and those of the run."""
    names = {*METHODS[name].parameters(), *estimator_of(name)._get_param_names()}
    return sorted(names - {"model", "aggregation"})


def make(name: str, **parameters: Any) -> BooleanFactorization:
    """Return the estimator of a method; a parameter the method does not have is an error that lists those it has."""
    kind = estimator_of(name)
    check_parameter_names(name, parameters, parameters_of(name))
    if not METHODS[name].post_hoc:
        return kind(**parameters)
    inner, aggregation = name.split(JOIN)
    outer = {key: parameters.pop(key) for key in kind._get_param_names() if key in parameters}
    return kind(make(inner, **parameters), aggregation, **outer)


def make_federated(name: str, **parameters: Any) -> FederatedEstimator:
    """Return the estimator of a federated method."""
    check_federated(name)
    model: Any = make(name, **parameters)
    return model  # type: ignore[no-any-return]


# -- The publications that methods come from, as BibTeX; ``references.bib`` beside this file holds them --------------


def read_publications(method: str | None = None) -> dict[str, str]:
    """Return the BibTeX entries of a method, or of all methods, by their keys."""
    if method is not None:
        check_known(method)
    text = (files("felb.sklearn") / "references.bib").read_text(encoding="utf-8")
    found = {entry.partition("{")[2].partition(",")[0]: entry.strip() for entry in re.split(r"\n(?=@)", text)}
    return {key: found[key] for key in (found if method is None else METHODS[method].publications)}


# -- Methods of other packages by their import path, ``package.module:Class`` ----------------------------------------
#
# Importing runs code. So a path is taken only from the person at the keyboard: the command lines of `felb compare` and
# `felb experiment`. Names in files, plans and messages are those of `METHODS`, and no path is among them.

SEPARATOR = ":"


def is_path(name: str) -> bool:
    """Whether a method is named by an import path."""
    return SEPARATOR in name


def own_class(path: str) -> type[Any]:
    """Import the class of ``package.module:Class``; an aggregation at its end (``+vote``) is left out.

    Examples
    --------
    >>> own_class("felb.sklearn.centralized:Asso").__name__
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
    from felb.sklearn.base import CentralizedFactorization
    from felb.sklearn.federated import PostHoc

    if not isinstance(model, CentralizedFactorization):
        raise InputError(
            f"{path!r}: only a subclass of felb.sklearn.base.CentralizedFactorization is run at every client",
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
