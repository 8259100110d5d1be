"""Apply a schema to raw data: every record becomes a row of zeros and ones.

The work is DuckDB's. Rules and raw data are tables, and their joins give cells as numbers ``row * n_features +
feature``; the sorted union is the matrix. Rows are in the order of their records, so that neither the order of lines
nor repeated events nor the origin of the data changes the matrix.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.data.readers import TEXT_COLUMNS
from felb.errors import CellError, InputError
from felb.tables.schema import Handling
from felb.tables.sources import (
    POSITION,
    WHOLE,
    as_number,
    as_text,
    as_time,
    explain_errors,
    identifier,
    literal,
    open_source,
    record_order,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from felb.tables.schema import Feature, Schema
    from felb.tables.sources import RawSource

CELLS_AT_A_TIME = 1 << 22
"""Ones that are taken from DuckDB at once."""
ONES, UNKNOWN = "felb_cells", "felb_unknown"
"""Tables of DuckDB: the ones and the unknown cells of the matrix, as ``row * n_features + feature``."""
YES, NO = ("1", "true", "True", "TRUE"), ("0", "false", "False", "FALSE")
"""What a column holds whose name is a code."""
SHOWN = 3
"""Unlisted values that a message names."""


@dataclass(frozen=True)
class Applied:
    """What a schema met in the data it was applied to.

    Parameters
    ----------
    digest : of the schema
    records : number of rows
    unlisted : values that no feature lists and how often they occur, by column; the most frequent ones. Codes are under
        the name of their column
    left_out : how many such values or events have no feature at all, by column
    missing : records without a value, by column
    """

    digest: str
    records: int
    unlisted: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return what was new, a sentence for each column."""
        found = []
        for column, count in self.left_out.items():
            values = self.unlisted[column]
            shown = ", ".join(f"{value!r} ({times})" for value, times in list(values.items())[:SHOWN])
            more = ", …" if len(values) > SHOWN else ""
            found.append(f"{count} values of {column!r} are not listed by the schema and left out: {shown}{more}")
        return found


def apply_schema(
    data: Any, schema: Schema, texts: Mapping[str, str | None] | None = None
) -> Generator[tuple[BinaryMatrix, dict[str, tuple[Any, ...]], Applied]]:
    """Yield the matrix block of rows after block of rows, with the texts of its rows; at least one block.

    Everything is read and checked before the first block.

    Parameters
    ----------
    data : file, URL or frame
    schema : the rules
    texts : columns with the clients, the names ("rows") and the labels of the records; without a column of names, they
        are those by which the schema tells records apart
    """
    roles = schema.roles
    columns = {part: column for part, column in (texts or {}).items() if column is not None}
    wanted = {roles.record, roles.item, *columns.values(), *schema.column_features}
    wanted |= {roles.value} if schema.column_features else set()
    wanted |= {roles.time} if any(feature.windowed for feature in schema.features) else set()

    def needed(name: str) -> bool:
        return name in wanted or bool(schema.about_codes and schema.of_code(name))

    with open_source(data, needed=needed) as source, explain_errors(source.name):
        application = _Application(source, schema, _Layout(source, schema, columns))
        applied = application.collect()
        with closing(application.blocks()) as blocks:
            for matrix, found in blocks:
                yield matrix, found, applied


@dataclass(frozen=True)
class _Item:
    """A column that features are about, or in a wide table one whose name is a code; then it holds 0 or 1."""

    name: str
    features: tuple[int, ...]
    handling: Handling
    is_code: bool = False
    is_variable: bool = False


