"""The part of a large data set on which methods are compared quickly: some random rows, the heaviest columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from felb.data.binary import BinaryMatrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS, COLUMNS = 10_000, 1_000
"""Of the part that is compared if nothing else is said."""


def subset(A: BinaryMatrix, rows: int | None = ROWS, columns: int | None = COLUMNS, *, seed: int = 0) -> BinaryMatrix:
    """Return random rows, drawn by the seed, and of these rows the columns with the most ones; both in their order.

    Parameters
    ----------
    A : the whole data
    rows, columns : how many; None for all, as where there are no more
    seed : fixes the rows; of columns with equally many ones the first are taken

    Examples
    --------
    >>> import felb
    >>> subset(felb.data.load("zoo"), 50, 5)
    BinaryMatrix(50 x 5 named, 203 ones, 0.812 dense)
    """
    if rows is not None and rows < len(A):
        A = A.take(np.sort(np.random.default_rng(seed).choice(len(A), rows, replace=False)))
    if columns is not None and columns < A.shape[1]:
        A = _take_columns(A, np.sort(np.argsort(-A.column_sums(), kind="stable")[:columns]))
    return A


def _take_columns(A: BinaryMatrix, picked: NDArray[np.int64]) -> BinaryMatrix:
    names = None if A.columns is None else [A.columns[j] for j in picked]
    return BinaryMatrix.of(A.to_scipy()[:, picked], columns=names)
