"""Starting points: a random V determined by a seed, and the rows of U that follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.kernels.passes import gather

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from felb.data.binary import BinaryMatrix

    Array = NDArray[np.floating[Any]]

SMALLEST_SCALE = 1e-12


def uniform_columns(seed: int, k: int, m: int, *, dtype: DTypeLike = np.float32) -> Array:
    """V, k × m, uniform on [0, 1)."""
    return np.random.default_rng(seed).random((k, m)).astype(dtype)


# The random V alone breaks the symmetry between components. A random U would only add an offset that differs from
# client to client; without it a row starts the same wherever it is, and results are better.


def constant_rows(A: BinaryMatrix, Vt: Array) -> Array:
    """U = ½. A multiplicative step makes `projected_rows` of it; a step of Lipschitz size would overshoot to 0."""
    return np.full((A.shape[0], Vt.shape[1]), 0.5, dtype=Vt.dtype)


def projected_rows(A: BinaryMatrix, Vt: Array) -> Array:
    """U = AVᵀ ⊘ 1VVᵀ in [0, 1], what a multiplicative step makes of constant rows."""
    scale = np.maximum(Vt.T @ Vt.sum(axis=1), Vt.dtype.type(SMALLEST_SCALE))
    return np.asarray(np.clip(gather(A, Vt) / scale, 0, 1))


def typical_scale(V: Array) -> Array:
    """Return V >= 0 with rows divided by Σv²/Σv, their typical entry: 1 for a row of zeros and ones; rows of 0 stay."""
    sums, squares = V.sum(axis=1, keepdims=True), (V * V).sum(axis=1, keepdims=True)
    return np.asarray(V * np.divide(sums, squares, out=np.ones_like(sums), where=squares > 0))
