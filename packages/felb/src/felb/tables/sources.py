"""Raw data of any origin as one relation of DuckDB: files, data frames, databases, OMOP, AnnData."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
import zlib
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np
import scipy.sparse as sp

from felb.data.readers import (
    INDEX,
    Bounds,
    Limits,
    find_separator,
    open_anndata,
    open_bounded,
    open_text,
    split_suffix,
    text_records,
    to_objects,
)
from felb.errors import InputError, missing_extra
from felb.records import check_storable, file_size, is_url, open_regular, read_text, unguard_cell
from felb.tables.schema import Roles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import duckdb

    Needed = Callable[[str], bool]


SCHEMES = ("duckdb", "sqlite", "postgresql", "omop")
SELECTING = ("table", "schema", "query")
OMOP_OPTIONS = ("domains", "ancestors", "schema")
SERVER_OPTIONS = ("host", "sslmode", "sslrootcert", "sslcert", "sslkey", "passfile", "connect_timeout")
PASSWORD = (
    "a URL must not hold a password, since it is stored and shown; put it into the environment (PGPASSWORD) or into a "
    "password file of mode 0600 (~/.pgpass, PGPASSFILE)"
)


@dataclass(frozen=True)
class Address:
    """The parts of a URL.

    Parameters
    ----------
    scheme : duckdb, sqlite or postgresql; empty if a file or folder is to tell
    omop : whether the database holds an OMOP common data model
    place : of embedded databases, the path
    server : of servers, keywords of the connection
    options : what is read: table and schema, or query; of OMOP, domains and ancestors
    """

    scheme: str
    omop: bool
    place: str
    server: Mapping[str, str]
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        """How messages and results call the source: no user, no host."""
        base = Path(self.place).name if self.place else self.server.get("dbname", "")
        what = self.options.get("table") or ("a query" if "query" in self.options else "")
        kind = "omop" if self.omop else self.scheme
        return f"{kind}:{base}" + (f" ({what})" if what else "")


def parse_url(url: str) -> Address:
    """Take a URL apart, or raise without repeating what may be secret.

    Examples
    --------
    >>> parse_url("postgresql://reader@db.example/clinic?table=diagnoses").name
    'postgresql:clinic (diagnoses)'
    """
    try:
        parts = urlsplit(url)
        password = parts.password
        port = parts.port if "postgres" in parts.scheme else None  # elsewhere a colon may stand behind a drive
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InputError(
            "the URL of the database is not understood; it is like postgresql://user@host/db?table=t"
        ) from None
    if password is not None or any("password" in name.lower() for name, _ in pairs):
        raise InputError(PASSWORD)
    omop, _, base = parts.scheme.rpartition("+")
    scheme = "postgresql" if base == "postgres" else base
    if scheme not in SCHEMES or omop not in ("", "omop") or (omop and scheme == "omop"):
        raise InputError(
            f"{parts.scheme}:// is not known; felb reads duckdb://, sqlite://, postgresql://, omop:// (a file or "
            "folder), and omop+duckdb://, omop+sqlite://, omop+postgresql://"
        )
    is_omop, options = bool(omop) or scheme == "omop", dict(pairs)
    server = {name: options.pop(name) for name in SERVER_OPTIONS if scheme == "postgresql" and name in options}
    known = OMOP_OPTIONS if is_omop else SELECTING
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InputError(f"the URL has the unknown option {unknown[0]!r}; known are {', '.join(known)}")
    if not is_omop and ("table" in options) == ("query" in options):
        raise InputError("the URL must say what to read: ?table=NAME, or ?query=SELECT..., or ?query=@FILE")
    place = ""
    if scheme == "postgresql":
        named = {"host": parts.hostname, "port": port, "user": parts.username, "dbname": parts.path.lstrip("/")}
        server = {name: unquote(str(value)) for name, value in named.items() if value} | server
    else:
        place = unquote(parts.netloc + parts.path)
        if place.startswith("/") and not Path(place).exists():
            place = place[1:]  # as in sqlite:///relative.db
    return Address("" if scheme == "omop" else scheme, is_omop, place, server, options)


def read_query(address: Address) -> str | None:
    """Return the query of a URL, also from the file it names, or None; only one that reads is accepted."""
    text = address.options.get("query")
    if text is None:
        return None
    if text.startswith("@"):
        text = read_text(text[1:], advice="the part query=@FILE of the URL must name a file that holds one query")
    query = text.strip().rstrip(";").strip()
    first = query.split(maxsplit=1)[0].upper() if query else "nothing"
    if first.lstrip("(") not in ("SELECT", "WITH", "VALUES", "FROM"):
        raise InputError(f"the query begins with {first}; felb only reads, with SELECT or WITH")
    return query


def check_no_password(data: Any) -> None:
    """Raise if data is named by a URL that holds a password."""
    if is_url(data):
        parse_url(data)


def source_name(data: str) -> str:
    """Return how a result calls its data: the name of a file, or of a database without user and host."""
    if is_url(data):
        return parse_url(data).name
    return Path(data).name


MEMORY = "1GB"
"""What DuckDB may hold; the rest goes to a private temporary folder."""

WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


@contextmanager
def open_session() -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
    """Open a DuckDB session in memory and a folder that only this user can read; both are gone afterwards.

    Nothing is fetched: extensions are neither installed nor loaded.
    """
    import duckdb

    folder = Path(tempfile.mkdtemp(prefix="felb-"))  # mode 0700
    settings: dict[str, Any] = {
        "memory_limit": MEMORY,
        "temp_directory": str(folder / "spilled"),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET enable_progress_bar = false")  # it would be drawn between the lines of the output
    try:
        yield connection, folder
    finally:
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def explain_errors(name: str) -> Iterator[None]:
    """Turn what DuckDB says about a source into an `InputError` that names the source."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InputError(f"{name}: cannot be read ({' '.join(lines[:3])})") from error


