"""How kernels are compiled by Numba, and kept on disk for the next process where that is possible."""

from __future__ import annotations

import warnings
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function when it is first called, to run without the GIL, and keep the result on disk if possible."""

    def compile_later(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return njit(cache=True, nogil=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:  # Numba found no folder it may write to
            _warn_that_nothing_is_kept()
            return njit(nogil=True, **options)(function)  # type: ignore[no-any-return]

    return compile_later


kernel = compiled()
"""Compile a kernel as Numba does by default."""

_of_vectors = partial(
    compiled, boundscheck=False, error_model="numpy", fastmath={"contract", "nsz"}, no_cfunc_wrapper=True
)

vector_kernel = _of_vectors()
"""Compile a kernel that works in vector code; sums may be contracted to fused multiplications."""

inner = _of_vectors(no_cpython_wrapper=True)
"""Compile a part of such kernels, which takes a third less time than what Python can call, too."""


@cache
def _warn_that_nothing_is_kept() -> None:
    warnings.warn(
        "felb cannot cache its compiled kernels, so every process compiles them again; "
        "set NUMBA_CACHE_DIR to a folder that can be written to",
        RuntimeWarning,
        stacklevel=2,
    )
