"""Requests that a client has begun to answer: charged before anything is computed, and a failure stays charged.

Whether a computation fails may depend on the data, so a failure is an answer too. It costs what the answer would have
cost, its reply is the same whatever went wrong, and a run has few of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError, PrivacyError
from felb.federated.journal import digest
from felb.federated.steps.assignment import ASSIGN
from felb.privacy.accounting import UPLOADS, Charge, Cost, total_epsilon

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from felb.federated.protocol import Request
    from felb.privacy.accounting import Accountant
    from felb.privacy.spec import PrivacyPlan

MOST_FAILURES = 5
"""Of one run: requests that failed, or during which the process ended."""
FAILED = "failed"
"""The name under which failures are charged."""


def planned_costs(plan: PrivacyPlan | None, task: str) -> dict[str, Cost]:
    """Return what a task's response costs by the plan alone, whatever the data is."""
    if plan is None or task == ASSIGN:
        return {}
    if plan.uploads is None:
        return {task: Cost("gaussian", plan.mu_of(task), plan.unit, plan.privacy.neighbours)}
    mechanism = plan.upload_mechanism()
    of_size = getattr(mechanism, "cost", None)
    if callable(of_size):
        return {UPLOADS: of_size(plan.uploads.size)}
    return {UPLOADS: Cost("gaussian", plan.mu_of(UPLOADS), plan.unit, plan.privacy.neighbours)}


class Attempts:
    """The requests of one run that were begun and not answered, one small file each.

    Parameters
    ----------
    folder : where they are kept
    accountant : charged for failures; None where nothing is protected
    """

    def __init__(self, folder: Path, accountant: Accountant | None) -> None:
        self.folder, self._accountant = folder, accountant
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.glob("*.json")):
            found = self._read(path)
            if found["failed"]:
                self._charge(path, int(found["round"]), {w: Cost.from_json(c) for w, c in found["costs"].items()})

    def begin(self, request: Request, costs: Mapping[str, Cost]) -> bool:
        """Set a request down; return whether it was before, by a process that ended while it answered.

        Raises a `PrivacyError` if it failed before, if the budget does not suffice, or if too many have failed.
        """
        path = self._path(request)
        others = [other for other in self.folder.glob("*.json") if other != path]
        again = path.is_file()
        if again and self._read(path)["failed"]:
            raise PrivacyError("this request failed before")
        if len(others) >= MOST_FAILURES:
            raise PrivacyError("too many requests of this run have failed; it is closed at this site")
        if self._accountant is not None and costs:
            spent = [*(entry.cost for entry in self._accountant.entries), *costs.values()]
            if total_epsilon(spent, self._accountant.delta) > self._accountant.epsilon:
                raise PrivacyError("what the run may cost is spent")
        self._write(path, request, costs, failed=False)
        return again

    def done(self, request: Request) -> None:
        """Forget a request whose response is kept, with its cost."""
        self._path(request).unlink(missing_ok=True)

    def fail(self, request: Request, costs: Mapping[str, Cost]) -> None:
        """Charge a request that failed; a repetition of it fails at once."""
        path = self._path(request)
        self._write(path, request, costs, failed=True)
        self._charge(path, request.round, costs)

    def _charge(self, path: Path, number: int, costs: Mapping[str, Cost]) -> None:
        if self._accountant is not None and costs:
            # Which request it was is all there is to tell: others of the same round are charged as well.
            told = np.frombuffer(path.stem.encode(), np.uint8)
            self._accountant.charge(*(Charge.of(FAILED, number, what, told, cost) for what, cost in costs.items()))

    def _path(self, request: Request) -> Path:
        return self.folder / f"{request.round:07}-{digest(request)[:16]}.json"

    @staticmethod
    def _write(path: Path, request: Request, costs: Mapping[str, Cost], *, failed: bool) -> None:
        told = {what: cost.to_json() for what, cost in costs.items()}
        path.write_text(json.dumps({"round": request.round, "failed": failed, "costs": told}), encoding="utf-8")

    @staticmethod
    def _read(path: Path) -> dict[str, Any]:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return {"round": int(found["round"]), "failed": found["failed"] is True, "costs": dict(found["costs"])}
        except (ValueError, KeyError, TypeError) as error:
            if path.stat().st_size == 0:  # the process ended as it was written: begun, and nothing more
                return {"round": 0, "failed": False, "costs": {}}
            raise InputError(f"{path} is damaged ({error}), so it is not known what was spent") from error
