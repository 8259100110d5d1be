"""Which runs a site has agreed to: each plan by its digest, decided by a person or by the site's policy."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.engines.nvflare.hardening import write_json
from felb.engines.nvflare.run_plan import RUN_ID, Plan
from felb.errors import InputError

if TYPE_CHECKING:
    import os

FOLDER = "approvals"
PENDING, APPROVED, DENIED = "pending", "approved", "denied"
MOST_PENDING = 100
"""A coordinator that proposes for ever must not fill the disk."""
SHORT = 16
"""Characters of a digest that a person compares."""


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
        if path.is_file():
            known = self._load(path)
            if known.digest == digest and not (approved and known.status == PENDING):
                return known
            if known.digest != digest and known.status == APPROVED:
                return known  # what was approved stands; another plan of this name is not taken in its place
        elif not approved and len(self.pending()) >= MOST_PENDING:
            raise InputError(f"{MOST_PENDING} runs wait for approval; decide about some of them first")
        made = Approval(plan.run_id, digest, plan.to_json())
        if approved:
            made = Approval(plan.run_id, digest, plan.to_json(), APPROVED, "policy", made.asked, time.time())
        self._write(made)
        return made

    def approve(self, run: str, digest: str) -> Approval:
        """Agree to a run; `digest` must be the beginning of its plan's, so that what was read is what is approved."""
        known = self.find(run)
        if len(digest) < SHORT or not known.digest.startswith(digest.lower()):
            raise InputError(
                f"the digest is not that of run {run!r} as it was proposed; read it again with `felb site show`"
            )
        return self._decide(known, APPROVED)

    def deny(self, run: str) -> Approval:
        """Refuse a run, also one that was approved before."""
        return self._decide(self.find(run), DENIED)

    def _decide(self, known: Approval, status: str) -> Approval:
        decided = Approval(known.run, known.digest, known.plan, status, "person", known.asked, time.time())
        self._write(decided)
        return decided

    def _write(self, approval: Approval) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._path(approval.run), asdict(approval))

    def _path(self, run: str) -> Path:
        if not RUN_ID.fullmatch(run):
            raise InputError("the name of a run consists of letters, digits, - and _, at most 64")
        return self.folder / f"{run}.json"

    @staticmethod
    def _load(path: Path) -> Approval:
        try:
            return Approval(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise InputError(f"{path} is damaged ({error}); delete it, and the run is proposed anew") from error
