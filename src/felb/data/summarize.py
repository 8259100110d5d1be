"""What a raw table holds, counted: the categories of each column, quantiles of its numbers, the codes of its events.

A schema is made of such a summary (`felb.data.propose_schema`), whether of one table or of several sites together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from felb.data.duck import as_number, as_text, identifier, literal
from felb.data.raw_source import open_source
from felb.data.schema import MISSING_VALUES, Roles
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.data.raw_source import RawSource

RECORD_NAMES = ("person_id", "patient_id", "record_id", "subject_id", "user_id", "customer_id", "record", "person",
                "patient", "subject", "id")  # fmt: skip
ITEM_NAMES = ("code", "item", "feature", "concept_id", "icd", "icd10", "diagnosis", "product", "atc")
VALUE_NAMES, TIME_NAMES = ("value", "result"), ("date", "time", "timestamp", "datetime")
MOST_CATEGORIES = 1000
"""Categories of a column that are counted; a column with more holds free text or identifiers."""


@dataclass(frozen=True)
class ColumnSummary:
    """A column: how many records have which category, or between which quantiles its numbers lie.

    Parameters
    ----------
    counts : records of each category; empty for numbers
    rest : records with categories that are not counted
    edges : quantiles of numbers, ascending
    whole : whether all numbers are whole
    known, missing : records with and without a value
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    rest: int = 0
    edges: tuple[float, ...] = ()
    whole: bool = False
    known: int = 0
    missing: int = 0


@dataclass(frozen=True)
class Summary:
    """A table: its columns and codes with the number of records of each.

    Parameters
    ----------
    roles : which columns name records, codes, values and dates
    records : number of records
    columns : by name
    codes : records of each code of events
    labels : names of codes, where the source knows them
    skipped : columns that were left out, and why
    """

    roles: Roles
    records: int
    columns: Mapping[str, ColumnSummary] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)


def summarize(
    data: Any,
    *,
    roles: Roles | None = None,
    bins: int = 4,
    max_categories: int = 20,
    prefix_length: int | None = None,
    leave_out: tuple[str, ...] = (),
) -> Summary:
    """Count what a table holds.

    Parameters
    ----------
    data : file, URL or frame, as in `felb.data.read` with a schema
    roles : which columns name records, codes, values and dates; told by their names if not given
    bins : a column of numbers is cut at its quantiles into so many bins
    max_categories : numbers with at most so many distinct values count as categories
    prefix_length : count the first so many characters of codes instead of whole codes
    leave_out : columns that are no features, such as the client's name
    """
    with open_source(data) as source:
        roles = source.roles or guessed_roles(source, roles or Roles())
        for name in (roles.record, roles.item, roles.value, roles.time, *leave_out):
            if name is not None:
                source.kind(name)
        counting = _Counting(source, roles, bins, max_categories)
        if roles.item is None:
            return counting.wide(leave_out)
        return counting.long(prefix_length)


def guessed_roles(source: RawSource, given: Roles) -> Roles:
    """Take columns by their usual names for those that were not given; a long table has few columns."""

    def first(names: tuple[str, ...]) -> str | None:
        by_name = {column.lower(): column for column in source.columns}
        return next((by_name[name] for name in names if name in by_name), None)

    record = given.record or first(RECORD_NAMES)
    item = given.item or (first(ITEM_NAMES) if record and len(source.columns) <= 5 else None)
    if item is None:
        return Roles(record)
    return Roles(record, item, given.value or first(VALUE_NAMES), given.time or first(TIME_NAMES))


