"""Apply a schema to raw data: every record becomes a row of zeros and ones.

The work is DuckDB's. Each rule becomes a query that gives cells as numbers ``row * n_features + feature``; their sorted
union is the matrix. Rows are in the order of their records, so that neither the order of lines nor repeated events nor
the origin of the data changes the matrix.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.tables.databases import as_number, literal, open_source, reading_of
from felb.tables.sources import EVENTS, ROWS, Layout, apply_rules, laid_out

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from numpy.typing import NDArray

    from felb.tables.databases import RawSource
    from felb.tables.schema import Feature, Schema
    from felb.tables.sources import Variables

CELLS_AT_A_TIME = 1 << 22
"""Ones that are taken from DuckDB at once."""
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


def applied_blocks(
    data: Any, schema: Schema, *, client_column: str | None = None
) -> Generator[tuple[BinaryMatrix, tuple[str, ...] | None, tuple[str, ...] | None, Applied]]:
    """Yield the matrix block of rows after block of rows, with the clients and names of its rows; at least one block.

    Everything is read and checked before the first block.
    """
    roles = schema.roles
    wanted = {roles.record, roles.item, client_column, *schema.column_features}
    wanted |= {roles.value} if schema.column_features else set()
    wanted |= {roles.time} if any(feature.windowed for feature in schema.features) else set()

    def needed(name: str) -> bool:
        return name in wanted or bool(schema.about_codes and schema.of_code(name))

    with open_source(data, needed=needed) as source, reading_of(source.name):
        layout = laid_out(source, schema, client_column)
        application = _Application(source, schema, layout)
        applied = application.collect()
        with closing(application.blocks()) as blocks:
            for matrix, clients, rows in blocks:
                yield matrix, clients, rows, applied


class _Application:
    """One schema on one source."""

    def __init__(self, source: RawSource, schema: Schema, layout: Layout) -> None:
        self._source, self._schema, self._layout = source, schema, layout
        self._m = len(schema.features)
        self._cells: list[str] = []
        self._unknown: list[str] = []
        self._windows: dict[tuple[str | None, str | None], int] = {}
        self._unlisted: dict[str, dict[str, int]] = {}
        self._left_out: dict[str, int] = {}
        self._missing: dict[str, int] = {}

    def collect(self) -> Applied:
        """Run every rule; afterwards the cells are in DuckDB, sorted."""
        variables = None if self._layout.long else self._source.variables
        for position, column in enumerate(self._schema.column_features):
            if variables is None or column not in variables.positions:
                self._column(position, column)
        if variables is not None:
            self._variables(variables)
        if self._schema.about_codes:
            self._codes()
        self._gather("felb_cells", self._cells)
        self._gather("felb_unknown", self._unknown)
        return Applied(self._schema.digest, self._layout.n_rows, self._unlisted, self._left_out, self._missing)

    def _run(self, sql: str, parameters: Iterable[Any] = ()) -> Any:
        return self._source.connection.execute(sql, list(parameters))

    def _gather(self, table: str, queries: list[str]) -> None:
        united = " UNION ALL ".join(queries) or "SELECT 0::BIGINT AS cell WHERE false"
        self._run(f"CREATE TEMP TABLE {table} AS SELECT DISTINCT cell FROM ({united}) ORDER BY cell")

    def _cell(self, feature: str) -> str:
        return f"row * {self._m} + {feature} AS cell"

    # -- columns -----------------------------------------------------------------------------------------------

    def _column(self, position: int, column: str) -> None:
        schema, facts = self._schema, self._layout.facts(column)
        numbers = schema.column_features[column]
        listed, table = schema.listed(column), f"felb_listed_{position}"
        self._list(table, [(value, number) for value, found in listed.items() for number in found])
        intervals = [number for number in numbers if schema.features[number].numeric]
        known = [f"value NOT IN (SELECT value FROM {table})"]
        known += [f"value <> {literal(zero)}" for zero in schema.handling(column).zeros]
        rest = f"(SELECT * FROM {facts} WHERE {' AND '.join(known)})"
        if intervals:
            self._check_numbers(column, rest)
        for window in {self._window(schema.features[number]) for number in numbers}:
            self._cells.append(
                f"SELECT {self._cell('feature')} FROM {facts} JOIN {table} USING (value) "
                f"WHERE window_number = {window} AND {self._during(window)}"
            )
        for number in intervals:
            rule = schema.features[number]
            inside = f"{_within(rule)} AND {self._during(self._window(rule))}"
            self._cells.append(f"SELECT {self._cell(str(number))} FROM {rest} WHERE {inside}")
        for number in numbers:
            rule = schema.features[number]
            if rule.any:
                during = self._during(self._window(rule))
                self._cells.append(
                    f"SELECT {self._cell(str(number))} FROM {facts} WHERE value IS NOT NULL AND {during}"
                )
        self._without_a_rule(column, rest, [schema.features[number] for number in intervals])
        self._without_a_value(column, facts)

    def _list(self, table: str, pairs: list[tuple[str, int]]) -> None:
        """Make a table of values and the features that list them."""
        windows = [self._window(self._schema.features[number]) for _, number in pairs]
        self._run(
            f"CREATE TEMP TABLE {table} AS SELECT unnest($1::VARCHAR[]) AS value, unnest($2::INTEGER[]) AS feature, "
            "unnest($3::INTEGER[]) AS window_number",
            ([value for value, _ in pairs], [number for _, number in pairs], windows),
        )

    def _window(self, rule: Feature) -> int:
        return self._windows.setdefault((rule.since, rule.before), len(self._windows))

    def _during(self, window: int) -> str:
        since, before = list(self._windows)[window]
        if (since, before) != (None, None) and self._layout.time is None:
            raise InputError(
                f"{self._source.name}: features look at dates, and the source has no column {self._schema.roles.time!r}"
            )
        bounds = [f"time >= TIMESTAMP {literal(since)}"] if since else []
        bounds += [f"time < TIMESTAMP {literal(before)}"] if before else []
        return " AND ".join(bounds) or "true"

    def _check_numbers(self, column: str, rest: str) -> None:
        number = as_number("value")
        wrong = f"{number} IS NULL OR isnan({number})"
        found = self._run(f"SELECT value FROM {rest} WHERE value IS NOT NULL AND ({wrong}) LIMIT 1").fetchone()
        if found:
            raise InputError(
                f"{self._where(column, found[0])} holds {found[0]!r}, which is not a number; list it with is, or among "
                "the missing_values of the schema"
            )

    def _where(self, column: str, value: str) -> str:
        place = self._source.place(self._layout.holds(column, value), self._layout.roles.record)
        return f"{self._source.name}: {place}: column {column!r}"

    def _without_a_rule(self, column: str, rest: str, intervals: list[Feature]) -> None:
        handling = self._schema.handling(column)
        own = [self._schema.features[number] for number in self._schema.column_features[column]]
        if any(rule.any for rule in own) and handling.unlisted == "ignore":
            return
        outside = " AND ".join(["value IS NOT NULL", *(f"NOT ({_within(rule)})" for rule in intervals)])
        self._report(column, f"(SELECT value, 1 AS n FROM {rest} WHERE {outside})")
        if handling.unlisted == "error" and column in self._unlisted:
            value = next(iter(self._unlisted[column]))
            self._refuse_unlisted(self._where(column, value), column, value)
        if handling.unlisted == "other":
            other = next(
                number for number in self._schema.column_features[column] if self._schema.features[number].other
            )
            during = self._during(self._window(self._schema.features[other]))
            self._cells.append(f"SELECT {self._cell(str(other))} FROM {rest} WHERE {outside} AND {during}")

    def _refuse_unlisted(self, where: str, column: str, value: str) -> NoReturn:
        known = ", ".join(list(self._schema.listed(column))[:20])
        raise InputError(
            f"{where} holds {value!r}, which the schema does not list"
            + (f"; it lists {known}" if known else " in any bin")
            + "; add it, or set unlisted to ignore or other"
        )

    def _report(self, column: str, values: str) -> None:
        """Count values that no feature lists."""
        top = self._run(
            f"SELECT value, sum(n), sum(sum(n)) OVER () FROM {values} GROUP BY value ORDER BY 2 DESC, 1 LIMIT 100"
        ).fetchall()
        if top:
            self._note(column, {value: int(count) for value, count, _ in top}, int(top[0][2]))

    def _note(self, column: str, values: dict[str, int], count: int) -> None:
        of_codes = self._layout.long and column == self._layout.roles.item
        self._unlisted[column] = values
        # A number outside all bins is no news: a cut at 65 says nothing of younger people.
        numeric = any(self._schema.features[i].numeric for i in self._schema.column_features.get(column, ()))
        if not numeric and self._schema.handling(None if of_codes else column).unlisted == "ignore":
            self._left_out[column] = count

    def _without_a_value(self, column: str, facts: str) -> None:
        handling, numbers = self._schema.handling(column), self._schema.column_features[column]
        absent = f"(SELECT row FROM {ROWS} WHERE row NOT IN (SELECT row FROM {facts} WHERE value IS NOT NULL))"
        ((count, first),) = self._run(f"SELECT count(*), min(row) FROM {absent}").fetchall()
        if not count:
            return
        self._note_missing(column, count, first)
        if handling.missing == "category":
            own = next(number for number in numbers if self._schema.features[number].missing)
            self._cells.append(f"SELECT {self._cell(str(own))} FROM {absent}")
        elif handling.missing == "unknown":
            listed = ", ".join(map(str, numbers))
            self._unknown.append(f"SELECT {self._cell('feature')} FROM {absent}, unnest([{listed}]) AS t(feature)")

    def _note_missing(self, column: str, count: int, first: int) -> None:
        """Count records without a value, of which `first` is one; an error where the schema says so."""
        self._missing[column] = count
        if self._schema.handling(column).missing == "error":
            raise InputError(
                f"{self._source.name}: {self._layout.name_of(first)} has no value of {column!r} ({count} records have "
                f"none); set missing of [columns.{column}] to unknown, zero or category in the schema"
            )

    # -- variables ---------------------------------------------------------------------------------------------

    def _variables(self, variables: Variables) -> None:
        """Apply the rules of columns that are not in the relation."""
        for table, queries in (("felb_ones", self._cells), ("felb_no_values", self._unknown)):
            self._run(f"CREATE TEMP TABLE {table} (cell BIGINT)")
            queries.append(f"SELECT cell FROM {table}")

        def keep(ones: NDArray[np.int64], unknown: NDArray[np.int64]) -> None:
            for table, cells in (("felb_ones", ones), ("felb_no_values", unknown)):
                if cells.size:
                    self._source.connection.register("felb_block", {"cell": cells})
                    self._run(f"INSERT INTO {table} SELECT cell FROM felb_block")
                    self._source.connection.unregister("felb_block")

        for column, (rules, facts) in apply_rules(variables, self._schema, self._layout.row_order(), keep).items():
            if facts.unlisted:
                value, (_, row) = max(facts.unlisted.items(), key=lambda pair: pair[1][0])
                where = f"{self._source.name}: {self._layout.name_of(row)}: column {column!r}"
                if rules.is_code:
                    raise InputError(f"{where} holds {value!r}; a column of a code holds 0 or 1")
                if self._schema.handling(column).unlisted == "error":
                    self._refuse_unlisted(where, column, value)
                counts = sorted(((v, n) for v, (n, _) in facts.unlisted.items()), key=lambda pair: (-pair[1], pair[0]))
                self._note(column, dict(counts[:100]), sum(n for _, n in counts))
            if facts.first_missing is not None and not rules.is_code:
                self._note_missing(column, facts.missing, facts.first_missing)

    # -- codes -------------------------------------------------------------------------------------------------

    def _codes(self) -> None:
        if self._layout.long:
            self._codes_of_events()
        else:
            self._codes_of_columns()

    def _codes_of_events(self) -> None:
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
            self._note(item, dict(unlisted[:100]), sum(count for _, count in unlisted))
            if schema.codes.unlisted == "error":
                code = unlisted[0][0]
                raise InputError(
                    f"{self._where(item, code)} holds the code {code!r}, which the schema does not list; add it, or "
                    "set unlisted of [codes] to ignore or other"
                )
        self._list("felb_codes", pairs)
        for window in {self._window(schema.features[number]) for _, number in pairs}:
            self._cells.append(
                f"SELECT {self._cell('feature')} FROM {EVENTS} JOIN felb_codes ON item = felb_codes.value "
                f"JOIN {ROWS} USING (key) WHERE window_number = {window} AND {self._during(window)}"
            )

    def _codes_of_columns(self) -> None:
        """In a wide table, a code is a column that says yes or no."""
        schema, source = self._schema, self._source
        for rule in schema.features:
            if rule.column is None and (rule.any or rule.other or rule.windowed):
                raise InputError(
                    f"{source.name}: feature {rule.name!r} needs a long table with the column {schema.roles.item!r}"
                )
        elsewhere = () if source.variables is None else source.variables.positions
        for column in source.columns:
            numbers = () if column in schema.column_features or column in elsewhere else schema.of_code(column)
            if not numbers:
                continue
            facts = self._layout.facts(column)
            known = "lower(value) IN ('0', '1', 'true', 'false')"
            wrong = self._run(f"SELECT value FROM {facts} WHERE value IS NOT NULL AND NOT {known} LIMIT 1").fetchone()
            if wrong:
                raise InputError(f"{self._where(column, wrong[0])} holds {wrong[0]!r}; a column of a code holds 0 or 1")
            listed = ", ".join(map(str, numbers))
            self._cells.append(
                f"SELECT {self._cell('feature')} FROM {facts}, unnest([{listed}]) AS t(feature) "
                "WHERE lower(value) IN ('1', 'true')"
            )

    # -- rows --------------------------------------------------------------------------------------------------

    def blocks(self) -> Generator[tuple[BinaryMatrix, tuple[str, ...] | None, tuple[str, ...] | None]]:
        """Yield the matrix in blocks of rows."""
        n = self._layout.n_rows
        ((ones,),) = self._run("SELECT count(*) FROM felb_cells").fetchall()
        ((unknown,),) = self._run("SELECT count(*) FROM felb_unknown").fetchall()
        step = max(1, n * CELLS_AT_A_TIME // max(ones, unknown, n, 1))
        for start in range(0, n, step):
            stop = min(n, start + step)
            matrix = self._block("felb_cells", start, stop).with_columns(self._schema.names)
            if unknown:
                matrix = matrix.with_unknown(self._block("felb_unknown", start, stop))
            names = self._run(
                f"SELECT record, client FROM {ROWS} WHERE row >= {start} AND row < {stop} ORDER BY row"
            ).fetchnumpy()
            clients = tuple(names["client"].tolist()) if self._layout.clients else None
            yield matrix, clients, tuple(names["record"].tolist()) if self._layout.roles.record else None

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


def _within(rule: Feature) -> str:
    number = as_number("value")
    bounds = [] if rule.lower is None else [f"{number} {'>' if rule.lower_open else '>='} {rule.lower!r}::DOUBLE"]
    bounds += [] if rule.upper is None else [f"{number} {'<=' if rule.upper_closed else '<'} {rule.upper!r}::DOUBLE"]
    return " AND ".join(bounds)