def identifier(name: str) -> str:
    """Return a name as SQL, whatever characters it has."""
    if "\0" in name:
        raise InputError(f"the name {name!r} holds a zero byte")
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL, whatever characters it has."""
    return "'" + text.replace("'", "''") + "'"


def as_text(column: str, kind: str, missing: Sequence[str] = ()) -> str:
    """Return the SQL of a column's values as canonical text, NULL where missing.

    A whole number reads the same whether it was stored as an integer, a float or a decimal, since a column of integers
    with a missing value is stored as floats by many tools.
    """
    name = identifier(column)
    if kind in WHOLE or kind == "BOOLEAN":
        return f"{name}::VARCHAR"
    if kind in ("DOUBLE", "FLOAT") or kind.startswith("DECIMAL"):
        whole = f"{name} = trunc({name}) AND abs({name}) < 1e15"
        if kind.startswith("DECIMAL"):
            return f"CASE WHEN {whole} THEN {name}::BIGINT::VARCHAR ELSE {name}::DOUBLE::VARCHAR END"
        return f"CASE WHEN isnan({name}) THEN NULL WHEN {whole} THEN {name}::BIGINT::VARCHAR ELSE {name}::VARCHAR END"
    text = name if kind == "VARCHAR" else f"{name}::VARCHAR"
    if not missing:
        return text
    return f"CASE WHEN {text} IN ({', '.join(map(literal, missing))}) THEN NULL ELSE {text} END"


def as_number(text: str) -> str:
    """Return the SQL of the number that a canonical text stands for, NULL if it stands for none."""
    return f"TRY_CAST({text} AS DOUBLE)"


def as_time(column: str, kind: str, missing: Sequence[str] = ()) -> str:
    """Return the SQL of a column's values as points in time, NULL where they are none."""
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return f"{identifier(column)}::TIMESTAMP"
    return f"TRY_CAST({as_text(column, kind, missing)} AS TIMESTAMP)"


def record_order(text: str) -> str:
    """Return the order of records: by number where they are whole numbers, then by their text, byte by byte."""
    return f"TRY_CAST({text} AS HUGEINT) NULLS LAST, {text}"


SEPARATORS = {".csv": ",", ".tsv": "\t"}
ITEM_LISTS = (".dat", ".fimi")
ARROW = (".arrow", ".feather", ".ipc")
KNOWN = (*SEPARATORS, ".parquet", *ARROW, *ITEM_LISTS, ".h5ad")
POSITION = "felb_position"
"""Column of a relation with the number of each row in its source, from 0."""


