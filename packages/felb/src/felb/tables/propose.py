"""From what a raw table holds to a proposed schema."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from felb.data.readers import INDEX
from felb.errors import InputError
from felb.records import Natural, read_record, replacing
from felb.tables.schema import MISSING_VALUES, Feature, Handling, Roles, Schema, name_interval
from felb.tables.sources import as_number, as_text, identifier, literal, open_source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from felb.tables.sources import RawSource


RECORD_NAMES = ("person_id", "patient_id", "record_id", "subject_id", "user_id", "customer_id", "record", "person",
                "patient", "subject", "id")  # fmt: skip
ITEM_NAMES = ("code", "item", "feature", "concept_id", "icd", "icd10", "diagnosis", "product", "atc")
INDEX_NAMES = (INDEX, "unnamed: 0", "rownames")
"""Names that the row names of pandas and R get; they name records if they are unique."""
KEY_WORDS = re.compile(
    r"(^|[\W_])(id|key|no|nr|number|order|basket|cart|transaction|invoice|receipt|ticket|visit|case|stay|encounter|"
    r"session|user|customer|member|patient|person|subject|record)s?($|[\W_])|id$",
    re.IGNORECASE,
)
"""Names of columns that identify something."""
SAID_TO_BE_MISSING = "None"
"""A text that many programs write for a missing value and that may be a category as well."""
VALUE_NAMES, TIME_NAMES = ("value", "result"), ("date", "time", "timestamp", "datetime")
MOST_LONG_COLUMNS = 6
"""Of a table that is looked at for repeated keys; a long table has few columns."""
MOST_CATEGORIES = 1000
"""Categories of a column that are counted; a column with more holds free text or identifiers."""


class ColumnSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column: how many records have which category, or between which quantiles its numbers lie.

    Parameters
    ----------
    counts : records of each category; empty for numbers
    rest : records with categories that are not counted
    edges : quantiles of numbers, ascending
    whole : whether all numbers are whole
    known, missing : records with and without a value
    """

    counts: dict[str, Natural] = {}
    rest: Natural = 0
    edges: tuple[float, ...] = ()
    whole: bool = False
    known: Natural = 0
    missing: Natural = 0


class Summary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table: its columns and codes with the number of records of each.

    Parameters
    ----------
    roles : which columns name records, codes, values and dates
    records : number of records
    columns : by name
    codes : records of each code of events
    labels : names of codes, where the source knows them
    skipped : columns that were left out, and why
    doubtful : records with the text "None", which counts as missing, by column
    """

    roles: Roles
    records: Natural
    columns: dict[str, ColumnSummary] = {}
    codes: dict[str, Natural] = {}
    labels: dict[str, str] = {}
    skipped: dict[str, str] = {}
    doubtful: dict[str, Natural] = {}


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site proposes, as it is stored; `prefixes` tells whether its codes are beginnings of codes."""

    summary: Summary
    prefixes: bool
    format: Literal["felb-schema-proposal-1"] = "felb-schema-proposal-1"


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
        roles = source.roles or guess_roles(source, roles or Roles())
        for name in (roles.record, roles.item, roles.value, roles.time, *leave_out):
            if name is not None:
                source.kind(name)
        counting = _Counting(source, roles, bins, max_categories)
        if roles.item is None:
            return counting.wide(leave_out)
        return counting.long(prefix_length)


def guess_roles(source: RawSource, given: Roles) -> Roles:
    """Take columns by their usual names for those that were not given; a long table has few columns."""

    def first(names: tuple[str, ...]) -> str | None:
        by_name = {column.lower(): column for column in source.columns}
        return next((by_name[name] for name in names if name in by_name), None)

    record = given.record or first(RECORD_NAMES)
    item = given.item or (first(ITEM_NAMES) if record and len(source.columns) <= 5 else None)
    if item is None:
        return Roles(record or _find_unique(source, first(INDEX_NAMES)))
    return Roles(record, item, given.value or first(VALUE_NAMES), given.time or first(TIME_NAMES))


