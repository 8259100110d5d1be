"""What all runs together may cost a site: one file for the whole site, which one process at a time changes."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from felb.atomic import replacing, try_lock
from felb.engines.nvflare.site_policy import Refusal
from felb.errors import InputError

if TYPE_CHECKING:
    import os

    from felb.privacy.plan import PrivacyPlan

SPENT, LOCK = "spent.json", "spent.lock"
PATIENCE = 30.0
"""Seconds to wait for another process of this site to let go of the file."""


class Spent:
    """The runs a site has answered under a guarantee, and what each may cost: (Σε, Σδ) bounds them together.

    A run is set down with all that it may cost before its first answer leaves, and once however often it is resumed.
    So a crash can neither lose nor double it; that a run broke off early is not counted in its favour.

    Parameters
    ----------
    state : the site's folder for what must survive
    """

    def __init__(self, state: str | os.PathLike[str]) -> None:
        self.path = Path(state) / SPENT
        self._lock = Path(state) / LOCK

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return what each run may cost, by its id."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))["runs"]
            for run in found.values():
                _ = float(run["epsilon"]) + float(run["delta"])
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self.path} is damaged ({error}); restore it, it says what was spent") from error
        return dict(found)

    def total(self) -> tuple[float, float]:
        """Return (Σε, Σδ) of all runs."""
        runs = self.runs().values()
        return math.fsum(run["epsilon"] for run in runs), math.fsum(run["delta"] for run in runs)

    def reserve(self, run_id: str, guaranteed: PrivacyPlan, *, limit: float | None) -> None:
        """Set down a run, unless it is already; refuse it if the sum of all ε would exceed `limit`."""
        epsilon = guaranteed.total_epsilon
        if math.isinf(epsilon):
            return  # such a run guarantees nothing, like one without privacy; a policy with a limit has refused it
        with self._alone():
            runs = self.runs()
            if run_id in runs:
                return
            if limit is not None and math.fsum((epsilon, *(run["epsilon"] for run in runs.values()))) > limit:
                raise Refusal("this site's privacy budget for all runs does not suffice for this one", code="budget")
            began = datetime.now(UTC).isoformat(timespec="seconds")
            guarantee = {"epsilon": epsilon, "delta": guaranteed.delta, "unit": guaranteed.privacy.unit}
            runs[run_id] = {**guarantee, "began": began}
            with replacing(self.path) as partial:
                partial.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")

    def _alone(self) -> IO[bytes]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + PATIENCE
        while (held := try_lock(self._lock)) is None:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.path} is in use by another process")
            time.sleep(0.05)
        return held
