"""The base classes of estimators: checked parameters, input conversion, and all methods that need V only."""

from __future__ import annotations

import inspect
import math
import numbers
import warnings
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from felb.data.binary import BinaryMatrix
from felb.data.coercion import Alignment, align_columns, describe_mismatch, drop_numbered_names, select_known
from felb.errors import ConvergenceWarning, InputError, shortened
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import boolean_product, boolean_product_dense
from felb.metrics.counts import DECIDED, History, confusion, to_boolean
from felb.metrics.interpretation import profile_components
from felb.optim.palm import exact_components
from felb.progress import Deadline, steps_shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    import scipy.sparse as sp
    from numpy.typing import ArrayLike, NDArray

    from felb.progress import Advance


# -- Parameters of estimators, checked by the types that their constructors declare, before anything is computed -----

LARGEST = (1 << 31) - 1
"""Of a whole number; a kernel counts with no more bits."""

NUMBERS = (int, float, np.integer, np.floating)
"""Types of numbers that NumPy and the kernels know; fractions and decimals are not among them."""
PRECISIONS = ("float32", "float64")
ExtendedReal = float
"""A number that may be infinite, as the annotation of a parameter."""
_WORDS = {
    "int": "a whole number",
    "float": "a finite number of at most 64 bits",
    "ExtendedReal": "a number or inf",
    "bool": "True or False",
    "str": "a word",
    "None": "None",
}


def check_parameters(estimator: Any) -> None:
    """Raise an `InputError` that names the parameter unless every one has a type that its constructor declares.

    Whole numbers are below 2³¹ and other numbers finite, unless they are declared as `ExtendedReal`. What a value
    means is checked by the method itself.
    """
    for name, parameter in inspect.signature(type(estimator).__init__).parameters.items():
        if name == "self" or parameter.annotation is inspect.Parameter.empty or not hasattr(estimator, name):
            continue
        value, kinds = getattr(estimator, name), str(parameter.annotation).split(" | ")
        if not any(_is(value, kind) for kind in kinds):
            wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds)
            raise InputError(f"{name} must be {wanted}, got {shortened(repr(value), 60)}")
    _check_seed(getattr(estimator, "random_state", None))
    if getattr(estimator, "n_jobs", None) == 0:
        raise InputError("n_jobs must be at least 1, or -1 for all cores; got 0")
    if getattr(estimator, "dtype", PRECISIONS[0]) not in PRECISIONS:
        raise InputError(f"dtype must be {' or '.join(PRECISIONS)}, got {shortened(repr(estimator.dtype), 60)}")


def _is(value: Any, kind: str) -> bool:
    if kind in ("bool", "int", "float", "ExtendedReal") and isinstance(value, bool | np.bool_):
        return kind == "bool"
    if kind == "int":
        return isinstance(value, numbers.Integral) and abs(int(value)) <= LARGEST
    if kind == "float":
        return isinstance(value, NUMBERS) and _is_finite(value)
    if kind == "ExtendedReal":
        return _is(value, "float") or (isinstance(value, NUMBERS) and value == math.inf)
    if kind == "Sequence[float]":
        sequence = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)
        return sequence and all(_is(item, "float") for item in value)
    if kind in ("str", "None", "Any", "bool"):
        return kind == "Any" or (value is None if kind == "None" else kind == "str" and isinstance(value, str))
    return any(base.__name__ == kind for base in type(value).__mro__)


def _is_finite(value: Any) -> bool:
    if isinstance(value, numbers.Integral):
        return -(1 << 63) <= int(value) < 1 << 63  # kernels know no larger ones
    return math.isfinite(value)


def _check_seed(seed: Any) -> None:
    whole = isinstance(seed, numbers.Integral) and not isinstance(seed, bool)
    if whole and 0 <= int(seed) < 1 << 63:
        return
    if seed is not None and (whole or not isinstance(seed, np.random.RandomState)) and seed is not np.random:
        raise InputError(
            f"random_state must be None, a whole number from 0 to 2^63 - 1 or a numpy.random.RandomState, "
            f"got {shortened(repr(seed), 60)}"
        )


