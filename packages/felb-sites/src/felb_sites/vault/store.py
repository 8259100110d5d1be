"""The one file in which a vault keeps everything that must survive: SQLite, written by one process at a time.

Whatever belongs together is written in one transaction: a crash leaves all of it or nothing. The attempt to answer a
request is committed with its planned cost before a row is touched; the charge, the lines of the log and the response
replace it in one transaction, before anything leaves.

`backup` uses SQLite's own online backup. A store that was restored begins a new epoch: runs that were open are over,
and count with all that they may cost, since nobody knows what was answered after the backup.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

from felb.errors import FelbError, InputError
from felb.privacy.outbound_log import Head, chain_line
from felb.records import replacing, sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    Row = Mapping[str, Any]

VERSION = 1
INLINE = 1 << 20
"""Bytes up to which a state is kept in the file itself; larger ones are files beside it, named by their content."""
CHECKPOINT = 8192
"""Pages of the log after which they are copied into the file; a few large answers should not cost a copy each."""
_TABLES = """
create table meta(name text primary key, value text not null);
create table members(number integer primary key, data blob not null, time real not null);
create table trusted(name text primary key, sign blob not null, by text not null, time real not null);
create table heard(run text, sender text, kind text, number integer, digest blob, primary key(run, sender, kind));
create table receipts(digest blob primary key);
create table outbox(seq integer primary key autoincrement, run text, kind text, number integer, body blob);
create table runs(
    run text primary key, digest text not null, plan text not null, sites text not null, members text not null,
    proposal integer not null, replies integer not null default 0, status text not null, by text not null default '',
    asked real not null, decided real, code text not null default '', reason text not null default '', needs integer,
    state text not null default 'proposed', round integer not null default -1, data text, sample blob,
    epoch integer not null
);
create table kept(run text, name text, data blob, primary key(run, name));
create table journal(run text, name text, entry blob not null, primary key(run, name));
create table attempts(
    run text, round integer, digest text, tries integer not null, failed integer not null, costs text not null,
    primary key(run, round, digest)
);
create table responses(run text, round integer, digest text, entry blob not null, charges text not null,
    primary key(run, round));
create table states(run text, round integer, entry blob, file text, primary key(run, round));
create table budget(run text primary key, epsilon real not null, delta real not null, unit text not null,
    neighbours text not null, began real not null);
