"""Databases as raw sources: DuckDB and SQLite files, PostgreSQL servers; sessions that can only read.

What another database than DuckDB answers passes as text through a file in the private folder of the session, so that it
may be larger than memory and every rule is computed by the same engine, whatever the origin.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from felb.data.database_url import Address, parse_url, query_of
from felb.data.duck import identifier, literal, reading_of
from felb.data.raw_source import RawSource, described, header_names, text_relation
from felb.errors import InputError, missing_extra
from felb.safe_files import file_size, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from felb.data.raw_source import Needed

NULL = "\\N"
ROWS_AT_A_TIME = 10_000
BOOLEAN, NUMERIC = 16, 1700
"""PostgreSQL's numbers of types whose text differs from that of other databases."""


class Database(Protocol):
    """An open database: what can be asked of all of them."""

    def columns(self, relation: str) -> list[str]:
        """Return the column names of what stands behind FROM."""
        ...

    def load(self, relation: str, columns: list[str], table: str) -> None:
        """Make the columns of a relation a table or view of DuckDB."""
        ...


@contextmanager
def open_database(
    url: str, connection: duckdb.DuckDBPyConnection, folder: Path, needed: Needed | None
) -> Iterator[RawSource]:
    """Open the table or query that a URL names."""
    address = parse_url(url)
    with connected(address, connection, folder) as database:
        if address.omop:
            from felb.data.omop import omop_source

            yield omop_source(database, address, connection, folder)
            return
        query = query_of(address)
        parts = [address.options[part] for part in ("schema", "table") if part in address.options]
        relation = f"({query}) AS felb_query" if query is not None else ".".join(map(identifier, parts))
        names = database.columns(relation)
        kept = [name for name in names if needed is None or needed(name)] or names[:1]
        database.load(relation, kept, "felb_raw")
        loaded = described(connection, "felb_raw", address.name)
        columns = {name: loaded.get(name, "VARCHAR") for name in names}
        yield RawSource(connection, folder, "felb_raw", columns, address.name, ordered=False)


@contextmanager
def connected(address: Address, connection: duckdb.DuckDBPyConnection, folder: Path) -> Iterator[Database]:
    """Connect to the database of an address, for reading only."""
    scheme = address.scheme or _scheme_of(address)
    address = replace(address, scheme=scheme)
    if scheme == "postgresql":
        with _postgres(address) as server:
            yield _Postgres(server, connection, folder, address.name)
    elif scheme == "sqlite":
        with closing(sqlite3.connect(f"{_database_file(address).absolute().as_uri()}?mode=ro", uri=True)) as file:
            database = _SQLite(file, connection, folder, address.name)
            database.forbid_writing()
            yield database
    elif scheme == "folder":
        for path in sorted(_existing(address).iterdir()):
            relation = _file_relation(path)
            if relation is not None:
                with reading_of(str(path)):
                    view = f"CREATE TEMP VIEW {identifier(path.stem.lower())} AS SELECT * FROM "
                    connection.execute(f"{view}{relation}")
        yield _DuckDB(connection, address.name)
    else:
        with reading_of(address.name):
            connection.execute(f"ATTACH {literal(str(_database_file(address)))} AS felb_database (READ_ONLY)")
            connection.execute("USE felb_database")
        yield _DuckDB(connection, address.name)


def _file_relation(path: Path) -> str | None:
    """Return the SQL that reads a file of a folder of tables; vocabularies come as .csv that is separated by tabs."""
    if path.suffix.lower() == ".parquet":
        return f"read_parquet({literal(str(path))})"
    if path.suffix.lower() != ".csv":
        return None
    names = header_names(path, ",")
    if len(names) == 1 and "\t" in names[0]:
        return text_relation(path, header_names(path, "\t"), delimiter="\t", header=True, quote="")
    return text_relation(path, names, delimiter=",", header=True)


def _scheme_of(address: Address) -> str:
    """Tell by its content what an ``omop://`` URL leads to."""
    path = _existing(address)
    if path.is_dir():
        return "folder"
    with open_regular(_database_file(address)) as file:
        return "sqlite" if file.read(15) == b"SQLite format 3" else "duckdb"


def _existing(address: Address) -> Path:
    path = Path(address.place)
    if not path.exists():
        raise InputError(f"{address.name}: there is no file {address.place!r}; check the path in the URL")
    return path


def _database_file(address: Address) -> Path:
    path = _existing(address)
    try:
        file_size(path)
    except InputError as error:
        raise InputError(f"{address.name}: {path}: {error}") from error
    return path


