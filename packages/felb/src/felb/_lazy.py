"""Names of a package that are imported when they are first used, so that a command loads only what it needs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def import_when_used(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package (PEP 562): the first use of a name imports the module that defines it.

    Parameters
    ----------
    package : its ``__name__``
    places : "module" that has the attribute of this name, "module:other" if it has another name there, or "module:" for
        the module itself
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, colon, attribute = places[name].partition(":")
        loaded = import_module(module)
        value = loaded if colon and not attribute else getattr(loaded, attribute or name)
        setattr(sys.modules[package], name, value)
        return value

    return find