@dataclass(frozen=True)
class RawSource:
    """A table to which a schema can be applied.

    Parameters
    ----------
    connection : the session it lives in
    relation : SQL that can stand behind FROM
    columns : DuckDB's type of each column
    name : how messages call it; never with credentials
    first_line : line of the first row in a text file
    ordered : whether rows have numbers that a user would recognise
    roles : which columns name records, codes, values and dates, where the source itself decides; else the schema does
    records : SQL of a relation with the column ``record`` that lists all records, also those without any event
    labels : names of codes, for the features that are inferred
    variables : columns of numbers that are not in the relation, which then has the column `POSITION`
    """

    connection: duckdb.DuckDBPyConnection
    relation: str
    columns: Mapping[str, str]
    name: str
    first_line: int | None = None
    ordered: bool = True
    roles: Roles | None = None
    records: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    variables: Variables | None = None

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, relation: str, name: str, **more: Any) -> RawSource:
        """Make a source of a relation, whose columns DuckDB knows."""
        return cls(connection, relation, describe_columns(connection, relation, name), name, **more)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query; what DuckDB cannot read is an `InputError`."""
        with explain_errors(self.name):
            return self.connection.execute(sql).fetchall()

    def kind(self, column: str) -> str:
        """Return DuckDB's type of a column, or raise if there is none of that name."""
        if column not in self.columns:
            shown = ", ".join(list(self.columns)[:20]) + (", …" if len(self.columns) > 20 else "")
            raise InputError(f"{self.name}: has no column {column!r}; it has {shown}")
        return self.columns[column]

    def place(self, where: str, record: str | None) -> str:
        """Return where the first row is that meets a condition: its line, its number or its record."""
        named = "NULL" if record is None else f"{identifier(record)}::VARCHAR"
        numbered = f"SELECT row_number() OVER () AS felb_n, {named} AS felb_record, * FROM {self.relation}"
        found = self.rows(f"SELECT felb_n, felb_record FROM ({numbered}) WHERE {where} ORDER BY felb_n LIMIT 1")
        number, label = found[0] if found else (0, None)
        of_record = "" if label is None else f"record {label!r}"
        if not self.ordered:
            return of_record or "a row"
        counted = f"row {number}" if self.first_line is None else f"line {number + self.first_line - 1}"
        return f"{counted}, {of_record}" if of_record else counted


@contextmanager
def open_source(data: Any, *, needed: Needed | None = None) -> Iterator[RawSource]:
    """Open raw data: a file, the URL of a database, or a frame of pandas, Polars or Arrow.

    Parameters
    ----------
    data : path, URL or frame
    needed : tells by name which columns will be used, where that spares reading the others
    """
    with open_session() as (connection, folder):
        if is_url(data):
            with open_database(str(data), connection, folder, needed) as source:
                yield source
        elif isinstance(data, str | Path):
            yield _open_file(Path(data), connection, needed)
        else:
            yield open_frame(data, connection)


def describe_columns(connection: duckdb.DuckDBPyConnection, relation: str, name: str) -> dict[str, str]:
    """Return the columns of a relation with their types."""
    with explain_errors(name):
        return {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()}


def _open_file(path: Path, connection: duckdb.DuckDBPyConnection, needed: Needed | None) -> RawSource:
    check_storable(str(path))
    suffix, packed = split_suffix(path)
    if suffix not in KNOWN or (packed and suffix not in (*SEPARATORS, *ITEM_LISTS)):
        raise InputError(
            f"{path}: a schema is applied to {', '.join(KNOWN)} (text also as .gz) and to URLs of databases "
            "(duckdb://, sqlite://, postgresql://, omop://)"
        )
    try:
        bounds = Limits().of(file_size(path))
        if packed:
            _check_unpacked(path, bounds)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    if suffix in SEPARATORS:
        return _read_text_table(path, SEPARATORS[suffix], connection, needed)
    if suffix == ".parquet":
        return RawSource.of(connection, f"read_parquet({literal(str(path))})", str(path))
    if suffix in ITEM_LISTS:
        return _read_item_list(path, connection)
    if suffix == ".h5ad":
        return open_annotations(path, connection, needed)
    return open_frame(_read_arrow(path), connection, name=str(path))


def _check_unpacked(path: Path, bounds: Bounds) -> None:
    """Raise unless a packed file unpacks to as many bytes as it may; DuckDB would fill memory and disk with them."""
    try:
        with open_bounded(path, bounds) as file:
            while file.read(1 << 20):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"the file is damaged or not packed by gzip ({error}); pack it again") from error
    except InputError as error:
        raise InputError(f"the file unpacks to more than {bounds.bytes} bytes; if they are meant, unpack it") from error


