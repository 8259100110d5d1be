"""The base class of all estimators: input conversion, and all methods that need V only."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from felb.data.binary import BinaryMatrix
from felb.errors import ConvergenceWarning, InputError
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import boolean_product, boolean_product_dense
from felb.metrics.component_profile import profile_components
from felb.metrics.counts import DECIDED, confusion, to_boolean
from felb.metrics.frames import frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    import scipy.sparse as sp
    from numpy.typing import ArrayLike, NDArray

MOST_COMPONENTS = 4096
"""Where the data is smaller; more than twice its rows or columns are a mistake beyond that."""

LARGEST_SEED = np.iinfo(np.int32).max


class BooleanFactorization(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of all estimators: A ≈ U∘V with Boolean ``components_`` V.

    A subclass defines ``fit`` and sets ``components_`` (bool, n_components × n_features).
    """

    n_components: int
    binarize_threshold: float | None
    random_state: Any
    components_: NDArray[np.bool_]

    if_collapsed = "a smaller l2, another random_state"
    """What to try if nothing was found, in a warning."""

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> NDArray[np.bool_]:
        """Fit and return the assignment U of the rows of X, in their order."""
        return np.asarray(self.fit(X, y, **fit_params).transform(X))

    def transform(self, X: Any) -> NDArray[np.bool_]:
        """Assign rows to the components: U that minimises |X ⊕ U∘V| row by row (greedily, then by coordinate descent).

        Every row is assigned on its own, so new rows need no refit.
        """
        check_is_fitted(self)
        return assign_rows(self._matrix(X, reset=False), self.components_)

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
        matrix = self._matrix(X, reset=False)
        return confusion(matrix, self.transform(matrix), self.components_).f1

    def component_features(self) -> list[tuple[str, ...]]:
        """Names of the features of each component; x0, x1, … if the data had no names."""
        check_is_fitted(self)
        fitted = getattr(self, "feature_names_in_", None)
        names = feature_names(fitted, self.n_features_in_)
        return [tuple(names[j] for j in np.flatnonzero(row)) for row in self.components_]

    def to_frame(self, X: Any) -> Any:
        """Return a tidy table of what the components mean in X: a row for each component and feature of it.

        Features of a component are in the order of their lift, P(feature | component) / P(feature | not the component).
        The other columns are its support, coverage and exclusive gain; see `felb.metrics.component_profile`. A pandas
        DataFrame, or a dict of columns where pandas is not installed.
        """
        matrix = self._matrix(X, reset=False)
        profile = profile_components(matrix, self.transform(matrix), self.components_)
        return frame(profile.columns(feature_names(getattr(self, "feature_names_in_", None), self.n_features_in_)))

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    # -- for subclasses ------------------------------------------------------------------------------------------

    def _matrix(self, X: Any, *, reset: bool) -> BinaryMatrix:
        """Check X against what was fitted (names, number of features) and make it a `BinaryMatrix`."""
        if isinstance(X, BinaryMatrix):
            matrix = self._read(X)
            self._check_columns(matrix, reset=reset)
        else:
            matrix = self._read(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
        if matrix.shape[0] == 0:
            raise InputError(f"Found array with 0 sample(s) (shape={matrix.shape}) while a minimum of 1 is required.")
        if matrix.shape[1] == 0:
            raise InputError(f"Found array with 0 feature(s) (shape={matrix.shape}) while a minimum of 1 is required.")
        return matrix

    def _read(self, X: Any) -> BinaryMatrix:
        """Make X a `BinaryMatrix`."""
        if not isinstance(X, BinaryMatrix):
            return BinaryMatrix.of(X, binarize_threshold=self.binarize_threshold)
        self._check_cells(X)
        return X

    def _check_cells(self, matrix: BinaryMatrix) -> None:
        """Raise if cells are unknown; a subclass that can do without them accepts it."""
        if matrix.unknown is not None:
            raise InputError(
                f"{type(self).__name__} does not support unknown cells, and the data has {matrix.unknown.nnz}; use "
                "FederatedBMF (method 'bmf'), or read them as zeros (missing='zero', or X.with_unknown(None))",
                parameter="missing",
            )

    def _check_columns(self, matrix: BinaryMatrix, *, reset: bool) -> None:
        if reset:
            self.n_features_in_ = matrix.shape[1]
            if matrix.columns is not None:
                self.feature_names_in_ = np.asarray(matrix.columns, dtype=object)
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
            return
        if matrix.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {matrix.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        fitted = getattr(self, "feature_names_in_", None)
        if fitted is not None and matrix.columns is not None and tuple(fitted) != matrix.columns:
            at = next(i for i, (a, b) in enumerate(zip(fitted, matrix.columns, strict=True)) if a != b)
            raise InputError(f"column {at} is {matrix.columns[at]!r}, but was {fitted[at]!r} when fitted")

    def _seed(self) -> int:
        """Return an integer seed for `random_state`, which may also be a RandomState or None."""
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(LARGEST_SEED))

    def warn_about(self, components: NDArray[np.bool_], supports: NDArray[np.int64] | None, gap: float) -> None:
        """Warn about a result that collapsed or is not Boolean, and say what to try; supports may be unknown."""
        if not components.any() or (supports is not None and not supports.any()):
            what = "no record has any of the components" if components.any() else "all components are empty"
            warnings.warn(
                f"{type(self).__name__} collapsed: {what}. The data may be too noisy or too sparse for these settings; "
                f"try {self.if_collapsed}, fewer components, fewer clients, or another method.",
                ConvergenceWarning,
                stacklevel=3,
            )
        elif gap > DECIDED:
            warnings.warn(
                f"{type(self).__name__} stopped before the components were Boolean (integrality gap {gap:.2g}); they "
                "were cut at 1/2. Try more rounds (max_iter) or a larger l2_rate.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def warn_of_few_ones(self, ones: int, k: int) -> bool:
        """Warn if the data has no more ones than components; return whether that is so."""
        if ones > k:
            return False
        what = "no ones" if not ones else "a single one" if ones == 1 else f"only {ones} ones"
        found = "all components are empty" if not ones else "there is nothing to summarise"
        warnings.warn(
            f"the data of {type(self).__name__} has {what} for n_components={k}: {found}. "
            "Check that the data was read as it was meant.",
            ConvergenceWarning,
            stacklevel=4,
        )
        return True

    @staticmethod
    def check_rank(n_components: Any, shape: tuple[int, int]) -> int:
        """Return the number of components, or say why it cannot be; more than the data's rank can be is a warning."""
        if not isinstance(n_components, int | np.integer) or isinstance(n_components, bool):
            raise InputError(f"n_components must be a whole number, got {n_components!r}")
        if n_components < 1:
            raise InputError(f"n_components must be at least 1, got {n_components}")
        if n_components > max(MOST_COMPONENTS, 2 * min(shape)):
            raise InputError(f"n_components={n_components} is far more than rows or columns, of {shape}; lower it")
        if n_components > min(shape):
            warnings.warn(
                f"n_components={n_components} is more than min(rows, columns) = {min(shape)}: some components will be "
                "empty or repeated",
                UserWarning,
                stacklevel=3,
            )
        return int(n_components)


def feature_names(names: Sequence[str] | None, n_features: int) -> list[str]:
    """Return the given names, or x0, x1, … as scikit-learn would call them."""
    return [f"x{i}" for i in range(n_features)] if names is None else [str(name) for name in names]
