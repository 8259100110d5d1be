"""The default method: Boolean components from sums over clients.

Every message is a sum of integers that has one value however the rows are split, so the components are those that
pooling all data would give. NMF from a spectral init finds where to start, a threshold search makes it Boolean,
refinement flips single entries by summed gains, and components that are of little use are reseeded from what the others
leave. Where columns are few, components chosen among patterns of summed co-occurrence compete with this start, and
random starts do everywhere. Under heavy or one-sided noise, where the best fit is not the truth, belief propagation
recovers more. With high effort, a local search goes on from the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.algorithms.registry import MDL
from felb.federated.protocol import Algorithm, Request, TimeUp
from felb.federated.steps import belief as bp
from felb.federated.steps.assignment import (
    EXACT_COUNTS,
    HURRIED_NODES,
    assign_task,
    choose_by_exact_loss,
    counted,
    read_counts,
    request_exact_assignment,
)
from felb.federated.steps.refine import FLIP_GAINS, STACKED_GAINS, refine
from felb.federated.steps.relaxed import (
    CUT_COUNTS,
    FACTOR_STATISTICS,
    THRESHOLD_COUNTS,
    cut_relaxed,
    nmf,
    threshold_search,
)
from felb.federated.steps.reseed import (
    CANDIDATE_GAINS,
    PAIR_COUNTS,
    RESIDUAL_COUNTS,
    SHARED_COUNTS,
    reseed,
    select_rank,
)
from felb.federated.steps.search import (
    CENTRALIZED_SEARCH,
    FEWEST_CHILDREN,
    affordable_children,
    affordable_generations,
    centralized_search,
    local_search,
    recombine,
)
from felb.federated.steps.starts import (
    GRAM_SKETCH,
    SIGN_NORMS,
    choose_columns,
    cover,
    cover_all,
    find_patterns,
    random_init,
    spectral_init,
)
from felb.federated.steps.state import (
    ClientState,
    Cost,
    NegativeF1,
    Solution,
    Steps,
    all_of,
    best_so_far,
    better_of,
    choose_smaller,
    have_same_cells,
    required,
    step,
)
from felb.federated.tasks import Limits, declare
from felb.optim.prox import check_weights

if TYPE_CHECKING:
    from collections.abc import Generator

    from felb.federated.protocol import Outcome, Server, Sums
    from felb.federated.steps.state import Objective


# -- Efforts of the default method: how much work a run does to leave local minima -----------------------------------


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a run does.

    Parameters
    ----------
    relaxed_rounds, refine_rounds : rounds of NMF, and of a refinement at most
    tries, patience : of `reseed`; without tries, nothing is reseeded
    cover_features : data of at most this many columns is also started from patterns of columns, see `cover`
    cuts : whether to start also from the relaxed V cut without regard to U, see `cut_relaxed`
    restarts : further starts, from random V. Of all starts, that with the smallest summed loss after refinement is
        taken
    generations : of `recombine` at most, which crosses what several starts have found, on small data
    proposals : of `local_search` and `centralized_search`; without them, there is no search
    recovery : whether the objective "auto" tries belief propagation, see `recover_if_it_may_pay`
    """

    relaxed_rounds: int = 20
    refine_rounds: int = 10
    tries: int = 30
    patience: int = 8
    cover_features: int = 1_000
    cuts: bool = True
    restarts: int = 2
    generations: int = 24
    proposals: int = 0
    recovery: bool = True


EFFORTS = {
    "fast": Effort(tries=0, cover_features=0, cuts=False, restarts=0, generations=0, recovery=False),
    "default": Effort(),
    "high": Effort(proposals=4_000),
}


def effort_named(effort: str | Effort) -> Effort:
    """Return the effort of that name, or the effort itself."""
    if isinstance(effort, Effort):
        return effort
    if effort not in EFFORTS:
        raise InputError(f"unknown effort {effort!r}; use one of {', '.join(EFFORTS)}, or an Effort")
    return EFFORTS[effort]


OBJECTIVES = ("auto", "hamming", "f1", "recover")