def read_header_names(path: Path, delimiter: str) -> list[str]:
    """Return the names in the first line of a text table."""
    try:
        bounds = Limits().of(file_size(path))
        with open_text(path, bounds) as text:
            _, cells = next(text_records(text, delimiter, bounds), (1, []))
            names = [unguard_cell(cell) for cell in cells]
    except (OSError, EOFError, UnicodeDecodeError, InputError) as error:
        raise InputError(f"{path}: the first line cannot be read ({error}); save the file as UTF-8 text") from error
    if len(names) > 1 and not names[0]:
        names[0] = INDEX  # pandas and R write the names of rows there
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InputError(f"{path}: line 1: the column name {twice[0]!r} occurs more than once; make the names unique")
    if "" in names:
        raise InputError(f"{path}: line 1: column {names.index('') + 1} has no name; the first line names the columns")
    return names


def _read_text_table(
    path: Path,
    delimiter: str,
    connection: duckdb.DuckDBPyConnection,
    needed: Needed | None,
) -> RawSource:
    delimiter = find_separator(path, Limits().of(file_size(path)), delimiter)
    names = read_header_names(path, delimiter)
    kept = [name for name in names if needed is None or needed(name)] or names[:1]
    relation = text_relation(path, names, delimiter=delimiter, header=True)
    with explain_errors(str(path)):  # parsed once: several passes follow
        read = ", ".join(map(identifier if delimiter != ";" else _with_decimal_point, kept))
        connection.execute(f"CREATE TEMP TABLE felb_raw AS SELECT {read} FROM {relation}")
    # Columns that are not needed are still known by name, so that a message can list them.
    return RawSource(connection, "felb_raw", dict.fromkeys(names, "VARCHAR"), str(path), first_line=2)


def _with_decimal_point(column: str) -> str:
    """Return the SQL of a text column with numbers such as 3,5 written as 3.5, as programs that separate by ; do."""
    name = identifier(column)
    number = f"regexp_full_match({name}, '-?[0-9]+,[0-9]+')"
    return f"CASE WHEN {number} THEN replace({name}, ',', '.') ELSE {name} END AS {name}"


def text_relation(
    path: Path, names: list[str], *, delimiter: str, header: bool, null: str = "", quote: str = '"'
) -> str:
    """Return the SQL that reads a text table, every column as text; nothing about the file is guessed."""
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    return (
        f"read_csv({literal(str(path))}, auto_detect=false, header={str(header).lower()}, delim={literal(delimiter)}, "
        f"quote={literal(quote)}, escape={literal(quote)}, nullstr={literal(null)}, "
        f"allow_quoted_nulls={str(not null).lower()}, columns={{{columns}}})"
    )


def _read_item_list(path: Path, connection: duckdb.DuckDBPyConnection) -> RawSource:
    """Read one record a line, its items separated by blanks; the record is named by its line."""
    with explain_errors(str(path)):
        connection.execute(
            "CREATE TEMP TABLE felb_lines AS SELECT row_number() OVER () AS record, line FROM "
            f"read_csv({literal(str(path))}, auto_detect=false, header=false, delim='\x01', quote='', escape='', "
            "null_padding=false, columns={'line': 'VARCHAR'})"
        )
        connection.execute(
            "CREATE TEMP VIEW felb_raw AS SELECT record, unnest(string_split_regex(trim(line), '[ \\t]+')) AS item "
            "FROM felb_lines WHERE line IS NOT NULL AND trim(line) <> ''"
        )
    records = "(SELECT record FROM felb_lines)"
    return RawSource.of(connection, "felb_raw", str(path), roles=Roles(record="record", item="item"), records=records)


def _read_arrow(path: Path) -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        missing_extra(f"reading {path.suffix} files", "parquet", error)
    try:
        with pa.memory_map(str(path)) as mapped:
            return pa.ipc.open_file(mapped).read_all()  # maps the file; columns are read when they are used
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: the file is damaged or no Arrow file ({error}); write it again") from error


