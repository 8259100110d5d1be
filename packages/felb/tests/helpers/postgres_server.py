"""A PostgreSQL server for tests: made by initdb, owned by another user than root, gone afterwards."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

USERS = ("postgres", "nobody")
PASSWORD = "s3cret-of-the-reader"


@dataclass(frozen=True)
class Server:
    port: int
    folder: Path
    start: tuple[str, ...]

    def url(self, **options: str) -> str:
        from urllib.parse import urlencode

        return f"postgresql://reader@127.0.0.1:{self.port}/postgres?{urlencode(options)}"

    def execute(self, *statements: str) -> None:
        """Run statements as the owner, who comes in by a socket of the folder."""
        import psycopg

        with psycopg.connect(host=str(self.folder), port=self.port, user="owner", dbname="postgres") as connection:
            for statement in statements:
                connection.execute(statement)

    def copy(self, table: str, rows) -> None:
        import psycopg

        with (
            psycopg.connect(host=str(self.folder), port=self.port, user="owner", dbname="postgres") as connection,
            connection.cursor().copy(f"COPY {table} FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)


def program(name: str) -> str | None:
    places = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    return next((found for path in (None, *places) if (found := shutil.which(name, path=path))), None)


@contextmanager
def postgres_server():
    """Start a server, or skip and say why; where FELB_REQUIRE_POSTGRES is set (in CI), a skip is a failure."""
    if os.name != "posix":
        pytest.skip("the server is started as on Linux and macOS")
    pytest.importorskip("psycopg")
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    if initdb is None or pg_ctl is None:
        reason = "PostgreSQL is not installed (initdb, pg_ctl); `make postgres` installs it where it may"
        (pytest.fail if os.environ.get("FELB_REQUIRE_POSTGRES") else pytest.skip)(reason)
    owner = None
    if os.getuid() == 0:  # the server refuses to run as root
        owner = next((name for name in USERS if _exists(name)), None)
        if owner is None:
            pytest.skip("there is no other user than root to run PostgreSQL")
    folder = Path(tempfile.mkdtemp(prefix="felb-pg-", dir="/tmp"))  # a socket's path must be short
    if owner is not None:
        shutil.chown(folder, owner)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(*command: str) -> None:
        done = subprocess.run(
            command, cwd=folder, user=owner, check=False, capture_output=True, text=True, timeout=60,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        data = folder / "data"
        run(initdb, "-D", str(data), "-U", "owner", "--auth-local=trust", "--auth-host=scram-sha-256", "-E", "UTF8",
            "--no-sync")  # fmt: skip
        settings = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=32MB"
        start = (pg_ctl, "-D", str(data), "-o", settings, "-l", str(folder / "log"), "-w")
        run(*start, "start")
        try:
            server = Server(port, folder, start)
            server.execute(f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'", "GRANT ALL ON SCHEMA public TO reader")
            yield server
        finally:
            run(pg_ctl, "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _exists(name: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
