"""GreConD: Boolean factorization by formal concepts (Belohlavek and Vychodil, 2010)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.centralized.base import CentralizedFactorization, Factors
from felb.kernels.cover import ConceptCover

if TYPE_CHECKING:
    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline


class GreConD(CentralizedFactorization):
    """Boolean matrix factorization of centralized data from below, by formal concepts.

    Every component is a formal concept, a block of ones that cannot be made larger. It grows from nothing: the column
    is added after which the concept covers most of the ones that are not covered yet, the first of equals, until no
    column makes it cover more. No zero is ever covered, and with enough components the factorization is exact.

    Parameters
    ----------
    n_components : int
    time_limit : seconds after which the search ends, with what was found until then
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
    random_state : taken because all estimators take it; nothing here is random

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    n_iter_ : components found; the others are empty, because nothing was left to cover
    supports_ : records that have each component
    complete_ : False if the time limit ended the search

    References
    ----------
    R. Belohlavek and V. Vychodil. Discovery of optimal factors in binary data via a novel method of matrix
    decomposition. Journal of Computer and System Sciences 76(1), 2010.

    Examples
    --------
    >>> from felb.data import load
    >>> from felb.metrics import confusion
    >>> from felb.centralized.grecond import GreConD
    >>> zoo = load("zoo")
    >>> model = GreConD(n_components=10)
    >>> counts = confusion(zoo, model.fit_transform(zoo), model.components_)
    >>> counts.fn, counts.fp
    (69, 0)
    """

    if_collapsed = "binarizing at another threshold"

    def __init__(
        self,
        n_components: int = 10,
        *,
        time_limit: float | None = None,
        binarize_threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.time_limit = time_limit
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

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
