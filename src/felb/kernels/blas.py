"""Restricts BLAS to one thread while the threads of felb work."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def one_blas_thread() -> AbstractContextManager[object]:
    """Hold BLAS to one thread inside a with-block.

    The products here are thin (k columns), so its threads gain little; with several clients at a time, or on a busy
    machine, they spin waiting for each other and cost a multiple. It also makes sums the same on any number of cores.
    """
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    return threadpool_limits(limits=1, user_api="blas")  # type: ignore[no-any-return]


def one_blas_thread_again() -> AbstractContextManager[object]:
    """Do the same where it happens every few milliseconds: the libraries are looked for once a process."""
    return _controller().limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


@cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401  # brings its own BLAS, which must be there to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
