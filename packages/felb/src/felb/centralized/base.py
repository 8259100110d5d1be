"""Methods as plain data: their parameters, checked by declared types; the base of those for centralized data."""

from __future__ import annotations

import inspect
import math
import numbers
import warnings
from abc import abstractmethod
from collections.abc import Mapping  # noqa: TC003  # the annotation of a field
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import ConvergenceWarning, InputError, shortened
from felb.kernels.assign import assign_rows
from felb.metrics.counts import DECIDED, History
from felb.optim.palm import exact_components
from felb.progress import Deadline, steps_shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.progress import Advance


# -- Parameters, checked by the types that constructors declare, before anything is computed -------------------------

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


def check_parameters(method: Any) -> None:
    """Raise an `InputError` that names the parameter unless every one has a type that its constructor declares.

    Whole numbers are below 2³¹ and other numbers finite, unless they are declared as `ExtendedReal`. What a value
    means is checked by the method itself.
    """
    for name, parameter in inspect.signature(type(method).__init__).parameters.items():
        if name == "self" or parameter.annotation is inspect.Parameter.empty or not hasattr(method, name):
            continue
        value, kinds = getattr(method, name), str(parameter.annotation).split(" | ")
        if not any(_is(value, kind) for kind in kinds):
            wanted = getattr(method, "wanted", {}).get(name) or " or ".join(_WORDS.get(kind, kind) for kind in kinds)
            raise InputError(f"{name} must be {wanted}, got {shortened(repr(value), 60)}")
    _check_seed(getattr(method, "random_state", None))
    if getattr(method, "n_jobs", None) == 0:
        raise InputError("n_jobs must be at least 1, or -1 for all cores; got 0")
    if getattr(method, "dtype", PRECISIONS[0]) not in PRECISIONS:
        raise InputError(f"dtype must be {' or '.join(PRECISIONS)}, got {shortened(repr(method.dtype), 60)}")


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


# -- The base of all methods -----------------------------------------------------------------------------------------

MOST_COMPONENTS = 4096
"""Where the data is smaller; more than twice its rows or columns are a mistake beyond that."""

LARGEST_SEED = np.iinfo(np.int32).max


class Method:
    """Base of all methods: their parameters, what they say about a result, and no scikit-learn.

    An estimator is a method with scikit-learn's conventions on top, so that a parameter is declared once.
    """

    if_collapsed = "a smaller l2, another random_state"
    """What to try if nothing was found, in a warning."""
    wanted: ClassVar[Mapping[str, str]] = {}
    """What parameters must be, in words, where their types do not say it."""
    n_components: Any
    time_limit: float | None = None
    binarize_threshold: float | None = None

    @property
    def label(self) -> str:
        """The name of the estimator, which messages use."""
        return type(self).__name__.removesuffix("Method")

    def _read(self, X: Any) -> BinaryMatrix:
        """Make X a `BinaryMatrix` with the names of its features, if it has any."""
        if not isinstance(X, BinaryMatrix):
            from felb.data.coercion import drop_numbered_names

            return drop_numbered_names(X, BinaryMatrix.of(X, binarize_threshold=self.binarize_threshold))
        self.check_cells(X)
        return X

    def check_cells(self, matrix: BinaryMatrix) -> None:
        """Raise if cells are unknown; a subclass that can do without them accepts it."""
        if matrix.unknown is not None:
            raise InputError(
                f"{self.label} does not support unknown cells, and the data has {matrix.unknown.nnz}; use "
                "FederatedBMF (method 'bmf'), or read them as zeros (missing='zero', or X.with_unknown(None))",
                parameter="missing",
            )

    def warn_about(self, components: NDArray[np.bool_], supports: NDArray[np.int64] | None, gap: float) -> None:
        """Warn about a result that collapsed or is not Boolean, and say what to try; supports may be unknown."""
        if not components.any() or (supports is not None and not supports.any()):
            what = "no record has any of the components" if components.any() else "all components are empty"
            warnings.warn(
                f"{self.label} collapsed: {what}. The data may be too noisy or too sparse for these settings; "
                f"try {self.if_collapsed}, fewer components, fewer clients, or another method.",
                ConvergenceWarning,
                stacklevel=3,
            )
        elif gap > DECIDED:
            warnings.warn(
                f"{self.label} stopped before the components were Boolean (integrality gap {gap:.2g}); they "
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
            f"the data of {self.label} has {what} for n_components={k}: there is nothing to summarise. "
            "Check that the data was read as it was meant.",
            ConvergenceWarning,
            stacklevel=4,
        )
        return True

    @staticmethod
    def check_rank(n_components: Any, shape: tuple[int, int]) -> int:
        """Return the number of components, or say why it cannot be; more than the data's rank can be is a warning."""
        if not isinstance(n_components, int | np.integer) or isinstance(n_components, bool):
            raise InputError(f"n_components must be a whole number, got {n_components!r}", parameter="n_components")
        if n_components < 1:
            raise InputError(f"n_components must be at least 1, got {n_components}")
        if n_components > max(MOST_COMPONENTS, 2 * min(shape)):
            raise InputError(f"n_components={n_components} is far more than rows or columns, of {shape}; lower it")
        if n_components > min(shape):
            warnings.warn(
                f"n_components={n_components} is more than min(rows, columns) = {min(shape)}: at most {min(shape)} "
                "components can be of use, and the others will be empty or repeated",
                UserWarning,
                stacklevel=3,
            )
        return int(n_components)


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


@dataclass(eq=False, repr=False)
class CentralizedMethod(Method):
    """Base of the methods for centralized data; a subclass is a dataclass that adds its parameters as fields.

    It defines `factorize` and, if it has parameters of its own, `check`.

    Parameters
    ----------
    n_components : number of components
    time_limit : seconds after which the search ends, with what was found until then
    """

    n_components: int = 10
    _: KW_ONLY
    time_limit: float | None = None
    _progress: Advance | None = field(default=None, init=False)

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

    def search(self, A: BinaryMatrix, *, seed: int, verbose: bool = False) -> Factors:
        """Check the parameters, return the components of A with what a fitted model shows, and warn about them.

        The attributes are those of a method that is Boolean throughout, unless it says otherwise.
        """
        check_parameters(self)
        k = self.check_rank(self.n_components, A.shape)
        self.check()
        what, most = self.steps(k)
        with steps_shown(what, lambda: most, verbose=verbose) as self._progress:
            try:
                found = self.shortcut(A, k) or self.find(A, k, seed=seed)
            finally:
                del self._progress
        shown = {"history_": History(), "n_iter_": len(found.V), "integrality_gap_": 0.0, "converged_": True}
        found = replace(found, attributes={**shown, **found.attributes})
        if not self.warn_of_few_ones(A.nnz, k) or A.nnz:
            self.warn_about(found.V, np.count_nonzero(found.U, axis=0), found.attributes["integrality_gap_"])
        if not found.complete:
            warn_of_time_limit(self.label, self.time_limit)
        return found


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


@dataclass(eq=False, repr=False)
class RelaxedMethod(CentralizedMethod):
    """Base of the methods that iterate; a subclass keeps a row with loss and integrality gap for every iteration.

    Parameters
    ----------
    max_iter : iterations at most
    tol : stop when the components are Boolean up to `tol` and the loss changes by less than `tol`, relatively
    dtype : "float32" or "float64"
    """

    _: KW_ONLY
    max_iter: int = 1000
    tol: float = 1e-4
    dtype: str = "float32"

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