# -- The base class of all estimators: input conversion, and all methods that need V only ----------------------------

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
        fitted = getattr(self, "feature_names_in_", None)
        names = feature_names(fitted, self.n_features_in_)
        return [tuple(names[j] for j in np.flatnonzero(row)) for row in self.components_]

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the fitted model to one file, ``NAME.felbmodel``, which `felb.load` reads back; not a pickle."""
        check_is_fitted(self)
        # The package that stores results is above this one, and is known here by name only.
        import_module("felb.runs.result").save(self, path, force=force)

    def report(self, path: str | PathLike[str], X: Any = None, *, force: bool = False) -> None:
        """Write a self-contained HTML page of the fitted model.

        Parameters
        ----------
        path : file to write
        X : the records it was fitted on, or others, for plots of the data and intervals over records
        force : replace the file if it exists
        """
        check_is_fitted(self)
        import_module("felb.report.model").report_model(self, path, X, force=force)

    def to_frame(self, X: Any) -> Any:
        """Return a tidy table of what the components mean in X: a row for each component and feature of it.

        Features of a component are in the order of their lift, P(feature | component) / P(feature | not the component).
        The other columns are its support, coverage and exclusive gain; see `felb.metrics.interpretation`. A pandas
        DataFrame, or a dict of columns where pandas is not installed.
        """
        matrix = self._matrix(X, reset=False)
        profile = profile_components(matrix, self.transform(matrix), self.components_)
        return frame(profile.columns(feature_names(getattr(self, "feature_names_in_", None), self.n_features_in_)))

    @property
    def plot(self) -> Any:
        """Figures of the fitted model: ``components()``, ``reconstruction(X)``, ``rounds()``, ``stability(found)``."""
        return import_module("felb.report.model").ModelPlots(self)

    def _repr_html_inner(self) -> str:
        """Return what a notebook shows: the components by name, and before the fit what scikit-learn shows."""
        if not hasattr(self, "components_"):
            return str(super()._repr_html_inner())
        return str(import_module("felb.report.model").model_summary(self))

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
            return drop_numbered_names(X, BinaryMatrix.of(X, binarize_threshold=self.binarize_threshold))
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


# -- Centralized methods: each algorithm computes U and V together ---------------------------------------------------


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


# -- Methods that iterate on non-negative factors until these are Boolean --------------------------------------------


class RelaxedFactorization(CentralizedFactorization):
    """Base of the methods that iterate; a subclass keeps a row with loss and integrality gap for every iteration."""

    max_iter: int
    tol: float
    dtype: str

    def goes_on(self, rows: list[dict[str, float]], deadline: Deadline) -> bool:
        """Whether to take another step: always a first one, then until out of iterations or time, or settled."""
        self.step_done(len(rows))
        return not rows or not (self.finished(rows) or deadline.passed)

    def steps(self, k: int) -> tuple[str, int]:  # noqa: ARG002
        """Return what a progress bar counts, and how many there are at most."""
        return "iterations", self.max_iter

    def finished(self, rows: list[dict[str, float]]) -> bool:
        """Whether all iterations were taken, or the components are Boolean and the loss stays put."""
        return len(rows) == self.max_iter or self._settled(rows)

    def _settled(self, rows: list[dict[str, float]]) -> bool:
        if len(rows) < 2 or rows[-1]["integrality_gap"] > self.tol:
            return False
        change = abs(rows[-1]["loss"] - rows[-2]["loss"])
        return change <= self.tol * max(rows[-2]["loss"], 1.0)

    def shortcut(self, A: BinaryMatrix, k: int) -> Factors | None:
        """Return the factors of data with at most k ones, or with nothing else: no iteration is needed."""
        V = exact_components(A.column_sums(), A.known_cells, k)
        if V is None:
            return None
        found = self.factors(assign_rows(A, V), V, relaxed=V.astype(self.dtype), gap=0.0, rows=[], **self.of_shortcut)
        return replace(found, complete=True)

    @property
    def of_shortcut(self) -> dict[str, Any]:
        """Further attributes that a fit without iterations shows."""
        return {}

    def factors(
        self,
        U: NDArray[np.bool_],
        V: NDArray[np.bool_],
        *,
        relaxed: NDArray[np.floating[Any]],
        gap: float,
        rows: list[dict[str, float]],
        **attributes: Any,
    ) -> Factors:
        """Return what was found, with what the fitted estimator shows of the way there."""
        return Factors(
            U,
            V,
            complete=self.finished(rows),
            attributes={
                "relaxed_components_": relaxed,
                "history_": History(rows),
                "n_iter_": len(rows),
                "integrality_gap_": gap,
                "converged_": gap <= DECIDED,
                **attributes,
            },
        )
