"""The promise of a private run as a record that is stored with its result."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from felb.experiments.job import Job
    from felb.linalg.binary import BinaryMatrix
    from felb.privacy.policy import PrivacyPlan
    from felb.results import History


def promise(plan: PrivacyPlan, history: History) -> dict[str, Any]:
    """Return what a run under `plan` promises: the agreement, its noise, and ``text``, the same in words."""
    found = [float(row["row_bound"]) for row in history if "row_bound" in row]
    row_bound = found[0] if found else plan.privacy.row_bound
    agreed = asdict(plan.privacy)
    return {
        **agreed,
        "delta": plan.delta,
        "mu": plan.mu,
        "row_bound": row_bound,
        "rounds": plan.privacy.n_rounds or None,
        "clients": plan.n_clients,
        "shares": dict(plan.shares),
        "text": plan.statement(row_bound=row_bound),
    }


def pooled_promise(job: Job, matrix: BinaryMatrix, history: History) -> dict[str, Any] | None:
    """Return the promise of a fit on pooled data, whose holder is its only client."""
    if job.agreement is None:
        return None
    n, m = matrix.shape
    return promise(job.agreement.plan(n_records=n, n_clients=1, n_columns=m), history)
