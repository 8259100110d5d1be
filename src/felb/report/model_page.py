"""The page of a fitted estimator, without a stored run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.report.evidence import Evidence, Measured
from felb.report.page_of_result import result_page
from felb.runs.result import Result

if TYPE_CHECKING:
    import os

    from felb.centralized.base import BooleanFactorization

UNSTORED = "data in memory"


def report_model(model: BooleanFactorization, path: str | os.PathLike[str], X: Any = None, *, force: bool) -> None:
    """Write the page of a model; with X, its scores and plots are those of these records."""
    evidence = Evidence(Path(path), Result.from_model(model, source=UNSTORED), None, (), None, "No data was given.")
    if X is not None:
        rows, _ = model.new_rows(X)
        U, V = model._assign(rows), model.components_
        measured = Measured(rows, U, V, source=UNSTORED, same=None, stored=False, rows_of=None)
        evidence = replace(evidence, measured=measured, absent=None)
    result_page(evidence).write(Path(path), force=force)
