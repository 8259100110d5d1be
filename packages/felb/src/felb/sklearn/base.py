"""The base classes of federated estimators: rows are split by client, and an algorithm runs on an engine."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from felb.centralized.base import BooleanFactorization, check_parameters, warn_of_time_limit
from felb.data.binary import BinaryMatrix
from felb.data.files import Blocks, is_distributed
from felb.data.partition import check_shards, is_list_of_matrices, named, split
from felb.engines.dask.worker import current_client, has_client
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.algorithms.wrappers import NODE_CAP, private_uploads, refined
from felb.federated.steps.refine import REFINE_ROUNDS
from felb.kernels.exact import assign_rows_exact
from felb.privacy.spec import Population, Privacy, guarantee
from felb.progress import Deadline, steps_shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from felb.data.coercion import Alignment
    from felb.engines.dask.cluster import DistributedRows
    from felb.federated.loop import Run, RunProgress
    from felb.federated.protocol import Algorithm, Outcome, Participation
    from felb.metrics import Counts
    from felb.privacy.releases import Uploads

    OnRound = Callable[[RunProgress], None]


# -- Estimators on data in blocks: which engine they run on, and what they fit there ---------------------------------


def runs_here(X: Any) -> bool:
    """Tell data in files that this process reads itself, since there is no Dask client."""
    return isinstance(X, Blocks) and not has_client()


def fit_on_dask(
    model: FederatedEstimator, X: Any, on_round: Callable[[RunProgress], None] | None
) -> tuple[Run, Algorithm]:
    """Run the estimator's algorithm on the workers of the current client; a block is what a client is elsewhere."""
    if model.secure:
        raise InputError(
            "all blocks on Dask workers belong to one owner, so secure aggregation protects nobody; leave out secure",
            parameter="secure",
        )
    client = current_client()
    from felb.engines.dask.cluster import DistributedRows, run

    deadline = Deadline(model.limit())
    rows = DistributedRows.of(X, client, read=reader(model))
    model._check_columns(rows.template, reset=True)
    model.check_rank(model.rank(), rows.shape)
    model.n_records_ = rows.shape[0]
    algorithm = distributed_algorithm(model, rows)
    finished = run(
        algorithm,
        rows.blocks,
        client=client,
        seed=model._seed(),
        participation=model.participation,
        deadline=deadline,
        on_round=on_round or (lambda _: None),
    )
    return finished, algorithm


def reader(model: FederatedEstimator) -> Callable[[Any], Any]:
    """Return what makes a chunk a `BinaryMatrix` as this estimator does, without what it has fitted."""
    return clone(model)._read  # type: ignore[no-any-return]


def distributed_algorithm(model: FederatedEstimator, rows: DistributedRows) -> Algorithm:
    """Return the algorithm for these blocks. Where records are protected, the owner of all blocks is the one client."""
    if getattr(model, "privacy", None) is not None and any(fact.unknown is not None for fact in rows.facts.values()):
        raise InputError("under privacy, all cells must be known; fill the unknown ones, or leave out privacy")
    n_records, n_features = rows.shape
    algorithm = model.algorithm(n_features, population=Population(n_records=n_records, n_clients=len(rows.blocks)))
    if algorithm.privacy is None or algorithm.privacy.uploads is not None:
        return algorithm
    return model.algorithm(n_features, population=Population(n_records=n_records, n_clients=1))


# -- The base class of federated estimators: rows are split by client, and an algorithm runs on the local engine -----

ONE_CLIENT = "client-01"