def _find_unique(source: RawSource, column: str | None) -> str | None:
    """Return the column if each row has a value of its own in it."""
    if column is None:
        return None
    name = identifier(column)
    ((rows, values),) = source.rows(f"SELECT count(*), count(DISTINCT {name}) FROM {source.relation}")
    return column if rows == values else None


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
        self._check_keys(records, leave_out)
        columns: dict[str, ColumnSummary] = {}
        doubtful: dict[str, int] = {}
        for column in source.columns:
            if column in (self._roles.record, *leave_out):
                continue
            ((count,),) = source.rows(
                f"SELECT count(*) FROM {source.relation} "
                f"WHERE {identifier(column)}::VARCHAR = {literal(SAID_TO_BE_MISSING)}"
            )
            doubtful |= {column: count} if count else {}
            values = f"(SELECT {self._text(column)} AS value, row_number() OVER () AS record FROM {source.relation})"
            found = self._column(column, values, records)
            columns |= {} if found is None else {column: found}
        return Summary(self._roles, records, columns, skipped=self._skipped, doubtful=doubtful)

    def _check_keys(self, rows: int, leave_out: tuple[str, ...]) -> None:
        """Raise if rows seem to be events of records, which a column with repeated values identifies."""
        source, record = self._source, self._roles.record
        others = [name for name in source.columns if name not in leave_out]
        if record is None and not 2 <= len(others) <= MOST_LONG_COLUMNS:
            return
        for column in others if record is None else [record]:
            if record is None and not KEY_WORDS.search(column):
                continue
            ((values,),) = source.rows(f"SELECT count(DISTINCT {identifier(column)}) FROM {source.relation}")
            if values < rows and (record is not None or values > self._most):
                item = next((name for name in others if name != column), "ITEM")
                raise InputError(
                    f"{source.name}: {rows} rows have only {values} different values of {column!r}. If these are the "
                    f"records and a row is an event, name both columns: record={column!r}, item={item!r} (options "
                    f"--record, --item); otherwise leave {column!r} out (option --leave-out)"
                )

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
            cuts = tuple(sorted({round_edge(edge, whole=bool(whole)) for edge in edges}))
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


def round_edge(edge: float, *, whole: bool) -> float:
    """Round a quantile to two significant digits, or to a whole number: easier to read, and no value of a record.

    Examples
    --------
    >>> round_edge(0.012345, whole=False), round_edge(47.6, whole=True), round_edge(51234.0, whole=True)
    (0.012, 48.0, 51000.0)
    """
    if edge == 0:
        return 0.0
    digits = 1 - math.floor(math.log10(abs(edge)))
    return float(round(edge, min(digits, 0) if whole else digits))


OPPOSITE = {"1": "0", "true": "false", "True": "False", "TRUE": "FALSE"}
"""Values of a column that is a feature already."""


def infer(
    data: Any,
    *,
    min_count: int = 10,
    max_features: int = 1000,
    max_categories: int = 20,
    missing: str = "unknown",
    **counting: Any,
) -> tuple[Schema, dict[str, str]]:
    """Propose a schema for a table, for a person to edit; also the columns that were left out, with reasons.

    Parameters
    ----------
    data : file, URL or frame, as in `felb.data.read` with a schema
    min_count : records that a category or code needs for a feature of its own
    max_features : most frequent features that are kept
    max_categories : of a column; the others become one feature
    missing : what a missing value is: "unknown", "zero", "category" or "error"
    counting : roles, bins, prefix_length and leave_out of `felb.tables.propose.summarize`

    Examples
    --------
    >>> import pandas as pd
    >>> schema, _ = infer(pd.DataFrame({"sex": ["F", "M", "F"], "smokes": [0, 1, 1]}), min_count=1)
    >>> schema.names
    ('sex: F', 'sex: M', 'smokes')
    """
    summary = summarize(data, max_categories=max_categories, **counting)
    prefixes = counting.get("prefix_length") is not None
    schema = make_schema(
        summary,
        min_count=min_count,
        max_features=max_features,
        max_categories=max_categories,
        missing=missing,
        prefixes=prefixes,
    )
    return schema, dict(summary.skipped)