RECOVERY_ROUNDS = 40
"""Rounds of belief propagation at most under the objective "auto"; where it matches the data, it ends earlier."""

MOST_WORK = 1 << 28
"""Rows × features × components up to which the objective "auto" tries belief propagation; at most a minute of it."""

FEW_COLUMNS, COLUMNS_PER_COMPONENT = 256, 16
"""Columns up to which components are also started from groups of columns, in all and for each component."""

FEW_FOR_BELOW = 4
"""Columns for each component up to which groups of columns are also chosen without covered zeros, since nearly all ones
can be covered."""

RACE_ROUNDS = 3
"""Rounds of refinement after which one of several starts is chosen."""

PAIR_CELLS = 500_000
"""Seeds times columns of co-occurrence at most, so that messages stay small."""

CENTRALIZED = 4
"""So many times more proposals are made without a federation, where they cost less."""

PROPOSAL_CELLS = 200_000
"""Entries of all V that are searched from at the same time, at most."""


BMF_TASKS = (
    GRAM_SKETCH,
    SIGN_NORMS,
    FACTOR_STATISTICS,
    THRESHOLD_COUNTS,
    CUT_COUNTS,
    FLIP_GAINS,
    STACKED_GAINS,
    RESIDUAL_COUNTS,
    PAIR_COUNTS,
    CANDIDATE_GAINS,
    SHARED_COUNTS,
    EXACT_COUNTS,
    bp.BELIEF_STATISTICS,
    bp.BELIEF_THRESHOLD_COUNTS,
    bp.ASSIGN_BY_BELIEF,
    assign_task(ClientState, exactly=True),
)
"""The tasks of a client; each returns sums over its rows."""


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
    centralized: bool = False,
    node_cap: int = 1_000,
) -> Algorithm:
    """Return the default method.

    Parameters
    ----------
    n_components : a number, or "mdl" to find it, among at most `max_components`
    false_positive_cost, false_negative_cost : of a covered zero and of an uncovered one. With an infinite cost, there
        are none: the factorization is from below, or from above
    sampled : rounds are played by a sample of the clients, so that their losses cannot be compared
    centralized : there is no federation but one owner of all rows, so that a search may use rows
    """
    if objective not in OBJECTIVES:
        raise InputError(f"unknown objective {objective!r}; use {', '.join(OBJECTIVES)}")
    costs = false_positive_cost, false_negative_cost
    if objective in ("f1", "recover") and costs != (1.0, 1.0):
        raise InputError(
            f"objective={objective!r} weighs wrong cells by itself; leave both costs at 1, or use 'hamming'"
        )
    selects_rank = n_components == MDL
    if selects_rank and sampled:
        raise InputError("n_components='mdl' compares rounds, which all clients must play; give a number instead")
    if selects_rank and objective == "recover":
        raise InputError("objective='recover' needs the number of components; find it with 'hamming' first")
    if isinstance(n_components, str) and not selects_rank:
        raise InputError(f"n_components must be a whole number or {MDL!r}, got {n_components!r}")
    most = min(max_components, n_features) if selects_rank else int(n_components)
    check_weights(n_components=(most, 1), node_cap=(node_cap, 1))
    method = BooleanFit(
        n_features,
        most,
        Cost.of(*costs, n_features),
        objective,
        effort_named(effort),
        selects_rank=selects_rank,
        sampled=sampled,
        centralized=centralized,
        node_cap=node_cap,
    )

    def server(seed: int) -> Server:
        complete = True
        try:
            solution = yield from step("search", method.search(seed), interruptible=True)
        except TimeUp as up:
            solution, complete = up.found, False
        if false_negative_cost == np.inf:
            solution = yield from cover_all(solution)
        return (yield from request_assignments(solution, complete=complete, node_cap=node_cap))

    tasks = declare(*BMF_TASKS, *((CENTRALIZED_SEARCH,) if centralized else ()))
    return Algorithm("federated-bmf", tasks, ClientState, server, method.limits, interruptible=True)