class FederatedEstimator(BooleanFactorization):
    """Base class of federated estimators; a subclass defines `algorithm`."""

    participation: Participation | None
    secure: bool = False
    n_jobs: int | None
    relaxed_components_: NDArray[np.floating[Any]] | None
    privacy_guarantee_: Mapping[str, Any] | None
    counts_: Counts | None
    time_limit: float | None = None

    @abstractmethod
    def algorithm(
        self, n_features: int, *, population: Population | None = None, centralized: bool = False
    ) -> Algorithm:
        """Return the algorithm with this estimator's parameters, to be run over any transport.

        Parameters
        ----------
        population : numbers of records and clients, from which noise is calibrated; required with privacy
        centralized : the only client owns all rows; more computations are possible than in a federation
        """

    def algorithm_for(self, shards: Mapping[str, BinaryMatrix], *, centralized: bool = False) -> Algorithm:
        """Return the algorithm for these clients, whose rows are checked; `centralized` as in `algorithm`."""
        self.check_cells(shards)
        population = Population(n_records=sum(len(shard) for shard in shards.values()), n_clients=len(shards))
        return self.algorithm(next(iter(shards.values())).shape[1], population=population, centralized=centralized)

    def check_cells(self, shards: Mapping[str, BinaryMatrix]) -> None:
        """Raise if cells are unknown and the method does not support that."""
        for shard in shards.values():
            self._check_cells(shard)

    def limit(self) -> float | None:
        """Return the seconds that a run, or a part of it, may take."""
        return self.time_limit

    def rank(self) -> Any:
        """Return the requested number of components."""
        return self.n_components

    @property
    def max_rounds(self) -> int | None:
        """Rounds at most before the assignment; None if it is not known before the run."""
        return getattr(self, "max_iter", None)

    @property
    def sampled(self) -> bool:
        """Whether some clients may be missing from a round, so that the metrics of rounds cannot be compared."""
        played = self.participation
        return played is not None and (played.fraction < 1 or played.dropout > 0 or played.quorum is not None)

    @property
    def joined_late(self) -> bool:
        """Whether some clients join later; only metrics of the same cells can be compared."""
        return self.participation is not None and bool(self.participation.joins)

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        groups: ArrayLike | None = None,
        on_round: OnRound | None = None,
        verbose: bool = False,
    ) -> Self:
        """Find components shared by all clients.

        Parameters
        ----------
        X : records × features, 0/1; or a list of matrices (NumPy, SciPy, frames, BinaryMatrix), one per client; or
            data in blocks: a Dask array or frame, AnnData on one, or `felb.data.open_blocks`. These are fitted on the
            workers of the current Dask client, and a block is a client
        groups : client label of each row; without it all rows are one client's
        on_round : called after each round; the `history` of what it is given has a row for every round so far
        verbose : show a progress bar over the rounds
        """
        with self._rounds_shown(on_round, verbose=verbose) as watch:
            if self._is_elsewhere(X, groups):
                self._fit_blocks(X, watch)
            else:
                self._fit(X, groups, watch)
        return self

    @contextmanager
    def _rounds_shown(self, on_round: OnRound | None, *, verbose: bool) -> Iterator[OnRound | None]:
        """Yield a function to call after each round: it calls `on_round` and, if `verbose`, moves a bar on stderr."""
        if not verbose:
            yield on_round
            return
        with steps_shown("rounds", self._most_rounds, verbose=True) as advance:

            def watch(progress: RunProgress) -> None:
                advance(len(progress.history), progress.history.note)
                if on_round is not None:
                    on_round(progress)

            yield watch

    def _most_rounds(self) -> int | None:
        check_parameters(self)
        return self.max_rounds

    def fit_transform(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        groups: ArrayLike | None = None,
        on_round: OnRound | None = None,
        verbose: bool = False,
    ) -> NDArray[np.bool_]:
        """Fit and return the clients' assignments: in the order of the rows, or client by client for a list."""
        with self._rounds_shown(on_round, verbose=verbose) as watch:
            if not self._is_elsewhere(X, groups):
                return self._fit(X, groups, watch)
            self._fit_blocks(X, watch)
        return self.transform(X)

    def transform(self, X: Any, *, align: str | None = None) -> NDArray[np.bool_]:
        """Assign rows to the components, every row on its own, so that new rows need no refit.

        For data in Dask blocks the result is a Dask array that is computed when it is asked for.

        Parameters
        ----------
        X : as in `fit`; of a list of matrices, the rows of one after those of the other
        align : "name" to find the features of the fit by their names: other columns are ignored, and the cells of
            features that X does not have are unknown. Without it, X must have the very columns of the fit
        """
        if not self._is_elsewhere(X, None):
            return super().transform(X, align=align)
        check_is_fitted(self)
        if align is not None:
            raise InputError("data on Dask is not aligned by name; select the columns of the fit before, X[names]")
        from felb.engines.dask.cluster import transform_lazily

        return transform_lazily(self, X)  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any = None) -> float:
        """F1 of the reconstruction of X under the fixed components; greater is better."""
        if not self._is_elsewhere(X, None):
            return super().score(X, y)
        check_is_fitted(self)
        from felb.engines.dask.cluster import score_of
        from felb.engines.dask.worker import current_client

        return score_of(self, X, current_client()).f1

    def new_rows(self, X: Any, *, align: str | None = None) -> tuple[BinaryMatrix, Alignment]:
        """Return X with the features of the fit as its columns, and how its own columns stand to them.

        Parameters
        ----------
        X : as in `fit`; a list of matrices gives one with the rows of all, which need the same columns
        align : as in `transform`
        """
        if isinstance(X, Blocks):
            X = BinaryMatrix.vstack(X.read())
        if not is_list_of_matrices(X):
            return super().new_rows(X, align=align)
        parts = [super(FederatedEstimator, self).new_rows(part, align=align) for part in X]
        if any(found != parts[0][1] for _, found in parts):
            raise InputError("the matrices of the list have different columns; align them one by one")
        return BinaryMatrix.vstack([rows for rows, _ in parts]), parts[0][1]

    def _fit_blocks(self, X: Any, on_round: Callable[[RunProgress], None] | None) -> None:

        self._keep(*fit_on_dask(self, X, on_round))

    @staticmethod
    def _is_elsewhere(X: Any, groups: ArrayLike | None) -> bool:
        """Tell data that Dask workers compute on."""
        if not is_distributed(X):
            return False
        if groups is not None:
            raise InputError("every block of the data is a client; leave out groups, or give one matrix and groups")

        return not runs_here(X)

    def _fit(
        self, X: Any, groups: ArrayLike | None, on_round: Callable[[RunProgress], None] | None
    ) -> NDArray[np.bool_]:
        check_parameters(self)
        deadline = Deadline(self.time_limit)
        X = X.read() if isinstance(X, Blocks) else X
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
            secure=self.secure,
            workers=None if self.n_jobs is None else effective_workers(self.n_jobs),
            on_round=on_round or (lambda _: None),
            deadline=deadline,
        )
        self.n_records_ = shape[0]
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
            U[picked] = self._assign(shards[name]) if name in late else finished.assignments[name]
        return U

    def _keep(self, finished: Run, algorithm: Algorithm) -> None:
        outcome, plan = finished.outcome, algorithm.privacy
        self.privacy_guarantee_ = None if plan is None else guarantee(plan, finished.history)
        self.privacy_statement_ = None if self.privacy_guarantee_ is None else self.privacy_guarantee_["text"]
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
        """Warn about data without ones and about a result that collapsed, is not Boolean, or is incomplete."""
        counts = outcome.counts
        ones = None if counts is None or not counts.cells else counts.tp + counts.fn
        too_early = not (outcome.complete or outcome.components.any())  # nothing was found, and that is why
        if not too_early and (ones is None or not self.warn_of_few_ones(ones, len(outcome.components)) or ones):
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


