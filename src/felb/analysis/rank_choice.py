"""Choice of the number of components: held-out cells, stability and description length over k.

The error of a fit falls with every further component. The F1 of held-out cells does not: components that fit noise
predict none. The chosen number is the smallest one whose mean F1 over the folds is at most one standard error below the
best (the one-standard-error rule of Breiman et al., 1984).
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from felb.analysis.held_out import HeldOut, held_out_cells
from felb.analysis.refits import shards_of, stability
from felb.data.binary import BinaryMatrix
from felb.errors import ConvergenceWarning, InputError
from felb.estimators.bmf_estimator import FederatedBMF
from felb.federated.steps.rank_selection import description_length
from felb.progress_bar import steps_shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class RankScores:
    """What was measured for one number of components.

    Parameters
    ----------
    n_components : the number
    held_out : F1 of the held-out cells of each fold
    f1, error_rate : F1 and share of wrong cells of a fit to all cells
    description_length : bits that describe the data by this fit
    stability : mean share of refits that find a component again; None if it was not measured
    """

    n_components: int
    held_out: tuple[float, ...]
    f1: float
    error_rate: float
    description_length: float
    stability: float | None

    @property
    def mean(self) -> float:
        """Mean F1 of the held-out cells."""
        return float(np.mean(self.held_out))

    @property
    def standard_error(self) -> float:
        """Standard error of the mean over the folds; 0 for a single fold."""
        return float(np.std(self.held_out, ddof=1) / np.sqrt(len(self.held_out))) if len(self.held_out) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class RankChoice:
    """Scores over the number of components, in ascending order of that number.

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(300, 40, 3, noise=0.02, seed=0)
    >>> felb.choose_k(data.A, range(1, 6), n_resamples=0).best_k
    3
    """

    scores: tuple[RankScores, ...]
    share: float
    n_resamples: int
    seed: int

    @property
    def best(self) -> RankScores:
        """The smallest number whose mean is at most one standard error below the best mean."""
        top = max(self.scores, key=lambda row: row.mean)
        return next(row for row in self.scores if row.mean >= top.mean - top.standard_error)

    @property
    def best_k(self) -> int:
        """The chosen number of components."""
        return self.best.n_components

    @property
    def shortest_k(self) -> int:
        """The number of components with the shortest description."""
        return min(self.scores, key=lambda row: row.description_length).n_components

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        rows = [{**asdict(row), "mean": row.mean, "standard_error": row.standard_error} for row in self.scores]
        return {
            "best_k": self.best_k,
            "shortest_k": self.shortest_k,
            "share": self.share,
            "n_resamples": self.n_resamples,
            "seed": self.seed,
            "scores": rows,
        }


def choose_k(
    X: Any,
    n_components: int | Iterable[int],
    *,
    estimator: FederatedBMF | None = None,
    groups: ArrayLike | None = None,
    unknown: Any = None,
    cv: int = 3,
    share: float = 0.1,
    n_resamples: int = 10,
    random_state: int = 0,
    on_rank: Callable[[int], None] = lambda _: None,
    verbose: bool = False,
) -> RankChoice:
    """Compare numbers of components by held-out cells, stability and description length.

    Which cells are held out does not depend on the split over clients, see `felb.analysis.held_out_cells`, so the
    choice is the same for federated and for centralized data.

    Parameters
    ----------
    X : records × features, or a list of matrices, one per client
    n_components : numbers of components to compare
    estimator : is fitted for each number; by default ``FederatedBMF(effort="fast", objective="hamming")``
    groups, unknown : clients of the rows, and missing mask, as in ``FederatedBMF.fit``
    cv : number of folds, each with other held-out cells
    share : share of the cells that a fold holds out
    n_resamples : number of refits for the stability of each number; 0 to leave it out
    random_state : seed of everything
    on_rank : called with each number of components that is done
    verbose : show a progress bar over the numbers of components

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(300, 40, 3, noise=0.02, seed=0)
    >>> choice = felb.choose_k(data.A, [2, 3, 4], groups=felb.data.partition.even(300, 3), n_resamples=2)
    >>> choice.best_k, choice.shortest_k
    (3, 3)
    """
    numbers = check_numbers(n_components)
    if cv < 1:
        raise InputError(f"cv must be at least 1, got {cv}", parameter="cv")
    model = FederatedBMF(effort="fast", objective="hamming") if estimator is None else clone(estimator)
    matrix, labels = one_matrix(model, X, groups, unknown)
    folds = [held_out_cells(matrix, fold=fold, share=share, seed=random_state) for fold in range(cv)]
    found = []
    with steps_shown("numbers of components", lambda: len(numbers), verbose=verbose) as advance:
        for number in numbers:
            model.set_params(n_components=number, random_state=random_state)
            found.append(_scores(model, matrix, labels, folds=folds, n_resamples=n_resamples))
            advance(len(found))
            on_rank(number)
    return RankChoice(tuple(found), share, n_resamples, random_state)


def _scores(
    model: FederatedBMF,
    matrix: BinaryMatrix,
    labels: ArrayLike | None,
    *,
    folds: Sequence[HeldOut],
    n_resamples: int,
) -> RankScores:
    """Return the scores of a model that is not fitted, with the number of components that it has."""
    held_out, stable = [], None
    with warnings.catch_warnings():
        # Too many components are compared on purpose; what they lead to is in the scores.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "n_components=", UserWarning)
        for fold in folds:
            fitted = clone(model)
            U = fitted.fit_transform(fold.training, groups=labels)
            held_out.append(fold.counts(U, fitted.components_).f1)
        whole = clone(model).fit(matrix, groups=labels)
        if n_resamples:
            seed = model.random_state
            refits = stability(whole, matrix, groups=labels, n_resamples=n_resamples, random_state=seed)
            stable = float(refits.found.mean())
    return RankScores(
        model.n_components,
        tuple(held_out),
        whole.counts_.f1,
        whole.counts_.error_rate,
        description_length(whole.components_, whole.supports_, whole.counts_, n_rows=len(matrix)),
        stable,
    )


def check_numbers(n_components: int | Iterable[int]) -> Sequence[int]:
    """Return the distinct numbers of components to compare, in ascending order; a single one is chosen anyway."""
    given = [n_components] if isinstance(n_components, int | np.integer) else list(n_components)
    if not given or any(not isinstance(number, int | np.integer) or number < 1 for number in given):
        raise InputError(
            f"n_components must be whole numbers of at least 1 to compare, got {given}", parameter="n_components"
        )
    return sorted({int(number) for number in given})


def one_matrix(
    model: FederatedBMF, X: Any, groups: ArrayLike | None, unknown: Any
) -> tuple[BinaryMatrix, NDArray[Any] | None]:
    """Return all rows in their order, and the client of each; None for centralized data."""
    shards, rows = shards_of(model.binarize_threshold, X, groups, unknown)
    if len(shards) == 1 and groups is None:
        return next(iter(shards.values())), None
    order = np.argsort(np.concatenate(list(rows.values())), kind="stable")
    labels = np.repeat(list(shards), [len(shard) for shard in shards.values()])[order]
    return BinaryMatrix.vstack(list(shards.values())).take(order), labels
