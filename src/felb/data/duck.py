"""DuckDB, the one reader of raw tables: a private session, names and texts in SQL, values in one canonical form."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb

MEMORY = "1GB"
"""What DuckDB may hold; the rest goes to a private temporary folder."""

WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")


@contextmanager
def session() -> Iterator[tuple[duckdb.DuckDBPyConnection, Path]]:
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
def reading_of(name: str) -> Iterator[None]:
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
