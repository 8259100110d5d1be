"""Raw tables of two layouts, wide and long, as facts: which record has which value of what, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.data.duck import WHOLE, as_text, as_time, identifier, literal, record_order
from felb.data.raw_source import POSITION
from felb.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.raw_source import RawSource
    from felb.data.schema import Roles, Schema

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
