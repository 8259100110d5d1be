"""The privacy budget of a site for all its runs: one locked file."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec

from felb.federated.gate import answered_rounds
from felb.privacy.accounting import Neighbours, Unit  # noqa: TC001  # msgspec looks them up
from felb.records import Natural, read_record, replacing, wait_for_lock
from felb_sites.site_policy import Refusal

if TYPE_CHECKING:
    import os

    from felb.privacy.spec import PrivacyPlan

Kind = tuple[str, str]
"""Unit and neighbour relation of a guarantee."""
SPENT, LOCK = "spent.json", "spent.lock"
PLAN, RESPONSES = "plan.json", "responses"
"""In the folder of a run."""
USUAL: Kind = ("record", "add_remove")
ROUNDING = 1e-9
"""Of sums that are compared with a limit: ten times 0.1 are 1."""
PATIENCE = 30.0
"""Seconds to wait for another process of this site to let go of the file."""


class _Run(msgspec.Struct, forbid_unknown_fields=True):
    """What one run may cost; an amount that is no amount would make room for more runs."""

    epsilon: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    delta: Annotated[float, msgspec.Meta(ge=0, le=1)]
    began: str = ""
    unit: Unit = "record"
    neighbours: Neighbours = "add_remove"
    answers: Natural = 0


class _Budget(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in the file."""

    runs: dict[str, _Run]


class Spent:
    """The runs a site has answered, and what each may cost: (Σε, Σδ) bounds those of one kind together.

    A run is set down with all that it may cost before its first answer leaves, and once however often it is resumed.
    So a crash can neither lose nor double it; that a run broke off early is not counted in its favour. Guarantees of
    different units or neighbour relations say different things and are never added up.

    Parameters
    ----------
    state : the site's folder for what must survive
    """

    def __init__(self, state: str | os.PathLike[str]) -> None:
        self.path = Path(state) / SPENT
        self._lock = Path(state) / LOCK

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return what each run with a guarantee may cost, by its id."""
        try:
            stored = read_record(self.path, _Budget, advice="restore it, it says what was spent")
        except FileNotFoundError:
            return {}
        return {run: msgspec.structs.asdict(facts) for run, facts in stored.runs.items()}

    def totals(self) -> dict[Kind, tuple[float, float]]:
        """Return (Σε, Σδ) for each unit and neighbour relation of the runs so far."""
        sums: dict[Kind, tuple[float, float]] = {}
        for run in self.runs().values():
            kind = run["unit"], run["neighbours"]
            epsilon, delta = sums.get(kind, (0.0, 0.0))
            sums[kind] = math.fsum((epsilon, run["epsilon"])), math.fsum((delta, run["delta"]))
        return sums

    def total(self, kind: Kind = USUAL) -> tuple[float, float]:
        """Return (Σε, Σδ) of all runs of one kind, by default of those that hide a record that is added or removed."""
        return self.totals().get(kind, (0.0, 0.0))

    def check_exact(self, *, allowed: bool) -> None:
        """Refuse a run that guarantees nothing where private ones were answered, whose guarantee it would end."""
        if not allowed and self.runs():
            raise Refusal(
                "this site has answered private runs, and answers no exact ones about the same records", code="privacy"
            )

    def check_complete(self) -> None:
        """Refuse all runs if a private one has given responses and is not in the file: an older file was put back."""
        runs = self.runs()
        for plan in self.path.parent.glob(f"*/{PLAN}"):
            folder = plan.parent
            if folder.name not in runs and answered_rounds(folder / RESPONSES) and _is_counted(plan):
                raise Refusal(
                    f"{self.path} does not know run {folder.name}, to which this site has given private responses; "
                    "restore the latest file, it says what was spent",
                    code="budget",
                )

    def check_answers(self, run_id: str, found: int) -> None:
        """Refuse to go on with a run of which fewer responses are there than were given: what it spent is unknown."""
        if found < int(self.runs().get(run_id, {}).get("answers", 0)):
            raise Refusal(
                "this site has lost responses that it gave in this run; give the run another id", code="known"
            )

    def note_answers(self, run_id: str, count: int) -> None:
        """Set down how many responses a run has been given; called when a response was kept, before it leaves."""
        with self._alone():
            runs = self.runs()
            if run_id in runs and count > int(runs[run_id].get("answers", 0)):
                runs[run_id]["answers"] = count
                self._write(runs)

    def reserve(
        self, run_id: str, guaranteed: PrivacyPlan, *, limit: float | None, delta_limit: float | None = None
    ) -> None:
        """Set down a run, unless it is already; refuse it if Σε or Σδ of its kind would exceed its limit."""
        kind = guaranteed.unit, guaranteed.privacy.neighbours
        cost = guaranteed.privacy.epsilon, guaranteed.delta
        self.charge(run_id, cost, kind=kind, limits=(limit, delta_limit))

    def charge(
        self, run_id: str, cost: tuple[float, float], *, kind: Kind, limits: tuple[float | None, float | None]
    ) -> None:
        """Set down (ε, δ) under a name, unless it is already; refuse it if a sum would exceed its limit."""
        epsilon, delta = cost
        with self._alone():
            runs = self.runs()
            if run_id in runs:
                return
            self.check_complete()
            self._check_room(kind, epsilon, delta, limits=limits)
            began = datetime.now(UTC).isoformat(timespec="seconds")
            guarantee = {"epsilon": epsilon, "delta": delta, "unit": kind[0], "neighbours": kind[1]}
            runs[run_id] = {**guarantee, "began": began}
            self._write(runs)

    def check(
        self, run_id: str, guaranteed: PrivacyPlan, *, limit: float | None, delta_limit: float | None = None
    ) -> None:
        """Refuse a run as `reserve` would, and set nothing down."""
        if run_id not in self.runs():
            kind = guaranteed.unit, guaranteed.privacy.neighbours
            self._check_room(kind, guaranteed.privacy.epsilon, guaranteed.delta, limits=(limit, delta_limit))

    def _check_room(
        self, kind: Kind, epsilon: float, delta: float, *, limits: tuple[float | None, float | None]
    ) -> None:
        for spent, more, most in zip(self.total(kind), (epsilon, delta), limits, strict=True):
            if most is not None and math.fsum((spent, more)) > most * (1 + ROUNDING):
                raise Refusal("this site's privacy budget for all runs does not suffice for this one", code="budget")

    def _write(self, runs: dict[str, dict[str, Any]]) -> None:
        with replacing(self.path) as partial:
            partial.write_text(json.dumps({"runs": runs}, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    def _alone(self) -> IO[bytes]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return wait_for_lock(self._lock, seconds=PATIENCE)


def _is_counted(plan: Path) -> bool:
    """Return whether a run of this plan stands in the budget."""
    return json.loads(plan.read_text(encoding="utf-8")).get("privacy") is not None
