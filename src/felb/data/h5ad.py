"""AnnData files, a block of rows at a time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from felb.data.coercion import anndata_blocks
from felb.data.hdf5_probe import check_hdf5
from felb.data.table import Table, client_labels, find_client_column, split_columns
from felb.errors import InputError, missing_extra

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from felb.data.limits import Bounds


def h5ad_blocks(
    path: Path,
    *,
    bounds: Bounds,
    client_column: str | None,
    binarize_threshold: float | None,
    missing: str,
    columns: Collection[str] | None = None,
) -> Iterator[Table]:
    """Yield blocks of rows of X with their names and, if asked for, the client of each row, from a column of obs.

    With `columns`, variables of other names are left out; X is then read as a whole.
    """
    try:
        import anndata
    except ImportError as error:
        missing_extra("reading .h5ad files", "anndata", error)
    check_hdf5(path)
    _check_announced(path, bounds)
    data = anndata.read_h5ad(path, backed="r")
    try:
        clients: tuple[str, ...] | None = None
        if client_column is not None:
            find_client_column(client_column, [str(name) for name in data.obs.columns])
            labels = data.obs[client_column]
            clients = tuple(client_labels(labels.astype(object).where(labels.notna(), None), 0))
        first, names = 0, tuple(map(str, data.obs_names))
        kept, ignored = split_columns([str(name) for name in data.var_names], columns)
        for matrix in anndata_blocks(
            data[:, kept] if ignored else data, binarize_threshold=binarize_threshold, missing=missing
        ):
            at = slice(first, first + len(matrix))
            yield Table(matrix, None if clients is None else clients[at], names[at], ignored=ignored)
            first += len(matrix)
    finally:
        data.file.close()


def _check_announced(path: Path, bounds: Bounds) -> None:
    """Raise if the arrays of the file, written or not, are larger than the file may unpack to, or lie elsewhere."""
    import h5py

    announced = 0

    def visit(name: str, item: Any) -> None:
        nonlocal announced
        if isinstance(item, h5py.Dataset):
            if item.external or item.is_virtual:
                raise InputError(f"{name[:60]} is stored in another file; copy it into this one")
            announced += item.size * item.dtype.itemsize if item.shape is not None else 0

    with h5py.File(os.fspath(path), "r") as file:
        file.visititems(visit)
        X = file.get("X")
        if isinstance(X, h5py.Dataset) and X.ndim == 2:
            bounds.check_shape(*X.shape)
        elif isinstance(X, h5py.Group) and "shape" in X.attrs and len(X.attrs["shape"]) == 2:
            bounds.check_shape(*(int(size) for size in X.attrs["shape"]))
    bounds.check_bytes(announced)
