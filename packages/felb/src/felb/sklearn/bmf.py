"""`FederatedBMF`, the default method as an estimator."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from felb.choices import MDL
from felb.data.coercion import read_partly_known, text_names
from felb.data.files import is_distributed
from felb.data.partition import is_list_of_matrices
from felb.errors import ConvergenceWarning, InputError
from felb.federated.algorithms.bmf import federated_bmf
from felb.federated.algorithms.private import private_bmf
from felb.kernels.exact import assign_rows_exact
from felb.optim.belief import assign_new_rows
from felb.privacy.spec import Population, Privacy
from felb.sklearn.base import FederatedEstimator

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from felb.centralized.base import ExtendedReal
    from felb.data.binary import BinaryMatrix
    from felb.federated.algorithms.bmf import Effort
    from felb.federated.loop import Run, RunProgress
    from felb.federated.protocol import Algorithm, Outcome, Participation
    from felb.metrics.counts import History
    from felb.optim.belief import Belief


class FederatedBMF(FederatedEstimator):
    """Boolean matrix factorization from sums over clients, the recommended method.

    Rows never leave a client, only counts that are added up over clients do. The sums are integers and the same however
    the rows are split, so the components are exactly those of centralized data; without `groups` this is a
    centralized method. The method starts with a non-negative factorization, makes it Boolean by thresholds, and flips
    single entries of the components as long as the summed loss decreases. Cells that are missing (NaN), or unknown by
    the missing mask of `fit`, are left out of all counts.

    Parameters
    ----------
    n_components : int, or "mdl" for rank selection by minimum description length (see `rank_curve_`)
    max_components : with "mdl", the number at which the search starts; it should be well above the expected one
    objective : "hamming" for the fewest (or cheapest) wrong cells, "f1" for the largest F1, "recover" for components
        behind heavy or one-sided noise, which is not the best fit; "auto" tries "hamming" and, unless the data is
        large (rows × features × components > 2²⁸), costs are given, clients are sampled or the number of components is
        to be found, "recover", and takes the latter if it has at most 1.05 times the wrong cells (1.1 times, if F1 is
        no smaller) or 1.25 times the F1
    effort : "fast", "default" or "high": how much computation is spent on leaving local minima; or an `Effort`. With
        "high", and without `groups`, patterns for the search come from single rows too; then the components may differ
        from those of a federation with the same rows
    time_limit : seconds after which the run ends with the best components so far; see `complete_`
    false_positive_cost, false_negative_cost : costs of a covered zero and of an uncovered one; only their
        ratio matters, and only for the objectives "hamming" and "auto". One of them may be infinite:
        ``false_positive_cost=inf`` gives a factorization from below, which covers no zero (role mining), and
        ``false_negative_cost=inf`` one from above, which covers every one
    privacy : `felb.privacy.Privacy`, the privacy specification of records, with the mechanism
        "cooccurrence", "statistics" or "hybrid"; None for no noise. Then only noisy sums leave the clients, each
        charged to the budget, and the server computes the components from them (objective "hamming"). The noise
        cannot be seeded, so runs differ whatever `random_state` is. The guarantee is for one call of ``fit``; another
        one on the same records spends as much again
    participation : client sampling and dropout, see `felb.Participation`; by default all clients take part. If
        clients are sampled, statistics are averaged over rounds, and steps that compare losses are omitted
    secure : add up by secure aggregation, as a deployed federation can; the result is the same
    n_jobs : number of threads that share the rows of one owner (default: one for each core that the process may use),
        or of clients that compute in parallel (default: one after the other); -1 for all cores. It does not change the
        result
    node_cap : limit of the search for the best assignment of a row
    binarize_threshold : values above it become 1; by default X must hold only 0 and 1
    random_state : int, RandomState or None

    Attributes
    ----------
    components_ : bool array, n_components × n_features
    relaxed_components_ : the non-negative components they were cut from; None where they were found without
    history_ : metrics per round; ``history_["loss"]`` gives one of them over time
    counts_ : summed confusion counts of all clients' known cells, with ``.f1``, ``.rmsd``, …; None under `privacy`,
        where clients keep them to themselves, or noisy if `score_share` was agreed on
    supports_ : records of all clients that have each component; None likewise
    privacy_statement_ : the guarantee in words, in words; None without `privacy`
    integrality_gap_ : 0, the components are Boolean
    converged_ : the refinement ended because nothing was left to improve
    complete_ : False if the time limit ended the run
    rank_curve_ : with ``n_components="mdl"``, the description length in bits of each number of components tried
    objective_ : which objective the components were taken from; with "auto" "hamming" or "recover"
    weights_ : what covering a one and covering a zero is worth when rows are assigned
    belief_ : the model of the noise that rows are inferred under (`felb.optim.belief.Belief`), if that was chosen
    n_iter_ : rounds played

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(600, 60, 4, noise=0.05, seed=0)
    >>> centralized = felb.FederatedBMF(n_components=4, random_state=0).fit(data.A)
    >>> hospitals = felb.data.partition.uneven(600, 5)
    >>> shared = felb.FederatedBMF(n_components=4, random_state=0).fit(data.A, groups=hospitals)
    >>> bool((centralized.components_ == shared.components_).all())
    True
    """

    n_components: Any

    def __init__(
        self,
        n_components: int | str = 10,
        *,
        max_components: int = 30,
        objective: str = "auto",
        effort: str | Effort = "default",
        false_positive_cost: ExtendedReal = 1.0,
        false_negative_cost: ExtendedReal = 1.0,
        time_limit: float | None = None,
        privacy: Privacy | None = None,
        participation: Participation | None = None,
        secure: bool = False,
        n_jobs: int | None = None,
        node_cap: int = 1_000,
        binarize_threshold: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.max_components = max_components
        self.objective = objective
        self.effort = effort
        self.false_positive_cost = false_positive_cost
        self.false_negative_cost = false_negative_cost
        self.time_limit = time_limit
        self.privacy = privacy
        self.participation = participation
        self.secure = secure
        self.n_jobs = n_jobs
        self.node_cap = node_cap
        self.binarize_threshold = binarize_threshold
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: ArrayLike | None = None,
        unknown: Any = None,
        on_round: Callable[[RunProgress], None] | None = None,
        verbose: bool = False,
    ) -> Self:
        """Find components shared by all clients.

        Parameters
        ----------
        X : records × features, 0/1; or a list of matrices (NumPy, SciPy, frames, BinaryMatrix), one per client; or
            data in blocks (Dask arrays and frames, AnnData on one, `felb.data.open_blocks`), which the workers of the
            current Dask client fit. A missing cell (NaN, None, NA, masked) is unknown
        groups : client label of each row; without it all rows are one client's
        unknown : 0/1 matrix of the shape of X, dense or sparse, with ones for the cells that are unknown; X must hold 0
            there. For a list of matrices, a list of them, None for a client that knows all its cells
        on_round : called after each round; the `history` of what it is given has a row for every round so far
        verbose : show a progress bar over the rounds
        """
        return super().fit(self._partly_known(X, unknown), y, groups=groups, on_round=on_round, verbose=verbose)

    def fit_transform(  # type: ignore[override]
        self,
        X: Any,
        y: Any = None,
        *,
        groups: ArrayLike | None = None,
        unknown: Any = None,
        on_round: Callable[[RunProgress], None] | None = None,
        verbose: bool = False,
    ) -> NDArray[np.bool_]:
        """Fit and return the assignments: in the order of the rows, or client by client for a list."""
        return super().fit_transform(
            self._partly_known(X, unknown), y, groups=groups, on_round=on_round, verbose=verbose
        )

    def algorithm(
        self,
        n_features: int,
        *,
        population: Population | None = None,
        centralized: bool = False,
        starts_from_below: bool = True,
    ) -> Algorithm:
        """Return the algorithm, with noise calibrated for the population if there is a privacy specification."""
        if self.privacy is not None:
            return self._private_algorithm(n_features, self.privacy, population)
        return federated_bmf(
            n_features,
            self.n_components,
            max_components=int(self.max_components),
            objective=self.objective,
            effort=self.effort,
            false_positive_cost=self.false_positive_cost,
            false_negative_cost=self.false_negative_cost,
            sampled=self.sampled or (self.joined_late and self.n_components == MDL),
            centralized=centralized,
            starts_from_below=starts_from_below,
            node_cap=self.node_cap,
        )

    def _private_algorithm(self, n_features: int, privacy: Any, population: Population | None) -> Algorithm:
        if population is None:
            raise InputError(
                "population is required with privacy, because noise depends on the numbers of records and clients; "
                "or use algorithm_for"
            )
        self._check_private(privacy)
        plan = privacy.plan(**asdict(population), n_columns=n_features)
        return private_bmf(n_features, int(self.n_components), plan, effort=self.effort, node_cap=self.node_cap)

    def _check_private(self, privacy: Any) -> None:
        """Raise for parameters that privacy does not support."""
        if not isinstance(privacy, Privacy):
            raise InputError(f"privacy must be a specification, felb.privacy.Privacy(epsilon=1.0), got {privacy!r}")
        if self.n_components == MDL:
            raise InputError(
                "n_components='mdl' compares exact description lengths, which under privacy stay at the clients; "
                "give a number"
            )
        costs = self.false_positive_cost, self.false_negative_cost
        if self.objective not in ("auto", "hamming") or costs[0] != costs[1]:
            raise InputError(
                "under privacy, components are chosen for few wrong cells; leave both costs at 1 and use "
                "objective='auto' or 'hamming'"
            )
        if self.time_limit is not None:
            raise InputError("time_limit is not supported with privacy, because a private run cannot be stopped early")
        if self.sampled or self.joined_late:
            raise InputError("participation is not supported with privacy, because a private run needs all clients")

    @staticmethod
    def check_rank(n_components: Any, shape: tuple[int, int]) -> int:
        """Return the number of components, or the most there could be where it is to be found."""
        if isinstance(n_components, str) and n_components == MDL:
            return min(shape)
        return FederatedEstimator.check_rank(n_components, shape)

    def transform(self, X: Any, *, unknown: Any = None, align: str | None = None) -> NDArray[np.bool_]:
        """Assign rows to the components, each to the best set of them (up to `node_cap` steps of search a row).

        Where the components were recovered from noise, rows are inferred under its model instead: a component is
        assigned if it is likely enough given the row. Cells that are missing or unknown are left out of all counts;
        ``inverse_transform`` then predicts them.

        Parameters
        ----------
        X, unknown : as in `fit`
        align : "name" to find the features of the fit by their names: other columns are ignored, and the cells of
            features that X does not have are unknown. Without it, X must have the very columns of the fit
        """
        return super().transform(self._partly_known(X, unknown), align=align)

    def _assign(self, rows: BinaryMatrix) -> NDArray[np.bool_]:
        if self.belief_ is not None:
            return assign_new_rows(rows, self.belief_)
        one, zero = self.weights_
        cap = int(self.node_cap)
        return assign_rows_exact(rows, self.components_, weight_one=one, weight_zero=zero, node_cap=cap)[0]

    def score(self, X: Any, y: Any = None, *, unknown: Any = None) -> float:
        """F1 of the reconstruction of the known cells of X under the fixed components; greater is better."""
        return super().score(self._partly_known(X, unknown), y)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _read(self, X: Any) -> BinaryMatrix:
        return text_names(X, read_partly_known(X, binarize_threshold=self.binarize_threshold))

    def _check_cells(self, matrix: BinaryMatrix) -> None:
        """Accept unknown cells, except under privacy."""
        if self.privacy is not None and matrix.unknown is not None:
            raise InputError("under privacy, all cells must be known; fill the unknown ones, or leave out privacy")

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

    def _keep(self, finished: Run, algorithm: Algorithm) -> None:
        self.weights_ = finished.outcome.weights
        self.belief_ = finished.outcome.belief
        self.objective_ = chosen_objective(self.objective, self.belief_)
        if self.n_components == MDL:
            self.rank_curve_ = rank_curve(finished.history)
        super()._keep(finished, algorithm)

    def warn_about_outcome(self, outcome: Outcome) -> None:
        """Warn also if rank selection ended where it began, at the most components it may take."""
        super().warn_about_outcome(outcome)
        if self.n_components == MDL and len(outcome.components) >= int(self.max_components):
            warnings.warn(
                f"rank selection ended at max_components={self.max_components}, the most components it may take; the "
                "shortest description may need more: give a larger max_components",
                ConvergenceWarning,
                stacklevel=4,
            )

    def warn_about(self, components: NDArray[np.bool_], supports: NDArray[np.int64] | None, gap: float) -> None:
        """Warn about data in which nothing was found."""
        if self.objective == "recover" and not (components.any() and (supports is None or supports.any())):
            warnings.warn(
                "FederatedBMF found no recoverable structure: no record is likelier than not to have any component. "
                "The data may be noise; objective='hamming' fits it nevertheless.",
                ConvergenceWarning,
                stacklevel=3,
            )
        else:
            super().warn_about(components, supports, gap)


def chosen_objective(asked: str, belief: Belief | None) -> str:
    """Return the objective that the components are of: "auto" takes those of one of two."""
    if belief is not None:
        return "recover"
    return "hamming" if asked == "auto" else asked


def rank_curve(history: History) -> dict[int, float]:
    """Return the description length in bits of each number of components that rank selection has tried."""
    return {
        int(row["n_components"]): float(row["description_length"]) for row in history if "description_length" in row
    }
