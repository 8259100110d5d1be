"""What is done with a stored result: apply it to new records, score it, compare it with another."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.data.coercion import Alignment
from felb.data.files import check_named, read_data
from felb.errors import InputError, missing_extra
from felb.metrics.comparison import NO_MATCH, drift_between, match_components
from felb.records import replace_nonfinite, replacing, write_csv
from felb.runs.result import Result

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from felb.centralized.certificate import Certificate
    from felb.data import BinaryMatrix, Table
    from felb.metrics import Counts
    from felb.metrics.comparison import Drift
    from felb.metrics.counts import FeatureCounts
    from felb.runs.result import Component
    from felb.sklearn.base import BooleanFactorization


RECORD = "record"


def component_names(k: int) -> list[str]:
    """Return a name for each of k components."""
    return [f"component {number}" for number in range(k)]


def write_assignment(
    path: str | os.PathLike[str], U: NDArray[np.bool_], records: Sequence[str], *, force: bool = False
) -> None:
    """Write which components each record has, in the format that the name of the file ends in.

    | name ends in | holds |
    |---|---|
    | ``.csv`` | a column with the names of the records, and a column of 0/1 for each component |
    | ``.parquet`` | the same; needs ``felb[parquet]`` |
    | ``.npz`` | U as a SciPy sparse matrix, and the names as the array ``records`` |
    | ``.h5ad`` | AnnData with U as ``X`` and the names of records and components; needs ``felb[anndata]`` |
    """
    target = check_target(path, force=force)
    with replacing(target) as partial:
        WRITERS[target.suffix.lower()](partial, U, records)


def check_target(path: str | os.PathLike[str], *, force: bool) -> Path:
    """Raise unless an assignment can be written there; before anything is computed."""
    target = Path(path)
    if target.suffix.lower() not in WRITERS:
        raise InputError(f"{target}: unknown file type {target.suffix!r}; felb writes {', '.join(WRITERS)}")
    return _free(target, force=force)


def _free(target: Path, *, force: bool) -> Path:
    if target.exists() and not force:
        raise InputError(f"{target} exists; choose another file, or replace it with --force")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}; make it, or choose another file")
    return target


def _write_csv(path: Path, U: NDArray[np.bool_], records: Sequence[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        write_csv(file, [[RECORD, *component_names(U.shape[1])]])
        write_csv(file, ([name, *row] for name, row in zip(records, U.astype(int).tolist(), strict=True)))


def _write_parquet(path: Path, U: NDArray[np.bool_], records: Sequence[str]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        missing_extra("writing .parquet files", "parquet", error)
    columns = {name: pa.array(U[:, at]) for at, name in enumerate(component_names(U.shape[1]))}
    pq.write_table(pa.table({RECORD: pa.array(list(records), pa.string()), **columns}), path)


def _write_npz(path: Path, U: NDArray[np.bool_], records: Sequence[str]) -> None:
    rows = sp.csr_array(U)
    # The arrays of scipy.sparse.save_npz, and one more, which its reader does not look at.
    parts: dict[str, Any] = {"indices": rows.indices, "indptr": rows.indptr, "format": np.array(b"csr")}
    parts |= {"data": rows.data, "shape": np.array(rows.shape), "records": np.array(records, dtype=np.str_)}
    with path.open("wb") as file:
        np.savez_compressed(file, **parts)


def _write_h5ad(path: Path, U: NDArray[np.bool_], records: Sequence[str]) -> None:
    try:
        import anndata
        import pandas as pd
    except ImportError as error:
        missing_extra("writing .h5ad files", "anndata", error)
    rows, components = pd.DataFrame(index=list(records)), pd.DataFrame(index=component_names(U.shape[1]))
    anndata.AnnData(sp.csr_matrix(U.astype(np.float32)), obs=rows, var=components).write_h5ad(path)


WRITERS: dict[str, Callable[[Path, NDArray[np.bool_], Sequence[str]], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".npz": _write_npz,
    ".h5ad": _write_h5ad,
}


def check_drift_target(path: str | os.PathLike[str], *, force: bool) -> Path:
    """Raise unless a drift table can be written there; before anything is computed."""
    target = Path(path)
    if target.suffix.lower() not in (".csv", ".json"):
        raise InputError(f"{target}: a drift table is a .csv or .json file; name it so")
    return _free(target, force=force)


def write_drift(path: str | os.PathLike[str], drift: Drift, *, force: bool = False) -> None:
    """Write a drift table: ``.json``, or ``.csv`` with a line for each share of each feature and component."""
    target = check_drift_target(path, force=force)
    found: list[tuple[str, str, Any, tuple[str, ...]]] = [
        *(("feature", entry.name, entry, ("ones", "wrong")) for entry in drift.features),
        *(("component", str(entry.number), entry, ("records", "ones")) for entry in drift.components),
    ]
    with replacing(target) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        if target.suffix.lower() == ".json":
            json.dump(replace_nonfinite(drift.to_json()), file, indent=1, allow_nan=False)
            return
        write_csv(file, [["of", "name", "share", "fit", "new", "z", "changed"]])
        for of, name, entry, shares in found:
            changes = ((share, getattr(entry, share)) for share in shares)
            write_csv(file, ([of, name, share, c.fit, c.new, c.z, int(entry.changed)] for share, c in changes))


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
    model, before = stored.model(), stored.features
    if record_column is not None:
        reading["record_column"] = record_column
    table, rows, alignment = _read_rows(stored, model, data, align, reading)
    U, counts = _explain(model, rows)
    if reference is not None:
        before = _explain(model, _read_rows(stored, model, reference, align, reading)[1])[1]
    return Applied(
        U,
        tuple(map(str, range(len(U)))) if table.rows is None else table.rows,
        alignment,
        counts,
        None if before is None else drift_between(before, counts, stored.feature_names),
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
    from felb.sklearn.base import feature_names

    before, now = (_explain(model, model.new_rows(records, align=align)[0])[1] for records in (reference, X))
    return drift_between(before, now, feature_names(model))


def _explain(model: BooleanFactorization, rows: BinaryMatrix) -> tuple[NDArray[np.bool_], FeatureCounts]:
    """Return the components of each row, and how the rows are explained, feature by feature."""
    from felb.metrics.counts import feature_counts

    U = model._assign(rows)
    return U, feature_counts(rows, U, model.components_)


def _read_rows(
    stored: Result, model: BooleanFactorization, data: str, align: str | None, reading: Mapping[str, Any]
) -> tuple[Table, BinaryMatrix, Alignment]:
    """Read a file and bring its columns into the order of the model."""
    options = _by_schema(stored, data, reading)
    threshold = stored.provenance.parameters.get("binarize_threshold")
    if "schema" not in options and threshold is not None:
        options = {"binarize_threshold": threshold} | options
    if align is not None and stored.columns is not None and "schema" not in options and Path(data).is_file():
        options["columns"] = frozenset(stored.columns)
    table = read_data(data, **options)
    try:
        rows, found = model.new_rows(table.matrix, align=align)
    except InputError as error:
        raise InputError(f"{data}: {error}") from error
    return table, rows, Alignment(found.missing, (*found.new, *table.ignored), found.reordered)


def _by_schema(stored: Result, data: str, reading: Mapping[str, Any]) -> dict[str, Any]:
    """Return how data is read: by the schema of the result, unless another is given or the file holds features."""
    return {**({} if stored.schema is None or Path(data).suffix == ".felb" else {"schema": stored.schema}), **reading}


def score_file(result: str | os.PathLike[str], data: str, **options: Any) -> Counts:
    """Assign the rows of a data file to the components of a result folder and count right and wrong cells.

    Raw data is read by the schema of the result; values that are new to it are told as a `SchemaWarning`.
    """
    from felb.metrics import confusion

    found = Result.read(result)
    matrix = table_for(found, data, **options).matrix
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
    from felb.metrics import confusion

    if result is None:
        if n_components is None:
            raise InputError("n_components is missing; give the number of components, or a result")
        return certify(read_data(data, **reading).matrix, n_components, time_limit=time_limit)
    found = Result.read(result)
    if n_components not in (None, len(found.components)):
        raise InputError(f"n_components is {n_components}, but the result has {len(found.components)}; leave it out")
    matrix = table_for(found, data, **reading).matrix
    errors = confusion(matrix, found.assign(matrix), found.components).errors
    return certify(matrix, len(found.components), errors=errors, time_limit=time_limit)


def table_for(found: Result, data: str, **options: Any) -> Table:
    """Read a data file by the schema of a result; raise unless its features are those of the result."""
    table = read_data(data, **_by_schema(found, data, options))
    matrix = table.matrix
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
    return table


@dataclass(frozen=True, slots=True)
class Pair:
    """A component of each result that correspond, or one of either that has no match.

    Parameters
    ----------
    first, second : the components; None if there is no match
    jaccard : |v ∩ w| / |v ∪ w| of their features
    shared, only_first, only_second : features of both, and of one alone
    """

    first: Component | None
    second: Component | None
    jaccard: float
    shared: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


def pair_components(first: Result, second: Result) -> list[Pair]:
    """Match the components of two results one to one by the Jaccard index of their features (Hungarian algorithm).

    Features are those of the same name; without names, of the same number. The pairs come in the order of their
    similarity, then what is left over of the first and of the second result.
    """
    ours, theirs = ([c for c in result.described() if c.features] for result in (first, second))
    known = tuple(dict.fromkeys(first.feature_names + second.feature_names))
    if first.columns is None or second.columns is None:
        n, m = first.components.shape[1], second.components.shape[1]
        if n != m:
            raise InputError(
                f"the results have {n} and {m} features without names, so their components cannot be compared"
            )
    elif not set(first.columns) & set(second.columns):
        raise InputError("the results have no feature in common, so their components cannot be compared")
    V, W = (
        np.array([[name in has for name in known] for has in (set(c.features) for c in side)], dtype=bool)
        for side in (ours, theirs)
    )
    places, alike = match_components(V.reshape(-1, len(known)), W.reshape(-1, len(known)))
    matched = [_pair(c, theirs[j], value) for c, j, value in zip(ours, places, alike, strict=True) if j != NO_MATCH]
    used = set(places.tolist())
    left = [_pair(c, None, 0.0) for c, j in zip(ours, places, strict=True) if j == NO_MATCH]
    right = [_pair(None, c, 0.0) for j, c in enumerate(theirs) if j not in used]
    return [*sorted(matched, key=lambda pair: -pair.jaccard), *left, *right]


def _pair(first: Component | None, second: Component | None, jaccard: float) -> Pair:
    ours, theirs = (() if component is None else component.features for component in (first, second))
    both = set(ours) & set(theirs)
    return Pair(
        first,
        second,
        float(jaccard),
        tuple(name for name in ours if name in both),
        tuple(name for name in ours if name not in both),
        tuple(name for name in theirs if name not in both),
    )