class _Application:
    """One schema on one source.

    Rules are tables of DuckDB, by the number of their column (``item``), and are joined with the facts: rows
    (row, item, value, number, time). The same joins serve all columns of all sources.
    """

    def __init__(self, source: RawSource, schema: Schema, layout: _Layout) -> None:
        self._source, self._schema, self._layout = source, schema, layout
        self._m = len(schema.features)
        self._unlisted: dict[str, dict[str, int]] = {}
        self._left_out: dict[str, int] = {}
        self._missing: dict[str, int] = {}
        variables = () if source.variables is None or layout.long else source.variables.positions
        self._items = [
            _Item(column, features, schema.handling(column), is_variable=column in variables)
            for column, features in schema.column_features.items()
        ]
        if schema.about_codes and not layout.long:
            for rule in schema.features:
                if rule.column is None and (rule.any or rule.other or rule.windowed):
                    raise InputError(
                        f"{source.name}: feature {rule.name!r} needs a long table with the column {schema.roles.item!r}"
                    )
            self._items += [
                _Item(column, schema.of_code(column), Handling("zero", "error"), True, column in variables)
                for column in source.columns
                if column not in schema.column_features and schema.of_code(column)
            ]

    def collect(self) -> Applied:
        """Run every rule; afterwards the cells are in DuckDB, sorted."""
        self._make_rules()
        relational = [(number, item) for number, item in enumerate(self._items) if not item.is_variable]
        if relational:
            self._apply_to_relation(self._layout.facts([(number, item.name) for number, item in relational]))
        if len(relational) < len(self._items):
            self._apply_to_variables()
        self._report()
        if self._schema.about_codes and self._layout.long:
            self._apply_codes()
        for table, found in ((ONES, "felb_ones"), (UNKNOWN, "felb_no_values")):
            self._run(f"CREATE TEMP TABLE {table} AS SELECT DISTINCT cell FROM {found} ORDER BY cell")
        return Applied(self._schema.digest, self._layout.n_rows, self._unlisted, self._left_out, self._missing)

    def _run(self, sql: str, parameters: Iterable[Any] = ()) -> Any:
        return self._source.connection.execute(sql, list(parameters))

    def _make_rules(self) -> None:
        listed: list[tuple[int, str, int | None]] = []
        ranges: list[tuple[int, int, float, float]] = []
        # Features that any value has, or one that no rule lists, or none; and those that are unknown without a value.
        simple: dict[str, list[tuple[int, int]]] = {f"felb_{word}": [] for word in ("any", "other", "absent", "open")}
        for item, about in enumerate(self._items):
            if about.is_code:
                listed += [(item, word, feature) for word in YES for feature in about.features]
                listed += [(item, word, None) for word in NO]
                continue
            listed += [(item, value, None) for value in about.handling.zeros]
            for number in about.features:
                rule = self._schema.features[number]
                listed += [(item, value, number) for value in rule.values]
                ranges += [(item, number, *_range_of(rule))] if rule.numeric else []
                for table, holds in (("felb_any", rule.any), ("felb_other", rule.other), ("felb_absent", rule.missing)):
                    simple[table] += [(item, number)] if holds else []
                simple["felb_open"] += [(item, number)] if about.handling.missing == "unknown" else []
        self._make_table("felb_listed", listed, item="INTEGER", value="VARCHAR", feature="INTEGER")
        self._make_table("felb_ranges", ranges, item="INTEGER", feature="INTEGER", low="DOUBLE", high="DOUBLE")
        for table, pairs in simple.items():
            self._make_table(table, pairs, item="INTEGER", feature="INTEGER")
        told = [(item,) for item, about in enumerate(self._items) if self._is_reported(about)]
        self._make_table("felb_reported", told, item="INTEGER")
        windows = [(i, rule.since, rule.before) for i, rule in enumerate(self._schema.features) if rule.windowed]
        if windows and self._layout.time is None:
            raise InputError(
                f"{self._source.name}: features look at dates, and the source has no column {self._schema.roles.time!r}"
            )
        self._make_table("felb_windows", windows, feature="INTEGER", since="TIMESTAMP", before="TIMESTAMP")
        during = "(since IS NULL OR time >= since) AND (before IS NULL OR time < before)"
        self._window = f" LEFT JOIN felb_windows USING (feature) WHERE {during}" if windows else ""
        for table in ("felb_ones", "felb_no_values"):
            self._run(f"CREATE TEMP TABLE {table} (cell BIGINT)")
        self._run("CREATE TEMP TABLE felb_outside (item INTEGER, value VARCHAR, n BIGINT, first BIGINT)")
        self._run("CREATE TEMP TABLE felb_missing (item INTEGER, n BIGINT, first BIGINT)")

    def _make_table(self, table: str, rows: list[tuple[Any, ...]], **columns: str) -> None:
        values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
        made = ", ".join(f"unnest(${i}::{kind}[]) AS {name}" for i, (name, kind) in enumerate(columns.items(), 1))
        self._run(f"CREATE TEMP TABLE {table} AS SELECT {made}", values)

    def _is_reported(self, about: _Item) -> bool:
        """Whether values without a rule are counted; a cut at 65 says nothing of younger people."""
        rules = [self._schema.features[number] for number in about.features]
        return about.handling.unlisted != "ignore" or not any(rule.numeric or rule.any for rule in rules)

    def _matches(self, facts: str, absent: str) -> tuple[str, str]:
        """Return the SQL of (row, item, feature, time) of all ones, and that of the facts that no rule lists."""
        within = "f.item = r.item AND f.number >= r.low AND f.number <= r.high"
        known = f"(FROM {facts} WHERE value IS NOT NULL)"
        rest = f"(FROM {known} ANTI JOIN felb_listed USING (item, value))"
        outside = f"(FROM {rest} AS f ANTI JOIN felb_ranges AS r ON {within})"
        return (
            f"SELECT row, item, feature, time FROM {known} JOIN felb_listed USING (item, value) "
            "WHERE feature IS NOT NULL UNION ALL "
            f"SELECT f.row, f.item, r.feature, f.time FROM {rest} AS f JOIN felb_ranges AS r ON {within} UNION ALL "
            f"SELECT row, item, feature, time FROM {known} JOIN felb_any USING (item) UNION ALL "
            f"SELECT row, item, feature, time FROM {outside} JOIN felb_other USING (item) UNION ALL "
            f"SELECT row, item, feature, NULL::TIMESTAMP FROM {absent} JOIN felb_absent USING (item)"
        ), f"(FROM {outside} SEMI JOIN felb_reported USING (item))"

    def _apply(self, facts: str, absent: str | None = None) -> None:
        """Keep what the rules make of facts; `absent` gives rows without a value, if there is a fact for each other."""
        absent = absent or f"(SELECT row, item FROM {facts} WHERE value IS NULL)"
        matches, outside = self._matches(facts, absent)
        self._keep(matches)
        unknown = f"SELECT row * {self._m} + feature FROM {absent} JOIN felb_open USING (item)"
        self._run(f"INSERT INTO felb_no_values {unknown}")
        self._run(f"INSERT INTO felb_outside SELECT item, value, count(*), min(row) FROM {outside} GROUP BY ALL")
        self._run(f"INSERT INTO felb_missing SELECT item, count(*), min(row) FROM {absent} GROUP BY ALL")

    def _keep(self, matches: str) -> None:
        self._run(f"INSERT INTO felb_ones SELECT row * {self._m} + feature FROM ({matches}){self._window}")

    def _apply_to_relation(self, facts: str) -> None:
        wrong = self._run(
            f"SELECT item, value FROM {facts} ANTI JOIN felb_listed USING (item, value) WHERE value IS NOT NULL AND "
            "(number IS NULL OR isnan(number)) AND item IN (SELECT item FROM felb_ranges) ORDER BY item LIMIT 1"
        ).fetchone()
        if wrong:
            name = self._items[wrong[0]].name
            raise CellError(
                f"{self._where(name, wrong[1])} holds {wrong[1]!r}, which is not a number; list it with is, or among "
                "the missing_values of the schema",
                place=f"a value of column {name!r}",
            )
        if not self._layout.long:
            self._apply(facts)
            return
        # A record without a line about the column has no value either.
        known = f"(SELECT row, item FROM {facts} WHERE value IS NOT NULL)"
        every = f"(SELECT row, item FROM {ROWS}, range({len(self._items)}) AS t(item))"
        self._apply(facts, f"(FROM {every} ANTI JOIN {known} USING (row, item))")

    def _apply_to_variables(self) -> None:
        """Apply the rules to columns of numbers that are not in the relation, block of rows after block of rows.

        Zeros that a sparse matrix does not store are facts only of columns where a zero makes a one, or is reported.
        """
        assert self._source.variables is not None
        names, items = zip(*((about.name, i) for i, about in enumerate(self._items) if about.is_variable), strict=True)
        zero = "(SELECT 0 AS row, unnest($1::INTEGER[]) AS item, '0' AS value, 0.0 AS number, NULL::TIMESTAMP AS time)"
        matches, outside = self._matches("felb_zeros", "(SELECT row, item FROM felb_zeros WHERE false)")
        self._run(f"CREATE TEMP TABLE felb_zeros AS FROM {zero}", [list(items)])
        made = self._run(f"SELECT item FROM ({matches}) UNION SELECT item FROM {outside}").fetchnumpy()["item"]
        with_zeros = np.flatnonzero(np.isin(items, np.asarray(made)))
        text = as_text("number", "DOUBLE")
        facts = f"(SELECT row, item, {text} AS value, number, NULL::TIMESTAMP AS time FROM felb_block)"
        order = self._layout.row_order()
        for start, block in self._source.variables.blocks(names):
            stored = block.tocoo()
            rows, columns, numbers = [stored.row], [stored.col], [stored.data]
            for j in with_zeros:
                at = np.setdiff1d(np.arange(block.shape[0]), block.indices[block.indptr[j] : block.indptr[j + 1]])
                rows, columns, numbers = [*rows, at], [*columns, np.full(at.size, j)], [*numbers, np.zeros(at.size)]
            table = {
                "row": order[start + np.concatenate(rows)],
                "item": np.array(items)[np.concatenate(columns)],
                "number": np.concatenate(numbers),
            }
            self._source.connection.register("felb_block", table)
            self._apply(facts)
            self._source.connection.unregister("felb_block")

    def _report(self) -> None:
        found = self._run(
            "SELECT item, value, sum(n), sum(sum(n)) OVER (PARTITION BY item), min(first) FROM felb_outside "
            "GROUP BY item, value QUALIFY row_number() OVER (PARTITION BY item ORDER BY sum(n) DESC, value) <= 100 "
            "ORDER BY item, sum(n) DESC, value"
        ).fetchall()
        outside = {item: list(group) for item, group in groupby(found, key=itemgetter(0))}
        missing = self._run("SELECT item, sum(n), min(first) FROM felb_missing GROUP BY item").fetchall()
        absent = {item: (int(count), first) for item, count, first in missing}
        for item, about in enumerate(self._items):
            if item in outside:
                _, value, _, total, first = outside[item][0]
                if about.handling.unlisted == "error":
                    self._refuse_unlisted(about, value, first)
                counts = {text: int(count) for _, text, count, _, _ in outside[item]}
                self._note(about.name, counts, int(total), about.handling)
            if item in absent and not about.is_code:
                count, first = absent[item]
                self._missing[about.name] = count
                if about.handling.missing == "error":
                    raise CellError(
                        f"{self._source.name}: {self._layout.name_of(first)} has no value of {about.name!r} ({count} "
                        f"records have none); set missing of [columns.{about.name}] to unknown, zero or category in "
                        "the schema",
                        place=f"column {about.name!r} without a value in {count} records",
                    )

    def _refuse_unlisted(self, about: _Item, value: str, row: int) -> NoReturn:
        if about.is_variable:
            where = f"{self._source.name}: {self._layout.name_of(row)}: column {about.name!r}"
        else:
            where = self._where(about.name, value)
        if about.is_code:
            raise CellError(
                f"{where} holds {value!r}; a column of a code holds 0 or 1", place=f"a value of column {about.name!r}"
            )
        known = ", ".join(list(self._schema.listed(about.name))[:20])
        raise CellError(
            f"{where} holds {value!r}, which the schema does not list"
            + (f"; it lists {known}" if known else " in any bin")
            + "; add it, or set unlisted to ignore or other",
            place=f"a value of column {about.name!r}, which the schema does not list,",
        )

    def _where(self, column: str, value: str) -> str:
        place = self._source.place(self._layout.holds(column, value), self._layout.roles.record)
        return f"{self._source.name}: {place}: column {column!r}"

    def _note(self, column: str, values: dict[str, int], count: int, handling: Handling) -> None:
        """Count values that no feature lists."""
        self._unlisted[column] = values
        if handling.unlisted == "ignore":
            self._left_out[column] = count

    def _apply_codes(self) -> None:
        """Look at each code once, and join the events with the features of their codes."""
        schema, item = self._schema, self._layout.roles.item or ""
        columns = ", ".join(map(literal, schema.column_features)) or "''"
        counted = self._run(
            f"SELECT item, count(*) FROM {EVENTS} WHERE item IS NOT NULL AND item NOT IN ({columns}) GROUP BY item"
        ).fetchall()
        every = [n for n, rule in enumerate(schema.features) if rule.column is None and rule.any]
        other = [n for n, rule in enumerate(schema.features) if rule.column is None and rule.other]
        pairs, unlisted = [], []
        for code, count in counted:
            if code in schema.missing_values:
                continue
            found = schema.of_code(code)
            pairs += [(code, number) for number in (*found, *every, *(() if found else other))]
            if not found and not every:
                unlisted.append((code, count))
        if unlisted:
            unlisted.sort(key=lambda pair: (-pair[1], pair[0]))
            self._note(item, dict(unlisted[:100]), sum(count for _, count in unlisted), schema.codes)
            if schema.codes.unlisted == "error":
                code = unlisted[0][0]
                raise CellError(
                    f"{self._where(item, code)} holds the code {code!r}, which the schema does not list; add it, or "
                    "set unlisted of [codes] to ignore or other",
                    place=f"a code of column {item!r}, which the schema does not list,",
                )
        self._make_table("felb_codes", pairs, item="VARCHAR", feature="INTEGER")
        self._keep(f"SELECT row, feature, time FROM {EVENTS} JOIN felb_codes USING (item) JOIN {ROWS} USING (key)")

    def blocks(self) -> Generator[tuple[BinaryMatrix, dict[str, tuple[Any, ...]]]]:
        """Yield the matrix in blocks of rows, with the texts of these."""
        n = self._layout.n_rows
        ((ones,),) = self._run(f"SELECT count(*) FROM {ONES}").fetchall()
        ((unknown,),) = self._run(f"SELECT count(*) FROM {UNKNOWN}").fetchall()
        step = max(1, n * CELLS_AT_A_TIME // max(ones, unknown, n, 1))
        for start in range(0, n, step):
            stop = min(n, start + step)
            matrix = self._block(ONES, start, stop).with_columns(self._schema.names)
            if unknown:
                matrix = matrix.with_unknown(self._block(UNKNOWN, start, stop))
            parts = {**({"rows": "record"} if self._layout.roles.record else {}), **self._layout.texts}
            selected = ", ".join(["row", *parts.values()])
            found = self._run(f"SELECT {selected} FROM {ROWS} WHERE row >= {start} AND row < {stop} ORDER BY row")
            lines = list(zip(*found.fetchall(), strict=True))
            yield matrix, dict(zip(parts, lines[1:], strict=True))

    def _block(self, table: str, start: int, stop: int) -> BinaryMatrix:
        cells: NDArray[np.int64] = np.asarray(
            self._run(
                f"SELECT cell FROM {table} WHERE cell >= {start * self._m} AND cell < {stop * self._m} ORDER BY cell"
            ).fetchnumpy()["cell"],
            dtype=np.int64,
        )
        rows, columns = np.divmod(cells, self._m)
        indptr = np.concatenate(([0], np.cumsum(np.bincount(rows - start, minlength=stop - start))))
        return BinaryMatrix(indptr, columns, self._m)


def _range_of(rule: Feature) -> tuple[float, float]:
    """Return the smallest and the largest number that obey a rule."""
    low = -math.inf if rule.lower is None else rule.lower
    high = math.inf if rule.upper is None else rule.upper
    return (
        math.nextafter(low, math.inf) if rule.lower_open else low,
        high if rule.upper_closed or rule.upper is None else math.nextafter(high, -math.inf),
    )


ROWS, EVENTS, WIDE, VALUES = "felb_rows", "felb_events", "felb_wide", "felb_values"


class _Layout:
    """A raw table, wide or long, as facts: which record has which value of what, and when.

    The records are numbered in the table `ROWS` (row, key, record, and a column for each text of a record). A column
    that is not there, a record without a name and one with no client or several are errors; it may have no label.
    """

    def __init__(self, source: RawSource, schema: Schema, texts: Mapping[str, str]) -> None:
        self.source, self.schema, self.roles = source, schema, source.roles or schema.roles
        self.long = self.roles.item is not None and self.roles.item in source.columns
        self.time = self.roles.time if self.long and self.roles.time in source.columns else None
        self.texts = {part: f"felb_{part}_text" for part in texts}
        raw = {}
        for part, column in texts.items():
            try:
                raw[self.texts[part]] = self.text(column)
            except InputError as error:  # there is no such column
                raise InputError(str(error), parameter=TEXT_COLUMNS[part]) from error
        if self.long:
            self._number_long(raw)
        else:
            self._number_wide(raw)
        ((self.n_rows,),) = source.rows(f"SELECT count(*) FROM {ROWS}")
        if self.n_rows == 0:
            raise InputError(f"{source.name}: holds no records; check the table, the query and its conditions")
        for part, name in self.texts.items():
            word = {"clients": "client", "rows": "name", "labels": "label"}[part]
            if part != "labels" and source.rows(f"SELECT 1 FROM {ROWS} WHERE {name} IS NULL LIMIT 1"):
                raise InputError(f"{source.name}: some records have no {word} in the column {texts[part]!r}; fill it")
            several = self.long and source.rows(f"SELECT record FROM {ROWS} WHERE {name}_n > 1 ORDER BY row LIMIT 1")
            if several:
                raise InputError(
                    f"{source.name}: record {several[0][0]!r} has more than one {word} in the column {texts[part]!r}"
                )

    def facts(self, columns: Sequence[tuple[int, str]]) -> str:
        """Return the SQL of (row, item, value, number, time) of columns, each with the number that is its item."""
        if self.long:
            numbers = " ".join(f"WHEN {literal(name)} THEN {number}" for number, name in columns)
            found = f"SELECT row, CASE item {numbers} END AS item, value, time FROM {VALUES}"
        else:
            found = " UNION ALL ".join(
                f"SELECT row, {number} AS item, {identifier(name)} AS value, NULL::TIMESTAMP AS time FROM {WIDE}"
                for number, name in columns
            )
        return f"(SELECT *, {as_number('value')} AS number FROM ({found}))"

    def holds(self, column: str, value: str) -> str:
        """Return the condition on a raw row that a column holds a value."""
        if not self.long or column == self.roles.item:
            return f"{self.text(column)} = {literal(value)}"
        of_column = f"{self.text(self.roles.item or '')} = {literal(column)}"
        return f"{of_column} AND {self.text(self.roles.value or '')} = {literal(value)}"

    def text(self, column: str) -> str:
        """Return the SQL of a raw column as canonical text."""
        return as_text(column, self.source.kind(column), self.schema.missing_values)

    def row_order(self) -> NDArray[np.int64]:
        """Return the row of the matrix of each row of the source."""
        found = self.source.connection.execute(f"SELECT row FROM {WIDE} ORDER BY {POSITION}").fetchnumpy()
        return np.asarray(found["row"], dtype=np.int64)

    def name_of(self, row: int) -> str:
        """Return how a message calls a row of the matrix."""
        if self.roles.record is None:
            first = self.source.first_line
            return f"row {row + 1}" if first is None else f"line {row + first}"
        ((record,),) = self.source.rows(f"SELECT record FROM {ROWS} WHERE row = {row}")
        return f"record {record!r}"

    def _number_wide(self, texts: Mapping[str, str]) -> None:
        source, schema, record = self.source, self.schema, self.roles.record
        elsewhere = set() if source.variables is None else set(source.variables.positions)
        kept = [name for name in schema.column_features if name not in elsewhere]
        if schema.about_codes:
            coded = [name for name in source.columns if schema.of_code(name)]
            if not coded:
                source.kind(schema.roles.item or "")
            kept += [name for name in coded if name not in {*kept, *elsewhere}]
        named = "NULL::VARCHAR" if record is None else self.text(record)
        order = "" if record is None else f"ORDER BY {record_order(named)}"
        columns = [f"row_number() OVER ({order}) - 1 AS row", f"{named} AS felb_record"]
        columns += [f"{text} AS {name}" for name, text in texts.items()]
        columns += [] if source.variables is None else [POSITION]
        columns += [f"{self.text(column)} AS {identifier(column)}" for column in kept]
        source.rows(f"CREATE TEMP TABLE {WIDE} AS SELECT {', '.join(columns)} FROM {source.relation}")
        source.rows(
            f"CREATE TEMP VIEW {ROWS} AS SELECT row, felb_record AS key, felb_record AS record"
            f"{''.join(f', {name}' for name in texts)} FROM {WIDE}"
        )
        if record is None:
            return
        self._check_named(record)
        twice = source.rows(f"SELECT record FROM {ROWS} GROUP BY record HAVING count(*) > 1 ORDER BY 1 LIMIT 1")
        if twice:
            place = source.place(f"{named} = {literal(twice[0][0])}", None)
            raise InputError(
                f"{source.name}: {place}: record {twice[0][0]!r} has more than one row; in a wide table each "
                "record has one. A table of events needs item in [table]"
            )

    def _number_long(self, texts: Mapping[str, str]) -> None:
        source, schema, roles = self.source, self.schema, self.roles
        record, item_column = roles.record, roles.item or ""
        if record is None:
            raise InputError(f"{source.name}: a long table needs a column that names records; add record to [table]")
        time = "NULL::TIMESTAMP"
        if any(feature.windowed for feature in schema.features) and roles.time is not None:
            time = as_time(roles.time, source.kind(roles.time), schema.missing_values)
            self._check_times(roles.time, time)
        columns = [f"{identifier(record)} AS key", *(f"{text} AS {name}" for name, text in texts.items())]
        found = f"SELECT {', '.join(columns)} FROM {source.relation}"
        if source.records is not None:
            columns = ["record AS key", *(f"NULL::VARCHAR AS {name}" for name in texts)]
            found += f" UNION ALL SELECT {', '.join(columns)} FROM {source.records}"
        named = as_text("key", source.kind(record), schema.missing_values)
        columns = ["key", f"{named} AS record"]
        columns += [f"min({name}) AS {name}, count(DISTINCT {name}) AS {name}_n" for name in texts]
        order = "key" if source.kind(record) in WHOLE else record_order("record")  # the same order, sooner
        source.rows(
            f"CREATE TEMP TABLE {ROWS} AS SELECT row_number() OVER (ORDER BY {order}) - 1 AS row, * FROM "
            f"(SELECT {', '.join(columns)} FROM ({found}) GROUP BY key)"
        )
        self._check_named(record)
        # Codes are compared with the texts for no value later, when each is looked at once, not line by line.
        item = as_text(item_column, source.kind(item_column))
        events = f"SELECT {identifier(record)} AS key, {item} AS item, {time} AS time"
        source.rows(f"CREATE TEMP VIEW {EVENTS} AS {events} FROM {source.relation}")
        if schema.column_features:
            if roles.value is None:
                raise InputError(f"{source.name}: features look at values, and the schema names no value column")
            listed = ", ".join(map(literal, schema.column_features))
            source.rows(
                f"CREATE TEMP TABLE {VALUES} AS SELECT row, item, value, time FROM ({events}, {self.text(roles.value)} "
                f"AS value FROM {source.relation} WHERE {item} IN ({listed})) JOIN {ROWS} USING (key)"
            )

    def _check_named(self, record: str) -> None:
        if self.source.rows(f"SELECT 1 FROM {ROWS} WHERE record IS NULL LIMIT 1"):
            place = self.source.place(f"{self.text(record)} IS NULL", None)
            raise InputError(
                f"{self.source.name}: {place}: the column {record!r} names no record; fill it, or leave the row out"
            )

    def _check_times(self, column: str, time: str) -> None:
        text = self.text(column)
        wrong = f"{text} IS NOT NULL AND {time} IS NULL"
        found = self.source.rows(f"SELECT {text} FROM {self.source.relation} WHERE {wrong} LIMIT 1")
        if found:
            place = self.source.place(f"{wrong} AND {text} = {literal(found[0][0])}", self.roles.record)
            raise CellError(
                f"{self.source.name}: {place}: column {column!r} holds {found[0][0]!r}, which is no date such as "
                "2024-12-31",
                place=f"a date of column {column!r}",
            )
