"""A run at the coordinator: its plan, journal and state, in a folder that survives crashes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping  # noqa: TC003  # a stored status is read by its types
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from felb.errors import FederationError, InputError
from felb.federated.journal import Journal
from felb.federated.loop import Execution
from felb.records import read_record, replacing, try_lock
from felb_sites import COORDINATOR_FILE
from felb_sites.run_plan import RUN_ID, Plan
from felb_sites.site_roster import read_roster
from felb_sites.sum_store import SumStore

if TYPE_CHECKING:
    import os

    from felb_sites.masked_rounds import MaskedRounds

PLAN, STATUS, JOURNAL, SUMS, LOCK, SECURE = "plan.json", "status.json", "journal", "sums", "lock", "secure.json"


@dataclass(frozen=True, slots=True)
class Status:
    """Where a run stands.

    Parameters
    ----------
    state : "waiting", "running", "paused" (between two jobs), "finished" or "failed"
    round : rounds completed
    job : FLARE's name of the job that plays the run, and the process that does
    sites : the sites that answered the last round
    reasons : why sites did not answer it, or were not counted, by site
    message : why a run failed
    hopeless : it would fail again, because sites refuse it
    """

    state: str
    round: int = 0
    job: str | None = None
    process: int | None = None
    sites: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    hopeless: bool = False
    time: float = field(default_factory=time.time)


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
        self._write(PLAN, plan.to_json())
        self.report(Status("waiting"))

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

    def sums(self) -> SumStore:
        """Return the sums that sites were told."""
        return SumStore(self.folder / SUMS)

    def masked_rounds(self, plan: Plan, roster: bytes, *, rounds: int) -> MaskedRounds:
        """Go on with a run whose sums are masked, for so many rounds at most."""
        from felb_sites.masked_rounds import MaskedRounds

        proposed = read_roster(roster)
        if proposed.digest != plan.roster:
            raise InputError(f"the roster of run {self.run_id!r} is not that of its plan", parameter="secure")
        return MaskedRounds.begin(plan, proposed, self.folder / SECURE, rounds=rounds)

    def execution(self, plan: Plan | None = None) -> Execution:
        """Replay the run up to the last entry of its journal."""
        plan = plan or self.plan()
        return Execution(plan.algorithm(), seed=plan.seed, journal=self.journal())

    def reopen(self) -> None:
        """Let a finished run play its last round again, for sites that missed it; others send what they sent before.

        Where sums are masked, the sites that have confirmed the round confirm the same sum again: a late site gets its
        assignment and is not counted.
        """
        status, journal = self.status(), self.journal()
        plan = self.plan()
        rows = Execution(plan.algorithm(), seed=plan.seed, journal=journal).rows
        if status.state != "finished" or not rows or not rows[-1].get("missing"):
            raise InputError(f"no site has missed the end of run {self.run_id!r}")
        journal.forget_last_round()
        journal.save()
        self.sums().forget(len(rows) - 1)
        self.report(replace(status, state="paused", round=len(rows) - 1, time=time.time()))

    def lock(self, *, patience: float) -> IO[bytes]:
        """Claim the run for this process; waits a while for one that is about to end."""
        end = time.monotonic() + patience
        while (held := try_lock(self.folder / LOCK)) is None:
            if time.monotonic() > end:
                raise FederationError(f"run {self.run_id!r} is still executed by another process")
            time.sleep(0.2)
        return held

    def _read(self, name: str, kind: type[Any]) -> Any:
        path = self.folder / name
        try:
            return read_record(path, kind, advice="restore it from a backup")
        except FileNotFoundError as error:
            raise InputError(f"there is no run {self.run_id!r}: {path} is missing") from error

    def _write(self, name: str, data: Any) -> None:
        with replacing(self.folder / name) as partial:
            partial.write_text(json.dumps(data, indent=1), encoding="utf-8")


def runs_folder(local: str | os.PathLike[str]) -> Path:
    """Return where a coordinator keeps its runs, from the file in its server's ``local`` folder, never from a job."""
    path = Path(local) / COORDINATOR_FILE
    try:
        return Path(json.loads(path.read_text(encoding="utf-8"))["runs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not say where runs are kept ({error})") from error
