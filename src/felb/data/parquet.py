"""Parquet files, a batch of rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix, check_column_names
from felb.data.cells import LocateCell, where_known_one
from felb.data.coercion import from_columns
from felb.data.table import Table, client_labels, find_client_column, split_columns
from felb.errors import InputError, missing_extra

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.data.limits import Bounds

BATCH_CELLS = 1 << 22
"""Cells that are decoded at once."""

MOST_NAMES = 1 << 20
"""Different client labels, or spellings of cells, in one part of a file."""


def parquet_blocks(
    path: Path,
    *,
    bounds: Bounds,
    client_column: str | None,
    binarize_threshold: float | None,
    missing: str,
    columns: Collection[str] | None = None,
) -> Iterator[Table]:
    """Yield blocks of rows and, if asked for, the client of each row; with `columns`, of these columns only.

    What the file announces is compared with `bounds` before anything is decoded. Text stays coded by its dictionary, so
    that a long text that stands in every row is held once.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        missing_extra("reading .parquet files", "parquet", error)
    facts = pq.read_metadata(path)
    bounds.check_shape(facts.num_rows, facts.num_columns)
    bounds.check_bytes(sum(max(0, facts.row_group(i).total_byte_size) for i in range(facts.num_row_groups)))
    texts = [field.name for field in facts.schema.to_arrow_schema() if _is_text(pa, field.type)]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        schema = file.schema_arrow
        client = None if client_column is None else find_client_column(client_column, schema.names)
        # pandas stores the row labels of a frame among its columns.
        index = {name for name in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(name, str)}
        kept, ignored = split_columns(schema.names, columns, without=client)
        kept = [i for i in kept if schema.names[i] not in index]
        names = check_column_names([schema.names[i] for i in kept], len(kept))
        for i in kept:
            if pa.types.is_nested(schema.field(i).type):
                raise InputError(f"column {schema.names[i][:60]!r} holds lists or tables, not 0/1 cells")
        nothing = from_columns([np.zeros(0, np.int64)] * len(kept), 0, columns=names)
        yield Table(nothing, ignored=tuple(name for name in ignored if name not in index))  # perhaps no rows at all
        first_row = 0
        wanted = [schema.names[i] for i in sorted([*kept, *([] if client is None else [client])])]
        size = max(1, BATCH_CELLS // max(1, len(schema.names)))
        for batch in file.iter_batches(batch_size=size, columns=wanted):
            clients = None
            if client is not None:
                clients = tuple(client_labels(_values(batch.column(schema.names[client])), first_row))
            matrix = _rows(batch, [schema.names[i] for i in kept], names, first_row, binarize_threshold, missing)
            yield Table(matrix, clients, ignored=tuple(name for name in ignored if name not in index))
            first_row += batch.num_rows


def _rows(
    batch: Any, kept: list[str], names: Any, first_row: int, threshold: float | None, missing: str
) -> BinaryMatrix:
    ones, unknown = [], []
    for position, name in enumerate(kept):
        locate = LocateCell(names, first_row, position)
        found, absent = where_known_one(_values(batch.column(name)), threshold, missing=missing, locate=locate)
        ones.append(np.flatnonzero(found))
        unknown.append(np.zeros(0, np.int64) if absent is None else np.flatnonzero(absent))
    matrix = from_columns(ones, batch.num_rows, columns=names)
    if any(rows.size for rows in unknown):
        return matrix.with_unknown(from_columns(unknown, batch.num_rows))
    return matrix


def _values(column: Any) -> NDArray[Any]:
    """Return a column as an array; one that is coded by a dictionary refers to its entries without copying them."""
    if not hasattr(column, "dictionary"):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if len(column.dictionary) > MOST_NAMES:
        raise InputError(f"a column of text holds more than {MOST_NAMES} different texts; felb wants 0/1 data")
    entries = np.array([*column.dictionary.to_pylist(), None], dtype=object)
    return entries[
        np.asarray(column.indices.fill_null(len(entries) - 1).to_numpy(zero_copy_only=False), dtype=np.int64)
    ]


def _is_text(pa: Any, kind: Any) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)
