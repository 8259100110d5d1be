"""What the relay keeps: envelopes until their receivers have dealt with them, the newest member list, and open runs.

All of it lies in one SQLite file (WAL, full sync): what was acknowledged survives a cut of the power. The relay never
opens a payload; it sees headers and sizes. One connection is used, from the thread of the event loop.

An envelope is known by (run, sender, receivers, kind, number). The same bytes again change nothing; other bytes under a
known key are a `ConflictError`. An envelope is delivered to each of its receivers, and deleted with its last delivery.
A delivery to a site is deleted by a receipt that the site's vault has signed, and by nothing else that a site can do.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from felb.errors import FederationError, InputError
from felb_sites.envelopes import COORDINATOR, MOST_HEADER, Name, RunName, digest
from felb_sites.keys.members import SignedMembers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from felb_sites.envelopes import Header

MOST_WAITING = 4096
"""Envelopes of one sender and run that may wait."""
SHARE = 64
"""Of the largest envelopes of a run, so many of one sender may wait."""
CHECKPOINT = 8192
"""Pages of the log after which they are copied into the file; what was delivered before is never copied."""
BATCH, BATCH_BYTES = 64, 1 << 25
"""Envelopes and bytes of one answer to a poll; one envelope is always told."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS envelopes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL, sender TEXT NOT NULL, kind TEXT NOT NULL, number INTEGER NOT NULL, receivers BLOB NOT NULL,
    digest BLOB NOT NULL, round INTEGER NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL,
    UNIQUE (run, sender, kind, number, receivers)
);
CREATE INDEX IF NOT EXISTS envelopes_digest ON envelopes (digest);
CREATE INDEX IF NOT EXISTS envelopes_used ON envelopes (run, sender, size);
CREATE TABLE IF NOT EXISTS deliveries (
    receiver TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (receiver, seq)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deliveries_seq ON deliveries (seq);
CREATE TABLE IF NOT EXISTS members (number INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS runs (run TEXT PRIMARY KEY, sites TEXT NOT NULL, most_bytes INTEGER NOT NULL);
"""
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_TOOBIG}


class ConflictError(FederationError):
    """Other bytes under a known key, or a member list that is not newer."""


class FullError(FederationError):
    """The disk is full, or a quota is used up."""


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An open run: who may send for it, and how much.

    Parameters
    ----------
    run : its name
    sites : members that take part
    most_bytes : of a payload
    """

    run: RunName
    sites: tuple[Name, ...]
    most_bytes: int

    def quota(self, sender: str) -> int:
        """Return the bytes of a sender that may wait; the coordinator sends to each site."""
        return SHARE * (self.most_bytes + MOST_HEADER) * (len(self.sites) if sender == COORDINATOR else 1)


class RelayStore:
    """The file of a relay.

    Parameters
    ----------
    path : of the file; made if it does not exist, for its owner only
    federation, authority : identifier, and the offline key that signs member lists
    most_waiting : envelopes of one sender and run that may wait
    """

    def __init__(self, path: Path, *, federation: str, authority: bytes, most_waiting: int = MOST_WAITING) -> None:
        self.federation, self.authority, self.most_waiting = federation, authority, most_waiting
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # the WAL gets the same mode
        self._base = sqlite3.connect(path, isolation_level=None)
        try:
            log = f"journal_size_limit = {1 << 26}", f"wal_autocheckpoint = {CHECKPOINT}"
            for pragma in ("journal_mode = WAL", "synchronous = FULL", *log):
                self._base.execute(f"PRAGMA {pragma}")
            self._base.executescript(_SCHEMA)
            self.members = self._read_members()
            rows = self._base.execute("SELECT run, sites, most_bytes FROM runs")
            self.runs = {run: Run(run, tuple(sites.split()), most) for run, sites, most in rows}
        except (sqlite3.DatabaseError, FederationError) as error:
            self._base.close()
            raise InputError(
                f"{path} cannot be used ({error}); put it aside and start the relay again: sites and runs send again"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    # Members and runs

    def install(self, data: bytes) -> list[str]:
        """Install a member list, and deliver it to each member; return who lost the keys that sessions rest on.

        The list that is installed already changes nothing; one that is not newer is a `ConflictError`.
        """
        new, old = SignedMembers.read(data, federation=self.federation, authority=self.authority), self.members
        if old is not None:
            if old.data == data:
                return []
            if new.listed.number <= old.listed.number:
                raise ConflictError(f"member list {old.listed.number} is installed; only a newer one replaces it")
        before = () if old is None else old.listed.members
        after = {member.name: member for member in new.listed.members}
        # What was sealed for a key that is replaced can be opened by nobody.
        stale = [m.name for m in before if m.name not in after or after[m.name].seal != m.seal]
        lost = [m.name for m in before if m.name not in after or after[m.name].transport != m.transport]
        with self._transaction():
            self._base.execute("DELETE FROM members")
            self._base.execute("INSERT INTO members VALUES (?, ?)", (new.listed.number, data))
            for name in stale:
                self._base.execute("DELETE FROM deliveries WHERE receiver = ?", (name,))
            old_lists = "SELECT seq FROM envelopes WHERE kind = 'members'"
            self._base.execute(f"DELETE FROM deliveries WHERE seq IN ({old_lists})")
            self._base.execute("DELETE FROM envelopes WHERE kind = 'members'")
            self._sweep()
            if after:
                self._insert("", COORDINATOR, "members", new.listed.number, 0, tuple(after), data, digest(data))
        self.members = new
        return lost

    def open_run(self, run: Run) -> None:
        """Let sites send for a run; a run that is open gets the new sites and size."""
        with self._transaction():
            row = (run.run, " ".join(run.sites), run.most_bytes)
            self._base.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", row)
        self.runs[run.run] = run

    def close_run(self, run: str) -> None:
        """End a run: of its envelopes only the news of its end is still delivered."""
        with self._transaction():
            self._base.execute("DELETE FROM runs WHERE run = ?", (run,))
            chosen = "SELECT seq FROM envelopes WHERE run = ? AND kind != 'end'"
            self._base.execute(f"DELETE FROM deliveries WHERE seq IN ({chosen})", (run,))
            self._sweep(run)
        self.runs.pop(run, None)

    def most_bytes(self, site: str) -> int:
        """Return the largest payload that a site may send in any open run; 0 if it is in none."""
        return max((run.most_bytes for run in self.runs.values() if site in run.sites), default=0)

    # Envelopes

    def put(self, header: Header, data: bytes) -> bool:
        """Keep an envelope, see `put_all`; return whether it is new."""
        (found,) = self.put_all([(header, data)])
        if isinstance(found, FederationError):
            raise found
        return found

    def put_all(self, envelopes: Iterable[tuple[Header, bytes]]) -> list[bool | FederationError]:
        """Keep envelopes whose signatures were checked, and delete what their receipts name, in one transaction.

        Returns for each of them whether it is new, or what is wrong with it, which does not stop the others. One
        without receivers is not kept; only its receipts count.
        """
        found: list[bool | FederationError] = []
        with self._transaction():
            for header, data in envelopes:
                self._base.execute("SAVEPOINT one")
                try:
                    found.append(self._put(header, data))
                except FederationError as error:
                    self._base.execute("ROLLBACK TO one")
                    found.append(error)
                self._base.execute("RELEASE one")
        return found

    def _put(self, header: Header, data: bytes) -> bool:
        name = digest(data)
        key = (header.run, header.sender, header.kind, header.number, _receivers_key(header.receivers))
        known = self._base.execute(
            "SELECT digest FROM envelopes WHERE (run, sender, kind, number, receivers) = (?, ?, ?, ?, ?)", key
        ).fetchone()
        if known is not None and known[0] != name:
            raise ConflictError("the key of this envelope was used for other bytes")
        self._take_receipts(header.sender, header.receipts)
        if known is not None or not header.receivers:
            return False
        self._check_quota(header.run, header.sender, len(data))
        parts = (header.run, header.sender, header.kind, header.number, header.round, header.receivers)
        self._insert(*parts, data, name)
        return True

    def count(self, receiver: str, after: int, *, run: str | None = None) -> int:
        """Return how many envelopes `waiting` would find."""
        of_run, values = ("", ()) if run is None else (" AND e.run = ?", (run,))
        found: int = self._base.execute(
            "SELECT count(*) FROM deliveries d JOIN envelopes e ON e.seq = d.seq "
            f"WHERE d.receiver = ? AND d.seq > ?{of_run}",
            (receiver, after, *values),
        ).fetchone()[0]
        return found

    def waiting(self, receiver: str, after: int, *, run: str | None = None) -> list[tuple[int, bytes]]:
        """Return the next envelopes for a receiver, of one run or of all, with their numbers in the relay."""
        of_run, values = ("", ()) if run is None else (" AND e.run = ?", (run,))
        rows = self._base.execute(
            "SELECT e.seq, e.size FROM deliveries d JOIN envelopes e ON e.seq = d.seq "
            f"WHERE d.receiver = ? AND d.seq > ?{of_run} ORDER BY d.seq LIMIT {BATCH}",
            (receiver, after, *values),
        ).fetchall()
        found: list[tuple[int, bytes]] = []
        total = 0
        for seq, size in rows:
            total += size
            if found and total > BATCH_BYTES:
                break
            found.append((seq, self._base.execute("SELECT body FROM envelopes WHERE seq = ?", (seq,)).fetchone()[0]))
        return found

    def forget(self, run: str, before: int, kinds: Sequence[str]) -> None:
        """Delete envelopes of a run to the coordinator with smaller numbers than `before`; no kinds are all kinds."""
        of_kinds = f" AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        chosen = f"SELECT seq FROM envelopes WHERE run = ? AND seq < ?{of_kinds}"
        with self._transaction():
            self._base.execute(
                f"DELETE FROM deliveries WHERE receiver = ? AND seq IN ({chosen})", (COORDINATOR, run, before, *kinds)
            )
            self._sweep(run)

    def count_waiting(self) -> dict[str, int]:
        """Return for each receiver how many envelopes are kept."""
        return dict(self._base.execute("SELECT receiver, count(*) FROM deliveries GROUP BY receiver"))

    def _take_receipts(self, receiver: str, receipts: Iterable[bytes]) -> None:
        for receipt in receipts:
            for (seq,) in self._base.execute("SELECT seq FROM envelopes WHERE digest = ?", (receipt,)).fetchall():
                self._base.execute("DELETE FROM deliveries WHERE receiver = ? AND seq = ?", (receiver, seq))
                self._base.execute(
                    "DELETE FROM envelopes WHERE seq = ? AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.seq = ?)",
                    (seq, seq),
                )

    def _check_quota(self, run: str, sender: str, size: int) -> None:
        opened = self.runs.get(run)
        if opened is None:
            raise FullError("the run is not open, so that nothing is kept for it")
        number, used = self._base.execute(
            "SELECT count(*), coalesce(sum(size), 0) FROM envelopes WHERE run = ? AND sender = ?", (run, sender)
        ).fetchone()
        most = self.most_waiting * (len(opened.sites) if sender == COORDINATOR else 1)
        if number >= most or used + size > opened.quota(sender):
            raise FullError("too much of this sender waits already")

    def _insert(
        self,
        run: str,
        sender: str,
        kind: str,
        number: int,
        round_: int,
        receivers: tuple[str, ...],
        data: bytes,
        found: bytes,
    ) -> None:
        seq = self._base.execute(
            "INSERT INTO envelopes (run, sender, kind, number, receivers, digest, round, size, body) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (run, sender, kind, number, _receivers_key(receivers), found, round_, len(data), data),
        ).lastrowid
        self._base.executemany("INSERT INTO deliveries VALUES (?, ?)", [(name, seq) for name in set(receivers)])

    def _sweep(self, run: str | None = None) -> None:
        """Delete envelopes, of one run or of all, that are delivered to nobody any more."""
        of_run, values = ("", ()) if run is None else ("run = ? AND ", (run,))
        unwanted = "NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.seq = envelopes.seq)"
        self._base.execute(f"DELETE FROM envelopes WHERE {of_run}{unwanted}", values)

    def _read_members(self) -> SignedMembers | None:
        row = self._base.execute("SELECT data FROM members ORDER BY number DESC LIMIT 1").fetchone()
        if row is None:
            return None
        return SignedMembers.read(row[0], federation=self.federation, authority=self.authority)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; a full disk is a `FullError`."""
        try:
            self._base.execute("BEGIN IMMEDIATE")
            yield
            self._base.execute("COMMIT")
        except BaseException as error:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            if isinstance(error, sqlite3.DataError):
                raise FullError("the envelope is too large to be kept") from error
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in _FULL:
                raise FullError("the disk of the relay is full") from error
            raise


def _receivers_key(receivers: tuple[str, ...]) -> bytes:
    """Return what stands for the receivers: there may be a thousand names."""
    return hashlib.sha256(",".join(receivers).encode()).digest()[:16]