def open_frame(frame: Any, connection: duckdb.DuckDBPyConnection, *, name: str = "the data") -> RawSource:
    """Take a frame of pandas, Polars or Arrow, or a table of arrays by name."""
    if hasattr(frame, "collect") and hasattr(frame, "collect_schema"):
        frame = frame.collect()
    if not (isinstance(frame, dict) or hasattr(frame, "columns")):
        raise InputError("a schema is applied to a data frame with named columns, a file, or the URL of a database")
    if hasattr(frame, "iloc"):
        if not all(isinstance(column, str) for column in frame.columns):
            raise InputError("the columns of the data frame must be named by texts")
        if not frame.columns.is_unique:
            twice = frame.columns[frame.columns.duplicated()][0]
            raise InputError(f"the column name {twice!r} occurs more than once in the data frame")
    elif hasattr(frame, "to_arrow"):
        frame = frame.to_arrow()
    with explain_errors(name):
        connection.register("felb_frame", frame)
    return RawSource.of(connection, "felb_frame", name)


DOMAINS = {
    "condition": ("condition_occurrence", "condition_concept_id", "condition_start_date"),
    "drug": ("drug_exposure", "drug_concept_id", "drug_exposure_start_date"),
    "procedure": ("procedure_occurrence", "procedure_concept_id", "procedure_date"),
    "observation": ("observation", "observation_concept_id", "observation_date"),
    "measurement": ("measurement", "measurement_concept_id", "measurement_date"),
}
"""The tables of events, with their columns of concepts and dates (CDM 5.x)."""


def open_omop(database: Database, address: Address, connection: duckdb.DuckDBPyConnection) -> RawSource:
    """Read the events of some domains; every person of the table ``person`` is a record.

    Options of the URL: ``domains=condition,drug,procedure`` (that is the default), ``schema=NAME`` of the database, and
    ``ancestors=all`` or ``ancestors=2``, by which an event also counts for the ancestors of its concept, all of them or
    those at most so many levels above. Events whose concept is 0 (not mapped) are left out.
    """
    prefix = f"{identifier(address.options['schema'])}." if "schema" in address.options else ""
    named = address.options.get("domains", "condition,drug,procedure").split(",")
    for domain in named:
        if domain not in DOMAINS:
            raise InputError(f"OMOP has no domain {domain!r} here; known are {', '.join(DOMAINS)}")
    database.load(f"{prefix}{identifier('person')}", ["person_id"], "felb_person")
    for domain in named:
        table, concept, date = DOMAINS[domain]
        events = f"(SELECT person_id, {concept} AS concept_id, {date} AS date FROM {prefix}{identifier(table)}) AS e"
        database.load(events, ["person_id", "concept_id", "date"], f"felb_{domain}")
    united = " UNION ALL ".join(f"SELECT * FROM felb_{domain}" for domain in named)
    events = f"SELECT * FROM ({united}) WHERE concept_id::VARCHAR <> '0'"
    if "ancestors" in address.options:
        events = _roll_up(database, prefix, address.options["ancestors"], events)
    connection.execute(f"CREATE TEMP VIEW felb_raw AS {events}")
    database.load(f"{prefix}{identifier('concept')}", ["concept_id", "concept_name"], "felb_concept")
    used = "SELECT concept_id::VARCHAR, any_value(concept_name) FROM felb_concept WHERE concept_id::VARCHAR IN"
    labels = connection.execute(f"{used} (SELECT concept_id::VARCHAR FROM felb_raw) GROUP BY 1").fetchall()
    return RawSource.of(
        connection,
        "felb_raw",
        address.name,
        ordered=False,
        roles=Roles(record="person_id", item="concept_id", time="date"),
        records="(SELECT person_id AS record FROM felb_person)",
        labels=dict(labels),
    )


def _roll_up(database: Database, prefix: str, levels: str, events: str) -> str:
    """Return the SQL of the events, each once for its concept and once for every ancestor of it."""
    if levels != "all" and not levels.isdigit():
        raise InputError(f"ancestors={levels} is neither all nor a number of levels")
    ancestors = f"{prefix}{identifier('concept_ancestor')}"
    names = ["ancestor_concept_id", "descendant_concept_id", "min_levels_of_separation"]
    database.load(ancestors, names, "felb_ancestor")
    near = "true" if levels == "all" else f"min_levels_of_separation::INTEGER <= {literal(levels)}::INTEGER"
    above = f"SELECT ancestor_concept_id, descendant_concept_id FROM felb_ancestor WHERE {near}"
    return (
        f"SELECT person_id, concept_id, date FROM ({events}) UNION ALL "
        f"SELECT person_id, ancestor_concept_id AS concept_id, date FROM ({events}) AS e JOIN ({above}) AS a "
        "ON e.concept_id = a.descendant_concept_id WHERE a.ancestor_concept_id <> e.concept_id"
    )


