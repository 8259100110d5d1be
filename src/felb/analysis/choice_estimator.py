"""`FederatedBMFCV`: `FederatedBMF` with the number of components chosen by held-out cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from felb.analysis.rank_choice import choose_k
from felb.centralized.base import LARGEST_SEED
from felb.estimators.bmf_estimator import FederatedBMF

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from felb.analysis.rank_choice import RankChoice

DEFAULT_NUMBERS = tuple(range(1, 16))


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

    def __init__(
        self,
        estimator: FederatedBMF | None = None,
        *,
        n_components: int | Iterable[int] = DEFAULT_NUMBERS,
        cv: int = 3,
        share: float = 0.1,
        effort: str = "fast",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_components = n_components
        self.cv = cv
        self.share = share
        self.effort = effort
        self.random_state = random_state

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
        from sklearn.utils import check_random_state

        final = FederatedBMF() if self.estimator is None else clone(self.estimator)
        fixed = isinstance(self.random_state, int | np.integer)
        seed = int(self.random_state) if fixed else int(check_random_state(self.random_state).randint(LARGEST_SEED))
        compared = clone(final).set_params(effort=self.effort)
        if final.objective == "auto":
            # Belief propagation costs several times a fit, and where it wins it finds the same number of components.
            compared.set_params(objective="hamming")
        self.choice_ = choose_k(
            X,
            self.n_components,
            estimator=compared,
            groups=groups,
            unknown=unknown,
            cv=self.cv,
            share=self.share,
            n_resamples=0,
            random_state=seed,
            verbose=verbose,
        )
        self.cv_results_ = results(self.choice_)
        self.best_n_components_, self.best_score_ = self.choice_.best_k, self.choice_.best.mean
        final.set_params(n_components=self.best_n_components_, random_state=seed)
        self.best_estimator_ = final.fit(X, groups=groups, unknown=unknown, verbose=verbose)
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


def results(choice: RankChoice) -> dict[str, NDArray[Any]]:
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