create table log(seq integer primary key, run text not null, line text not null);
create table refusals(seq integer primary key autoincrement, time real not null, run text, reason text not null);
"""
_OF_A_RUN = ("kept", "journal", "responses", "states", "attempts", "outbox")


class Store:
    """What a vault remembers.

    Parameters
    ----------
    folder : of the vault
    name : of the site, kept in a new store and compared with that of an old one
    """

    def __init__(self, folder: Path, *, name: str | None = None) -> None:
        self.folder, self.path = folder, folder / "store.sqlite"
        self._lock = threading.RLock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._create_file()
        try:
            self._db = self._connect()
            self._migrate(name)
        except sqlite3.DatabaseError as error:
            raise InputError(f"{self.path} is damaged ({error}); restore it: felb site restore") from error

    def _create_file(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    def _connect(self) -> sqlite3.Connection:
        made = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30)
        made.row_factory = sqlite3.Row
        made.execute("pragma journal_mode=wal")
        made.execute("pragma synchronous=full")
        made.execute(f"pragma wal_autocheckpoint={CHECKPOINT}")
        return made

    def _migrate(self, name: str | None) -> None:
        with self.transaction():
            version = self._db.execute("pragma user_version").fetchone()[0]
            if version > VERSION:
                raise InputError(f"{self.path} was written by a newer version of felb; install that version")
            if version == 0:
                for statement in _TABLES.split(";\n"):
                    if statement.strip():
                        self._db.execute(statement)
                self._db.execute(f"pragma user_version={VERSION}")
                self.set("epoch", "0")
                if name is not None:
                    self.set("site", name)
        if name is not None and self.get("site") != name:
            raise InputError(f"{self.path} is the store of {self.get('site')}, not of {name}")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all of what is within, or nothing; nested ones belong to the outermost."""
        with self._lock:
            if self._db.in_transaction:
                yield
                return
            self._db.execute("begin immediate")
            try:
                yield
            except BaseException:
                self._db.execute("rollback")
                raise
            try:
                self._db.execute("commit")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("rollback")
                raise

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """Return the rows of a query."""
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def row(self, query: str, *values: Any) -> sqlite3.Row | None:
        """Return the first row of a query, if there is one."""
        with self._lock:
            found: sqlite3.Row | None = self._db.execute(query, values).fetchone()
        return found

    def write(self, statement: str, *values: Any) -> None:
        """Execute a statement within a transaction."""
        with self.transaction():
            self._db.execute(statement, values)

    # -- facts about the site ------------------------------------------------------------------------------------------

    def get(self, name: str, default: str = "") -> str:
        """Return a fact by its name."""
        found = self.row("select value from meta where name=?", name)
        return default if found is None else str(found["value"])

    def set(self, name: str, value: str) -> None:
        """Set a fact down."""
        self.write("insert or replace into meta values(?, ?)", name, value)

    @property
    def epoch(self) -> int:
        """How often the store was restored from a backup."""
        return int(self.get("epoch", "0"))

    # -- envelopes -----------------------------------------------------------------------------------------------------

    def heard(self, run: str, sender: str, kind: str) -> tuple[int, bytes] | None:
        """Return number and digest of the last envelope of a kind."""
        found = self.row("select number, digest from heard where run=? and sender=? and kind=?", run, sender, kind)
        return None if found is None else (found["number"], found["digest"])

    def hear(self, run: str, sender: str, kind: str, number: int, digest: bytes) -> None:
        """Set down that an envelope was dealt with."""
        self.write("insert or replace into heard values(?, ?, ?, ?, ?)", run, sender, kind, number, digest)

    def acknowledge(self, *digests: bytes) -> None:
        """Set down that receipts for envelopes are to be sent."""
        with self.transaction():
            self._db.executemany("insert or ignore into receipts values(?)", [(digest,) for digest in digests])

    def take_receipts(self, most: int) -> tuple[bytes, ...]:
        """Return receipts for the next envelope, which then need not be sent by themselves."""
        with self.transaction():
            found = [row["digest"] for row in self.rows("select digest from receipts limit ?", most)]
            self._db.executemany("delete from receipts where digest=?", [(digest,) for digest in found])
        return tuple(found)

    def post(self, run: str, kind: str, number: int, body: bytes) -> None:
        """Set an envelope down to be sent; of one kind and run only the last few are kept."""
        with self.transaction():
            self._db.execute("delete from outbox where run=? and kind=? and number<?", (run, kind, number - 2))
            self._db.execute("delete from outbox where run=? and kind=? and number=?", (run, kind, number))
            self._db.execute(
                "insert into outbox(run, kind, number, body) values(?, ?, ?, ?)", (run, kind, number, body)
            )

    def repost(self, run: str, kind: str, number: int) -> bool:
        """Let an envelope be sent again, if it is there."""
        with self.transaction():
            found = self.row("select body from outbox where run=? and kind=? and number=?", run, kind, number)
            if found is None:
                return False
            self.post(run, kind, number, found["body"])
        return True

    def outgoing(self, after: int, most: int) -> list[tuple[int, bytes]]:
        """Return envelopes to be sent, in order."""
        found = self.rows("select seq, body from outbox where seq>? order by seq limit ?", after, most)
        return [(row["seq"], row["body"]) for row in found]

    # -- runs ----------------------------------------------------------------------------------------------------------

    def run(self, run: str) -> sqlite3.Row | None:
        """Return what is known of a run."""
        return self.row("select * from runs where run=?", run)

    def update_run(self, run: str, **values: Any) -> None:
        """Change facts about a run."""
        names = ", ".join(f"{name}=?" for name in values)
        self.write(f"update runs set {names} where run=?", *values.values(), run)

    def find(self, run: str, name: str) -> bytes | None:
        """Return what is kept of a run under a name; it may be large, and so is not in the row of the run."""
        found = self.row("select data from kept where run=? and name=?", run, name)
        return None if found is None else found["data"]

    def keep(self, run: str, name: str, data: bytes | None) -> None:
        """Keep something of a run under a name."""
        self.write("insert or replace into kept values(?, ?, ?)", run, name, data)

    def purge(self, run: str) -> None:
        """Forget what was computed in a run; log, charges and decision stay."""
        with self.transaction():
            files = [row["file"] for row in self.rows("select file from states where run=? and file is not null", run)]
            for table in _OF_A_RUN:
                self._db.execute(f"delete from {table} where run=?", (run,))
            self._db.execute("update runs set sample=null where run=?", (run,))
        self._remove_files(files)

    # -- states --------------------------------------------------------------------------------------------------------

    def put_state(self, run: str, number: int, entry: bytes, *, keep: int) -> None:
        """Keep the state after a round, and forget those before the last few."""
        file = None
        if len(entry) > INLINE:
            file = hashlib.sha256(entry).hexdigest()
            place = self.folder / "states" / file
            place.parent.mkdir(mode=0o700, exist_ok=True)
            if not place.is_file():
                with replacing(place) as partial:
                    partial.write_bytes(entry)
                sync_folder(place.parent)
        old = self.rows("select file from states where run=? and (round<=? or round>=?)", run, number - keep, number)
        with self.transaction():
            self._db.execute("delete from states where run=? and (round<=? or round>=?)", (run, number - keep, number))
            kept = (run, number, None if file else entry, file)
            self._db.execute("insert into states values(?, ?, ?, ?)", kept)
        self._remove_files(row["file"] for row in old if row["file"] not in (None, file))

    def state_before(self, run: str, number: int) -> bytes | None:
        """Return the last state before a round."""
        found = self.row(
            "select entry, file from states where run=? and round<? order by round desc limit 1", run, number
        )
        if found is None:
            return None
        if found["file"] is None:
            return bytes(found["entry"])
        data: bytes = (self.folder / "states" / found["file"]).read_bytes()
        if hashlib.sha256(data).hexdigest() != found["file"]:
            raise InputError(f"the state {found['file']} is damaged; the run cannot go on here")
        return data

    def _remove_files(self, names: Iterable[str]) -> None:
        for name in names:
            if self.row("select 1 from states where file=?", name) is None:
                (self.folder / "states" / name).unlink(missing_ok=True)

    # -- the chained log -----------------------------------------------------------------------------------------------

    def append_log(self, run: str, fields: Mapping[str, Any]) -> None:
        """Add a line to the outbound log; each holds the hash of the one before."""
        with self.transaction():
            line, head = chain_line({"run": run, **fields}, self.log_head())
            self._db.execute("insert into log values(?, ?, ?)", (head.lines, run, line))

    def log_head(self) -> Head:
        """Return where the log ends."""
        found = self.row("select seq, line from log order by seq desc limit 1")
        return Head() if found is None else Head(found["seq"], json.loads(found["line"])["hash"])

    def verify_log(self) -> Head:
        """Return where the log ends, or raise an `InputError` that names its first wrong line."""
        head = Head()
        for row in self.rows("select seq, line from log order by seq"):
            fields = json.loads(row["line"])
            said = {name: value for name, value in fields.items() if name not in ("previous", "hash")}
            line, after = chain_line(said, head)
            if row["seq"] != after.lines or fields.get("previous") != head.hash:
                raise InputError(f"line {after.lines} of the log does not follow the line before it; lines are gone")
            if line != row["line"]:
                raise InputError(f"line {row['seq']} of the log was changed after it was written")
            head = after
        return head

    def log_lines(self, run: str | None = None) -> list[dict[str, Any]]:
        """Return the lines of the outbound log."""
        if run is None:
            found = self.rows("select line from log order by seq")
        else:
            found = self.rows("select line from log where run=? order by seq", run)
        return [json.loads(row["line"]) for row in found]

    def note_refusal(self, run: str | None, reason: str, *, most: int = 10_000) -> None:
        """Set down why something was refused; for the people at this site."""
        with self.transaction():
            self._db.execute(
                "insert into refusals(time, run, reason) values(?, ?, ?)", (time.time(), run, reason[:2000])
            )
            self._db.execute("delete from refusals where seq <= (select max(seq) from refusals) - ?", (most,))

    # -- backups -------------------------------------------------------------------------------------------------------

    def backup(self, path: Path) -> None:
        """Write a copy of the store, complete or not at all, while it is in use."""
        if path.exists():
            raise InputError(f"{path} exists; choose another file")
        with replacing(path) as partial:
            os.close(os.open(partial, os.O_WRONLY | os.O_CREAT, 0o600))
            copy = sqlite3.connect(partial)
            try:
                with self._lock:
                    self._db.backup(copy)
            finally:
                copy.close()

    def _charge_all(self, run: str, plan: str) -> None:
        """Charge a run that may have begun after the backup."""
        from felb_sites.run_plan import Plan

        with contextlib.suppress(FelbError):  # a plan of another version: what it has cost before is charged
            read = Plan.of(json.loads(plan))
            guaranteed = read.algorithm().privacy
            if guaranteed is not None and not read.rehearsal:
                terms = guaranteed.privacy.epsilon, guaranteed.delta, guaranteed.unit, guaranteed.privacy.neighbours
                self.write("insert or ignore into budget values(?, ?, ?, ?, ?, ?)", run, *terms, time.time())

    def begin_epoch(self) -> None:
        """Close the runs that were open when the backup was made; each counts with all that it may cost."""
        with self.transaction():
            self.set("epoch", str(self.epoch + 1))
            for row in self.rows("select run, plan from runs where state in ('proposed', 'open') and status<>'denied'"):
                self._charge_all(row["run"], row["plan"])
            self._db.execute("update runs set state='lost' where state in ('proposed', 'open')")
            self._db.execute("delete from outbox")
            self._db.execute("delete from receipts")
