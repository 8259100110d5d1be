"""The default method: Boolean components from sums over clients.

Every message is a sum of integers that has one value however the rows are split, so the components are those that
pooling all data would give. A relaxed factorization finds where to start, thresholds make it Boolean, refinement flips
single entries by summed gains, and components that are of little use are replaced by what the others leave. Where
columns are few, components chosen among patterns of summed co-occurrence compete with this start, and random starts do
everywhere. Under heavy or one-sided noise, where the best fit is not the truth, belief propagation recovers more. With
high effort, a search goes on from the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from felb.errors import InputError
from felb.federated.phases.alone import SearchAlone
from felb.federated.phases.belief import Propagation, recovered_or_fitted
from felb.federated.phases.cuts import Cuts
from felb.federated.phases.objective import Cost, NegativeF1
from felb.federated.phases.patterns import Cover, Patterns
from felb.federated.phases.pipeline import Best, Chain, pipeline
from felb.federated.phases.rank import Rank
from felb.federated.phases.refine import Refine
from felb.federated.phases.relaxed import Relaxed
from felb.federated.phases.revive import Revive
from felb.federated.phases.search import Search
from felb.federated.phases.start import RandomStart, Start
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
    cover_features : data of at most this many columns is also started from patterns of columns, see `Cover`
    cuts : whether to start also from the relaxed V cut without regard to U, see `Cuts`
    restarts : further starts, from random V. Of all starts, that with the smallest summed loss after refinement is
        taken
    proposals : of the search, see `Search` and `SearchAlone`; without them, there is none
    """

    relaxed_rounds: int = 20
    refine_rounds: int = 10
    tries: int = 30
    patience: int = 8
    cover_features: int = 1_000
    cuts: bool = True
    restarts: int = 2
    proposals: int = 0


EFFORTS = {
    "fast": Effort(tries=0, cover_features=0, cuts=False, restarts=0),
    "default": Effort(),
    "high": Effort(tries=60, patience=15, cover_features=2_000, cuts=False, restarts=0, proposals=4_000),
}
OBJECTIVES = ("auto", "hamming", "f1", "recover")
MDL = "mdl"
"""In place of a number of components: the number with the shortest description."""

TRIED_ROUNDS = 40
"""Rounds of belief propagation at most under the objective "auto"; where it matches the data, it ends earlier."""

MOST_WORK = 1 << 28
"""Rows × features × components up to which the objective "auto" tries belief propagation; about a minute of it."""

PAIR_CELLS = 500_000
"""Seeds times columns of co-occurrence at most, so that messages stay small."""

ALONE = 4
"""So many times more proposals are made without a federation, where they cost less."""

PROPOSAL_CELLS = 200_000
"""Entries of all V that are searched from at the same time, at most."""


