"""Counts of what a raw table holds, in which each record has a bounded part: what privacy noise can protect.

Every cell that is counted depends on one value alone, never on other records, and a record adds 0 or 1 to each of at
most `cells_per_record` of them. Adding or removing a record therefore moves the counts by √cells_per_record at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from felb.data.duck import WHOLE, as_number, as_text, identifier
from felb.data.raw_source import open_source
from felb.data.schema import MISSING_VALUES, Roles
from felb.data.summarize import guessed_roles
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.data.raw_source import RawSource

Cell = tuple[str, str]
CELLS_OF_VALUE = 3
"""A value is counted as a category, in a bucket if it is a number, and as known."""


@dataclass(frozen=True)
class BoundedCounts:
    """Numbers of records, by what they have; counts below `min_count` are left out.

    Parameters
    ----------
    roles : which columns name records, codes, values and dates
    min_count : smallest count of a category, bucket or code that is here
    cells_per_record : cells to which one record adds a one
    records : number of records
    known : records with a value, by column
    values : records of each (column, category)
    buckets : records of each (column, bucket), a bucket being named by its lower end: numbers that agree in their
        first digit and in the half of its unit, such as 35 to below 40
    codes : records of each code of events
    labels : names of codes, where the source knows them
    whole : columns of which the source says that they hold whole numbers
    columns_public : whether columns are those of the table, rather than values in a long table
    """

    roles: Roles
    min_count: int
    cells_per_record: int
    records: int
    known: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[Cell, int] = field(default_factory=dict)
    buckets: Mapping[tuple[str, float], int] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    columns_public: bool = True


def bounded_counts(
    data: Any,
    *,
    min_count: int = 10,
    max_events: int = 20,
    roles: Roles | None = None,
    prefix_length: int | None = None,
    leave_out: tuple[str, ...] = (),
) -> BoundedCounts:
    """Count a table with a bounded part of each record.

    Parameters
    ----------
    data : file, URL or frame, as in `felb.data.read` with a schema
    min_count : leave out what fewer records have
    max_events : of a long table, so many events of a record are counted; which ones is drawn by a hash of the record
    roles, prefix_length, leave_out : as in `felb.data.summarize.summarize`

    Examples
    --------
    >>> import pandas as pd
    >>> counts = bounded_counts(pd.DataFrame({"sex": ["F", "M", "F"], "age": [61, 64, 38]}), min_count=1)
    >>> dict(counts.buckets), counts.cells_per_record
    ({('age', 35.0): 1, ('age', 60.0): 2}, 7)
    """
    with open_source(data) as source:
        roles = source.roles or guessed_roles(source, roles or Roles())
        for name in (roles.record, roles.item, roles.value, roles.time, *leave_out):
            if name is not None:
                source.kind(name)
        if roles.item is None:
            return _wide(source, roles, min_count, leave_out)
        return _long(source, roles, min_count, max_events, prefix_length)


def _text(source: RawSource, column: str) -> str:
    return as_text(column, source.kind(column), MISSING_VALUES)


def _bucket(value: str) -> str:
    """Return the SQL of ⌊2x/10ᵈ⌋ 10ᵈ/2 with d = ⌊log₁₀|x|⌋, the lower end of a number's bucket; NULL for no number."""
    x = as_number(value)
    unit = f"pow(10, floor(log10(abs({x}))))"
    return f"CASE WHEN {x} = 0 THEN 0 WHEN isfinite({x}) THEN floor(2 * {x} / {unit}) * {unit} / 2 END"


def _wide(source: RawSource, roles: Roles, min_count: int, leave_out: tuple[str, ...]) -> BoundedCounts:
    ((records,),) = source.rows(f"SELECT count(*) FROM {source.relation}")
    if roles.record is not None:
        record = _text(source, roles.record)
        ((distinct,),) = source.rows(f"SELECT count(DISTINCT {record}) FROM {source.relation}")
        if distinct < records:
            raise InputError(
                f"{source.name}: a record of the column {roles.record!r} has more than one row, or no name; noise that "
                "protects a row does not protect such a record"
            )
    columns = [name for name in source.columns if name not in (roles.record, *leave_out)]
    known: dict[str, int] = {}
    values: dict[Cell, int] = {}
    buckets: dict[tuple[str, float], int] = {}
    for column in columns:
        told = f"(SELECT {_text(source, column)} AS value FROM {source.relation})"
        ((known[column],),) = source.rows(f"SELECT count(value) FROM {told}")
        for cells, key in ((values, "value"), (buckets, _bucket("value"))):
            found = source.rows(
                f"SELECT {key} AS cell, count(*) FROM {told} WHERE cell IS NOT NULL GROUP BY 1 "
                f"HAVING count(*) >= {min_count} ORDER BY 1"
            )
            cells.update({(column, cell): count for cell, count in found})
    return BoundedCounts(
        roles,
        min_count,
        CELLS_OF_VALUE * len(columns) + 1,
        records,
        known,
        values,
        buckets,
        whole=frozenset(name for name in columns if source.kind(name) in WHOLE),
    )


def _long(source: RawSource, roles: Roles, min_count: int, max_events: int, prefix_length: int | None) -> BoundedCounts:
    if roles.record is None or roles.item is None:
        raise InputError(f"{source.name}: a long table needs a column that names records; say which")
    value = "NULL::VARCHAR" if roles.value is None else _text(source, roles.value)
    item = _text(source, roles.item)
    code = (
        item
        if prefix_length is None
        else f"CASE WHEN {value} IS NULL THEN ({item})[:{int(prefix_length)}] ELSE {item} END"
    )
    record = identifier(roles.record)
    source.rows(
        "CREATE TEMP TABLE felb_bounded AS SELECT record, item, value FROM (SELECT *, row_number() OVER (PARTITION BY "
        "record ORDER BY hash(record, item, value), item, value) AS number FROM (SELECT DISTINCT "
        f"{record} AS record, {code} AS item, {value} AS value FROM {source.relation}) WHERE item IS NOT NULL) "
        f"WHERE number <= {int(max_events)}"
    )
    every = f"SELECT {record} AS record FROM {source.relation}"
    every += f" UNION ALL FROM {source.records}" if source.records else ""
    ((records,),) = source.rows(f"SELECT count(DISTINCT record) FROM ({every})")

    def counted(cells: str, what: str) -> list[tuple[Any, ...]]:
        return source.rows(
            f"SELECT {cells}, count(DISTINCT record) AS n FROM felb_bounded WHERE {what} GROUP BY ALL "
            f"HAVING n >= {min_count} ORDER BY ALL"
        )

    return BoundedCounts(
        roles,
        min_count,
        (1 if roles.value is None else CELLS_OF_VALUE) * max_events + 1,
        records,
        dict(counted("item", "value IS NOT NULL")),
        {(name, cell): count for name, cell, count in counted("item, value", "value IS NOT NULL")},
        {
            (name, cell): count
            for name, cell, count in counted(f"item, {_bucket('value')} AS cell", "isfinite(TRY_CAST(value AS DOUBLE))")
        },
        dict(counted("item", "value IS NULL")),
        dict(source.labels),
        columns_public=False,
    )
