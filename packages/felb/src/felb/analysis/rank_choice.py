"""Choice of the number of components: held-out cells, stability and description length over k."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from felb.analysis.refits import shards_of, stability, without_warnings
from felb.data.binary import BinaryMatrix, index_dtype
from felb.errors import InputError
from felb.federated.steps.reseed import description_length
from felb.kernels.boolean import FactorMasks, count_overlaps
from felb.metrics import Counts
from felb.progress import steps_shown
from felb.sklearn.base import draw_seed
from felb.sklearn.federated import FederatedBMF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray


# -- Held-out cells: a share of the cells is unknown to a fit and then predicted by it -------------------------------
#
# Cell (i, j) has a number u(i, j) in [0, 1) that depends on a seed and on the numbers i of its row and j of its column
# alone; the cells with f·s <= u < (f + 1)·s are held out in fold f. Rows are numbered in the order of the whole data
# before they are split among clients, so the same cells are held out however the rows are split, and a federated method
# that gives the result of centralized data gives the same predictions too. The folds have no cell in common.

CELLS_AT_A_TIME = 1 << 20
MAX_HELD_OUT = 1 << 29
"""Held-out cells at most; each takes two to four bytes."""

# Constants of SplitMix64 (Steele, Lea, Flood 2014), a hash that is good enough to choose cells by.
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A matrix with a share of its cells held out.

    Parameters
    ----------
    training : the matrix, in which the held-out cells are unknown
    ones : the held-out cells that are ones
    cells : all held-out cells, as the ones of a matrix
    """

    training: BinaryMatrix
    ones: BinaryMatrix
    cells: BinaryMatrix

    def counts(self, U: NDArray[np.bool_], V: NDArray[np.bool_]) -> Counts:
        """Count the right and wrong cells of U∘V among those that are held out; counts of clients add up."""
        factors = FactorMasks.of(U, V)
        tp, claimed = count_overlaps(self.ones, factors)[0], count_overlaps(self.cells, factors)[0]
        return Counts(tp=tp, fp=claimed - tp, fn=self.ones.nnz - tp, cells=self.cells.nnz)


def held_out_cells(A: BinaryMatrix, *, fold: int = 0, share: float = 0.1, seed: int = 0, first_row: int = 0) -> HeldOut:
    """Hold out a share of the known cells of A.

    Parameters
    ----------
    A : the data, or the rows of a client
    fold : number of the fold; folds have no cell in common, so there are at most 1/share of them
    share : share of the cells that is held out
    seed : decides which cells are held out
    first_row : number of the first row of A in the whole data

    Examples
    --------
    >>> import felb
    >>> held = held_out_cells(felb.data.load("zoo"), share=0.2)
    >>> held.cells.density.__round__(1), held.training.unknown == held.cells
    (0.2, True)
    """
    if not 0 < share < 1:
        raise InputError(f"share must lie between 0 and 1, got {share}", parameter="share")
    if fold < 0 or (fold + 1) * share > 1 + 1e-9:
        raise InputError(
            f"fold {fold} does not exist: with share={share}, there are {int(1 / share + 1e-9)} folds without common "
            "cells; use fewer folds or a smaller share",
            parameter="cv",
        )
    n, m = A.shape
    if share * n * m > MAX_HELD_OUT:
        raise InputError(
            f"a share of {share} of {n} x {m} cells is more than the {MAX_HELD_OUT} cells that can be held out; use a "
            "smaller share, or a sample of the rows",
            parameter="share",
        )
    low, high = fold * share, (fold + 1) * share
    columns = np.arange(m, dtype=np.uint64)
    counts, places = [np.zeros(1, dtype=np.int64)], []
    for rows in _blocks(n, m):
        u = _uniform(seed, (rows + first_row)[:, None], columns[None, :])
        held = (u >= low) & (u < high)
        counts.append(held.sum(axis=1))
        places.append(np.nonzero(held)[1].astype(index_dtype(m)))
    cells = BinaryMatrix.of_valid_rows(
        np.cumsum(np.concatenate(counts)), np.concatenate(places or [np.zeros(0, index_dtype(m))]), m
    )
    if A.unknown is not None:
        mask = cells.to_scipy(bool)
        cells = BinaryMatrix.of(mask > mask.multiply(A.unknown.to_scipy(bool)))
    data, mask = A.to_scipy(bool), cells.to_scipy(bool)
    ones = data.multiply(mask).tocsr()
    kept = BinaryMatrix.of(data > ones, columns=A.columns)
    training = kept if A.unknown is None else kept.with_unknown(A.unknown)
    return HeldOut(training.with_unknown(cells), BinaryMatrix.of(ones), cells)


def _blocks(n: int, m: int) -> Iterator[NDArray[np.uint64]]:
    step = max(1, CELLS_AT_A_TIME // max(1, m))
    for start in range(0, n, step):
        yield np.arange(start, min(start + step, n), dtype=np.uint64)


def _uniform(seed: int, rows: NDArray[np.uint64], columns: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return u(i, j), the upper 53 bits of a hash of seed, row and column as a number in [0, 1)."""
    start = _mixed(np.full(1, (seed + 1) % (1 << 64), dtype=np.uint64))
    return np.asarray((_mixed(_mixed(start ^ _mixed(rows)) ^ columns) >> np.uint64(11)) * 2.0**-53)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output function of SplitMix64, modulo 2⁶⁴."""
    z = values + np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_FIRST)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_SECOND)
    return z ^ (z >> np.uint64(31))