class _DuckDB:
    """A DuckDB file, attached to the session for reading; nothing is copied."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self._connection, self._name = connection, name

    def columns(self, relation: str) -> list[str]:
        """Return the column names of what stands behind FROM."""
        with reading_of(self._name):
            statements = self._connection.extract_statements(f"SELECT * FROM {relation}")
        if len(statements) != 1:
            raise InputError(f"{self._name}: the query must be one statement that reads")
        return list(described(self._connection, relation, self._name))

    def load(self, relation: str, columns: list[str], table: str) -> None:
        """Make the columns of a relation a view of DuckDB."""
        listed = ", ".join(map(identifier, columns))
        with reading_of(self._name):
            self._connection.execute(f"CREATE TEMP VIEW {table} AS SELECT {listed} FROM {relation}")


class _SQLite:
    """A SQLite file, opened read-only; any value as text, since SQLite's columns have no types."""

    def __init__(
        self, file: sqlite3.Connection, connection: duckdb.DuckDBPyConnection, folder: Path, name: str
    ) -> None:
        self._file, self._connection, self._folder, self._name = file, connection, folder, name

    def forbid_writing(self) -> None:
        """Refuse statements that write."""
        self._execute("PRAGMA query_only = ON")

    def columns(self, relation: str) -> list[str]:
        """Return the column names of what stands behind FROM."""
        return [column[0] for column in self._execute(f"SELECT * FROM {relation} LIMIT 0").description]

    def load(self, relation: str, columns: list[str], table: str) -> None:
        """Copy the columns of a relation to DuckDB."""
        path = self._folder / f"{table}.csv"
        found = self._execute(f"SELECT {', '.join(map(identifier, columns))} FROM {relation}")
        with path.open("w", encoding="utf-8", newline="") as file:
            while rows := self._fetch(found):
                file.writelines(",".join(map(self._written, row)) + "\n" for row in rows)
        _load_text(self._connection, path, columns, table, self._name)

    def _execute(self, sql: str) -> sqlite3.Cursor:
        try:
            return self._file.execute(sql)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise InputError(f"{self._name}: the session is read-only, and the database says: {error}") from error

    def _fetch(self, found: sqlite3.Cursor) -> list[tuple[Any, ...]]:
        try:
            return found.fetchmany(ROWS_AT_A_TIME)
        except sqlite3.Error as error:
            raise InputError(f"{self._name}: the database broke off: {error}; nothing was written") from error

    def _written(self, value: Any) -> str:
        if value is None:
            return NULL
        if isinstance(value, bytes):
            raise InputError(f"{self._name}: a column holds binary data (a BLOB); leave it out, or cast it to text")
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            value = int(value)
        return '"' + str(value).replace('"', '""') + '"'


@contextmanager
def _postgres(address: Address) -> Iterator[Any]:
    """Connect to a PostgreSQL server; its password comes from the environment or a file, never from the URL."""
    try:
        import psycopg
    except ImportError as error:
        missing_extra("reading postgresql:// URLs", "sql", error)
    _check_password_file(address)
    settings: dict[str, Any] = {"connect_timeout": "10", **address.server}
    try:
        server = psycopg.connect(
            **settings, application_name="felb", options="-c default_transaction_read_only=on -c datestyle=ISO"
        )
    except psycopg.Error as error:
        raise InputError(f"{address.name}: no connection: {_said(error)}") from None
    with closing(server):
        server.read_only = True
        yield server


def _check_password_file(address: Address) -> None:
    """Refuse a password file that others can read; the client library would silently ignore it."""
    given = address.server.get("passfile") or os.environ.get("PGPASSFILE")
    path = Path(given) if given else Path.home() / ".pgpass"
    if os.name == "posix" and path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError(f"{path} can be read by others; make its mode 0600: chmod 600 {path}")


def _said(error: Exception) -> str:
    """Return what a server said, in one line and without the password."""
    text = " ".join(str(error).split()) or type(error).__name__
    secret = os.environ.get("PGPASSWORD")
    return text.replace(secret, "***") if secret else text


class _Postgres:
    """A session of a PostgreSQL server in a transaction that can only read."""

    def __init__(self, server: Any, connection: duckdb.DuckDBPyConnection, folder: Path, name: str) -> None:
        self._server, self._connection, self._folder, self._name = server, connection, folder, name

    def columns(self, relation: str) -> list[str]:
        """Return the column names of what stands behind FROM."""
        return [column.name for column in self._description(relation)]

    def _description(self, relation: str) -> list[Any]:
        import psycopg

        try:
            with self._server.cursor() as cursor:
                return list(cursor.execute(f"SELECT * FROM {relation} LIMIT 0".replace("%", "%%"), ()).description)
        except psycopg.Error as error:
            raise InputError(f"{self._name}: the session is read-only, and the server says: {_said(error)}") from None

    def load(self, relation: str, columns: list[str], table: str) -> None:
        """Copy the columns of a relation to DuckDB, as text."""
        import psycopg

        kinds = {column.name: column.type_code for column in self._description(relation)}
        listed = ", ".join(
            f"trim_scale({identifier(name)})::text" if kinds[name] == NUMERIC else f"{identifier(name)}::text"
            for name in columns
        )
        path = self._folder / f"{table}.csv"
        copying = f"COPY (SELECT {listed} FROM {relation}) TO STDOUT (FORMAT csv, NULL '{NULL}')"
        try:
            with self._server.cursor() as cursor, path.open("wb") as file, cursor.copy(copying) as copy:
                for block in copy:
                    file.write(block)
        except psycopg.Error as error:
            lost = self._server.closed or self._server.broken
            how = "the connection was lost" if lost else "the session is read-only, and the server says"
            raise InputError(f"{self._name}: {how}: {_said(error)}; nothing was written") from None
        _load_text(self._connection, path, columns, table, self._name)


def _load_text(connection: duckdb.DuckDBPyConnection, path: Path, columns: list[str], table: str, name: str) -> None:
    relation = text_relation(path, columns, delimiter=",", header=False, null=NULL)
    with reading_of(name):
        connection.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM {relation}")
    path.unlink()
