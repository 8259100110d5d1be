"""GreConD: Boolean factorization by formal concepts (Belohlavek and Vychodil, 2010)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.centralized.base import CentralizedMethod, Factors
from felb.kernels.cover import ConceptCover

if TYPE_CHECKING:
    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline


@dataclass(eq=False, repr=False)
class GreConDMethod(CentralizedMethod):
    """The method of `felb.GreConD`, which describes it and its parameters."""

    if_collapsed = "binarizing at another threshold"

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:  # noqa: ARG002
        """Take concepts until nothing is left to cover; one that had no time to grow to the end still counts."""
        U, V = np.zeros((A.shape[0], k), dtype=bool), np.zeros((k, A.shape[1]), dtype=bool)
        cover = ConceptCover(A)
        found, out_of_time = 0, False
        while found < k and cover.left and not out_of_time:
            for _ in cover.grow():
                out_of_time = deadline.passed
                if out_of_time:
                    break
            U[:, found], V[found] = cover.rows, cover.columns
            cover.take()
            found += 1
            self.step_done(found)
        complete = not out_of_time or not cover.left
        return Factors(U[:, :found], V[:found], complete=complete, attributes={"n_iter_": found})
