"""A run at the coordinator: its plan, journal, counters and state, in a folder that survives crashes.

Plan and status are files, which `felb status` reads. All that must agree with each other is in one SQLite file: the
journal, the envelope that was made of it for the sites, and the counters. It is written once a round, in one
transaction, before anybody is told what has come of the round; a process that is killed before has told nobody, and
asks the round again.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Mapping  # noqa: TC003  # a stored status is read by its types
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from felb.errors import FederationError, InputError
from felb.federated.journal import Journal, decode_entry, encode_entry
from felb.federated.loop import Execution
from felb.federated.protocol import Sums
from felb.records import parse_record, read_record, replacing, sync_folder, try_lock
from felb_sites.run_plan import RUN_ID, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = "runs"
PLAN, STATUS, RECORD, LOCK = "plan.json", "status.json", "record.sqlite", "lock"
SUMS, BROADCAST, COUNTERS = "sums", "broadcast", "counters"
WAITING, RUNNING, FINISHED, FAILED = "waiting", "running", "finished", "failed"
BLOCK = 1024
"""Numbers that are reserved at once."""
_ADVICE = "restore it from a backup"
_TABLES = """
create table if not exists journal(name text primary key, entry blob not null);
create table if not exists kept(name text primary key, round integer not null, data blob not null);
"""


@dataclass(frozen=True, slots=True)
class Status:
    """Where a run stands.

    Parameters
    ----------
    state : "waiting" (for people or sites, before the first round), "running", "finished" or "failed"
    round : rounds completed
    process : that plays the run
    sites : the sites that answered the last round
    reasons : why sites did not answer it, are waited for or were not counted, by site
    message : why a run failed
    hopeless : it would fail again, because sites refuse it
    """

    state: str
    round: int = 0
    process: int | None = None
    sites: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    hopeless: bool = False
    time: float = field(default_factory=time.time)


class Counters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must never be used twice, or said in two ways.

    Parameters
    ----------
    proposal : number of the last proposal
    trips : messages of secure sums have lower numbers so far
    keys : keys of secure sums have lower numbers so far
    round, survivors : the survivors named last, and of which round; sites confirm no others
    ended : sites were told that the run is over
    """

    proposal: int = 0
    trips: int = 0
    keys: int = 0
    round: int = -1
    survivors: tuple[str, ...] = ()
    ended: bool = False


