"""Writes the components of records, with the names of the records, and tables of drift."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.errors import InputError, missing_extra
from felb.runs.result import finite
from felb.safe_files import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from felb.metrics.population_drift import Drift, Share

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
        writer = csv.writer(file)
        writer.writerow([RECORD, *component_names(U.shape[1])])
        writer.writerows([name, *row] for name, row in zip(records, U.astype(int).tolist(), strict=True))


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
    with replacing(target) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        if target.suffix.lower() == ".json":
            json.dump(finite(drift.to_json()), file, indent=1, allow_nan=False)
            return
        writer = csv.writer(file)
        writer.writerow(["of", "name", "share", "fit", "new", "z", "changed"])
        for of, name, share, values, changed in drift_rows(drift):
            writer.writerow([of, name, share, values.fit, values.new, values.z, int(changed)])


def drift_rows(drift: Drift) -> Iterator[tuple[str, str, str, Share, bool]]:
    """Yield every share of every feature and component."""
    found: list[tuple[str, str, Any, tuple[str, ...]]] = [
        *(("feature", entry.name, entry, ("ones", "wrong")) for entry in drift.features),
        *(("component", str(entry.number), entry, ("records", "ones")) for entry in drift.components),
    ]
    for of, name, entry, shares in found:
        for share in shares:
            yield of, name, share, getattr(entry, share), entry.changed
