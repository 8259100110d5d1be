"""The base classes of estimators: input conversion, methods that need V only, and fits at one or several clients."""

from __future__ import annotations

import sys
import warnings
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from felb.centralized.base import LARGEST_SEED, CentralizedMethod, Method, check_parameters
from felb.data.binary import BinaryMatrix
from felb.data.coercion import Alignment, align_columns, describe_mismatch, select_known
from felb.data.files import Blocks, is_distributed
from felb.data.partition import check_shards, is_list_of_matrices, named, split
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.algorithms.methods import FederatedMethod
from felb.federated.algorithms.wrappers import NODE_CAP
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import boolean_product, boolean_product_dense
from felb.kernels.exact import assign_rows_exact
from felb.metrics.counts import History, confusion, to_boolean
from felb.metrics.interpretation import profile_components
from felb.privacy.statement import guarantee
from felb.progress import Deadline, steps_shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    import scipy.sparse as sp
    from numpy.typing import ArrayLike, NDArray

    from felb.federated.loop import Run, RunProgress
    from felb.federated.protocol import Algorithm, Outcome
    from felb.metrics.counts import Counts

    OnRound = Callable[[RunProgress], None]


class BooleanFactorization(Method, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of all estimators: A ≈ U∘V with Boolean ``components_`` V.

    A subclass defines ``fit`` and sets ``components_`` (bool, n_components × n_features).
    """

    n_components: Any
    binarize_threshold: float | None
    random_state: Any
    components_: NDArray[np.bool_]
    supports_: NDArray[np.int64] | None
    relaxed_components_: NDArray[np.floating[Any]] | None
    counts_: Counts | None
    privacy_guarantee_: Mapping[str, Any] | None
    history_: History
    n_records_: int | None
    n_iter_: int
    integrality_gap_: float
    converged_: bool
    complete_: bool

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> NDArray[np.bool_]:
        """Fit and return the assignment U of the rows of X, in their order."""
        return np.asarray(self.fit(X, y, **fit_params).transform(X))

    def transform(self, X: Any, *, align: str | None = None) -> NDArray[np.bool_]:
        """Assign rows to the components: U that minimises |X ⊕ U∘V| row by row (greedily, then by coordinate descent).

        Every row is assigned on its own, so new rows need no refit.

        Parameters
        ----------
        X : records × features, 0/1
        align : "name" to find the features of the fit by their names: other columns are ignored, and the cells of
            features that X does not have are unknown. Without it, X must have the very columns of the fit
        """
        return self._assign(self.new_rows(X, align=align)[0])

    def new_rows(self, X: Any, *, align: str | None = None) -> tuple[BinaryMatrix, Alignment]:
        """Return X with the features of the fit as its columns, and how its own columns stand to them.

        Parameters
        ----------
        X, align : as in `transform`
        """
        check_is_fitted(self)
        if align is None:
            return self._matrix(X, reset=False), Alignment()
        if align != "name":
            raise InputError(f"align must be None or 'name', got {align!r}", parameter="align")
        fitted = getattr(self, "feature_names_in_", None)
        if fitted is None:
            raise InputError("align='name' needs a model with feature names; fit it on data with column names")
        X, found = select_known(X, fitted)
        return align_columns(fitted, self._read(X)), found

    def inverse_transform(self, X: ArrayLike, *, sparse_output: bool = False) -> NDArray[np.bool_] | sp.csr_array:
        """Return the reconstruction U∘V of assignments U, dense or as a SciPy CSR array."""
        check_is_fitted(self)
        U = to_boolean(X, "U")
        if U.shape[1] != self.components_.shape[0]:
            raise InputError(f"U has {U.shape[1]} components, the model has {self.components_.shape[0]}")
        if sparse_output:
            return boolean_product(U, self.components_).to_scipy(bool)
        return boolean_product_dense(U, self.components_)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        """F1 of the reconstruction of X under the fixed components; greater is better."""
        matrix, _ = self.new_rows(X)
        return confusion(matrix, self._assign(matrix), self.components_).f1

    def component_features(self) -> list[tuple[str, ...]]:
        """Names of the features of each component; x0, x1, … if the data had no names."""
        check_is_fitted(self)
        names = feature_names(self)
        return [tuple(names[j] for j in np.flatnonzero(row)) for row in self.components_]

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the fitted model to one file, ``NAME.felbmodel``, which `felb.load` reads back; not a pickle."""
        check_is_fitted(self)
        # The package that stores results is above this one, and is known here by name only.
        import_module("felb.runs.model").save(self, path, force=force)

    def report(self, path: str | PathLike[str], X: Any = None, *, force: bool = False) -> None:
        """Write a self-contained HTML page of the fitted model.

        Parameters
        ----------
        path : file to write
        X : the records it was fitted on, or others, for plots of the data and intervals over records
        force : replace the file if it exists
        """
        check_is_fitted(self)
        import_module("felb.report.pages").report_model(self, path, X, force=force)

    def to_frame(self, X: Any) -> Any:
        """Return a tidy table of what the components mean in X: a row for each component and feature of it.

        Features of a component are in the order of their lift, P(feature | component) / P(feature | not the component).
        The other columns are its support, coverage and exclusive gain; see `felb.metrics.interpretation`. A pandas
        DataFrame, or a dict of columns where pandas is not installed.
        """
        matrix = self._matrix(X, reset=False)
        profile = profile_components(matrix, self.transform(matrix), self.components_)
        columns = profile.columns(feature_names(self))
        try:
            import pandas as pd
        except ImportError:
            return dict(columns)
        return pd.DataFrame(columns)

    @property
    def plot(self) -> Any:
        """Figures of the fitted model: ``components()``, ``reconstruction(X)``, ``rounds()``, ``stability(found)``."""
        return import_module("felb.report.figures").ModelPlots(self)

    def _repr_html_inner(self) -> str:
        """Return what a notebook shows: the components by name, and before the fit what scikit-learn shows."""
        if not hasattr(self, "components_"):
            return str(super()._repr_html_inner())
        return str(import_module("felb.report.pages").summarize_model(self))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return {**bundle, "text/html": self._repr_html_inner()} if "text/html" in bundle else bundle

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _assign(self, rows: BinaryMatrix) -> NDArray[np.bool_]:
        """Assign rows that have the features of the fit."""
        return assign_rows(rows, self.components_)

    def _matrix(self, X: Any, *, reset: bool) -> BinaryMatrix:
        """Make X a `BinaryMatrix` and check it against what was fitted (names, number of features)."""
        matrix = self._read(X)
        self._check_columns(matrix, reset=reset)
        if matrix.shape[0] == 0:
            raise InputError(f"Found array with 0 sample(s) (shape={matrix.shape}) while a minimum of 1 is required.")
        if matrix.shape[1] == 0:
            raise InputError(f"Found array with 0 feature(s) (shape={matrix.shape}) while a minimum of 1 is required.")
        return matrix

    def _check_columns(self, matrix: BinaryMatrix, *, reset: bool) -> None:
        if reset:
            self.n_features_in_ = matrix.shape[1]
            if matrix.columns is not None:
                self.feature_names_in_ = np.asarray(matrix.columns, dtype=object)
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            return
        fitted, own = getattr(self, "feature_names_in_", None), type(self).__name__
        if fitted is not None and matrix.columns is not None and tuple(fitted) != matrix.columns:
            raise InputError(describe_mismatch(fitted, matrix.columns))
        if matrix.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {matrix.shape[1]} features, but {own} is expecting {self.n_features_in_} features as input"
            )
        if (fitted is None) != (matrix.columns is None):
            told = (
                f"X has feature names, but {own} was fitted without feature names"
                if fitted is None
                else f"X does not have valid feature names, but {own} was fitted with feature names"
            )
            warnings.warn(told, UserWarning, stacklevel=4)