class RunRecord:
    """The folder of one run under the coordinator's ``runs``."""

    def __init__(self, runs: str | os.PathLike[str], run_id: str) -> None:
        if not RUN_ID.fullmatch(run_id):
            raise InputError(f"run id {run_id!r} must consist of letters, digits, - and _, at most 64")
        self.folder = Path(runs) / run_id
        self.run_id = run_id
        self._opened: sqlite3.Connection | None = None
        self._journal: Journal | None = None

    @property
    def exists(self) -> bool:
        """Whether the run was begun."""
        return (self.folder / PLAN).is_file()

    def begin(self, plan: Plan) -> None:
        """Write the plan; a run that exists must have the same."""
        if self.exists:
            if self.plan().to_json() != plan.to_json():
                raise InputError(
                    f"run {self.run_id!r} was begun with other settings; give the new run another id, "
                    f"or remove {self.folder}"
                )
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.report(Status(WAITING))
        self._write(PLAN, plan.to_json())
        sync_folder(self.folder)

    def plan(self) -> Plan:
        """Read the plan back."""
        return Plan.of(self._read(PLAN, dict))

    def status(self) -> Status:
        """Read where the run stands."""
        found: Status = self._read(STATUS, Status)
        return found

    def report(self, status: Status) -> None:
        """Write where the run stands."""
        self._write(STATUS, asdict(status))

    @property
    def _db(self) -> sqlite3.Connection:
        """The file; opened when it is first needed, by the process that holds the lock."""
        if self._opened is None:
            with contextlib.suppress(FileExistsError):  # for its owner; SQLite gives its other files the same mode
                os.close(os.open(self.folder / RECORD, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            self._opened = sqlite3.connect(self.folder / RECORD, isolation_level=None)
            with self._telling():
                for pragma in ("journal_mode=wal", "synchronous=full", "wal_autocheckpoint=8192"):
                    self._opened.execute(f"pragma {pragma}")
                self._opened.executescript(_TABLES)
        return self._opened

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Say what is wrong with the file."""
        try:
            yield
        except sqlite3.Error as error:
            raise FederationError(
                f"{self.folder / RECORD} cannot be used ({error}); make room on the disk, or {_ADVICE}"
            ) from error

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def journal(self) -> Journal:
        """Read the journal of the run; `commit` writes what is added to it."""
        source = str(self.folder / RECORD)
        made = Journal(advice=f"restore {self.folder} from a backup")
        try:
            for name, entry in self._db.execute("select name, entry from journal").fetchall():
                made.take(name, *decode_entry(entry, source=source, advice=_ADVICE), source=name)
        except (InputError, sqlite3.DatabaseError) as error:
            raise FederationError(f"the journal of run {self.run_id!r} cannot be read: {error}") from error
        self._journal = made
        return made

    def execution(self, plan: Plan | None = None) -> Execution:
        """Replay the run up to the last entry of its journal."""
        plan = plan or self.plan()
        return Execution(plan.algorithm(), seed=plan.seed, journal=self.journal())

    # -- numbers -----------------------------------------------------------------------------------------------------

    def counters(self) -> Counters:
        """Read what must never be used twice."""
        found = self._find(COUNTERS)
        if found is None:
            return Counters()
        return parse_record(found[1], Counters, source=str(self.folder / RECORD), advice=_ADVICE)

    def count(self, **changes: Any) -> Counters:
        """Change some of the counters; they are on disk when this returns."""
        counters = msgspec.structs.replace(self.counters(), **changes)
        with self._telling():
            self._put(COUNTERS, 0, msgspec.json.encode(counters))
        return counters

    # -- what sites were told ----------------------------------------------------------------------------------------

    def commit(self, *, broadcast: tuple[int, bytes] | None = None, last: Sums | None = None) -> None:
        """Write what is new in the journal, in one transaction with what follows from it.

        Parameters
        ----------
        broadcast : round and envelope that sites are told next: under its number there is no other one
        last : sums of the last round of a finished run, to which late sites may be added
        """
        with self._telling():
            self._write_all(broadcast, last)

    def _write_all(self, broadcast: tuple[int, bytes] | None, last: Sums | None) -> None:
        self._db.execute("begin immediate")
        try:
            new, dropped = ({}, []) if self._journal is None else self._journal.take_changes()
            self._db.executemany("insert or replace into journal values(?, ?)", new.items())
            self._db.executemany("delete from journal where name=?", [(name,) for name in dropped])
            if broadcast is not None:
                self._put(BROADCAST, *broadcast)
            if last is not None:
                header = {"clients": last.clients, "missing": list(last.missing)}
                self._put(SUMS, last.round, encode_entry(header, dict(last)))
            self._db.execute("commit")
        finally:
            if self._db.in_transaction:
                self._db.execute("rollback")

    def broadcast(self, number: int) -> bytes | None:
        """Return the envelope of a round, if it was the last one that was kept."""
        found = self._find(BROADCAST)
        return found[1] if found is not None and found[0] == number else None

    def last_sums(self) -> Sums | None:
        """Return the sums of the last round of a run that was finished."""
        found = self._find(SUMS)
        if found is None:
            return None
        header, values = decode_entry(found[1], source=str(self.folder / RECORD), advice=_ADVICE)
        return Sums(values, int(header["clients"]), missing=header["missing"], number=found[0])

    def _find(self, name: str) -> tuple[int, bytes] | None:
        found: tuple[int, bytes] | None = self._db.execute(
            "select round, data from kept where name=?", (name,)
        ).fetchone()
        return found

    def _put(self, name: str, number: int, data: bytes) -> None:
        self._db.execute("insert or replace into kept values(?, ?, ?)", (name, number, data))

    def reopen(self) -> None:
        """Let a finished run play its last round again, for sites that missed it.

        Numbers that were summed stay in the sum. Where sums are masked, the sites that have confirmed the round confirm
        the same sum again: a late site gets its assignment and is not counted.
        """
        status, journal = self.status(), self.journal()
        plan = self.plan()
        rows = Execution(plan.algorithm(), seed=plan.seed, journal=journal).rows
        if status.state != FINISHED or not rows or not rows[-1].get("missing"):
            raise InputError(f"no site has missed the end of run {self.run_id!r}")
        if self.counters().ended:
            raise InputError(f"the sites were told that run {self.run_id!r} is over, so none can be late any more")
        last = self.last_sums()
        if last is None or last.round != len(rows) - 1:
            raise InputError(f"the sums of the last round of run {self.run_id!r} are not kept in {self.folder}")
        journal.forget_last_round()
        self.commit()
        self.report(replace(status, state=WAITING, round=len(rows) - 1, time=time.time()))

    # -- one process -------------------------------------------------------------------------------------------------

    def lock(self) -> IO[bytes]:
        """Claim the run for this process; a second one is refused."""
        held = try_lock(self.folder / LOCK)
        if held is None:
            raise FederationError(
                f"run {self.run_id!r} is being played by another process; wait for it, or end that one first"
            )
        return held

    @property
    def held(self) -> bool:
        """Whether a process plays the run; a lock ends with its process, however that ends."""
        if not (self.folder / LOCK).exists():
            return False
        lock = try_lock(self.folder / LOCK)
        if lock is None:
            return True
        lock.close()
        return False

    def _read(self, name: str, kind: type[Any]) -> Any:
        path = self.folder / name
        try:
            return read_record(path, kind, advice=_ADVICE)
        except FileNotFoundError as error:
            raise InputError(f"there is no run {self.run_id!r}: {path} is missing") from error

    def _write(self, name: str, data: Any) -> None:
        with replacing(self.folder / name, clear=False) as partial:
            partial.write_text(json.dumps(data, indent=1), encoding="utf-8")