def federated_bmf(
    n_features: int,
    n_components: int | str,
    *,
    max_components: int = 30,
    objective: str = "auto",
    effort: str | Effort = "default",
    false_positive_cost: float = 1.0,
    false_negative_cost: float = 1.0,
    sampled: bool = False,
    alone: bool = False,
    node_cap: int = 1_000,
) -> Recipe:
    """Return the default method.

    Parameters
    ----------
    n_components : a number, or "mdl" to find it, among at most `max_components`
    sampled : rounds are played by a sample of the clients, so that their losses cannot be compared
    alone : there is no federation but one owner of all rows, so that a search may use rows
    """
    if objective not in OBJECTIVES:
        raise InputError(f"unknown objective {objective!r}; use {', '.join(OBJECTIVES)}")
    costs = false_positive_cost, false_negative_cost
    if objective in ("f1", "recover") and costs != (1.0, 1.0):
        raise InputError(
            f"objective={objective!r} weighs wrong cells by itself; leave both costs at 1, or use 'hamming'"
        )
    found = n_components == MDL
    if found and sampled:
        raise InputError("n_components='mdl' compares rounds, which all clients must play; give a number instead")
    if found and objective == "recover":
        raise InputError("objective='recover' needs the number of components; find it with 'hamming' first")
    if isinstance(n_components, str) and not found:
        raise InputError(f"n_components must be a whole number or {MDL!r}, got {n_components!r}")
    most = min(max_components, n_features) if found else int(n_components)
    check_weights(n_components=(most, 1), node_cap=(node_cap, 1))
    work = _effort(effort)
    cost = Cost(*costs)
    memory = 0.5 if sampled else 0.0
    phases: list[Phase] = [
        Start(n_features, most, keep_empty=not found),
        Relaxed(work.relaxed_rounds, memory=memory),
        Thresholds(cost),
    ]
    if objective == "recover":
        return pipeline("federated-bmf", Chain(*phases, Propagation()), node_cap=node_cap)
    # More components than needed fit noise; the start that fits it best is not the one to find their number from.
    starts = replace(work, cover_features=0, cuts=False, restarts=0) if found else work
    fit: list[Phase] = [_first_refinement(n_features, most, cost, work=starts, memory=memory)]
    if found:
        fit += [Rank(cost)]
    fit += _improvement(cost, work, memory=memory)
    last: Objective = cost
    if objective == "f1":
        last = NegativeF1()
        fit += [Refine(last, work.refine_rounds, memory=memory), *_improvement(last, work, memory=memory)]
    if work.proposals and not sampled:
        fit += _search(n_features, most, last, work=work, alone=alone)
    # Who gives different costs wants a cheap fit, and losses of different samples of clients cannot be compared.
    if objective == "auto" and costs[0] == costs[1] and not sampled and not found:
        phases.append(Best(Chain(*fit), Propagation(TRIED_ROUNDS, MOST_WORK), better=recovered_or_fitted))
    else:
        phases += fit
    return pipeline("federated-bmf", Chain(*phases), node_cap=node_cap)


def _first_refinement(n_features: int, n_components: int, cost: Cost, *, work: Effort, memory: float) -> Phase:
    """Refine the relaxed start, and others if losses of rounds can be compared; the best is taken."""
    refine = Refine(cost, work.refine_rounds, memory=memory)
    others = [Chain(Cuts(cost), refine, name="cut start")] if work.cuts else []
    if n_features <= work.cover_features:
        others.append(Chain(_patterns(n_features), Cover(n_components, cost), refine, name="cover start"))
    for number in range(work.restarts):
        start = RandomStart(n_features, n_components, number)
        relaxed = Relaxed(work.relaxed_rounds), Thresholds(cost)
        others.append(Chain(start, *relaxed, refine, name=f"random start {number + 1}"))
    if memory or not others:
        return refine
    return Best(Chain(refine, name="relaxed start"), *others, name="starts")


def _improvement(objective: Objective, work: Effort, *, memory: float) -> list[Phase]:
    """Revive, if losses of rounds can be compared, and refine what that has found."""
    if memory or not work.tries:
        return []
    return [Revive(objective, work.tries, work.patience), Refine(objective, work.refine_rounds)]


def _search(n_features: int, n_components: int, objective: Objective, *, work: Effort, alone: bool) -> list[Phase]:
    """Search, and refine what that has found."""
    search: Phase
    if alone:
        search = SearchAlone(objective, ALONE * work.proposals)
    else:
        batch = min(16, max(1, PROPOSAL_CELLS // max(1, n_features * n_components)))
        search = Search(objective, work.proposals, work.proposals, batch=batch)
    return [_patterns(n_features), search, Refine(objective, work.refine_rounds)]


def _patterns(n_features: int) -> Patterns:
    return Patterns(n_features, min(256, max(16, PAIR_CELLS // max(1, n_features))))


def _effort(effort: str | Effort) -> Effort:
    if isinstance(effort, Effort):
        return effort
    if effort not in EFFORTS:
        raise InputError(f"unknown effort {effort!r}; use one of {', '.join(EFFORTS)}, or an Effort")
    return EFFORTS[effort]
