"""The common face of federated methods: rows are split by client, an algorithm runs on the local engine."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from felb.centralized.base import BooleanFactorization
from felb.centralized.method import warn_of_time_limit
from felb.centralized.parameters import check_parameters
from felb.data.shards import check_shards, named, split
from felb.deadline import Deadline
from felb.engines.local import Participation, run
from felb.errors import InputError
from felb.privacy.spec import Population

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.loop import Run, RunProgress
    from felb.federated.protocol import Algorithm, Outcome

ONE_CLIENT = "client-01"


class FederatedEstimator(BooleanFactorization):
    """Base of the estimators that run a federated algorithm; a subclass says which one in `algorithm`."""

    participation: Participation | None
    n_jobs: int | None
    time_limit: float | None = None

    @abstractmethod
    def algorithm(
        self, n_features: int, *, population: Population | None = None, centralized: bool = False
    ) -> Algorithm:
        """Return the algorithm with this estimator's parameters, to be run over any transport.

        Parameters
        ----------
        population : who takes part; noise is calibrated by it, so it must be known where privacy was agreed on
        centralized : the only client owns all rows, so that more may be done than in a federation
        """

    def algorithm_for(self, shards: Mapping[str, BinaryMatrix], *, centralized: bool = False) -> Algorithm:
        """Return the algorithm for these clients, whose rows are checked; `centralized` as in `algorithm`."""
        self.check_cells(shards)
        population = Population(n_records=sum(len(shard) for shard in shards.values()), n_clients=len(shards))
        return self.algorithm(next(iter(shards.values())).shape[1], population=population, centralized=centralized)

    def check_cells(self, shards: Mapping[str, BinaryMatrix]) -> None:
        """Raise if cells are unknown and the method cannot do without them."""
        for shard in shards.values():
            self._check_cells(shard)

    def limit(self) -> float | None:
        """Return the seconds that a run, or a part of it, may take."""
        return self.time_limit

    def rank(self) -> Any:
        """Return the number of components that was asked for."""
        return self.n_components

    @property
    def max_rounds(self) -> int | None:
        """Rounds at most before the assignment; None if only the run will tell."""
        return getattr(self, "max_iter", None)

    @property
    def sampled(self) -> bool:
        """Whether some clients may be missing from a round, so that the figures of rounds cannot be compared."""
        played = self.participation
        return played is not None and (played.fraction < 1 or played.dropout > 0 or played.quorum is not None)

    @property
    def joined_late(self) -> bool:
        """Whether some clients come in when the run is under way; only figures of the same cells can be compared."""
        return self.participation is not None and bool(self.participation.joins)

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        groups: ArrayLike | None = None,
        on_round: Callable[[RunProgress], None] | None = None,
    ) -> Self:
        """Find components shared by all clients.

        Parameters
        ----------
        X : records × features, 0/1; or a list of matrices (NumPy, SciPy, frames, BinaryMatrix), one per client
        groups : client label of each row; without it all rows are one client's
        on_round : called after each round; the `history` of what it is given has a row for every round so far
        """
        self._fit(X, groups, on_round)
        return self

    def fit_transform(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        groups: ArrayLike | None = None,
        on_round: Callable[[RunProgress], None] | None = None,
    ) -> NDArray[np.bool_]:
        """Fit and return the clients' assignments: in the order of the rows, or client by client for a list."""
        return self._fit(X, groups, on_round)

    def _fit(
        self, X: Any, groups: ArrayLike | None, on_round: Callable[[RunProgress], None] | None
    ) -> NDArray[np.bool_]:
        check_parameters(self)
        deadline = Deadline(self.time_limit)
        shards, rows = self._shards(X, groups)
        shape = (sum(len(shard) for shard in shards.values()), self.n_features_in_)
        self.check_rank(self.rank(), shape)
        centralized = groups is None and not is_list_of_matrices(X)
        algorithm = self.algorithm_for(shards, centralized=centralized)
        finished = run(
            algorithm,
            shards,
            seed=self._seed(),
            participation=self.participation,
            workers=effective_workers(self.n_jobs),
            on_round=on_round or (lambda _: None),
            deadline=deadline,
        )
        self._keep(finished, algorithm)
        U = np.empty((shape[0], self.components_.shape[0]), dtype=bool)
        late = sorted(rows.keys() - finished.assignments.keys())
        if late:
            warnings.warn(
                f"the run was over after {len(finished.history)} rounds, before {', '.join(late)} joined: its rows "
                "are assigned as new ones are, and neither the components nor the counts know of them",
                UserWarning,
                stacklevel=3,
            )
        for name, picked in rows.items():
            U[picked] = self.transform(shards[name]) if name in late else finished.assignments[name]
        return U

    def _keep(self, finished: Run, algorithm: Algorithm) -> None:  # noqa: ARG002
        outcome = finished.outcome
        self.components_ = outcome.components
        self.relaxed_components_ = outcome.relaxed
        self.history_ = finished.history
        self.n_iter_ = outcome.n_iter
        self.integrality_gap_ = outcome.integrality_gap
        self.converged_ = outcome.converged
        self.counts_ = outcome.counts
        self.supports_ = outcome.supports
        self.complete_ = outcome.complete
        self.warn_about_outcome(outcome)

    def warn_about_outcome(self, outcome: Outcome) -> None:
        """Warn about data without ones, about a result that collapsed, is not Boolean, or was cut short."""
        counts = outcome.counts
        ones = None if counts is None or not counts.cells else counts.tp + counts.fn
        if ones is None or not self.warn_of_few_ones(ones, len(outcome.components)) or ones:
            self.warn_about(outcome.components, outcome.supports, outcome.integrality_gap)
        if not outcome.complete:
            warn_of_time_limit(type(self).__name__, self.limit())

    def _shards(self, X: Any, groups: ArrayLike | None) -> tuple[dict[str, BinaryMatrix], dict[str, NDArray[Any]]]:
        """Return the rows of each client and where they stand in X."""
        if is_list_of_matrices(X):
            if groups is not None:
                raise InputError("give either a list of matrices, one per client, or one matrix and groups")
            shards = named([self._read(part) for part in X])
            check_shards(shards)
            self._check_columns(next(iter(shards.values())), reset=True)
            ends = np.cumsum([0] + [len(shard) for shard in shards.values()])
            rows = {name: np.arange(a, b) for name, a, b in zip(shards, ends[:-1], ends[1:], strict=True)}
            return shards, rows
        matrix = self._matrix(X, reset=True)
        if groups is None:
            return {ONE_CLIENT: matrix}, {ONE_CLIENT: np.arange(len(matrix))}
        return split(matrix, groups)


def is_list_of_matrices(X: Any) -> bool:
    """Tell a list of client matrices from a list of rows: its elements are two-dimensional."""
    return isinstance(X, list | tuple) and bool(X) and all(len(getattr(part, "shape", ())) == 2 for part in X)


def effective_workers(n_jobs: int | None) -> int:
    """Read `n_jobs` as scikit-learn does: None is 1, -1 all cores."""
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))
