"""Asso: Boolean factorization by association rules (Miettinen et al., 2008)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.centralized.base import CentralizedMethod, Factors
from felb.errors import InputError
from felb.kernels.cooccurrence import Associations
from felb.kernels.cover import GreedyCover
from felb.metrics.counts import confusion
from felb.optim.prox import check_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.progress import Deadline

GRID = tuple(step / 10 for step in range(1, 11))
"""The thresholds that ``tau="auto"`` tries."""


@dataclass(eq=False, repr=False)
class AssoMethod(CentralizedMethod):
    """The method of `felb.Asso`, which describes it and its parameters."""

    if_collapsed = "another tau"

    _: KW_ONLY
    tau: float | Sequence[float] | str = 1.0
    bonus: float = 1.0
    penalty: float = 1.0

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""
        self._thresholds()
        check_weights(bonus=(self.bonus, 0), penalty=(self.penalty, 0))
        if not 0 < self.bonus < np.inf or self.penalty == np.inf:
            raise InputError(
                f"bonus must be positive and neither of the weights infinite, got bonus={self.bonus} and "
                f"penalty={self.penalty}"
            )

    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:  # noqa: ARG002
        """Cover greedily, for every threshold, and keep the best."""
        thresholds, associations = self._thresholds(), Associations(A)
        best: tuple[int, float, Factors] | None = None
        complete = True
        for tau in thresholds:
            found = self._cover(A, k, associations.sets(tau), deadline)
            errors = confusion(A, found.U, found.V).errors
            if best is None or errors < best[0]:
                best = errors, tau, found
            complete = found.complete and not (deadline.passed and tau != thresholds[-1])
            if not complete:
                break
        assert best is not None  # there is at least one threshold
        _, tau, found = best
        return Factors(found.U, found.V, complete=complete, attributes={"tau_": tau, "n_iter_": len(found.V)})

    def _cover(
        self, A: BinaryMatrix, k: int, proposals: Iterator[list[NDArray[np.int32]]], deadline: Deadline
    ) -> Factors:
        """Return the components that cover A best among the proposals.

        When time is up before the first is chosen, it is chosen by what was counted until then.
        """
        U, V = np.zeros((A.shape[0], k), dtype=bool), np.zeros((k, A.shape[1]), dtype=bool)
        candidates: list[NDArray[np.int32]] = []
        for block in proposals:
            candidates += block
            if deadline.passed:
                break
        cover = GreedyCover(A, candidates, bonus=self.bonus, penalty=self.penalty)
        counting, found, in_time = cover.begin(), 0, True
        while found < k and in_time and candidates:
            in_time = all(not deadline.passed for _ in counting)
            if found and not in_time:
                break
            worth = cover.worth()
            best = int(np.argmax(worth))
            if worth[best] <= 0:
                break
            U[:, found] = cover.users(best)
            V[found, candidates[best]] = True
            counting = cover.cover(best, U[:, found])
            found += 1
            self.step_done(found)
        return Factors(U[:, :found], V[:found], complete=in_time)

    def _thresholds(self) -> tuple[float, ...]:
        """Return the values of `tau` to try, or say which of them cannot be used."""
        if isinstance(self.tau, str):
            if self.tau != "auto":
                raise InputError(f'tau must be a number, several numbers or "auto", got {self.tau!r}')
            return GRID
        values: tuple[Any, ...] = tuple(self.tau) if np.iterable(self.tau) else (self.tau,)
        if not values:
            raise InputError('tau is empty; give at least one number, or "auto"')
        for value in values:
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= 1:
                raise InputError(f"tau must be a number above 0 and at most 1, got {value!r}")
        return tuple(float(value) for value in values)
