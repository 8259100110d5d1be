"""A run at the coordinator: its plan, its checkpoints and where it stands, in a folder that decides after any crash."""

from __future__ import annotations

import json
import shutil
import time
import warnings
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from felb.atomic import replacing, try_lock
from felb.engines.checkpoint import load_snapshot, save_snapshot
from felb.engines.nvflare.plan import RUN_ID, Plan
from felb.errors import FederationError, InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from felb.engines.local import Snapshot
    from felb.federated.server import Recipe

PLAN, STATUS, CHECKPOINT, PREVIOUS, LOCK = (
    "plan.json",
    "status.json",
    "checkpoint.npz",
    "checkpoint.previous.npz",
    "lock",
)
COORDINATOR_FILE = "felb.json"


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
        return Plan.of(self._read(PLAN))

    def status(self) -> Status:
        """Read where the run stands."""
        raw = self._read(STATUS)
        return Status(**{**raw, "sites": tuple(raw["sites"])})

    def report(self, status: Status) -> None:
        """Write where the run stands."""
        self._write(STATUS, asdict(status))

    def save(self, snapshot: Snapshot) -> None:
        """Keep a completed round; the one before stays as a second copy, in case a disk damages the first."""
        path = self.folder / CHECKPOINT
        if path.is_file():
            with replacing(self.folder / PREVIOUS) as partial:
                shutil.copyfile(path, partial)
        save_snapshot(path, snapshot)

    def load(self, recipe: Recipe) -> Snapshot | None:
        """Return the last completed round, or the one before if its file is damaged; None before the first."""
        damaged = None
        for name in (CHECKPOINT, PREVIOUS):
            path = self.folder / name
            if not path.is_file():
                continue
            try:
                snapshot = load_snapshot(path, recipe)
            except InputError as error:
                damaged = error
                continue
            if damaged is not None:
                warnings.warn(f"{damaged}; the round before is used instead", RuntimeWarning, stacklevel=2)
            return snapshot
        if damaged is not None:
            raise FederationError(
                f"no checkpoint of run {self.run_id!r} can be read; restore {self.folder} from a backup"
            )
        return None

    def reopen(self, recipe: Recipe) -> None:
        """Let a finished run play its last round again, for sites that missed it; the others answer from memory."""
        status = self.status()
        last = self.load(recipe)
        if status.state != "finished" or last is None or not last.history or not last.history[-1].get("missing"):
            raise InputError(f"no site has missed the end of run {self.run_id!r}")
        try:
            before = load_snapshot(self.folder / PREVIOUS, recipe)
        except InputError as error:
            raise FederationError(f"the round before the end of run {self.run_id!r} is damaged ({error})") from error
        if len(before.history) != len(last.history) - 1:
            raise FederationError(f"the round before the end of run {self.run_id!r} is not kept")
        save_snapshot(self.folder / CHECKPOINT, before)
        self.report(replace(status, state="paused", round=len(before.history), time=time.time()))

    def lock(self, *, patience: float) -> IO[bytes]:
        """Claim the run for this process; waits a while for one that is about to end."""
        end = time.monotonic() + patience
        while (held := try_lock(self.folder / LOCK)) is None:
            if time.monotonic() > end:
                raise FederationError(f"run {self.run_id!r} is still played by another process")
            time.sleep(0.2)
        return held

    def _read(self, name: str) -> Any:
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise InputError(f"there is no run {self.run_id!r}: {path} is missing") from error
        except ValueError as error:
            raise InputError(f"{path} is damaged ({error}); restore it from a backup") from error

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
