"""Unknown cells: neither one nor zero, and left out of all counts.

A `BinaryMatrix` may carry them as the ones of another of the same shape (`BinaryMatrix.unknown`). They are no ones of
the data itself, so that nothing can depend on what stands there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from felb.data.binary import BinaryMatrix, check_column_names
from felb.data.cells import LocateCell, missing_cells, where_one
from felb.data.coercion import Columns, from_columns
from felb.errors import InputError

ROWS_AT_A_TIME = 1 << 16
"""Rows whose ones are compared with their unknown cells at once."""


def mark_unknown(A: BinaryMatrix, unknown: Any) -> BinaryMatrix:
    """Return A with the unknown cells that the ones of a 0/1 matrix name, beside those it had; with none, if None."""
    if unknown is None:
        return A._with_rows(A.indptr, A.indices, None)
    marked = BinaryMatrix.of(unknown).with_columns(None)
    if marked.shape != A.shape:
        raise InputError(
            f"unknown is {marked.shape[0]} x {marked.shape[1]}, but the data is {A.shape[0]} x {A.shape[1]}; mark each "
            "unknown cell by a 1 in a matrix of the same shape"
        )
    both = sum(
        int(ones.to_scipy().multiply(cells.to_scipy()).nnz)
        for ones, cells in zip(A.row_blocks(ROWS_AT_A_TIME), marked.row_blocks(ROWS_AT_A_TIME), strict=True)
    )
    if both:
        raise InputError(
            f"{both} cells are marked as unknown and are ones of the data; set them to 0 there, or do not mark them"
        )
    if A.unknown is not None:
        marked = BinaryMatrix.of(marked.to_scipy().maximum(A.unknown.to_scipy()))
    return A._with_rows(A.indptr, A.indices, marked if marked.nnz else None)


def read_partly_known(data: Any, *, binarize_threshold: float | None = None) -> BinaryMatrix:
    """Build a `BinaryMatrix` as `BinaryMatrix.of` does, but take missing cells (NaN, None, NA, masked) as unknown.

    Sparse data has none: what it does not store is 0, and a NaN in it is refused.
    """
    # A missing cell becomes a zero in the missing mask: the threshold itself is not above the threshold.
    zero = 0.0 if binarize_threshold is None else binarize_threshold
    frame = Columns.of(data)
    if frame is not None:
        return _read_frame(frame, zero, binarize_threshold)
    on_disk = type(data).__module__.startswith("h5py")
    if isinstance(data, BinaryMatrix) or hasattr(data, "tocsr") or hasattr(data, "var_names") or on_disk:
        return BinaryMatrix.of(data, binarize_threshold=binarize_threshold)
    try:
        values = np.ma.asanyarray(data) if np.ma.is_masked(data) else np.asarray(data)
    except ValueError:
        values = data  # rows of different lengths, which are refused below
    missing = missing_cells(values)
    if missing is None:
        return BinaryMatrix.of(data, binarize_threshold=binarize_threshold)
    filled = np.where(missing, zero, np.ma.getdata(values))
    return BinaryMatrix.of(filled, binarize_threshold=binarize_threshold).with_unknown(missing)


def _read_frame(frame: Columns, zero: float, threshold: float | None) -> BinaryMatrix:
    """Read a frame column by column."""
    missing = [missing_cells(frame.values(position)) for position in range(len(frame.names))]
    if all(cells is None for cells in missing):
        return BinaryMatrix.of(frame.frame, binarize_threshold=threshold)
    names = check_column_names(frame.names, len(frame.names))
    ones, unknown = [], []
    for position, cells in enumerate(missing):
        values = frame.values(position) if cells is None else np.where(cells, zero, frame.values(position))
        ones.append(np.flatnonzero(where_one(values, threshold, locate=LocateCell(names, 0, position))))
        unknown.append(np.zeros(0, np.int64) if cells is None else np.flatnonzero(cells))
    return from_columns(ones, len(frame), columns=names).with_unknown(from_columns(unknown, len(frame)))
