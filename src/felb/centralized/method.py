"""Centralized methods: each algorithm computes U and V together."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from felb.centralized.base import BooleanFactorization
from felb.centralized.parameters import check_parameters
from felb.deadline import Deadline
from felb.errors import ConvergenceWarning
from felb.metrics.history import History
from felb.progress_bar import steps_shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.progress_bar import Advance


@dataclass(frozen=True, slots=True)
class Factors:
    """What an algorithm found.

    Parameters
    ----------
    U, V : Boolean, records × components and components × features; A ≈ U∘V
    complete : False if the time limit ended the search; U and V are the best until then
    attributes : what else the fitted estimator should show, by the name of the attribute (with its underscore)
    """

    U: NDArray[np.bool_]
    V: NDArray[np.bool_]
    complete: bool = True
    attributes: Mapping[str, Any] = field(default_factory=dict)


class CentralizedFactorization(BooleanFactorization):
    """Base of the methods for centralized data.

    A subclass defines `factorize` and, if it has parameters of its own, `check`. The time limit, the number of
    components and what the fitted estimator shows are the same for all: ``history_``, ``n_iter_``,
    ``integrality_gap_`` and ``converged_`` are those of a method that is Boolean throughout, unless it says otherwise.
    """

    time_limit: float | None

    _progress: Advance | None = None

    def step_done(self, done: int) -> None:
        """Tell that as many components or iterations are done; a fit with a progress bar shows it."""
        if self._progress is not None:
            self._progress(done)

    @abstractmethod
    def factorize(self, A: BinaryMatrix, k: int, *, seed: int, deadline: Deadline) -> Factors:
        """Return at most k components and the records that have them; when `deadline` has passed, the best so far."""

    def shortcut(self, A: BinaryMatrix, k: int) -> Factors | None:  # noqa: ARG002
        """Return the factors of data that needs no search, for methods that would search nevertheless."""
        return None

    def check(self) -> None:
        """Raise an `InputError` if a parameter makes no sense."""

    def find(self, A: BinaryMatrix, k: int, *, seed: int) -> Factors:
        """Return exactly k components of A; those that the algorithm did not need are empty."""
        check_parameters(self)
        self.check()
        return _padded(self.factorize(A, k, seed=seed, deadline=Deadline(self.time_limit)), k)

    def steps(self, k: int) -> tuple[str, int]:
        """Return what a progress bar counts, and how many there are at most."""
        return "components", k

    def fit(self, X: Any, y: Any = None, *, verbose: bool = False) -> Self:  # noqa: ARG002
        """Find the components of X (records × features, 0/1).

        Parameters
        ----------
        X : records × features, 0/1
        verbose : show a progress bar over the components, or the iterations of a method that has some
        """
        self._fit(X, verbose=verbose)
        return self

    def fit_transform(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        verbose: bool = False,
    ) -> NDArray[np.bool_]:
        """Fit and return the assignment U that the algorithm found along with the components.

        `transform` assigns rows anew for the fixed components, which may fit better.
        """
        return self._fit(X, verbose=verbose)

    def _fit(self, X: Any, *, verbose: bool) -> NDArray[np.bool_]:
        check_parameters(self)
        A = self._matrix(X, reset=True)
        k = self.check_rank(self.n_components, A.shape)
        self.check()
        what, most = self.steps(k)
        with steps_shown(what, lambda: most, verbose=verbose) as self._progress:
            try:
                found = self.shortcut(A, k) or self.find(A, k, seed=self._seed())
            finally:
                del self._progress
        self.components_ = found.V
        self.supports_ = np.count_nonzero(found.U, axis=0)
        self.n_records_, self.complete_ = len(A), found.complete
        self.history_, self.n_iter_, self.integrality_gap_, self.converged_ = History(), len(found.V), 0.0, True
        for name, value in found.attributes.items():
            setattr(self, name, value)
        if not self.warn_of_few_ones(A.nnz, k) or A.nnz:
            self.warn_about(found.V, self.supports_, self.integrality_gap_)
        if not found.complete:
            warn_of_time_limit(type(self).__name__, self.time_limit)
        return found.U


def warn_of_time_limit(method: str, seconds: float | None) -> None:
    """Warn that a result is not what the method would have found with more time."""
    warnings.warn(
        f"{method} was ended by its time limit of {seconds:g} s; the result is the best until then. "
        "Give it more time (time_limit) or fewer components.",
        ConvergenceWarning,
        stacklevel=4,
    )


def _padded(found: Factors, k: int) -> Factors:
    """Return the factors with empty components up to k."""
    missing = k - len(found.V)
    if missing == 0:
        return found
    return replace(found, U=np.pad(found.U, ((0, 0), (0, missing))), V=np.pad(found.V, ((0, missing), (0, 0))))
