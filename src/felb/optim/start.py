"""Starting points: a random V fixed by a seed, and rows that follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.linalg.passes import gather
from felb.optim.steps import DENOMINATOR_FLOOR

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from felb.linalg.binary import BinaryMatrix

    Array = NDArray[np.floating[Any]]


def uniform_columns(seed: int, k: int, m: int, *, dtype: DTypeLike = np.float32) -> Array:
    """V, k × m, uniform on [0, 1)."""
    return np.random.default_rng(seed).random((k, m)).astype(dtype)


def projected_rows(A: BinaryMatrix, Vt: Array) -> Array:
    """U = AVᵀ ⊘ 1VVᵀ in [0, 1], the multiplicative update of constant rows.

    The random V alone breaks the symmetry between components. A random U would only add an offset that differs from
    client to client; without it results depend neither on the order of rows nor on how they are split, and are better.
    """
    scale = np.maximum(Vt.T @ Vt.sum(axis=1), Vt.dtype.type(DENOMINATOR_FLOOR))
    return np.asarray(np.clip(gather(A, Vt) / scale, 0, 1))