@dataclass(frozen=True, slots=True)
class BooleanFit:
    """The search for Boolean components, as its steps."""

    n_features: int
    n_components: int
    cost: Cost
    objective: str
    effort: Effort
    selects_rank: bool = False
    sampled: bool = False
    centralized: bool = False
    node_cap: int = 1_000

    @property
    def limits(self) -> Limits:
        """What requests of this search may hold."""
        weights = {(1.0, -1.0), self.cost.weights(None)}
        if self.tries_from_below:
            weights.add(self.below.weights(None))
        return Limits(
            self.n_features,
            self.n_components,
            node_cap=self.node_cap,
            weights=frozenset(weights),
            f1=self.objective == "f1",
            belief=self.objective in ("auto", "recover"),
        )

    @property
    def below(self) -> Cost:
        """The cost at which a row never covers a zero."""
        return Cost.of(np.inf, 1.0, self.n_features)

    @property
    def tries_from_below(self) -> bool:
        """Whether components are so many that nearly all ones can be covered without zeros."""
        return self.comparable and self.n_features <= FEW_FOR_BELOW * self.n_components

    @property
    def memory(self) -> float:
        """Share of earlier rounds in statistics; losses of different samples of clients cannot be compared."""
        return 0.5 if self.sampled else 0.0

    @property
    def comparable(self) -> bool:
        """Whether the start with the smallest loss is the best one.

        Losses of different samples of clients cannot be compared. And more components than needed fit noise: the start
        that fits it best is not the one to find their number from.
        """
        return not (self.sampled or self.selects_rank)

    def search(self, seed: int) -> Steps:
        """Find components: fit them, and where noise may hide them, recover them.

        Ended before its first V is measured, it has found no component. Rows take a component only if that pays, so no
        V has a larger loss than none: more time is never worse.
        """
        nothing = np.zeros((1 if self.selects_rank else self.n_components, self.n_features), dtype=bool)
        with best_so_far(lambda: Solution(components=nothing)):
            first = yield from self.first(seed)
        if first.exact:
            return first
        with best_so_far(lambda: first):
            solution = yield from step("nmf", nmf(first, self.effort.relaxed_rounds, memory=self.memory))
            solution = yield from step("threshold search", threshold_search(solution, self.cost))
        if self.objective == "recover":
            return (yield from step("recovery", bp.propagate_beliefs(solution)))
        if not self.tries_recovery:
            return (yield from self.fit(solution, first, seed))
        fitted = yield from step("fit", self.fit(solution, first, seed))
        recovery = bp.recover_if_it_may_pay(solution, fitted, rounds=RECOVERY_ROUNDS, most_work=MOST_WORK)
        return (yield from better_of(fitted, step("recovery", recovery), better=bp.choose_recovery_or_fit))

    def first(self, seed: int) -> Steps:
        """Find the V to begin with, and its loss, which is the first to be beaten."""
        k, m = self.n_components, self.n_features
        solution = yield from step("spectral init", spectral_init(m, k, seed=seed, keep_empty=not self.selects_rank))
        if solution.exact or self.sampled or self.objective == "recover":
            return solution
        return (yield from step("first loss", refine(solution, self.cost, rounds=0)))

    @property
    def tries_recovery(self) -> bool:
        """Who gives different costs wants a cheap fit, and losses of different samples cannot be compared."""
        alike = self.cost.false_positive == self.cost.false_negative
        return self.objective == "auto" and self.effort.recovery and alike and self.comparable

    def fit(self, solution: Solution, first: Solution, seed: int) -> Steps:
        """Find the components with the fewest, or cheapest, wrong cells; then, if requested, with the largest F1."""
        found = yield from self.started(solution, first, seed)
        solution = reduce(choose_smaller, found)
        if self.selects_rank:
            solution = yield from step("rank selection", select_rank(solution, self.cost, seed=seed))
            found = [solution]  # those before have more components
        last: Objective = self.cost
        solution = yield from self.improved(solution, last, seed)
        solution = yield from self.recombined([solution, *found], last, seed)
        # What a lower effort returns; its losses for another objective, rank or sample cannot be compared.
        lower = found[:1] if self.objective != "f1" and self.comparable else []
        if self.objective == "f1":
            last = NegativeF1()
            solution = yield from self.refined(solution, last, seed)
            solution = yield from self.improved(solution, last, seed)
        if self.effort.proposals and not self.sampled:
            lower = [*lower, solution]
            solution = yield from self.searched(solution, found, last, seed)
        return (yield from choose_by_exact_loss(solution, lower, last, node_cap=self.node_cap))

    def started(self, solution: Solution, first: Solution, seed: int) -> Generator[Any, Any, list[Solution]]:
        """Return what starts found: all of it where that is recombined, else the first and the winner of a race."""
        relaxed = self.refined(solution, self.cost, seed)
        if self.comparable:
            relaxed = better_of(first, relaxed)
        if self.children(solution) < FEWEST_CHILDREN:
            return (yield from self.race_starts(solution, relaxed, seed))
        return (yield from all_of(relaxed, *self.other_starts(solution, seed)))

    def race_starts(self, solution: Solution, relaxed: Steps, seed: int) -> Generator[Any, Any, list[Solution]]:
        """Refine the first start to the end, as "fast" does, the others for a few rounds, and the best of them on."""
        race = replace(self, effort=replace(self.effort, refine_rounds=min(RACE_ROUNDS, self.effort.refine_rounds)))
        found = yield from all_of(relaxed, *race.other_starts(solution, seed))
        if len(found) == 1:
            return found
        winner = reduce(choose_smaller, found[1:])
        if winner.settled:
            return [found[0], winner]
        return [found[0], (yield from better_of(found[0], self.refined(winner, self.cost, seed)))]

    def other_starts(self, solution: Solution, seed: int) -> list[Steps]:
        """Return starts beside the refined relaxed one, if their losses can be compared."""
        starts: list[Steps] = []
        if not self.comparable:
            return starts
        if self.effort.cuts:
            starts.append(step("cut start", self.cut_start(solution, seed)))
        if self.n_features <= self.effort.cover_features:
            starts.append(step("cover start", self.cover_start(solution, seed)))
            if self.groups_columns:
                starts += self.column_starts(seed)
        return starts + [
            step(f"random start {number + 1}", self.random_start(number, seed))
            for number in range(self.effort.restarts)
        ]

    def cut_start(self, solution: Solution, seed: int) -> Steps:
        """Start from V cut without regard to U."""
        solution = yield from cut_relaxed(solution, self.cost)
        return (yield from self.refined(solution, self.cost, seed))

    def cover_start(self, solution: Solution, seed: int) -> Steps:
        """Start from patterns of columns that cover most."""
        solution = yield from find_patterns(solution, self.n_features, self.n_seeds)
        solution = yield from cover(solution, self.n_components, self.cost)
        return (yield from self.refined(solution, self.cost, seed))

    @property
    def groups_columns(self) -> bool:
        """Whether columns are few enough to choose among all of them, or components so many that it pays."""
        return self.n_features <= max(FEW_COLUMNS, COLUMNS_PER_COMPONENT * self.n_components)

    def column_starts(self, seed: int) -> list[Steps]:
        """Return starts from groups of columns; if there are many components, also by way of V that cover no zeros."""
        m, k = self.n_features, self.n_components
        starts = [step("column start", self.refined_start(choose_columns(m, k, self.cost), self.cost, seed))]
        if not self.tries_from_below:
            return starts
        below = self.below
        return [
            *starts,
            step("column start, refined from below", self.refined_start(choose_columns(m, k, self.cost), below, seed)),
            step("column start from below", self.refined_start(choose_columns(m, k, below), below, seed)),
        ]

    def refined_start(self, start: Steps, cost: Cost, seed: int) -> Steps:
        """Refine a start, by another cost first if that is given."""
        solution = yield from start
        if cost != self.cost:
            solution = yield from self.refined(solution, cost, seed)
        return (yield from self.refined(solution, self.cost, seed))

    def random_start(self, number: int, seed: int) -> Steps:
        """Start from a random V."""
        solution = random_init(self.n_features, self.n_components, seed=seed, number=number)
        solution = yield from step("nmf", nmf(solution, self.effort.relaxed_rounds))
        solution = yield from threshold_search(solution, self.cost)
        return (yield from self.refined(solution, self.cost, seed))

    def refined(self, solution: Solution, objective: Objective, seed: int) -> Steps:
        """Flip entries as long as the objective falls."""
        rounds = self.effort.refine_rounds
        return (yield from step("refine", refine(solution, objective, rounds=rounds, memory=self.memory, seed=seed)))

    def improved(self, solution: Solution, objective: Objective, seed: int) -> Steps:
        """Reseed, if losses of rounds can be compared, and refine what that has found."""
        work = self.effort
        if self.sampled or not work.tries:
            return solution
        tried = reseed(solution, objective, tries=work.tries, patience=work.patience, seed=seed)
        solution = yield from step("reseed", tried)
        return (yield from self.refined(solution, objective, seed))

    def recombined(self, found: list[Solution], objective: Objective, seed: int) -> Steps:
        """Cross what several starts have found, on data so small that many V can be refined side by side."""
        best = reduce(choose_smaller, found)
        children = self.children(best)
        alike = all(have_same_cells(best.counts, one.counts) and one.value is not None for one in found)
        if len(found) < 3 or children < FEWEST_CHILDREN or not alike:
            return best
        best = yield from step("patterns", find_patterns(best, self.n_features, self.n_seeds))
        crossed = recombine(
            [best, *found],
            required(best.patterns, "patterns"),
            objective,
            generations=affordable_generations(children * self.work(best), self.effort.generations),
            children=children,
            seed=seed,
        )
        return (yield from step("recombine", crossed))

    def children(self, solution: Solution) -> int:
        """Return how many V a generation has; 0 where nothing is recombined."""
        if self.sampled or not self.effort.generations:
            return 0
        affordable = affordable_children(self.work(solution))
        return min(affordable, PROPOSAL_CELLS // max(1, self.n_features * self.n_components))

    def work(self, solution: Solution) -> int:
        """Return rows × features × components, the work of assigning all rows to a V."""
        return max(1, self.n_components * read_counts(solution.counts).cells)

    def searched(self, solution: Solution, found: list[Solution], objective: Objective, seed: int) -> Steps:
        """Search from the best V, with patterns of columns, and refine what that has found."""
        best = yield from step("patterns", find_patterns(solution, self.n_features, self.n_seeds))
        proposals = self.effort.proposals
        if self.centralized:
            others = [V for V in (one.boolean() for one in found) if V.shape == best.boolean().shape]
            search = centralized_search(best, objective, others=others, proposals=CENTRALIZED * proposals)
        else:
            batch = min(16, max(1, PROPOSAL_CELLS // max(1, self.n_features * self.n_components)))
            search = local_search(best, objective, proposals=proposals, patience=proposals, batch=batch, seed=seed)
        best = yield from step("local search", search)
        return (yield from better_of(choose_smaller(solution, best), self.refined(best, objective, seed)))

    @property
    def n_seeds(self) -> int:
        """Seed columns of patterns, so many that messages stay small."""
        return min(256, max(16, PAIR_CELLS // max(1, self.n_features)))


def request_assignments(solution: Solution, *, complete: bool, node_cap: int) -> Generator[Request, Sums, Outcome]:
    """Have everybody assign their rows: exactly, or by a belief if one was decided on."""
    found = {
        "relaxed": solution.relaxed,
        "integrality_gap": solution.gap,
        "converged": solution.settled and complete,
        "complete": complete,
    }
    V = solution.boolean()
    weights = np.array([1.0, -1.0]) if solution.weights is None else solution.weights
    if solution.belief is None or solution.belief.threshold is None:
        cap = node_cap if complete else HURRIED_NODES
        return (yield from request_exact_assignment(V, weights, node_cap=cap, **found))
    sums = yield Request(bp.ASSIGN_BY_BELIEF, **solution.belief.to_values(), all_clients=True)
    one, zero = (float(weight) for weight in weights)
    return counted(sums, V, weights=(one, zero), belief=solution.belief, **found)
