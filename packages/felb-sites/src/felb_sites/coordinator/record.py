"""A run at the coordinator: its plan, journal, counters and state, in a folder that survives crashes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping  # noqa: TC003  # a stored status is read by its types
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from felb.errors import FederationError, InputError
from felb.federated.journal import Journal, digest, read_entry, write_entry
from felb.federated.loop import Execution
from felb.federated.protocol import Sums
from felb.records import read_record, replacing, sync_folder, try_lock
from felb_sites.run_plan import RUN_ID, Plan

if TYPE_CHECKING:
    import os

    from felb.federated.protocol import Request

RUNS = "runs"
PLAN, STATUS, JOURNAL, COUNTERS, LOCK = "plan.json", "status.json", "journal", "counters.json", "lock"
SUMS, EARLIER, BROADCAST = "sums", "sums-before", "broadcast"
WAITING, RUNNING, FINISHED, FAILED = "waiting", "running", "finished", "failed"
BLOCK = 1024
"""Numbers that are reserved at once."""
_ADVICE = "restore it from a backup"


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

    def journal(self) -> Journal:
        """Open the journal of the run; a damaged last round is requested again, other damage is an error."""
        try:
            return Journal(self.folder / JOURNAL, advice=f"restore {self.folder} from a backup", may_lose_last=True)
        except InputError as error:
            raise FederationError(f"the journal of run {self.run_id!r} cannot be read: {error}") from error

    def execution(self, plan: Plan | None = None) -> Execution:
        """Replay the run up to the last entry of its journal."""
        plan = plan or self.plan()
        return Execution(plan.algorithm(), seed=plan.seed, journal=self.journal())

    # -- numbers -----------------------------------------------------------------------------------------------------

    def counters(self) -> Counters:
        """Read what must never be used twice."""
        if not (self.folder / COUNTERS).is_file():
            return Counters()
        found: Counters = self._read(COUNTERS, Counters)
        return found

    def count(self, **changes: Any) -> Counters:
        """Change some of the counters; they are on disk when this returns."""
        counters = msgspec.structs.replace(self.counters(), **changes)
        self._write(COUNTERS, msgspec.to_builtins(counters))
        sync_folder(self.folder)
        return counters

    # -- what sites were told ----------------------------------------------------------------------------------------

    def keep_sums(self, request: Request, sums: Sums) -> None:
        """Keep the sums of a round before anybody is told them; from then on the round has no others."""
        header = {"round": request.round, "digest": digest(request), "clients": sums.clients}
        write_entry(self.folder / SUMS, {**header, "missing": list(sums.missing)}, dict(sums))

    def last_sums(self) -> tuple[Sums, str] | None:
        """Return the sums that were kept last, and the digest of their request."""
        return self._sums(SUMS)

    def earlier_sums(self) -> tuple[Sums, str] | None:
        """Return the sums of the last round before it was played again for late sites."""
        return self._sums(EARLIER)

    def _sums(self, name: str) -> tuple[Sums, str] | None:
        try:
            header, values = read_entry(self.folder / name, advice=_ADVICE)
        except FileNotFoundError:
            return None
        number, clients = int(header["round"]), int(header["clients"])
        return Sums(values, clients, missing=header["missing"], number=number), str(header["digest"])

    def keep_broadcast(self, number: int, data: bytes) -> None:
        """Keep the envelope of a round before it is posted: under its number there is no other one."""
        with replacing(self.folder / BROADCAST, clear=False) as partial:
            partial.write_bytes(number.to_bytes(8, "big") + data)

    def broadcast(self, number: int) -> bytes | None:
        """Return the envelope of a round, if it was the last one that was kept."""
        try:
            kept = (self.folder / BROADCAST).read_bytes()
        except FileNotFoundError:
            return None
        return kept[8:] if int.from_bytes(kept[:8], "big") == number else None

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
        last = self.last_sums() or self.earlier_sums()  # the latter, if this was interrupted here before
        if last is None or last[0].round != len(rows) - 1:
            raise InputError(f"the sums of the last round of run {self.run_id!r} are not kept in {self.folder}")
        if (self.folder / SUMS).exists():
            (self.folder / SUMS).replace(self.folder / EARLIER)
        sync_folder(self.folder)
        journal.forget_last_round()
        journal.save()
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
