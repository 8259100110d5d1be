"""The guarantee of a private run as a record that is stored with its result."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from felb.metrics.history import History
    from felb.privacy.plan import PrivacyPlan


def guarantee(plan: PrivacyPlan, history: History) -> dict[str, Any]:
    """Return what a run under `plan` guarantees: the specification, its noise, and ``text``, the same in words."""
    found = [float(row["row_bound"]) for row in history if "row_bound" in row]
    row_bound = found[0] if found else plan.privacy.row_bound
    return {
        **asdict(plan.privacy),
        "delta": plan.delta,
        "total_epsilon": plan.total_epsilon,
        "mu": plan.mu,
        "row_bound": row_bound,
        "rounds": len(history),
        "clients": plan.n_clients,
        "shares": dict(plan.shares),
        "text": plan.statement(row_bound=row_bound),
    }
