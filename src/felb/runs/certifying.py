"""Certifies a stored result, or a rank, on a data file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.centralized.certificate import Certificate, certify
from felb.errors import InputError
from felb.metrics import confusion
from felb.runs.job import read_data
from felb.runs.result import Result
from felb.runs.scoring import matrix_for

if TYPE_CHECKING:
    import os


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
    result : its records are assigned anew, as `felb.runs.scoring.score_file` does
    """
    if result is None:
        if n_components is None:
            raise InputError("n_components is missing; give the number of components, or a result")
        return certify(read_data(data, **reading).matrix, n_components, time_limit=time_limit)
    found = Result.read(result)
    if n_components not in (None, len(found.components)):
        raise InputError(f"n_components is {n_components}, but the result has {len(found.components)}; leave it out")
    matrix = matrix_for(found, data, **reading)
    errors = confusion(matrix, found.assign(matrix), found.components).errors
    return certify(matrix, len(found.components), errors=errors, time_limit=time_limit)