# What another database than DuckDB answers passes as text through a file in the private folder of the session, so that
# it may be larger than memory and every rule is computed by the same engine, whatever the origin.

NULL = "\\N"
NUMERIC = 1700
"""PostgreSQL's number of the type whose text differs from that of other databases."""


class Database:
    """An open database: what can be asked of all of them. This one is DuckDB itself, and nothing is copied."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self._connection, self._name = connection, name

    def columns(self, relation: str) -> list[str]:
        """Return the column names of what stands behind FROM."""
        with explain_errors(self._name):
            statements = self._connection.extract_statements(f"SELECT * FROM {relation}")
        if len(statements) != 1:
            raise InputError(f"{self._name}: the query must be one statement that reads")
        return list(describe_columns(self._connection, relation, self._name))

    def load(self, relation: str, columns: list[str], table: str) -> None:
        """Make the columns of a relation a table or view of the session."""
        listed = ", ".join(map(identifier, columns))
        with explain_errors(self._name):
            self._connection.execute(f"CREATE TEMP VIEW {table} AS SELECT {listed} FROM {relation}")

    def _load_text(self, path: Path, columns: list[str], table: str) -> None:
        relation = text_relation(path, columns, delimiter=",", header=False, null=NULL)
        with explain_errors(self._name):
            self._connection.execute(f"CREATE TEMP TABLE {table} AS SELECT * FROM {relation}")
        path.unlink()


@contextmanager
def open_database(
    url: str, connection: duckdb.DuckDBPyConnection, folder: Path, needed: Needed | None
) -> Iterator[RawSource]:
    """Open the table or query that a URL names."""
    address = parse_url(url)
    with connect(address, connection, folder) as database:
        if address.omop:
            yield open_omop(database, address, connection)
            return
        query = read_query(address)
        parts = [address.options[part] for part in ("schema", "table") if part in address.options]
        relation = f"({query}) AS felb_query" if query is not None else ".".join(map(identifier, parts))
        names = database.columns(relation)
        kept = [name for name in names if needed is None or needed(name)] or names[:1]
        database.load(relation, kept, "felb_raw")
        loaded = describe_columns(connection, "felb_raw", address.name)
        columns = {name: loaded.get(name, "VARCHAR") for name in names}
        yield RawSource(connection, "felb_raw", columns, address.name, ordered=False)


@contextmanager
def connect(address: Address, connection: duckdb.DuckDBPyConnection, folder: Path) -> Iterator[Database]:
    """Connect to the database of an address, for reading only."""
    scheme = address.scheme or _scheme_of(address)
    address = replace(address, scheme=scheme)
    if scheme == "postgresql":
        with _postgres(address) as server:
            yield _Postgres(server, connection, folder, address.name)
    elif scheme == "sqlite":
        with closing(sqlite3.connect(f"{_database_file(address).absolute().as_uri()}?mode=ro", uri=True)) as file:
            yield _SQLite(file, connection, folder, address.name)
    elif scheme == "folder":
        for path in sorted(_existing(address).iterdir()):
            relation = _read_folder_file(path)
            if relation is not None:
                with explain_errors(str(path)):
                    view = f"CREATE TEMP VIEW {identifier(path.stem.lower())} AS SELECT * FROM "
                    connection.execute(f"{view}{relation}")
        yield Database(connection, address.name)
    else:
        with explain_errors(address.name):
            connection.execute(f"ATTACH {literal(str(_database_file(address)))} AS felb_database (READ_ONLY)")
            connection.execute("USE felb_database")
            # A view of the file, or a query of the address, must not read other files.
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
        yield Database(connection, address.name)


def _read_folder_file(path: Path) -> str | None:
    """Return the SQL that reads a file of a folder of tables; vocabularies come as .csv that is separated by tabs."""
    if path.suffix.lower() == ".parquet":
        return f"read_parquet({literal(str(path))})"
    if path.suffix.lower() != ".csv":
        return None
    names = read_header_names(path, ",")
    if len(names) == 1 and "\t" in names[0]:
        return text_relation(path, read_header_names(path, "\t"), delimiter="\t", header=True, quote="")
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


class _SQLite(Database):
    """A SQLite file, opened read-only; any value as text, since SQLite's columns have no types."""

    def __init__(
        self, file: sqlite3.Connection, connection: duckdb.DuckDBPyConnection, folder: Path, name: str
    ) -> None:
        super().__init__(connection, name)
        self._file, self._folder = file, folder
        self._execute("PRAGMA query_only = ON")

    def columns(self, relation: str) -> list[str]:
        return [column[0] for column in self._execute(f"SELECT * FROM {relation} LIMIT 0").description]

    def load(self, relation: str, columns: list[str], table: str) -> None:
        path = self._folder / f"{table}.csv"
        found = self._execute(f"SELECT {', '.join(map(identifier, columns))} FROM {relation}")
        try:
            with path.open("w", encoding="utf-8", newline="") as file:
                file.writelines(",".join(map(self._written, row)) + "\n" for row in found)
        except sqlite3.Error as error:
            raise InputError(f"{self._name}: the database broke off: {error}; nothing was written") from error
        self._load_text(path, columns, table)

    def _execute(self, sql: str) -> sqlite3.Cursor:
        try:
            return self._file.execute(sql)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise InputError(f"{self._name}: the session is read-only, and the database says: {error}") from error

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


