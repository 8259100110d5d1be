"""Applies a stored model to new records: their components, how they are explained, and how they have drifted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.data.feature_names import Alignment
from felb.data.registry import read_data
from felb.errors import InputError
from felb.metrics.population_drift import drift_between
from felb.runs.result import Result

if TYPE_CHECKING:
    import os

    import numpy as np
    from numpy.typing import NDArray

    from felb.centralized.base import BooleanFactorization
    from felb.data import Table
    from felb.metrics.features import FeatureCounts
    from felb.metrics.population_drift import Drift

NO_DRIFT = "The result does not keep how the records of the fit are explained; give them as the reference to see drift."


@dataclass(frozen=True, slots=True)
class Applied:
    """New records under a model.

    Parameters
    ----------
    U : which components each record has
    records : names of the records; numbers from 0 if the data has none
    alignment : how the columns of the data stand to the features of the model
    counts : how the records are explained, feature by feature
    drift : against the records of the fit; None if these are not known
    """

    U: NDArray[np.bool_]
    records: tuple[str, ...]
    alignment: Alignment
    counts: FeatureCounts
    drift: Drift | None


def apply_file(
    result: str | os.PathLike[str],
    data: str,
    *,
    align: str | None = None,
    record_column: str | None = None,
    reference: str | None = None,
    **reading: Any,
) -> Applied:
    """Assign the records of a data file to the components of a result or model file.

    Parameters
    ----------
    result : folder of a result, or a model file
    data : file, URL of a database, or the name of a shipped data set; raw data is read by the schema of the result
    align : "name" to find features by their names, see `transform` of a model
    record_column : column with the names of the records; it is no feature
    reference : data of the fit, with which the new records are compared; by default what the result keeps of it
    reading : how the files are read, as in `felb.data.read`

    Examples
    --------
    >>> import felb
    >>> _ = felb.fit(felb.Job("zoo", "bmf", 4), "zoo-model")
    >>> found = apply_file("zoo-model", "zoo")
    >>> found.U.shape, found.drift.wrong.z
    ((101, 4), 0.0)
    """
    stored = Result.read(result)
    from felb.metrics.features import feature_counts

    model = stored.model()
    table, rows, alignment = _rows(stored, model, data, align=align, record_column=record_column, **reading)
    U = model._assign(rows)
    counts, before = feature_counts(rows, U, model.components_), stored.features
    if reference is not None:
        _, known, _ = _rows(stored, model, reference, align=align, record_column=record_column, **reading)
        before = feature_counts(known, model._assign(known), model.components_)
    names = table.clients if record_column is not None else table.rows
    return Applied(
        U,
        tuple(map(str, range(len(U)))) if names is None else names,
        alignment,
        counts,
        None if before is None else drift_between(before, counts, _names(model)),
    )


def drift(model: BooleanFactorization, X: Any, reference: Any, *, align: str | None = None) -> Drift:
    """Compare how well a fitted model explains new records with how well it explains those of the fit.

    A fitted model does not keep how frequent features were and how well they were explained, which are statistics of
    the data. So the records of the fit, or others to compare with, are given too.

    Parameters
    ----------
    model : fitted estimator
    X : new records
    reference : the records it was fitted on, or others to compare with
    align : "name" to find features by their names, as in `transform`

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(500, 20, 3, noise=0.02, seed=0).A
    >>> model = felb.FederatedBMF(3, random_state=0).fit(data)
    >>> felb.drift(model, data, data).components[0].changed
    False
    """
    from felb.metrics.features import feature_counts

    found = []
    for records in (reference, X):
        rows, _ = model.new_rows(records, align=align)
        found.append(feature_counts(rows, model._assign(rows), model.components_))
    return drift_between(found[0], found[1], _names(model))


def _names(model: BooleanFactorization) -> list[str]:
    from felb.centralized.base import feature_names

    return feature_names(getattr(model, "feature_names_in_", None), model.n_features_in_)


def _rows(
    stored: Result,
    model: BooleanFactorization,
    data: str,
    *,
    align: str | None,
    record_column: str | None,
    **reading: Any,
) -> tuple[Table, Any, Alignment]:
    """Read a file and bring its columns into the order of the model."""
    if stored.schema is not None and Path(data).suffix != ".felb":  # such a file holds features already
        reading = {"schema": stored.schema} | reading
    elif stored.provenance.parameters.get("binarize_threshold") is not None:
        reading = {"binarize_threshold": stored.provenance.parameters["binarize_threshold"]} | reading
    if record_column is not None:
        reading["client_column"] = record_column  # read as text, and no feature
    if align is not None and stored.columns is not None and reading.get("schema") is None and Path(data).is_file():
        reading["columns"] = frozenset(stored.columns)
    table = read_data(data, **reading)
    try:
        rows, found = model.new_rows(table.matrix, align=align)
    except InputError as error:
        raise InputError(f"{data}: {error}") from error
    return table, rows, Alignment(found.missing, (*found.new, *table.ignored), found.reordered)