class _Counting:
    def __init__(self, source: RawSource, roles: Roles, bins: int, max_categories: int) -> None:
        self._source, self._roles, self._bins, self._most = source, roles, bins, max_categories
        self._skipped: dict[str, str] = {}

    def _text(self, column: str) -> str:
        return as_text(column, self._source.kind(column), MISSING_VALUES)

    def wide(self, leave_out: tuple[str, ...]) -> Summary:
        """Count the columns of a table with one row per record."""
        source = self._source
        ((records,),) = source.rows(f"SELECT count(*) FROM {source.relation}")
        if not records:
            raise InputError(f"{source.name}: holds no records")
        columns: dict[str, ColumnSummary] = {}
        for column in source.columns:
            if column in (self._roles.record, *leave_out):
                continue
            values = f"(SELECT {self._text(column)} AS value, row_number() OVER () AS record FROM {source.relation})"
            found = self._column(column, values, records)
            columns |= {} if found is None else {column: found}
        return Summary(self._roles, records, columns, skipped=self._skipped)

    def long(self, prefix_length: int | None) -> Summary:
        """Count the codes of a table of events, and the values of those that have any."""
        source, roles = self._source, self._roles
        if roles.record is None:
            raise InputError(f"{source.name}: a long table needs a column that names records; say which")
        record, item = identifier(roles.record), self._text(roles.item or "")
        value = "NULL::VARCHAR" if roles.value is None else self._text(roles.value)
        events = f"(SELECT {record} AS record, {item} AS item, {value} AS value FROM {source.relation})"
        every = f"SELECT record FROM {events}" + (f" UNION ALL FROM {source.records}" if source.records else "")
        ((records,),) = source.rows(f"SELECT count(DISTINCT record) FROM ({every})")
        if not records:
            raise InputError(f"{source.name}: holds no records")
        valued = source.rows(f"SELECT DISTINCT item FROM {events} WHERE item IS NOT NULL AND value IS NOT NULL")
        columns: dict[str, ColumnSummary] = {}
        for (name,) in sorted(valued):
            values = f"(SELECT record, value FROM {events} WHERE item = {literal(name)})"
            found = self._column(name, values, records)
            columns |= {} if found is None else {name: found}
        code = "item" if prefix_length is None else f"item[:{int(prefix_length)}]"
        named = ", ".join(literal(name) for (name,) in valued) or "''"
        counted = source.rows(
            f"SELECT {code}, count(DISTINCT record) FROM {events} WHERE item IS NOT NULL AND item NOT IN ({named}) "
            "GROUP BY 1 ORDER BY 1"
        )
        return Summary(roles, records, columns, dict(counted), dict(source.labels), self._skipped)

    def _column(self, column: str, values: str, records: int) -> ColumnSummary | None:
        """Summarize the (record, value) pairs of a column; None if it makes no features."""
        source, number = self._source, as_number("value")
        ((known, distinct, numbers, dates, whole),) = source.rows(
            f"SELECT count(DISTINCT record), count(DISTINCT value), count(*) FILTER (isfinite({number})), "
            f"count(TRY_CAST(value AS TIMESTAMP)), bool_and({number} = trunc({number})) FILTER (isfinite({number})) "
            f"FROM {values} WHERE value IS NOT NULL"
        )
        ((lines,),) = source.rows(f"SELECT count(*) FROM {values} WHERE value IS NOT NULL")
        if not known:
            self._skipped[column] = "has no values"
            return None
        if numbers == lines and distinct > self._most:
            at = [step / self._bins for step in range(1, self._bins)]
            ((edges,),) = source.rows(f"SELECT quantile_cont({number}, {at}) FROM {values} WHERE value IS NOT NULL")
            cuts = tuple(sorted({rounded(edge, whole=bool(whole)) for edge in edges}))
            return ColumnSummary(edges=cuts, whole=bool(whole), known=known, missing=records - known)
        if dates == lines:
            self._skipped[column] = "holds dates; make categories or numbers of them in a query"
            return None
        if distinct > MOST_CATEGORIES or (distinct == lines and distinct > self._most):
            self._skipped[column] = f"has {distinct} different texts; it names records, or is free text"
            return None
        counts = dict(
            source.rows(
                f"SELECT value, count(DISTINCT record) FROM {values} WHERE value IS NOT NULL "
                "GROUP BY 1 ORDER BY 2 DESC, 1"
            )
        )
        return ColumnSummary(counts, known=known, missing=records - known)


def rounded(edge: float, *, whole: bool) -> float:
    """Round a quantile to two significant digits, or to a whole number: easier to read, and no value of a record.

    Examples
    --------
    >>> rounded(0.012345, whole=False), rounded(47.6, whole=True), rounded(51234.0, whole=True)
    (0.012, 48.0, 51000.0)
    """
    if edge == 0:
        return 0.0
    digits = 1 - math.floor(math.log10(abs(edge)))
    return float(round(edge, min(digits, 0) if whole else digits))
