"""Parameters of estimators, checked by the types that their constructors declare, before anything is computed."""

from __future__ import annotations

import inspect
import math
import numbers
from typing import Any

import numpy as np

from felb.errors import InputError, shortened

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
