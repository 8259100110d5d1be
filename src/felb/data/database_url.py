"""URLs that name a database and what to read from it; a password is never part of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from felb.errors import InputError
from felb.records import read_text

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def query_of(address: Address) -> str | None:
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


def is_url(data: Any) -> bool:
    """Return whether data is named by a URL rather than by a path."""
    return isinstance(data, str) and "://" in data and not Path(data).exists()


def check_no_password(data: Any) -> None:
    """Raise if data is named by a URL that holds a password."""
    if is_url(data):
        parse_url(data)


def source_name(data: str) -> str:
    """Return how a result calls its data: the name of a file, or of a database without user and host."""
    if is_url(data):
        return parse_url(data).name
    return Path(data).name
