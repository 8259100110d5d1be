"""The base class of all estimators: input conversion, and all methods that need V only."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from felb.data.binary import BinaryMatrix
from felb.data.feature_names import Alignment, in_order_of, mismatch, select_known, text_names
from felb.errors import ConvergenceWarning, InputError
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import boolean_product, boolean_product_dense
from felb.metrics.component_profile import profile_components
from felb.metrics.counts import DECIDED, confusion, to_boolean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    import scipy.sparse as sp
    from numpy.typing import ArrayLike, NDArray

    from felb.metrics.history import History

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
    supports_: NDArray[np.int64] | None
    history_: History
    n_records_: int | None
    n_iter_: int
    integrality_gap_: float
    converged_: bool
    complete_: bool

    if_collapsed = "a smaller l2, another random_state"
    """What to try if nothing was found, in a warning."""

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
        return in_order_of(fitted, self._read(X)), found

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
        fitted = getattr(self, "feature_names_in_", None)
        names = feature_names(fitted, self.n_features_in_)
        return [tuple(names[j] for j in np.flatnonzero(row)) for row in self.components_]

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the fitted model to one file, ``NAME.felbmodel``, which `felb.load` reads back; not a pickle."""
        check_is_fitted(self)
        # The package that stores results is above this one, and is known here by name only.
        import_module("felb.runs.model_file").save(self, path, force=force)

    def report(self, path: str | PathLike[str], X: Any = None, *, force: bool = False) -> None:
        """Write a self-contained HTML page of the fitted model.

        Parameters
        ----------
        path : file to write
        X : the records it was fitted on, or others, for plots of the data and intervals over records
        force : replace the file if it exists
        """
        check_is_fitted(self)
        import_module("felb.report.model_page").report_model(self, path, X, force=force)

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
    def plot(self) -> Any:
        """Figures of the fitted model: ``components()``, ``reconstruction(X)``, ``rounds()``, ``stability(found)``."""
        return import_module("felb.report.model_plots").ModelPlots(self)

    def _repr_html_inner(self) -> str:
        """Return what a notebook shows: the components by name, and before the fit what scikit-learn shows."""
        if not hasattr(self, "components_"):
            return str(super()._repr_html_inner())
        return str(import_module("felb.report.model_summary").model_summary(self))

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

    # -- for subclasses ------------------------------------------------------------------------------------------

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

    def _read(self, X: Any) -> BinaryMatrix:
        """Make X a `BinaryMatrix` with the names of its features, if it has any."""
        if not isinstance(X, BinaryMatrix):
            return text_names(X, BinaryMatrix.of(X, binarize_threshold=self.binarize_threshold))
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
        fitted, own = getattr(self, "feature_names_in_", None), type(self).__name__
        if fitted is not None and matrix.columns is not None and tuple(fitted) != matrix.columns:
            raise InputError(mismatch(fitted, matrix.columns))
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
        warnings.warn(
            f"the data of {type(self).__name__} has {what} for n_components={k}: there is nothing to summarise. "
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


def frame(columns: Mapping[str, list[Any]]) -> Any:
    """Return columns as a pandas DataFrame, or as they are where pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        return dict(columns)
    return pd.DataFrame(columns)