def make_schema(
    summary: Summary,
    *,
    min_count: int = 10,
    max_features: int = 1000,
    max_categories: int = 20,
    missing: str = "unknown",
    prefixes: bool = False,
) -> Schema:
    """Make a schema of what was counted; parameters as in `infer`, codes as beginnings of codes if `prefixes`."""
    features: list[tuple[int, Feature]] = []
    columns: dict[str, Handling] = {}
    for column, found in summary.columns.items():
        made, columns[column] = _column(column, found, min_count, max_categories, missing)
        features += made
    for code, count in sorted(summary.codes.items()):
        if count >= min_count:
            name = f"{code} {summary.labels[code]}" if code in summary.labels else code
            rule: dict[str, Any] = {"prefixes" if prefixes else "codes": (code,)}
            features.append((count, Feature(name=name, **rule)))
    kept = _most_frequent(features, max_features)
    if not kept:
        raise InputError(f"no category or code has at least min_count={min_count} records; ask for fewer")
    dropped = {rule.column for _, rule in features if rule not in kept and rule.column is not None}
    for column in dropped:
        if columns[column].unlisted != "other":
            columns[column] = replace(columns[column], unlisted="ignore")
    about = {rule.column for rule in kept}
    columns = {column: _consistent(column, handling, kept) for column, handling in columns.items() if column in about}
    return Schema(tuple(kept), summary.roles, columns, Handling("zero", "ignore"))


def _most_frequent(features: list[tuple[int, Feature]], most: int) -> list[Feature]:
    """Return the most frequent features in their order."""
    order = sorted(range(len(features)), key=lambda i: (-features[i][0], i))[:most]
    return [features[i][1] for i in sorted(order)]


def _consistent(column: str, handling: Handling, kept: list[Feature]) -> Handling:
    """Return the handling that fits the features that were kept."""
    own = [rule for rule in kept if rule.column == column]
    if handling.missing == "category" and not any(rule.missing for rule in own):
        handling = replace(handling, missing="zero")
    if handling.unlisted == "other" and not any(rule.other for rule in own):
        handling = replace(handling, unlisted="ignore")
    return handling


def _column(
    column: str, found: ColumnSummary, min_count: int, max_categories: int, missing: str
) -> tuple[list[tuple[int, Feature]], Handling]:
    made: list[tuple[int, Feature]] = []
    unlisted: Any = "error"
    zeros: tuple[str, ...] = ()
    if found.edges:
        unlisted, per_bin = "ignore", found.known // (len(found.edges) + 1)
        for lower, upper in zip([None, *found.edges], [*found.edges, None], strict=True):
            name = name_interval(column, lower, upper, whole=found.whole)
            made.append((per_bin, Feature(name=name, column=column, lower=lower, upper=upper)))
    elif yes := next(
        (yes for yes, no in OPPOSITE.items() if yes in found.counts and set(found.counts) <= {yes, no}), ""
    ):
        made.append((found.counts[yes], Feature(name=column, column=column, values=(yes,))))
        zeros = (OPPOSITE[yes],)
    else:
        frequent = [value for value, count in found.counts.items() if count >= min_count]
        chosen = sorted(sorted(frequent, key=lambda value: (-found.counts[value], value))[:max_categories])
        for value in chosen:
            made.append((found.counts[value], Feature(name=f"{column}: {value}", column=column, values=(value,))))
        rest = found.rest + sum(count for value, count in found.counts.items() if value not in chosen)
        if rest >= min_count:
            unlisted = "other"
            made.append((rest, Feature(name=f"{column}: other", column=column, other=True)))
        elif rest:
            unlisted = "ignore"
    if missing == "category" and found.missing >= min_count:
        made.append((found.missing, Feature(name=f"{column}: missing", column=column, missing=True)))
        return made, Handling("category", unlisted, zeros)
    return made, Handling("zero" if missing == "category" else missing, unlisted, zeros)  # type: ignore[arg-type]


