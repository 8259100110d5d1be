"""Which runs a site has agreed to: each plan by its digest, decided by a person or by the site's policy."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from felb.errors import InputError
from felb.records import read_record, wait_for_lock
from felb_sites import SHORT
from felb_sites.hardening import write_json
from felb_sites.run_plan import RUN_ID, Plan
from felb_sites.site_policy import Refusal

if TYPE_CHECKING:
    import os

FOLDER = "approvals.d"
"""Beside the folders of the runs; with a dot, as no run can be called."""
LOCK = "lock"
PENDING, APPROVED, DENIED = "pending", "approved", "denied"
MOST_PENDING, MOST_RUNS = 100, 10_000
"""That wait for a decision, and in all: a coordinator that proposes for ever must not fill the disk."""
PATIENCE = 30.0
"""Seconds to wait for another process of this site to have decided."""


def plan_digest(plan: Plan) -> str:
    """Fingerprint a plan: the same for the coordinator who proposes it and the site that approves it."""
    return hashlib.sha256(json.dumps(plan.to_json(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Approval:
    """A run that was proposed to a site.

    Parameters
    ----------
    run, digest, plan : which, and what exactly
    status : "pending", "approved" or "denied"
    by : "person" or "policy"
    asked, decided : times, in seconds since 1970
    """

    run: str
    digest: str
    plan: dict[str, Any]
    status: str = PENDING
    by: str = ""
    asked: float = field(default_factory=time.time)
    decided: float | None = None


class Approvals:
    """The decisions of a site, one file a run.

    Parameters
    ----------
    state : the site's folder for what must survive
    """

    def __init__(self, state: str | os.PathLike[str]) -> None:
        self.folder = Path(state) / FOLDER

    def all(self) -> list[Approval]:
        """Return what was proposed, the oldest first."""
        found = [self._load(path) for path in self.folder.glob("*.json")] if self.folder.is_dir() else []
        return sorted(found, key=lambda approval: approval.asked)

    def pending(self) -> list[Approval]:
        """Return what waits for a decision."""
        return [approval for approval in self.all() if approval.status == PENDING]

    def find(self, run: str) -> Approval:
        """Return what was proposed under a name."""
        path = self._path(run)
        if not path.is_file():
            raise InputError(f"no run {run!r} was proposed to this site; `felb site pending` lists those that were")
        return self._load(path)

    def status(self, plan: Plan) -> str | None:
        """Return what was decided about this very plan; None if it was not proposed, or another of its name was."""
        path = self._path(plan.run_id)
        known = self._load(path) if path.is_file() else None
        return known.status if known is not None and known.digest == plan_digest(plan) else None

    def propose(self, plan: Plan, *, approved: bool) -> Approval:
        """Set a plan down, approved by the policy or to be decided; a run that is known keeps its decision."""
        path, digest = self._path(plan.run_id), plan_digest(plan)
        with self._alone():
            if path.is_file():
                known = self._load(path)
                if known.digest == digest and not (approved and known.status == PENDING):
                    return known
                if known.digest != digest and known.status != PENDING:
                    return known  # what was decided stands; another plan of this name is not taken in its place
            else:
                self._check_room(approved=approved)
            made = Approval(plan.run_id, digest, plan.to_json())
            if approved:
                made = replace(made, status=APPROVED, by="policy", decided=time.time())
            self._write(made)
        return made

    def approve(self, run: str, digest: str) -> Approval:
        """Agree to a run; `digest` must be the beginning of its plan's, so that what was read is what is approved."""
        with self._alone():
            known = self.find(run)
            if len(digest) < SHORT or not known.digest.startswith(digest.lower()):
                raise InputError(
                    f"the digest is not that of run {run!r} as it was proposed; read it again with `felb site show`"
                )
            return self._decide(known, APPROVED)

    def deny(self, run: str) -> Approval:
        """Refuse a run, also one that was approved before; for good, whatever plan comes under its name."""
        with self._alone():
            return self._decide(self.find(run), DENIED)

    def _decide(self, known: Approval, status: str) -> Approval:
        decided = replace(known, status=status, by="person", decided=time.time())
        self._write(decided)
        return decided

    def _check_room(self, *, approved: bool) -> None:
        if not approved and len(self.pending()) >= MOST_PENDING:
            raise Refusal(f"{MOST_PENDING} runs wait for approval; decide about some of them first", code="full")
        if len(list(self.folder.glob("*.json"))) >= MOST_RUNS:
            raise Refusal(f"{MOST_RUNS} runs were proposed here; delete {self.folder} to take more", code="full")

    def _alone(self) -> IO[bytes]:
        """Let the vault and a person decide one after the other."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return wait_for_lock(self.folder / LOCK, seconds=PATIENCE)

    def _write(self, approval: Approval) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._path(approval.run), asdict(approval))

    def _path(self, run: str) -> Path:
        if not RUN_ID.fullmatch(run):
            raise InputError("the name of a run consists of letters, digits, - and _, at most 64")
        return self.folder / f"{run}.json"

    @staticmethod
    def _load(path: Path) -> Approval:
        return read_record(path, Approval, advice="delete it, and let the coordinator propose the run again")
