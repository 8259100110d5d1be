"""Restricts BLAS to one thread while the threads of felb work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def one_blas_thread() -> AbstractContextManager[object]:
    """Hold BLAS to one thread inside a with-block.

    The products here are thin (k columns), so its threads gain little; with several clients at a time, or on a busy
    machine, they spin waiting for each other and cost a multiple. It also makes sums the same on any number of cores.
    """
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    return threadpool_limits(limits=1, user_api="blas")  # type: ignore[no-any-return]