def limit_disclosure(summary: Summary, *, min_count: int = 10, base: int = 5) -> Summary:
    """Return what a site may tell of its summary: nothing that fewer than `min_count` records share.

    Counts are rounded down to multiples of `base`. Categories and codes of fewer than `min_count` records are not
    named, neither are columns for which nothing else remains; quantiles are told only where at least `min_count`
    records lie between two of them. Columns that make no features are not named either.
    """
    if min_count < 2 or base < 1:
        raise InputError(f"min_count={min_count} and base={base} would disclose single records")
    if summary.records < min_count:
        raise InputError(f"this site has fewer than {min_count} records and cannot propose anything")

    def told(count: int) -> int:
        return count // base * base if count >= min_count else 0

    columns = {}
    for name, found in summary.columns.items():
        counts = {value: told(count) for value, count in found.counts.items() if count >= min_count}
        rest = told(found.rest + sum(count for count in found.counts.values() if count < min_count))
        enough = found.known >= min_count * (len(found.edges) + 1)
        if counts or (found.edges and enough):
            columns[name] = ColumnSummary(
                counts, rest, found.edges if enough else (), found.whole, told(found.known), told(found.missing)
            )
    codes = {code: told(count) for code, count in summary.codes.items() if count >= min_count}
    labels = {code: label for code, label in summary.labels.items() if code in codes}
    return Summary(summary.roles, told(summary.records), columns, codes, labels)


def merge_summaries(proposals: Sequence[Summary]) -> Summary:
    """Add up the proposals of sites; quantiles are averaged, weighted by the records they are of."""
    if not proposals:
        raise InputError("there is no proposal to merge")
    roles = proposals[0].roles
    if any(proposal.roles != roles for proposal in proposals):
        raise InputError(
            "the proposals name different columns for records, codes, values or dates; agree on one naming"
        )
    columns: dict[str, ColumnSummary] = {}
    codes: dict[str, int] = {}
    labels: dict[str, str] = {}
    for proposal in proposals:
        for name, found in proposal.columns.items():
            columns[name] = _added(name, columns[name], found) if name in columns else found
        for code, count in proposal.codes.items():
            codes[code] = codes.get(code, 0) + count
        labels |= proposal.labels
    return Summary(roles, sum(proposal.records for proposal in proposals), columns, codes, labels)


def _added(name: str, a: ColumnSummary, b: ColumnSummary) -> ColumnSummary:
    if bool(a.edges) != bool(b.edges):
        raise InputError(f"column {name!r} holds numbers at one site and categories at another; agree on one of them")
    counts = {value: a.counts.get(value, 0) + b.counts.get(value, 0) for value in [*a.counts, *b.counts]}
    edges = a.edges if a.known >= b.known else b.edges
    if len(a.edges) == len(b.edges) and a.known + b.known:
        both = a.known + b.known
        edges = tuple((x * a.known + y * b.known) / both for x, y in zip(a.edges, b.edges, strict=True))
        edges = tuple(sorted({float(f"{edge:.3g}") if not a.whole else float(round(edge)) for edge in edges}))
    return ColumnSummary(counts, a.rest + b.rest, edges, a.whole and b.whole, a.known + b.known, a.missing + b.missing)


def write_proposal(summary: Summary, path: str | PathLike[str], *, prefixes: bool, force: bool = False) -> None:
    """Write what a site proposes as JSON, for a person to look at before it is sent."""
    if Path(path).exists() and not force:
        raise InputError(f"{path} exists; choose another name, or replace it by force", parameter="force")
    with replacing(Path(path)) as partial:
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(Proposal(summary, prefixes)), indent=1))


def read_proposal(path: str | PathLike[str]) -> Proposal:
    """Read a proposal back."""
    try:
        return read_record(path, Proposal, advice="make it again with felb schema propose")
    except FileNotFoundError as error:
        raise InputError(f"there is no file {str(path)!r}; a proposal is made with felb schema propose") from error
