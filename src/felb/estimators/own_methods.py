"""Methods of other packages by their import path, ``package.module:Class``.

Importing runs code. So a path is taken only from the person at the keyboard: the command lines of `felb compare` and
`felb experiment`. Names in files, plans and messages are those of `felb.estimators.methods`, and no path is among them.
"""

from __future__ import annotations

import hashlib
import inspect
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.estimators.methods import JOIN, make

if TYPE_CHECKING:
    from felb.centralized.base import BooleanFactorization

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
    from felb.centralized.method import CentralizedFactorization
    from felb.estimators.post_hoc_estimator import PostHoc

    if not isinstance(model, CentralizedFactorization):
        raise InputError(
            f"{path!r}: only a subclass of felb.centralized.method.CentralizedFactorization is run at every client",
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
