"""The default method: Boolean components from sums over clients.

Every message is a sum of integers that has one value however the rows are split, so the components are those that
pooling all data would give. A relaxed factorization finds where to start, thresholds make it Boolean, refinement flips
single entries by summed gains, and components that are of little use are replaced by what the others leave. Under
heavy or one-sided noise, where the best fit is not the truth, belief propagation recovers more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb.errors import InputError
from felb.federated.phases.belief import Propagation, recovered_or_fitted
from felb.federated.phases.objective import Cost, NegativeF1
from felb.federated.phases.pipeline import Best, Chain, pipeline
from felb.federated.phases.refine import Refine
from felb.federated.phases.relaxed import Relaxed
from felb.federated.phases.revive import Revive
from felb.federated.phases.start import Start
from felb.federated.phases.thresholds import Thresholds
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from felb.federated.phases.base import Phase
    from felb.federated.phases.objective import Objective
    from felb.federated.server import Recipe


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a run does.

    Parameters
    ----------
    relaxed_rounds, refine_rounds : rounds of these phases at most
    tries, patience : of the revival, see `Revive`; without tries, there is none
    """

    relaxed_rounds: int = 20
    refine_rounds: int = 10
    tries: int = 15
    patience: int = 4


EFFORTS = {"fast": Effort(tries=0), "default": Effort(), "high": Effort(tries=60, patience=15)}
OBJECTIVES = ("auto", "hamming", "f1", "recover")

TRIED_ROUNDS = 40
"""Rounds of belief propagation at most under the objective "auto"; where it matches the data, it ends earlier."""

MOST_WORK = 1 << 28
"""Rows × features × components up to which the objective "auto" tries belief propagation; about a minute of it."""


def federated_bmf(
    n_features: int,
    n_components: int,
    *,
    objective: str = "auto",
    effort: str | Effort = "default",
    false_positive_cost: float = 1.0,
    false_negative_cost: float = 1.0,
    sampled: bool = False,
    node_cap: int = 1_000,
) -> Recipe:
    """Return the default method."""
    if objective not in OBJECTIVES:
        raise InputError(f"unknown objective {objective!r}; use {', '.join(OBJECTIVES)}")
    costs = false_positive_cost, false_negative_cost
    if objective in ("f1", "recover") and costs != (1.0, 1.0):
        raise InputError(
            f"objective={objective!r} weighs wrong cells by itself; leave both costs at 1, or use 'hamming'"
        )
    check_weights(n_components=(n_components, 1), node_cap=(node_cap, 1))
    work = _effort(effort)
    cost = Cost(*costs)
    memory = 0.5 if sampled else 0.0
    phases: list[Phase] = [
        Start(n_features, n_components),
        Relaxed(work.relaxed_rounds, memory=memory),
        Thresholds(cost),
    ]
    if objective == "recover":
        return pipeline("federated-bmf", Chain(*phases, Propagation()), node_cap=node_cap)
    fit = _boolean_phases(cost, work, memory=memory)
    # Who gives different costs wants a cheap fit, and losses of different samples of clients cannot be compared.
    if objective == "auto" and costs[0] == costs[1] and not sampled:
        phases.append(Best(Chain(*fit), Propagation(TRIED_ROUNDS, MOST_WORK), better=recovered_or_fitted))
    else:
        phases += fit
    if objective == "f1":
        phases += _boolean_phases(NegativeF1(), work, memory=memory)
    return pipeline("federated-bmf", Chain(*phases), node_cap=node_cap)


def _boolean_phases(objective: Objective, work: Effort, *, memory: float) -> list[Phase]:
    """Refine; then revive, if losses of rounds can be compared, and refine what that has found."""
    refine = Refine(objective, work.refine_rounds, memory=memory)
    if memory or not work.tries:
        return [refine]
    return [refine, Revive(objective, work.tries, work.patience), refine]


def _effort(effort: str | Effort) -> Effort:
    if isinstance(effort, Effort):
        return effort
    if effort not in EFFORTS:
        raise InputError(f"unknown effort {effort!r}; use one of {', '.join(EFFORTS)}, or an Effort")
    return EFFORTS[effort]
