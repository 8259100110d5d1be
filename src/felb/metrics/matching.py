"""Which component of one set corresponds to which of another, and how well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

NO_MATCH = -1
"""In place of a number: the other set has fewer components, or none that shares a feature."""


def jaccard_matrix(V: ArrayLike, W: ArrayLike) -> NDArray[np.float64]:
    """Return |v ∩ w| / |v ∪ w| of each row v of V and each row w of W; 0 where both are empty.

    Examples
    --------
    >>> jaccard_matrix([[1, 1, 0]], [[1, 1, 1], [0, 0, 1]])
    array([[0.66666667, 0.        ]])
    """
    a, b = (np.asarray(rows, dtype=np.float64) for rows in (V, W))
    both = a @ b.T
    either = a.sum(axis=1)[:, None] + b.sum(axis=1) - both
    alike: NDArray[np.float64] = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return alike


def match_components(V: ArrayLike, W: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Match the rows of V with those of W one to one, such that the sum of their Jaccard indices is largest.

    Returns for each row of V the number of its match in W (`NO_MATCH` if it has none) and their Jaccard index. The
    assignment is found by the Hungarian algorithm.

    Examples
    --------
    >>> match_components([[1, 1, 0], [0, 0, 1]], [[0, 1, 1], [1, 1, 0]])
    (array([1, 0]), array([1. , 0.5]))
    """
    alike = jaccard_matrix(V, W)
    rows, others = linear_sum_assignment(alike, maximize=True)
    place, index = np.full(len(alike), NO_MATCH, dtype=np.int64), np.zeros(len(alike))
    index[rows] = alike[rows, others]
    place[rows] = np.where(index[rows] > 0, others, NO_MATCH)
    return place, index
