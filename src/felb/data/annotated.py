"""AnnData files as raw tables: the annotations of observations, and the variables that a schema asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.duck import identifier, reading_of
from felb.data.raw_source import POSITION, RawSource, described
from felb.data.variables import Variables, opened
from felb.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from felb.data.raw_source import Needed

NAMES = "obs_names"
"""Column that names the observations; a schema can use it as its record."""


def anndata_source(path: Path, connection: duckdb.DuckDBPyConnection, folder: Path, needed: Needed | None) -> RawSource:
    """Open an ``.h5ad`` file as a wide table: `obs_names`, the columns of `obs`, and variables of `X` by name.

    `X` stays in its file; its variables are read when rules are applied to them. Without `needed`, there are only the
    annotations.
    """
    data = opened(path)
    try:
        return _table(data, path, connection, folder, needed)
    finally:
        data.file.close()


def _table(
    data: Any, path: Path, connection: duckdb.DuckDBPyConnection, folder: Path, needed: Needed | None
) -> RawSource:
    annotations = [str(name) for name in data.obs.columns]
    variables = [str(name) for name in data.var_names]
    chosen = [i for i, name in enumerate(variables) if needed is not None and needed(name)]
    names = [NAMES, *annotations, *(variables[i] for i in chosen)]
    if len(set(names)) < len(names):
        raise InputError(f"{path}: a column of obs has the name of a variable, or {NAMES}; rename it")
    table: dict[str, Any] = {
        POSITION: np.arange(data.n_obs),
        NAMES: np.asarray(data.obs.index.astype(str), dtype=object),
    }
    for name in annotations:
        column = data.obs[name]
        as_objects = column.dtype == "category"
        table[name] = (column.astype(object).where(column.notna(), None) if as_objects else column).to_numpy()
    with reading_of(str(path)):
        connection.register("felb_block", table)
        listed = ", ".join(map(identifier, table))
        connection.execute(f"CREATE TEMP TABLE felb_raw AS SELECT {listed} FROM felb_block")
        connection.unregister("felb_block")
    columns = {name: kind for name, kind in described(connection, "felb_raw", str(path)).items() if name != POSITION}
    columns |= {variables[i]: "DOUBLE" for i in chosen}
    found = Variables(path, {variables[i]: i for i in chosen}) if chosen else None
    return RawSource(connection, folder, "felb_raw", columns, str(path), variables=found)
