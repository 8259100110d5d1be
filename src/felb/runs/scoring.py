"""Scores a stored result on data, and certifies how much better another one could be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.data.registry import check_named, read_data
from felb.errors import InputError
from felb.runs.result import Result

if TYPE_CHECKING:
    import os

    from felb.centralized.certificate import Certificate
    from felb.data import BinaryMatrix
    from felb.metrics import Counts


def score_file(result: str | os.PathLike[str], data: str, **options: Any) -> Counts:
    """Assign the rows of a data file to the components of a result folder and count right and wrong cells.

    Raw data is read by the schema of the result; values that are new to it are told as a `SchemaWarning`.
    """
    found = Result.read(result)
    return _counts(found, matrix_for(found, data, **options))


def _counts(found: Result, matrix: BinaryMatrix) -> Counts:
    from felb.metrics import confusion

    return confusion(matrix, found.assign(matrix), found.components)


def certify_file(
    data: str,
    n_components: int | None = None,
    *,
    result: str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    **reading: Any,
) -> Certificate:
    """Prove a lower bound on the errors of every factorization of a data file, and compare a result folder with it.

    Parameters
    ----------
    n_components : rank; that of the result if None
    result : its records are assigned anew, as `score_file` does
    """
    check_named(data)
    from felb.centralized.certificate import certify

    if result is None:
        if n_components is None:
            raise InputError("n_components is missing; give the number of components, or a result")
        return certify(read_data(data, **reading).matrix, n_components, time_limit=time_limit)
    found = Result.read(result)
    if n_components not in (None, len(found.components)):
        raise InputError(f"n_components is {n_components}, but the result has {len(found.components)}; leave it out")
    matrix = matrix_for(found, data, **reading)
    errors = _counts(found, matrix).errors
    return certify(matrix, len(found.components), errors=errors, time_limit=time_limit)


def matrix_for(found: Result, data: str, **options: Any) -> BinaryMatrix:
    """Read a data file by the schema of a result; raise unless its features are those of the result."""
    if found.schema is not None and Path(data).suffix != ".felb":  # such a file holds features already
        options = {"schema": found.schema} | options
    matrix = read_data(data, **options).matrix
    if matrix.shape[1] != found.components.shape[1]:
        raise InputError(
            f"{data} has {matrix.shape[1]} columns, the result has {found.components.shape[1]}; "
            "they must be the same features"
        )
    if found.columns is not None and matrix.columns is not None and found.columns != matrix.columns:
        at = next(i for i, (a, b) in enumerate(zip(found.columns, matrix.columns, strict=True)) if a != b)
        raise InputError(
            f"column {at} of {data} is {matrix.columns[at]!r}, in the result it is {found.columns[at]!r}; "
            "bring the columns into the order of the result"
        )
    return matrix