def draw_seed(random_state: Any) -> int:
    """Return an integer seed for a `random_state`, which may also be a RandomState or None."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(LARGEST_SEED))


def feature_names(model: BooleanFactorization) -> list[str]:
    """Return the names of the features of a fitted model, or x0, x1, … as scikit-learn would call them."""
    return [str(name) for name in getattr(model, "feature_names_in_", (f"x{i}" for i in range(model.n_features_in_)))]


@dataclass(eq=False, repr=False)
class CentralizedFactorization(CentralizedMethod, BooleanFactorization):
    """Base of the estimators for centralized data: a method that defines `factorize`, and fits.

    Parameters
    ----------
    n_components : number of components
    time_limit : seconds after which the search ends, with what was found until then
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
    random_state : int, RandomState or None
    """

    _: KW_ONLY
    binarize_threshold: float | None = None
    random_state: Any = None

    def fit(self, X: Any, y: Any = None, *, verbose: bool = False) -> Self:  # noqa: ARG002
        """Find the components of X (records × features, 0/1).

        Parameters
        ----------
        X : records × features, 0/1
        verbose : show a progress bar over the components, or the iterations of a method that has some
        """
        self.fit_transform(X, verbose=verbose)
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
        check_parameters(self)
        A = self._matrix(X, reset=True)
        found = self.search(A, seed=draw_seed(self.random_state), verbose=verbose)
        self.components_ = found.V
        self.supports_ = np.count_nonzero(found.U, axis=0)
        self.n_records_, self.complete_ = len(A), found.complete
        for name, value in found.attributes.items():
            setattr(self, name, value)
        return found.U


ONE_CLIENT = "client-01"


@dataclass(eq=False, repr=False)
class FederatedEstimator(FederatedMethod, BooleanFactorization):
    """Base of federated estimators: a method that defines `algorithm`, and fits on the engines of this machine.

    Parameters
    ----------
    participation : client sampling and dropout, see `felb.Participation`; by default all clients take part
    secure : add up by secure aggregation, as a deployed federation can; the result is the same
    n_jobs : number of clients that compute in parallel; does not change the result
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
    random_state : int, RandomState or None
    """

    _: KW_ONLY
    secure: bool = False
    n_jobs: int | None = None
    binarize_threshold: float | None = None
    random_state: Any = None

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        groups: ArrayLike | None = None,
        unknown: Any = None,
        on_round: OnRound | None = None,
        verbose: bool = False,
    ) -> Self:
        """Find components shared by all clients.

        Parameters
        ----------
        X : records × features, 0/1; or a list of matrices (NumPy, SciPy, frames, BinaryMatrix), one per client; or
            data in blocks: a Dask array or frame, AnnData on one, or `felb.data.open_blocks`. These are fitted on the
            workers of the current Dask client, and a block is a client. `FederatedBMF` takes a missing cell (NaN,
            None, NA, masked) as unknown; the other methods need all cells
        groups : client label of each row; without it all rows are one client's
        unknown : 0/1 matrix of the shape of X, dense or sparse, with ones for the cells that are unknown; X must hold 0
            there. For a list of matrices, a list of them, None for a client that knows all its cells
        on_round : called after each round; the `history` of what it is given has a row for every round so far
        verbose : show a progress bar over the rounds
        """
        self._fit(self._partly_known(X, unknown), groups, on_round, verbose=verbose)
        return self

    def fit_transform(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        groups: ArrayLike | None = None,
        unknown: Any = None,
        on_round: OnRound | None = None,
        verbose: bool = False,
    ) -> NDArray[np.bool_]:
        """Fit and return the clients' assignments: in the order of the rows, or client by client for a list."""
        X = self._partly_known(X, unknown)
        U = self._fit(X, groups, on_round, verbose=verbose)
        return self.transform(X) if U is None else U

    def transform(self, X: Any, *, unknown: Any = None, align: str | None = None) -> NDArray[np.bool_]:
        """Assign rows to the components, every row on its own, so that new rows need no refit.

        For data in Dask blocks the result is a Dask array that is computed when it is asked for. Cells that are
        unknown are left out of all counts; ``inverse_transform`` then predicts them.

        Parameters
        ----------
        X, unknown : as in `fit`; of a list of matrices, the rows of one after those of the other
        align : "name" to find the features of the fit by their names: other columns are ignored, and the cells of
            features that X does not have are unknown. Without it, X must have the very columns of the fit
        """
        X = self._partly_known(X, unknown)
        if not self._is_elsewhere(X, None):
            return super().transform(X, align=align)
        check_is_fitted(self)
        if align is not None:
            raise InputError("data on Dask is not aligned by name; select the columns of the fit before, X[names]")
        from felb.engines.dask.cluster import transform_lazily

        return transform_lazily(self, X)  # type: ignore[no-any-return]

    def score(self, X: Any, y: Any = None, *, unknown: Any = None) -> float:
        """F1 of the reconstruction of the known cells of X under the fixed components; greater is better."""
        X = self._partly_known(X, unknown)
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

    def _partly_known(self, X: Any, unknown: Any) -> Any:
        """Return X, or the matrices of a list, with their missing masks."""
        if unknown is None:
            return X
        if is_distributed(X):
            raise InputError("unknown cells of data in blocks are NaN in dense chunks; leave out unknown")
        if not is_list_of_matrices(X):
            return self._read(X).with_unknown(unknown)
        if not isinstance(unknown, list | tuple) or len(unknown) != len(X):
            raise InputError(
                f"X is a list of {len(X)} matrices; unknown must be a list as long, with None where all is known"
            )
        return [
            part if cells is None else self._read(part).with_unknown(cells)
            for part, cells in zip(X, unknown, strict=True)
        ]

    @staticmethod
    def _is_elsewhere(X: Any, groups: ArrayLike | None) -> bool:
        """Tell data that Dask workers compute on."""
        if not is_distributed(X):
            return False
        if groups is not None:
            raise InputError("every block of the data is a client; leave out groups, or give one matrix and groups")
        if not isinstance(X, Blocks) or "distributed" not in sys.modules:  # Dask is not loaded to learn of no client
            return not isinstance(X, Blocks)
        from felb.engines.dask.worker import has_client

        return has_client()  # without a Dask client, this process reads files in blocks

    def _fit(
        self, X: Any, groups: ArrayLike | None, on_round: OnRound | None, *, verbose: bool
    ) -> NDArray[np.bool_] | None:
        """Fit, with a bar on stderr if `verbose`; return the assignments, None where they stay on Dask workers."""

        def count_rounds() -> int | None:
            check_parameters(self)
            return self.max_rounds

        with steps_shown("rounds", count_rounds, verbose=verbose) as advance:

            def watch(progress: RunProgress) -> None:
                advance(len(progress.history), progress.history.note)
                if on_round is not None:
                    on_round(progress)

            if not self._is_elsewhere(X, groups):
                return self._fit_here(X, groups, watch)
            self._fit_on_dask(X, watch)
            return None

    def _fit_here(self, X: Any, groups: ArrayLike | None, on_round: OnRound) -> NDArray[np.bool_]:
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
            seed=draw_seed(self.random_state),
            participation=self.participation,
            secure=self.secure,
            workers=None if self.n_jobs is None else int(effective_n_jobs(self.n_jobs)),
            on_round=on_round,
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

    def _fit_on_dask(self, X: Any, on_round: OnRound) -> None:
        """Run the algorithm on the workers of the current client; a block is what a client is elsewhere."""
        if self.secure:
            raise InputError(
                "all blocks on Dask workers belong to one owner, so secure aggregation protects nobody; leave out "
                "secure",
                parameter="secure",
            )
        from felb.engines.dask.cluster import DistributedRows
        from felb.engines.dask.cluster import run as run_on_dask
        from felb.engines.dask.worker import current_client

        client = current_client()
        deadline = Deadline(self.limit())
        rows = DistributedRows.of(X, client, read=clone(self)._read)  # without what was fitted before
        self._check_columns(rows.template, reset=True)
        self.check_rank(self.rank(), rows.shape)
        self.n_records_ = rows.shape[0]
        algorithm = self.algorithm_for_blocks(rows)
        finished = run_on_dask(
            algorithm,
            rows.blocks,
            client=client,
            seed=draw_seed(self.random_state),
            participation=self.participation,
            deadline=deadline,
            on_round=on_round,
        )
        self._keep(finished, algorithm)

    def _keep(self, finished: Run, algorithm: Algorithm) -> None:
        outcome, plan = finished.outcome, algorithm.privacy
        self._show(outcome, finished.history, None if plan is None else guarantee(plan, finished.history))
        self.warn_about_outcome(outcome)

    def _show(self, outcome: Outcome, history: History, privacy: Mapping[str, Any] | None) -> None:
        """Set the fitted attributes to what a run has found; also to what is read back from a stored result."""
        self.privacy_guarantee_ = privacy
        self.privacy_statement_ = None if privacy is None else str(privacy["text"])
        self.components_, self.relaxed_components_ = outcome.components, outcome.relaxed
        self.history_, self.n_iter_ = history, outcome.n_iter
        self.integrality_gap_, self.converged_ = outcome.integrality_gap, outcome.converged
        self.counts_, self.supports_, self.complete_ = outcome.counts, outcome.supports, outcome.complete

    def _assign(self, rows: BinaryMatrix) -> NDArray[np.bool_]:
        """Assign rows as in the fit."""
        if not self.assigns_exactly:
            return super()._assign(rows)
        return assign_rows_exact(rows, self.components_, node_cap=NODE_CAP)[0]

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