def effective_workers(n_jobs: int) -> int:
    """Read `n_jobs` as scikit-learn does: -1 stands for all cores, -2 for all but one."""
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))


# -- Estimators whose components can be refined before rows are assigned ---------------------------------------------

SAMPLED_MEMORY = 0.5
"""Share of earlier rounds in the gains where a sample of the clients plays a round."""


class RefinableEstimator(FederatedEstimator):
    """Base of the estimators with a parameter `refine`; a subclass says what is refined in `plain_algorithm`."""

    refine: bool

    @abstractmethod
    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm without refinement."""

    @property
    def refines(self) -> bool:
        """Whether components are refined."""
        if self.refine not in (True, False):
            raise InputError(f"refine must be True or False, got {self.refine!r}")
        return bool(self.refine)

    @property
    def refine_memory(self) -> float:
        """Share of earlier rounds in the gains of the refinement."""
        return SAMPLED_MEMORY if self.sampled else 0.0

    @property
    def max_rounds(self) -> int | None:
        """Rounds at most before the assignment, those of the refinement included."""
        plain = self.plain_rounds()
        return plain if plain is None or not self.refines else plain + REFINE_ROUNDS + 1

    def plain_rounds(self) -> int | None:
        """Return the rounds at most before refinement."""
        return super().max_rounds

    def algorithm(
        self,
        n_features: int,
        *,
        population: Population | None = None,  # noqa: ARG002
        centralized: bool = False,  # noqa: ARG002
    ) -> Algorithm:
        """Return the algorithm with this estimator's parameters, to be run over any transport."""
        plain = self.plain_algorithm(n_features)
        return refined(plain, memory=self.refine_memory) if self.refines else plain

    def _assign(self, rows: BinaryMatrix) -> NDArray[np.bool_]:
        """Assign rows as in the fit: to refined components by branch and bound."""
        if not self.refines:
            return super()._assign(rows)
        return assign_rows_exact(rows, self.components_, node_cap=NODE_CAP)[0]


