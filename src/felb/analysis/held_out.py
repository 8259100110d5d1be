"""Held-out cells: a share of the cells is unknown to a fit and then predicted by it.

Cell (i, j) has a number u(i, j) in [0, 1) that depends on a seed and on the numbers i of its row and j of its column
alone; the cells with f·s <= u < (f + 1)·s are held out in fold f. Rows are numbered in the order of the whole data
before they are split among clients, so the same cells are held out however the rows are split, and a federated method
that gives the result of centralized data gives the same predictions too. The folds have no cell in common.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.data.binary import BinaryMatrix, index_dtype
from felb.errors import InputError
from felb.kernels.boolean import FactorMasks, overlap_counts
from felb.metrics import Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

CELLS_AT_A_TIME = 1 << 20
MAX_HELD_OUT = 1 << 29
"""Held-out cells at most; each takes two to four bytes."""

# Constants of SplitMix64 (Steele, Lea, Flood 2014), a hash that is good enough to choose cells by.
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A matrix with a share of its cells held out.

    Parameters
    ----------
    training : the matrix, in which the held-out cells are unknown
    ones : the held-out cells that are ones
    cells : all held-out cells, as the ones of a matrix
    """

    training: BinaryMatrix
    ones: BinaryMatrix
    cells: BinaryMatrix

    def counts(self, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> Counts:
        """Count the right and wrong cells of U∘V among those that are held out; counts of clients add up."""
        factors = FactorMasks.of(U, V)
        tp, claimed = overlap_counts(self.ones, factors)[0], overlap_counts(self.cells, factors)[0]
        return Counts(tp=tp, fp=claimed - tp, fn=self.ones.nnz - tp, cells=self.cells.nnz)


def held_out_cells(A: BinaryMatrix, *, fold: int = 0, share: float = 0.1, seed: int = 0, first_row: int = 0) -> HeldOut:
    """Hold out a share of the known cells of A.

    Parameters
    ----------
    A : the data, or the rows of a client
    fold : number of the fold; folds have no cell in common, so there are at most 1/share of them
    share : share of the cells that is held out
    seed : decides which cells are held out
    first_row : number of the first row of A in the whole data

    Examples
    --------
    >>> import felb
    >>> held = held_out_cells(felb.data.load("zoo"), share=0.2)
    >>> held.cells.density.__round__(1), held.training.unknown == held.cells
    (0.2, True)
    """
    if not 0 < share < 1:
        raise InputError(f"share must lie between 0 and 1, got {share}", parameter="share")
    if fold < 0 or (fold + 1) * share > 1 + 1e-9:
        raise InputError(
            f"fold {fold} does not exist: with share={share}, there are {int(1 / share + 1e-9)} folds without common "
            "cells; use fewer folds or a smaller share",
            parameter="cv",
        )
    n, m = A.shape
    if share * n * m > MAX_HELD_OUT:
        raise InputError(
            f"a share of {share} of {n} x {m} cells is more than the {MAX_HELD_OUT} cells that can be held out; use a "
            "smaller share, or a sample of the rows",
            parameter="share",
        )
    low, high = fold * share, (fold + 1) * share
    columns = np.arange(m, dtype=np.uint64)
    counts, places = [np.zeros(1, dtype=np.int64)], []
    for rows in _blocks(n, m):
        u = _uniform(seed, (rows + first_row)[:, None], columns[None, :])
        held = (u >= low) & (u < high)
        counts.append(held.sum(axis=1))
        places.append(np.nonzero(held)[1].astype(index_dtype(m)))
    cells = BinaryMatrix.of_valid_rows(
        np.cumsum(np.concatenate(counts)), np.concatenate(places or [np.zeros(0, index_dtype(m))]), m
    )
    if A.unknown is not None:
        mask = cells.to_scipy(bool)
        cells = BinaryMatrix.of(mask > mask.multiply(A.unknown.to_scipy(bool)))
    data, mask = A.to_scipy(bool), cells.to_scipy(bool)
    ones = data.multiply(mask).tocsr()
    kept = BinaryMatrix.of(data > ones, columns=A.columns)
    training = kept if A.unknown is None else kept.with_unknown(A.unknown)
    return HeldOut(training.with_unknown(cells), BinaryMatrix.of(ones), cells)


def _blocks(n: int, m: int) -> Iterator[NDArray[np.uint64]]:
    step = max(1, CELLS_AT_A_TIME // max(1, m))
    for start in range(0, n, step):
        yield np.arange(start, min(start + step, n), dtype=np.uint64)


def _uniform(seed: int, rows: NDArray[np.uint64], columns: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return u(i, j), the upper 53 bits of a hash of seed, row and column as a number in [0, 1)."""
    start = _mixed(np.full(1, (seed + 1) % (1 << 64), dtype=np.uint64))
    return np.asarray((_mixed(_mixed(start ^ _mixed(rows)) ^ columns) >> np.uint64(11)) * 2.0**-53)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output function of SplitMix64, modulo 2⁶⁴."""
    z = values + np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    return z ^ (z >> np.uint64(31))
