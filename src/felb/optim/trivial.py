"""Data that needs no search: no ones, no more ones than components, or nothing but ones.

Of such data the components follow from column sums, so that no iteration is worth its time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDING = 0.01
"""How far a number of ones that was solved for may be from a whole one."""


def exact_components(column_sums: NDArray[Any], cells: int, k: int) -> NDArray[np.bool_] | None:
    """Return k components with which every row can be written exactly, or None if the data is not trivial.

    With at most k ones, every column that has some is a component; with nothing but ones, the first component has all
    columns. Components that are not needed are empty.

    Parameters
    ----------
    column_sums : ones in each column, over all rows
    cells : known cells of all rows
    k : number of components

    Examples
    --------
    >>> exact_components(np.array([0, 2, 0, 1]), 40, 3).astype(int)
    array([[0, 1, 0, 0],
           [0, 0, 0, 1],
           [0, 0, 0, 0]])
    >>> exact_components(np.array([0, 2, 0, 2]), 40, 3) is None
    True
    """
    ones = int(column_sums.sum())
    if ones <= k:
        return _one_column_each(np.flatnonzero(column_sums), (k, column_sums.size))
    return _all_columns((k, column_sums.size)) if ones == cells else None


def exact_components_of_sketch(
    product: NDArray[np.float64], Q: NDArray[np.float64], k: int
) -> NDArray[np.bool_] | None:
    """Return the same from AᵀA Q and a random Q that does not depend on A; A may also consist of equal columns.

    A column without ones has a row of zeros in AᵀA Q. If at most k columns S have ones, (AᵀA)_SS follows from
    (AᵀA)_SS Q_S = (AᵀA Q)_S, and its trace is the number of ones. If all columns are equal, AᵀA = c 11ᵀ.

    Parameters
    ----------
    product : AᵀA Q over all rows, features × width, without rounding
    Q : features × width, width > k unless there are fewer features
    k : number of components
    """
    shape = (k, len(Q))
    used = np.flatnonzero(product.any(axis=1))
    if used.size <= k and used.size <= Q.shape[1]:
        ones = float(np.trace(product[used] @ np.linalg.pinv(Q[used]))) if used.size else 0.0
        if abs(ones - round(ones)) < ROUNDING and round(ones) <= k:
            return _one_column_each(used, shape)
    sums = Q.sum(axis=0)
    at = int(np.abs(sums).argmax())
    if used.size == len(Q) and (product == product[0]).all() and sums[at]:
        count = product[0, at] / sums[at]
        if count > 0 and np.allclose(product[0], count * sums, rtol=1e-9, atol=1e-9 * count):
            return _all_columns(shape)
    return None


def _one_column_each(columns: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    V = np.zeros(shape, dtype=bool)
    V[np.arange(columns.size), columns] = True
    return V


def _all_columns(shape: tuple[int, int]) -> NDArray[np.bool_]:
    V = np.zeros(shape, dtype=bool)
    V[0] = True
    return V
