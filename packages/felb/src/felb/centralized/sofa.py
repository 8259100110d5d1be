"""SOFA: Boolean factorization of a stream of rows, in memory that does not depend on their number (2020)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.centralized.base import CentralizedMethod, Factors
from felb.errors import InputError
from felb.kernels.assign import assign_rows
from felb.kernels.cover import GreedyCover
from felb.kernels.stream import RowCentres, RowSample
from felb.optim.prox import check_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline

ROWS = 1 << 14
"""Rows of a block of a single fit; the result does not depend on it."""


@dataclass(eq=False, repr=False)
class SofaMethod(CentralizedMethod):
    """The method of `felb.Sofa`, which describes it and its parameters."""

    if_collapsed = "a smaller overlap, more centres"

    _: KW_ONLY
    centres: int | None = None
    overlap: float = 0.5
    rest: float = 0.2
    sample: int = 4096

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""
        check_weights(sample=(self.sample, 1), centres=(1 if self.centres is None else self.centres, 1))
        for name in ("overlap", "rest"):
            if not 0 <= getattr(self, name) <= 1:  # also catches NaN
                raise InputError(f"{name} is a share and must be between 0 and 1, got {getattr(self, name)}")

    def open_stream(self, n_columns: int, k: int, seed: int) -> Stream:
        """Return what the first pass adds rows to."""
        most = max(64, 8 * k) if self.centres is None else self.centres
        return Stream(RowCentres(n_columns, most, overlap=self.overlap, rest=self.rest), RowSample(self.sample, seed))

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:
        """Find the components in one pass over the rows, and assign the rows in a second one."""
        stream, complete = self.open_stream(A.shape[1], k, seed), True
        for block in A.row_blocks(ROWS):
            stream.add(block)
            complete = not deadline.passed
            if not complete:
                break
        V = stream.components(k, A.shape[1])
        found = int(np.count_nonzero(V.any(axis=1)))
        U = np.vstack([assign_rows(block, V) for block in A.row_blocks(ROWS)])
        self.step_done(found)
        return Factors(U, V, complete=complete, attributes={"n_iter_": found})


@dataclass(eq=False, slots=True)
class Stream:
    """What the first pass keeps: centres of rows, and a sample of rows to choose among the patterns of the centres."""

    centres: RowCentres
    sample: RowSample

    def add(self, rows: BinaryMatrix) -> None:
        """Take further rows, once."""
        self.centres.add(rows)
        self.sample.add(rows)

    def components(self, k: int, n_columns: int) -> NDArray[np.bool_]:
        """Return the k patterns of centres, or single columns, that cover the sample best, greedily as in Asso."""
        rows, V = self.sample.rows(n_columns), np.zeros((k, n_columns), dtype=bool)
        patterns = self.centres.patterns()
        patterns += [np.array([j], dtype=np.int32) for j in np.flatnonzero(rows.column_sums())]
        if not patterns:
            return V
        cover = GreedyCover(rows, patterns)
        counting = cover.begin()
        for found in range(k):
            for _ in counting:
                pass
            worth = cover.worth()
            best = int(np.argmax(worth))
            if worth[best] <= 0:
                break
            V[found, patterns[best]] = True
            counting = cover.cover(best, cover.users(best))
        return V