class _Postgres(Database):
    """A session of a PostgreSQL server in a transaction that can only read."""

    def __init__(self, server: Any, connection: duckdb.DuckDBPyConnection, folder: Path, name: str) -> None:
        super().__init__(connection, name)
        self._server, self._folder = server, folder

    def columns(self, relation: str) -> list[str]:
        return [column.name for column in self._description(relation)]

    def _description(self, relation: str) -> list[Any]:
        import psycopg

        try:
            with self._server.cursor() as cursor:
                return list(cursor.execute(f"SELECT * FROM {relation} LIMIT 0".replace("%", "%%"), ()).description)
        except psycopg.Error as error:
            raise InputError(f"{self._name}: the session is read-only, and the server says: {_said(error)}") from None

    def load(self, relation: str, columns: list[str], table: str) -> None:
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
        self._load_text(path, columns, table)


BLOCK_CELLS = 1 << 22
"""Cells of a block of rows, or stored entries if it is sparse."""

NAMES = "obs_names"
"""Column that names the observations; a schema can use it as its record."""


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

    def blocks(self, names: Sequence[str]) -> Iterator[tuple[int, sp.csc_array]]:
        """Yield the columns of these names in blocks of rows, each with the number of its first row."""
        data, chosen = open_anndata(self.path), [self.positions[name] for name in names]
        try:
            start, step = 0, max(1, BLOCK_CELLS // max(1, data.n_vars))
            while start < data.n_obs:
                rows = data.X[start : start + step]
                yield start, sp.csc_array(sp.csc_array(rows, dtype=np.float64)[:, chosen])
                start += step
                if hasattr(rows, "nnz"):  # as many rows as have so many stored entries
                    step = max(1, BLOCK_CELLS * rows.shape[0] // max(1, rows.nnz))
        except (OSError, ValueError, IndexError, TypeError) as error:
            raise InputError(f"{self.path}: X cannot be read ({error}); write the file again") from error
        finally:
            data.file.close()


def open_annotations(path: Path, connection: duckdb.DuckDBPyConnection, needed: Needed | None) -> RawSource:
    """Open an ``.h5ad`` file as a wide table: `obs_names`, the columns of `obs`, and variables of `X` by name.

    `X` stays in its file; its variables are read when rules are applied to them. Without `needed`, there are only the
    annotations.
    """
    data = open_anndata(path)
    data.file.close()  # the annotations are in memory
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
        table[name] = to_objects(column) if column.dtype == "category" else column.to_numpy()
    with explain_errors(str(path)):
        connection.register("felb_block", table)
        listed = ", ".join(map(identifier, table))
        connection.execute(f"CREATE TEMP TABLE felb_raw AS SELECT {listed} FROM felb_block")
        connection.unregister("felb_block")
    columns = describe_columns(connection, "felb_raw", str(path))
    columns.pop(POSITION)
    columns |= {variables[i]: "DOUBLE" for i in chosen}
    found = Variables(path, {variables[i]: i for i in chosen}) if chosen else None
    return RawSource(connection, "felb_raw", columns, str(path), variables=found)