# -- Choice of the number of components: held-out cells, stability and description length over k ---------------------
#
# The error of a fit falls with every further component. The F1 of held-out cells does not: components that fit noise
# predict none. The chosen number is the smallest one whose mean F1 over the folds is at most one standard error below
# the best (the one-standard-error rule of Breiman et al., 1984).


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
        chosen = {"best_k": self.best_k, "shortest_k": self.shortest_k, "share": self.share}
        return {**chosen, "n_resamples": self.n_resamples, "seed": self.seed, "scores": rows}


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
    if max(numbers) > min(matrix.shape):
        warnings.warn(
            f"at most {min(matrix.shape)} components can be of use for data of {matrix.shape[0]} x {matrix.shape[1]}; "
            f"larger numbers, up to {max(numbers)}, only cost time",
            UserWarning,
            stacklevel=2,
        )
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
    model: FederatedBMF, matrix: BinaryMatrix, labels: ArrayLike | None, *, folds: Sequence[HeldOut], n_resamples: int
) -> RankScores:
    """Return the scores of a model that is not fitted, with the number of components that it has."""
    held_out, stable = [], None
    with without_warnings():  # too many components are compared on purpose; what they lead to is in the scores
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
        int(model.n_components),
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


DEFAULT_NUMBERS = tuple(range(1, 16))


@dataclass(eq=False, repr=False)
class FederatedBMFCV(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """`FederatedBMF` with cross-validation of the number of components on held-out cells.

    In each fold a share of the cells is unknown to the fit and predicted by it. The smallest number of components whose
    mean F1 on these cells is at most one standard error below the best is chosen, and `estimator` is fitted with it to
    all cells. The choice is the same however the rows are split among clients.

    Parameters
    ----------
    estimator : `FederatedBMF` to fit with the chosen number; None for its defaults
    n_components : numbers of components to compare, 1 to 15 by default
    cv : number of folds
    share : share of the cells that each fold holds out; cv × share is at most 1
    effort : of the fits that are compared; see `FederatedBMF`
    random_state : int, RandomState or None; decides which cells are held out, and is the seed of all fits

    Attributes
    ----------
    best_n_components_ : the chosen number
    best_score_ : mean F1 of the held-out cells with that number
    best_estimator_ : `FederatedBMF` fitted to all cells
    cv_results_ : dict of arrays, one entry for each number: ``param_n_components``, ``split0_test_score``, …,
        ``mean_test_score``, ``std_test_score``, ``rank_test_score``, ``description_length``
    choice_ : the same as a `felb.analysis.RankChoice`
    components_ : those of `best_estimator_`

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(300, 40, 3, noise=0.02, seed=0)
    >>> search = felb.FederatedBMFCV(n_components=range(1, 6), random_state=0).fit(data.A)
    >>> search.best_n_components_, search.transform(data.A).shape
    (3, (300, 3))
    """

    estimator: FederatedBMF | None = None
    _: KW_ONLY
    n_components: int | Iterable[int] = DEFAULT_NUMBERS
    cv: int = 3
    share: float = 0.1
    effort: str = "fast"
    random_state: Any = None

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002
        *,
        groups: ArrayLike | None = None,
        unknown: Any = None,
        verbose: bool = False,
    ) -> Self:
        """Choose the number of components and fit with it.

        Parameters
        ----------
        X, groups, unknown : as in `FederatedBMF.fit`
        verbose : show progress bars over the numbers of components and over the rounds of the fit
        """
        final = FederatedBMF() if self.estimator is None else clone(self.estimator)
        seed = draw_seed(self.random_state)
        compared = clone(final).set_params(effort=self.effort)
        if final.objective == "auto":
            # Belief propagation costs several times a fit, and where it wins it finds the same number of components.
            compared.set_params(objective="hamming")
        data: dict[str, Any] = {"groups": groups, "unknown": unknown, "verbose": verbose}
        folds: dict[str, Any] = {"cv": self.cv, "share": self.share, "n_resamples": 0, "random_state": seed}
        self.choice_ = choose_k(X, self.n_components, estimator=compared, **folds, **data)
        self.cv_results_ = tabulate_choice(self.choice_)
        self.best_n_components_, self.best_score_ = self.choice_.best_k, self.choice_.best.mean
        final.set_params(n_components=self.best_n_components_, random_state=seed)
        self.best_estimator_ = final.fit(X, **data)
        self.components_ = final.components_
        self.n_features_in_ = final.n_features_in_
        if hasattr(final, "feature_names_in_"):
            self.feature_names_in_ = final.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def transform(self, X: Any, *, unknown: Any = None) -> NDArray[np.bool_]:
        """Assign rows to the components of the best estimator."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.transform(X, unknown=unknown))

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Return the reconstruction U∘V of assignments U."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.inverse_transform(X))

    def score(self, X: Any, y: Any = None, *, unknown: Any = None) -> float:
        """F1 of the reconstruction of X by the best estimator."""
        check_is_fitted(self)
        return self.best_estimator_.score(X, y, unknown=unknown)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def tabulate_choice(choice: RankChoice) -> dict[str, NDArray[Any]]:
    """Return the scores over the number of components in the form of scikit-learn's ``cv_results_``."""
    folds = np.array([row.held_out for row in choice.scores])
    means = folds.mean(axis=1)
    return {
        "param_n_components": np.array([row.n_components for row in choice.scores]),
        **{f"split{number}_test_score": scores for number, scores in enumerate(folds.T)},
        "mean_test_score": means,
        "std_test_score": folds.std(axis=1),
        "rank_test_score": 1 + (means[None, :] > means[:, None]).sum(axis=1),
        "description_length": np.array([row.description_length for row in choice.scores]),
    }
