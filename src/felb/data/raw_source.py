"""Raw data of any origin as one relation of DuckDB: files, data frames, databases, OMOP."""

from __future__ import annotations

import csv
import io
import zlib
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.data.database_url import is_url
from felb.data.duck import identifier, literal, reading_of, session
from felb.data.limits import Bounds, Limits, open_bounded
from felb.data.schema import Roles
from felb.errors import InputError, missing_extra
from felb.safe_files import file_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import duckdb

    from felb.data.variables import Variables

    Needed = Callable[[str], bool]

SEPARATORS = {".csv": ",", ".tsv": "\t"}
ITEM_LISTS = (".dat", ".fimi")
ARROW = (".arrow", ".feather", ".ipc")
KNOWN = (*SEPARATORS, ".parquet", *ARROW, *ITEM_LISTS, ".h5ad")
POSITION = "felb_position"
"""Column of a relation with the number of each row in its source, from 0."""
OWN_ROLES = Roles(record="record", item="item")


@dataclass(frozen=True)
class RawSource:
    """A table to which a schema can be applied.

    Parameters
    ----------
    connection, folder : the session it lives in, and its private folder
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
    folder: Path
    relation: str
    columns: Mapping[str, str]
    name: str
    first_line: int | None = None
    ordered: bool = True
    roles: Roles | None = None
    records: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    variables: Variables | None = None

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query; what DuckDB cannot read is an `InputError`."""
        with reading_of(self.name):
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
    with session() as (connection, folder):
        if is_url(data):
            from felb.data.databases import open_database

            with open_database(str(data), connection, folder, needed) as source:
                yield source
        elif isinstance(data, str | Path):
            yield _file(Path(data), connection, folder, needed)
        else:
            yield frame_source(data, connection, folder)


def described(connection: duckdb.DuckDBPyConnection, relation: str, name: str) -> dict[str, str]:
    """Return the columns of a relation with their types."""
    with reading_of(name):
        return {row[0]: row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()}


def _file(path: Path, connection: duckdb.DuckDBPyConnection, folder: Path, needed: Needed | None) -> RawSource:
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    packed = suffixes[-1:] == [".gz"]
    suffix = "".join(suffixes[-2:-1] if packed else suffixes[-1:])
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
        return _text_table(path, SEPARATORS[suffix], connection, folder, needed)
    if suffix == ".parquet":
        relation = f"read_parquet({literal(str(path))})"
        return RawSource(connection, folder, relation, described(connection, relation, str(path)), str(path))
    if suffix in ITEM_LISTS:
        return _item_list(path, connection, folder)
    if suffix == ".h5ad":
        from felb.data.annotated import anndata_source

        return anndata_source(path, connection, folder, needed)
    return frame_source(_arrow_file(path), connection, folder, name=str(path))


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


def _lines(text: io.TextIOWrapper, longest: int) -> Iterator[str]:
    while line := text.readline(longest):
        if len(line) == longest and not line.endswith("\n"):
            raise csv.Error(f"a line has more than {longest} characters")
        yield line


def header_names(path: Path, delimiter: str) -> list[str]:
    """Return the names in the first line of a text table."""
    try:
        bounds = Limits().of(file_size(path))
        with open_bounded(path, bounds) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            names = next(csv.reader(_lines(text, bounds.line), delimiter=delimiter), [])
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: the first line cannot be read ({error}); save the file as UTF-8 text") from error
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InputError(f"{path}: line 1: the column name {twice[0]!r} occurs more than once; make the names unique")
    if "" in names:
        raise InputError(f"{path}: line 1: column {names.index('') + 1} has no name; the first line names the columns")
    return names


def _text_table(
    path: Path,
    delimiter: str,
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    needed: Needed | None,
) -> RawSource:
    names = header_names(path, delimiter)
    kept = [name for name in names if needed is None or needed(name)] or names[:1]
    relation = text_relation(path, names, delimiter=delimiter, header=True)
    with reading_of(str(path)):  # parsed once: several passes follow
        connection.execute(f"CREATE TEMP TABLE felb_raw AS SELECT {', '.join(map(identifier, kept))} FROM {relation}")
    # Columns that are not needed are still known by name, so that a message can list them.
    return RawSource(connection, folder, "felb_raw", dict.fromkeys(names, "VARCHAR"), str(path), first_line=2)


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


def _item_list(path: Path, connection: duckdb.DuckDBPyConnection, folder: Path) -> RawSource:
    """Item lists: one record a line, its items separated by blanks; the record is named by its line."""
    with reading_of(str(path)):
        connection.execute(
            "CREATE TEMP TABLE felb_lines AS SELECT row_number() OVER () AS record, line FROM "
            f"read_csv({literal(str(path))}, auto_detect=false, header=false, delim='\x01', quote='', escape='', "
            "null_padding=false, columns={'line': 'VARCHAR'})"
        )
        connection.execute(
            "CREATE TEMP VIEW felb_raw AS SELECT record, unnest(string_split_regex(trim(line), '[ \\t]+')) AS item "
            "FROM felb_lines WHERE line IS NOT NULL AND trim(line) <> ''"
        )
    columns = described(connection, "felb_raw", str(path))
    return RawSource(
        connection, folder, "felb_raw", columns, str(path), roles=OWN_ROLES, records="(SELECT record FROM felb_lines)"
    )


def _arrow_file(path: Path) -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        missing_extra(f"reading {path.suffix} files", "parquet", error)
    try:
        with pa.memory_map(str(path)) as mapped:
            return pa.ipc.open_file(mapped).read_all()  # maps the file; columns are read when they are used
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: the file is damaged or no Arrow file ({error}); write it again") from error


def frame_source(
    frame: Any, connection: duckdb.DuckDBPyConnection, folder: Path, *, name: str = "the data"
) -> RawSource:
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
    with reading_of(name):
        connection.register("felb_frame", frame)
    return RawSource(connection, folder, "felb_frame", described(connection, "felb_frame", name), name)
