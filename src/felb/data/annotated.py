"""AnnData files as raw tables: the annotations of observations, and the variables that a schema asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.duck import identifier, reading_of
from felb.data.raw_source import RawSource, described
from felb.errors import InputError, missing_extra

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from felb.data.raw_source import Needed

NAMES = "obs_names"
"""Column that names the observations; a schema can use it as its record."""
MOST_VARIABLES = 2000
CELLS = 1 << 22


def anndata_source(path: Path, connection: duckdb.DuckDBPyConnection, folder: Path, needed: Needed | None) -> RawSource:
    """Open an ``.h5ad`` file as a wide table: `obs_names`, the columns of `obs`, and variables of `X` by name.

    `X` stays in its file and is read in blocks of rows. Without `needed`, only the annotations are read.
    """
    try:
        import anndata
    except ImportError as error:
        missing_extra("reading .h5ad files", "anndata", error)
    try:
        data = anndata.read_h5ad(path, backed="r")
    except Exception as error:  # what the readers of HDF5 raise on damage is nearly anything
        raise InputError(f"{path}: the file is damaged or no AnnData file ({error}); write it again") from error
    try:
        return _table(data, path, connection, folder, needed)
    finally:
        data.file.close()


def _table(
    data: Any, path: Path, connection: duckdb.DuckDBPyConnection, folder: Path, needed: Needed | None
) -> RawSource:
    annotations = [str(name) for name in data.obs.columns]
    chosen = [i for i, name in enumerate(map(str, data.var_names)) if needed is not None and needed(name)]
    if len(chosen) > MOST_VARIABLES:
        raise InputError(
            f"{path}: the schema asks for {len(chosen)} variables of X; with more than {MOST_VARIABLES}, make them "
            "binary by binarize_threshold= instead of a schema"
        )
    names = [NAMES, *annotations, *(str(data.var_names[i]) for i in chosen)]
    if len(set(names)) < len(names):
        raise InputError(f"{path}: a column of obs has the name of a variable, or {NAMES}; rename it")
    step = max(1, CELLS // max(1, len(chosen)))
    for start in range(0, max(1, data.n_obs), step):
        obs = data.obs.iloc[start : start + step]
        block: dict[str, Any] = {NAMES: np.asarray(obs.index.astype(str), dtype=object)}
        for name in annotations:
            column = obs[name]
            as_objects = column.dtype == "category"
            block[name] = (column.astype(object).where(column.notna(), None) if as_objects else column).to_numpy()
        if chosen:
            rows = data.X[start : start + step]
            dense = rows[:, chosen].toarray() if hasattr(rows, "toarray") else np.asarray(rows)[:, chosen]
            values = dense.astype(float)
            block |= {str(data.var_names[i]): np.ascontiguousarray(values[:, j]) for j, i in enumerate(chosen)}
        with reading_of(str(path)):
            connection.register("felb_block", block)
            listed = ", ".join(map(identifier, names))
            how = "CREATE TEMP TABLE felb_raw AS" if start == 0 else "INSERT INTO felb_raw"
            connection.execute(f"{how} SELECT {listed} FROM felb_block")
            connection.unregister("felb_block")
    columns = described(connection, "felb_raw", str(path))
    return RawSource(connection, folder, "felb_raw", columns, str(path))