# -- Estimators whose clients upload components, with or without a privacy specification -----------------------------


class UploadingEstimator(RefinableEstimator):
    """Base of the estimators with a parameter `privacy` for uploads; a subclass says what is uploaded in `uploads`."""

    privacy: Privacy | None

    @abstractmethod
    def uploads(self, n_features: int, *, rounds: int | None) -> Uploads:
        """Return what a client uploads, in as many rounds as were agreed on, if so."""

    @abstractmethod
    def uploading_algorithm(self, n_features: int, uploads: Uploads) -> Algorithm:
        """Return the algorithm without refinement that makes these uploads."""

    def algorithm(
        self, n_features: int, *, population: Population | None = None, centralized: bool = False
    ) -> Algorithm:
        """Return the algorithm, with noise calibrated for the population if there is a privacy specification."""
        privacy: Any = self.privacy
        if privacy is None:
            return super().algorithm(n_features, population=population, centralized=centralized)
        if population is None:
            raise InputError(
                "population is required with privacy, because noise depends on the number of clients; or use "
                "algorithm_for"
            )
        if not isinstance(privacy, Privacy):
            raise InputError(f"privacy must be a specification, felb.privacy.Privacy(epsilon=1.0), got {privacy!r}")
        if self.refines:
            raise InputError("refinement sums exact gains over clients, which privacy does not allow; use refine=False")
        if (self.sampled or self.joined_late) and privacy.noise == "distributed":
            raise InputError("distributed noise needs every client's share; leave out participation")
        uploads = self.uploads(n_features, rounds=privacy.rounds)
        plan = privacy.plan(**asdict(population), n_columns=n_features, uploads=uploads)
        return private_uploads(self.uploading_algorithm(n_features, uploads), plan)


# -- The base of federated estimators that have neither refinement nor privacy; their parameters are fields ----------


@dataclass(eq=False, repr=False)
class PlainEstimator(FederatedEstimator):
    """Base of estimators whose algorithm assigns rows by branch and bound.

    A subclass is a dataclass too (``eq=False, repr=False``, which scikit-learn brings): it adds its parameters as
    fields and says in `plain_algorithm` what is played.

    Parameters
    ----------
    n_components : number of components
    participation : who plays a round, see `felb.Participation`; everybody without it
    secure : add up by secure aggregation, as a deployed federation can; the result is the same
    n_jobs : clients that work at the same time; does not change the result
    binarize_threshold : make ones of values above it; without it, X must hold only 0 and 1
    random_state : int, RandomState or None
    """

    n_components: int = 10
    _: KW_ONLY
    participation: Participation | None = None
    secure: bool = False
    n_jobs: int | None = None
    binarize_threshold: float | None = None
    random_state: Any = None

    @abstractmethod
    def plain_algorithm(self, n_features: int) -> Algorithm:
        """Return the algorithm with this estimator's parameters."""

    def algorithm(
        self,
        n_features: int,
        *,
        population: Population | None = None,  # noqa: ARG002
        centralized: bool = False,  # noqa: ARG002
    ) -> Algorithm:
        """Return the algorithm with this estimator's parameters, to be run over any transport."""
        return self.plain_algorithm(n_features)

    def _assign(self, rows: BinaryMatrix) -> NDArray[np.bool_]:
        """Assign each row to the best set of components by branch and bound, as in the fit."""
        return assign_rows_exact(rows, self.components_, node_cap=NODE_CAP)[0]
