"""Starting points, fixed by a seed alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    Array = NDArray[np.floating[Any]]


def undecided_rows(n: int, k: int, *, dtype: DTypeLike = np.float32) -> Array:
    """U = ½, n × k.

    The random V alone breaks the symmetry between components. A random U only adds an offset that differs from client
    to client; without it, results depend neither on the order of rows nor on how they are split, and are better.
    """
    return np.full((n, k), 0.5, dtype=dtype)


def uniform_columns(seed: int, k: int, m: int, *, dtype: DTypeLike = np.float32) -> Array:
    """V, k × m, uniform on [0, 1)."""
    return np.random.default_rng(seed).random((k, m)).astype(dtype)
