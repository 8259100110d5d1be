"""Scores a stored result on data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.runs.job import read_data
from felb.runs.result import Result

if TYPE_CHECKING:
    import os

    from felb.data import BinaryMatrix
    from felb.metrics import Counts


def score_file(result: str | os.PathLike[str], data: str, **options: Any) -> Counts:
    """Assign the rows of a data file to the components of a result folder and count right and wrong cells.

    Raw data is read by the schema of the result; values that are new to it are told as a `SchemaWarning`.
    """
    from felb.metrics import confusion

    found = Result.read(result)
    matrix = matrix_for(found, data, **options)
    return confusion(matrix, found.assign(matrix), found.components)


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
