"""Raw data of any origin as one relation of DuckDB: files, data frames, databases, OMOP, AnnData."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.data.readers import open_anndata
from felb.errors import InputError
from felb.tables.databases import (
    POSITION,
    WHOLE,
    RawSource,
    as_text,
    as_time,
    described,
    identifier,
    literal,
    reading_of,
    record_order,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import duckdb
    from numpy.typing import NDArray

    from felb.tables.databases import Needed
    from felb.tables.schema import Roles, Schema

    Numbers = NDArray[np.float64]
    Which = NDArray[np.bool_]
    Keep = Callable[[NDArray[np.int64], NDArray[np.int64]], None]


# -- The variables of AnnData under a schema: columns of numbers, thousands of them, in blocks of rows ---------------
#
# A table with so many columns is nothing for a database. The rules for a number are evaluated here on the stored
# entries of each column, and once for the zeros that a sparse matrix does not store.

CELLS = 1 << 22
"""Cells of a block of rows, or stored entries if it is sparse."""
ZERO = np.zeros(1)
LARGEST_WHOLE = 1e15
"""Whole numbers below it are written without a point, as `felb.tables.databases.as_text` does."""


@dataclass(frozen=True)
class Variables:
    """Columns of `X` in an ``.h5ad`` file.

    Parameters
    ----------
    path : the file
    positions : number of the column of each variable, by its name
    """

    path: Path
    positions: dict[str, int]

    def blocks(self) -> Iterator[tuple[int, sp.csc_array]]:
        """Yield blocks of rows, each with the number of its first row; columns are in the order of `positions`."""
        data, chosen = open_anndata(self.path), list(self.positions.values())
        try:
            start, step = 0, max(1, CELLS // max(1, data.n_vars))
            while start < data.n_obs:
                rows = data.X[start : start + step]
                yield start, sp.csc_array(sp.csc_array(rows, dtype=np.float64)[:, chosen])
                start += step
                if hasattr(rows, "nnz"):  # as many rows as have so many stored entries
                    step = max(1, CELLS * rows.shape[0] // max(1, rows.nnz))
        except (OSError, ValueError, IndexError, TypeError) as error:
            raise InputError(f"{self.path}: X cannot be read ({error}); write the file again") from error
        finally:
            data.file.close()


def as_texts(values: Numbers) -> list[str]:
    """Return numbers as canonical texts: whole ones without a point.

    Examples
    --------
    >>> as_texts(np.array([2.0, 0.5, 1e20]))
    ['2', '0.5', '1e+20']
    """
    return [str(int(x)) if x == np.trunc(x) and abs(x) < LARGEST_WHOLE else repr(x) for x in values.tolist()]


class ColumnRules:
    """The features of one column as functions of a number.

    Parameters
    ----------
    schema : the schema
    column : a name that features are about, or that is a code; a code holds 0 or 1
    """

    def __init__(self, schema: Schema, column: str) -> None:
        self.column, self.is_code = column, column not in schema.column_features
        self.numbers = schema.of_code(column) if self.is_code else schema.column_features[column]
        self.missing: str = "zero"
        self._listed: dict[str, tuple[int, ...]] = {"1": self.numbers} if self.is_code else schema.listed(column)
        self._zeros: tuple[str, ...] = ("0",)
        self._intervals: list[tuple[int, Any]] = []
        self._any: list[int] = []
        self._other: int | None = None
        self._own_missing: int | None = None
        self.told = True
        """Whether values without a rule are counted; of numbers outside all bins they are no news."""
        if not self.is_code:
            rules, handling = [(number, schema.features[number]) for number in self.numbers], schema.handling(column)
            self.missing, self._zeros = handling.missing, handling.zeros
            self._intervals = [(number, rule) for number, rule in rules if rule.numeric]
            self._any = [number for number, rule in rules if rule.any]
            self._other = next((number for number, rule in rules if rule.other), None)
            self._own_missing = next((number for number, rule in rules if rule.missing), None)
            self.told = handling.unlisted != "ignore" or not (self._intervals or self._any)

    def features(self, values: Numbers) -> tuple[list[tuple[int, Which]], Which]:
        """Return which of the known `values` make a one of each feature, and which no rule lists."""
        found: list[tuple[int, Which]] = [(number, np.ones(values.shape, bool)) for number in self._any]
        rest = np.ones(values.shape, bool)
        if self._listed or self._zeros:
            distinct, inverse = np.unique(values, return_inverse=True)
            texts = as_texts(distinct)
            for number in dict.fromkeys(number for own in self._listed.values() for number in own):
                found.append((number, np.array([number in self._listed.get(t, ()) for t in texts], bool)[inverse]))
            rest = np.array([t not in self._listed and t not in self._zeros for t in texts], bool)[inverse]
        outside = rest.copy()
        for number, rule in self._intervals:
            inside = rest & _within_variable(rule, values)
            found.append((number, inside))
            outside &= ~inside
        if self._other is not None:
            found.append((self._other, outside))
        return found, outside

    def of_missing(self) -> tuple[int, ...]:
        """Return the features that are a one where the column has no value."""
        return () if self._own_missing is None else (self._own_missing,)


def _within_variable(rule: Any, values: Numbers) -> Which:
    inside = np.ones(values.shape, bool)
    if rule.lower is not None:
        inside &= values > rule.lower if rule.lower_open else values >= rule.lower
    if rule.upper is not None:
        inside &= values <= rule.upper if rule.upper_closed else values < rule.upper
    return inside


@dataclass
class VariableFacts:
    """What a variable holds that its rules do not cover.

    Parameters
    ----------
    unlisted : number of observations, and the first one, of each value that no rule lists
    missing : number of observations without a value
    first_missing : the first of them
    """

    unlisted: dict[str, tuple[int, int]] = field(default_factory=dict)
    missing: int = 0
    first_missing: int | None = None

    def note_unlisted(self, values: Numbers, rows: NDArray[np.int64]) -> None:
        """Count the values of rows."""
        distinct, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
        firsts = np.full(distinct.size, np.iinfo(np.int64).max)
        np.minimum.at(firsts, inverse, rows)
        for value, count, row in zip(as_texts(distinct), counts.tolist(), firsts.tolist(), strict=True):
            known, first = self.unlisted.get(value, (0, row))
            self.unlisted[value] = known + count, min(first, row)

    def note_missing(self, rows: NDArray[np.int64]) -> None:
        """Count rows without a value."""
        if rows.size:
            first = int(rows.min())
            self.missing += rows.size
            self.first_missing = first if self.first_missing is None else min(self.first_missing, first)


def apply_rules(
    variables: Variables, schema: Schema, order: NDArray[np.int64], keep: Keep
) -> dict[str, tuple[ColumnRules, VariableFacts]]:
    """Apply the rules of a schema to variables, block by block.

    Parameters
    ----------
    variables : columns of numbers
    schema : with features about them, or codes of their names
    order : row of the matrix of each observation
    keep : is given the ones and the unknown cells of each block, as ``row * n_features + feature``
    """
    found = {name: (ColumnRules(schema, name), VariableFacts()) for name in variables.positions}
    n_features = len(schema.features)
    for start, block in variables.blocks():
        rows = order[start : start + block.shape[0]]
        ones: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        unknown: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        for j, (rules, facts) in enumerate(found.values()):
            own = slice(block.indptr[j], block.indptr[j + 1])
            values, at = block.data[own], block.indices[own]
            known = ~np.isnan(values)
            absent, values, at = rows[at[~known]], values[known], at[known]
            facts.note_missing(absent)
            ones += [absent * n_features + number for number in rules.of_missing()]
            if rules.missing == "unknown":
                unknown += [absent * n_features + number for number in rules.numbers]
            zeros = np.ones(len(rows), bool)
            zeros[block.indices[own]] = False
            for number, where in (*_taken(rules, facts, values, rows[at]), *_taken(rules, facts, ZERO, rows[zeros])):
                ones.append(where * n_features + number)
        keep(np.concatenate(ones), np.concatenate(unknown))
    return found


def _taken(
    rules: ColumnRules, facts: VariableFacts, values: Numbers, rows: NDArray[np.int64]
) -> list[tuple[int, NDArray[np.int64]]]:
    """Return each feature with the rows that have it; `values` are those of the rows, or the one that all have."""
    if not rows.size:
        return []
    matches, outside = rules.features(values)
    if rules.told and outside.any():
        which = np.broadcast_to(outside, rows.shape)
        facts.note_unlisted(np.broadcast_to(values, rows.shape)[which], rows[which])
    return [(number, rows[np.broadcast_to(which, rows.shape)]) for number, which in matches if which.any()]


# -- AnnData files as raw tables: the annotations of observations, and the variables that a schema asks for ----------

NAMES = "obs_names"
"""Column that names the observations; a schema can use it as its record."""


def anndata_source(path: Path, connection: duckdb.DuckDBPyConnection, folder: Path, needed: Needed | None) -> RawSource:
    """Open an ``.h5ad`` file as a wide table: `obs_names`, the columns of `obs`, and variables of `X` by name.

    `X` stays in its file; its variables are read when rules are applied to them. Without `needed`, there are only the
    annotations.
    """
    data = open_anndata(path)
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


# -- Raw tables of two layouts, wide and long, as facts: which record has which value of what, and when --------------

ROWS, EVENTS, WIDE, VALUES = "felb_rows", "felb_events", "felb_wide", "felb_values"


@dataclass(frozen=True)
class Layout:
    """How facts are asked for.

    Parameters
    ----------
    source : the raw table
    roles : which of its columns name records, codes, values and dates
    long : whether a row is one event or value of a record, rather than a whole record
    n_rows : number of records, which are in the table `ROWS` (row, key, record, client)
    missing : texts that stand for no value
    clients : whether each record has a client
    """

    source: RawSource
    roles: Roles
    long: bool
    n_rows: int
    missing: tuple[str, ...]
    clients: bool

    @property
    def time(self) -> str | None:
        """The column of dates, if the source has it."""
        return self.roles.time if self.long and self.roles.time in self.source.columns else None

    def facts(self, column: str) -> str:
        """Return the SQL of (row, value, time) of a column."""
        if self.long:
            return f"(SELECT row, value, time FROM {VALUES} WHERE item = {literal(column)})"
        self.source.kind(column)
        return f"(SELECT row, {identifier(column)} AS value, NULL::TIMESTAMP AS time FROM {WIDE})"

    def holds(self, column: str, value: str) -> str:
        """Return the condition on a raw row that a column holds a value."""
        if not self.long or column == self.roles.item:
            return f"{self.text(column)} = {literal(value)}"
        of_column = f"{self.text(self.roles.item or '')} = {literal(column)}"
        return f"{of_column} AND {self.text(self.roles.value or '')} = {literal(value)}"

    def text(self, column: str) -> str:
        """Return the SQL of a raw column as canonical text."""
        return as_text(column, self.source.kind(column), self.missing)

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


def laid_out(source: RawSource, schema: Schema, client_column: str | None) -> Layout:
    """Number the records of a source and make its facts ready; raise if a column is not there or a record unnamed."""
    roles = source.roles or schema.roles
    long = roles.item is not None and roles.item in source.columns
    layout = Layout(source, roles, long, 0, schema.missing_values, client_column is not None)
    if client_column is not None:
        source.kind(client_column)
    if long:
        _long(layout, schema, client_column)
    else:
        _wide(layout, schema, client_column)
    ((n_rows,),) = source.rows(f"SELECT count(*) FROM {ROWS}")
    if n_rows == 0:
        raise InputError(f"{source.name}: holds no records; check the table, the query and its conditions")
    if client_column is not None:
        _check_clients(source, client_column)
    return Layout(source, roles, long, n_rows, schema.missing_values, client_column is not None)


def _record_column(layout: Layout) -> str:
    if layout.roles.record is None:
        raise InputError(f"{layout.source.name}: a long table needs a column that names records; add record to [table]")
    return layout.roles.record


def _refuse_unnamed(layout: Layout, record: str) -> None:
    """Raise the error that says where a row names no record."""
    place = layout.source.place(f"{layout.text(record)} IS NULL", None)
    raise InputError(
        f"{layout.source.name}: {place}: the column {record!r} names no record; fill it, or leave the row out"
    )


def _wide(layout: Layout, schema: Schema, client_column: str | None) -> None:
    source, record = layout.source, layout.roles.record
    elsewhere = set() if source.variables is None else set(source.variables.positions)
    kept = [name for name in schema.column_features if name not in elsewhere]
    if schema.about_codes:
        known = {*kept, *elsewhere}
        kept += [name for name in source.columns if name not in known and schema.of_code(name)]
    if schema.about_codes and not any(schema.of_code(name) for name in source.columns):
        source.kind(schema.roles.item or "")
    texts = [f"{layout.text(column)} AS {identifier(column)}" for column in kept]
    client = "NULL::VARCHAR" if client_column is None else layout.text(client_column)
    if record is None:
        number, named = "row_number() OVER ()", "NULL::VARCHAR"
    else:
        named = layout.text(record)
        number = f"row_number() OVER (ORDER BY {record_order(named)})"
    position = [] if source.variables is None else [POSITION]
    columns = ", ".join(
        [f"{number} - 1 AS row", f"{named} AS felb_record", f"{client} AS felb_client", *position, *texts]
    )
    source.rows(f"CREATE TEMP TABLE {WIDE} AS SELECT {columns} FROM {source.relation}")
    source.rows(
        f"CREATE TEMP VIEW {ROWS} AS SELECT row, felb_record AS key, felb_record AS record, felb_client AS client "
        f"FROM {WIDE}"
    )
    if record is not None:
        if source.rows(f"SELECT 1 FROM {ROWS} WHERE record IS NULL LIMIT 1"):
            _refuse_unnamed(layout, record)
        twice = source.rows(f"SELECT record FROM {ROWS} GROUP BY record HAVING count(*) > 1 ORDER BY 1 LIMIT 1")
        if twice:
            place = source.place(f"{layout.text(record)} = {literal(twice[0][0])}", None)
            raise InputError(
                f"{source.name}: {place}: record {twice[0][0]!r} has more than one row; in a wide table each "
                "record has one. A table of events needs item in [table]"
            )


def _long(layout: Layout, schema: Schema, client_column: str | None) -> None:
    source, roles = layout.source, layout.roles
    record = _record_column(layout)
    time = "NULL::TIMESTAMP"
    if any(feature.windowed for feature in schema.features) and roles.time is not None:
        kind = source.kind(roles.time)
        time = as_time(roles.time, kind, schema.missing_values)
        _check_times(layout, roles.time, time)
    client = "NULL::VARCHAR" if client_column is None else layout.text(client_column)
    found = f"SELECT {identifier(record)} AS key, {client} AS client FROM {source.relation}"
    if source.records is not None:
        found += f" UNION ALL SELECT record AS key, NULL::VARCHAR AS client FROM {source.records}"
    named = as_text("key", source.kind(record), schema.missing_values)
    clients = "min(client) AS client, count(DISTINCT client) AS clients" if client_column else "NULL::VARCHAR AS client"
    order = "key" if source.kind(record) in WHOLE else record_order("record")  # the same order, sooner
    source.rows(
        f"CREATE TEMP TABLE {ROWS} AS SELECT row_number() OVER (ORDER BY {order}) - 1 AS row, * FROM "
        f"(SELECT key, {named} AS record, {clients} FROM ({found}) GROUP BY key)"
    )
    if source.rows(f"SELECT 1 FROM {ROWS} WHERE record IS NULL LIMIT 1"):
        _refuse_unnamed(layout, record)
    # Codes are not compared with the texts for no value line by line; they are left out when each is looked at once.
    item = as_text(roles.item or "", source.kind(roles.item or ""))
    source.rows(
        f"CREATE TEMP VIEW {EVENTS} AS SELECT {identifier(record)} AS key, {item} AS item, {time} AS time "
        f"FROM {source.relation}"
    )
    if schema.column_features:
        if roles.value is None:
            raise InputError(f"{source.name}: features look at values, and the schema names no value column")
        listed = ", ".join(map(literal, schema.column_features))
        source.rows(
            f"CREATE TEMP TABLE {VALUES} AS SELECT row, item, value, time FROM (SELECT {identifier(record)} AS key, "
            f"{item} AS item, {layout.text(roles.value)} AS value, {time} AS time FROM {source.relation} "
            f"WHERE {item} IN ({listed})) JOIN {ROWS} USING (key)"
        )


def _check_times(layout: Layout, column: str, time: str) -> None:
    text = layout.text(column)
    wrong = f"{text} IS NOT NULL AND {time} IS NULL"
    found = layout.source.rows(f"SELECT {text} FROM {layout.source.relation} WHERE {wrong} LIMIT 1")
    if found:
        place = layout.source.place(f"{wrong} AND {text} = {literal(found[0][0])}", layout.roles.record)
        raise InputError(
            f"{layout.source.name}: {place}: column {column!r} holds {found[0][0]!r}, which is no date such as "
            "2024-12-31"
        )


def _check_clients(source: RawSource, client_column: str) -> None:
    if source.rows(f"SELECT 1 FROM {ROWS} WHERE client IS NULL LIMIT 1"):
        raise InputError(f"{source.name}: some records have no client in the column {client_column!r}; fill it")
    if source.rows(f"SELECT 1 FROM (DESCRIBE {ROWS}) WHERE column_name = 'clients'"):
        several = source.rows(f"SELECT record FROM {ROWS} WHERE clients > 1 ORDER BY row LIMIT 1")
        if several:
            raise InputError(
                f"{source.name}: record {several[0][0]!r} has more than one client in the column {client_column!r}"
            )
