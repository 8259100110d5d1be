"""How the kernels that work in vector code are compiled, and kept on disk for the next process.

Importing this module imports Numba (half a second).
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile when first called, without the GIL; keep the result on disk for the next process if that is possible."""
    return _compiled(function, no_cfunc_wrapper=True)


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as a part of kernels, which takes a third less time than what Python can call, too."""
    return _compiled(function, no_cfunc_wrapper=True, no_cpython_wrapper=True)


def _compiled(function: Callable[..., Any], **wrappers: bool) -> Callable[..., Any]:
    options = {"nogil": True, "boundscheck": False, "error_model": "numpy", "fastmath": {"contract", "nsz"}, **wrappers}
    try:
        return njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # Numba found no folder it may write to
        _warn_that_nothing_is_kept()
        return njit(**options)(function)  # type: ignore[no-any-return]


@cache
def _warn_that_nothing_is_kept() -> None:
    warnings.warn(
        "felb cannot cache its compiled kernels, so every process compiles them again; "
        "set NUMBA_CACHE_DIR to a folder that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )
