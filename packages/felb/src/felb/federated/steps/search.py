"""Search from several V: recombination, iterated local search, and search without a federation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import FederationError, InputError
from felb.federated.aggregate import align
from felb.federated.journal import holding
from felb.federated.protocol import Checkpoint, Request, Update
from felb.federated.steps.assignment import read_counts, tell_assignment
from felb.federated.steps.refine import STACKED_GAINS, Stack
from felb.federated.steps.state import Cost, Objective, Solution, as_array, best_so_far, required, stream
from felb.federated.tasks import COUNTS, MOST_STEPS, SUPPORTS, WEIGHTS, Input, Output, TaskSpec, Work, check_counts
from felb.kernels.assign import assign_rows, descend_rows
from felb.kernels.boolean import FactorMasks
from felb.metrics.counts import count_cells
from felb.optim.prox import check_weights

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from felb.federated.protocol import Sums, Values
    from felb.federated.steps.state import Steps
    from felb.federated.tasks import Sizes


# -- Iterated local search: perturb the best V so far, refine it, and keep it if it is not worse ---------------------
#
# A proposal replaces one or two components by patterns of columns and flips some single entries; refinement leads it to
# a local minimum, and it becomes the best V if the summed objective is not larger. Several proposals are refined side
# by side: a round sends them all, and the sums for all come back. Where a proposal is done, the next one takes its
# place.
#
# Patterns come from what is public, summed co-occurrence and the components themselves, so nothing but sums leaves a
# client, and the result is the same for any split of the rows.


def draw_public(patterns: NDArray[np.bool_], V: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw a pattern, the columns that two patterns share, or the union or difference of two components of V."""
    kind = rng.random()
    if len(patterns) and kind < 0.8:
        a, b = patterns[rng.integers(0, len(patterns), 2)]
        return np.asarray(a if kind < 0.4 else a & b)
    a, b = V[rng.integers(0, len(V), 2)]
    return np.asarray(a | b if kind < 0.9 else a & ~b)


@dataclass(frozen=True, slots=True)
class Searched:
    """The best so far, the proposals being refined, and how many were judged, in all and since the last success."""

    solution: Solution = field(metadata=holding(Solution))
    stack: Stack = field(metadata=holding(Stack))
    round: int = 1
    judged: int = 0
    failures: int = 0


def local_search(
    solution: Solution,
    objective: Objective | None = None,
    *,
    proposals: int = 6_000,
    patience: int = 6_000,
    work: float = 1e8,
    least: int = 32,
    rounds: int = 8,
    batch: int = 16,
    flips: float = 0.02,
    seed: int = 0,
) -> Steps:
    """Search from a Boolean V. All clients take part, because losses are compared; unfinished proposals are discarded.

    Parameters
    ----------
    solution : components, and patterns of columns
    objective : what to minimise; the Hamming loss if None
    proposals : how many are refined at most
    patience : stop after this many in a row that did not lower the objective
    work : stop also when the ones of all rows, times the proposals, exceed this; bounds the time on large data
    least : proposals that are made whatever the work
    rounds : rounds of flips in the refinement of a proposal
    batch : proposals refined at the same time
    flips : share of entries flipped in a proposal
    seed : decides the proposals
    """
    objective = objective or Cost()
    check_weights(
        proposals=(proposals, 0), patience=(patience, 1), work=(work, 0), least=(least, 0), rounds=(rounds, 0),
        batch=(batch, 1),
    )  # fmt: skip
    check_flips(flips)
    V, patterns = required(solution.components, "a Boolean V"), required(solution.patterns, "patterns of columns")
    if proposals == 0:
        return solution
    with best_so_far(lambda: at.solution):
        at = Searched(solution, Stack.of(V[None]), round=0)
        # The V to start from is measured in a round of its own.
        at, sums, rng = yield from _refined(at, objective, seed=seed)
        first = at.stack.solution(0, objective, before=solution)
        counts = read_counts(first.counts)
        limit = max(1, min(proposals, max(least, int(work / max(counts.tp + counts.fn, 1)))))
        drawn = [proposal(first.components, patterns, rng, flips=flips) for _ in range(min(batch, limit))]
        at = Searched(first, Stack.of(np.array(drawn)))
        sums.report(loss=required(at.solution.value, "a measured V"), proposals=0)
        while at.judged < limit and at.failures < patience:
            at = yield Checkpoint(at)
            at, sums, rng = yield from _refined(at, objective, seed=seed)
            done = np.flatnonzero(at.stack.settled | (at.stack.ages > rounds))
            for place in done:
                at = _judge(at, int(place), objective)
            sums.report(loss=required(at.solution.value, "a measured V"), proposals=at.judged)
            if len(done) and at.judged < limit and at.failures < patience:
                new = np.array([proposal(at.solution.components, patterns, rng, flips=flips) for _ in done])
                at = replace(at, stack=at.stack.with_new(done, new))
    return at.solution


def _refined(
    at: Searched, objective: Objective, *, seed: int
) -> Generator[Request, Sums, tuple[Searched, Sums, np.random.Generator]]:
    """Flip entries of all proposals, by a round of everybody."""
    counts = at.solution.counts
    weights = as_array(objective.weights(None if counts is None else read_counts(counts)))
    sums = yield Request(STACKED_GAINS, candidates=at.stack.V, weights=weights, all_clients=True)
    rng = stream(seed, "search", at.round)
    stack = at.stack.refined(sums, objective, weights=weights, rng=rng)
    return replace(at, round=at.round + 1, stack=stack), sums, rng


def _judge(at: Searched, place: int, objective: Objective) -> Searched:
    """Keep a proposal if it is not worse than the best."""
    value, least = float(at.stack.values[place]), at.solution.value
    assert least is not None
    return replace(
        at,
        judged=at.judged + 1,
        failures=0 if value < least else at.failures + 1,
        solution=at.stack.solution(place, objective, before=at.solution) if value <= least else at.solution,
    )


def proposal(
    best: NDArray[np.bool_] | None, patterns: NDArray[np.bool_], rng: np.random.Generator, *, flips: float
) -> NDArray[np.bool_]:
    """Replace one or two components of the best V and flip some entries."""
    V: NDArray[np.bool_] = required(best, "a Boolean V").copy()
    for component in rng.choice(len(V), min(len(V), int(rng.integers(1, 3))), replace=False):
        V[component] = draw_public(patterns, required(best, "a Boolean V"), rng)
    return np.asarray(V ^ (rng.random(V.shape) < flips))


def check_flips(flips: float) -> None:
    """Refuse a share of flipped entries outside [0, 1)."""
    if not 0 <= flips < 1:
        raise InputError(f"flips={flips}: the share of flipped entries must be in [0, 1)")


# -- Recombination: cross the components of several V and refine the offspring side by side --------------------------
#
# Starts end in different local minima, and each of them has found some components that the others have missed. A child
# takes components of two parents of the population, which are matched by how much they have in common, so that what
# both have is inherited and no component comes twice. A few rounds of refinement lead all children of a generation to
# local minima of their own, and the best of parents and children are the next population. Nothing but summed gains is
# asked for, those of a whole generation in one round, so the result is the same for any split of the rows.

MOST_WORK_OF_GENERATIONS = 1 << 27
"""Rows × features × components of all V of a generation, at most; also of all generations beyond the fewest."""

FEWEST_CHILDREN, USUAL_CHILDREN, MOST_CHILDREN = 2, 16, 48
"""V of a generation: fewer are not worth it; so many where that is affordable; so many where it is often affordable."""

OFTEN = 16
"""Generations of which all must be affordable before a generation has more than the usual number of V."""

FEWEST_GENERATIONS = 4
"""Generations that are played whatever the work; tiny data has as many as the effort allows."""

CONVERGED = 0.25
"""The last generation is one of which such a share of the children ends at the best objective."""

MATCHED, MUTATION = 0.75, 0.3
"""Chances that a child chooses between matching components of its parents, and that one of them is a new pattern."""

SHARES = (0.5, 0.5, 0.8)
"""Such a child takes about one of these shares of its components from the first parent; each is as likely."""


def affordable_children(work: int) -> int:
    """Return how many V a generation may have, where assigning all rows to one of them is so much work."""
    affordable = MOST_WORK_OF_GENERATIONS // work
    return min(affordable, MOST_CHILDREN, max(USUAL_CHILDREN, affordable // OFTEN))


def affordable_generations(work: int, most: int) -> int:
    """Return how many generations there may be, where one of them is so much work: more, the less it is."""
    return min(most, max(FEWEST_GENERATIONS, MOST_WORK_OF_GENERATIONS // work))


@dataclass(frozen=True, slots=True)
class Population:
    """The best so far, and V with their objective, the best first.

    Parameters
    ----------
    V : members × components × features
    values : the objective of each
    generation, failures : generations so far, in all and since the last better V
    converged : many children of the last generation ended at the best objective
    """

    solution: Solution = field(metadata=holding(Solution))
    V: NDArray[np.bool_]
    values: NDArray[np.float64]
    generation: int = 0
    failures: int = 0
    converged: bool = False

    @classmethod
    def of(cls, found: Sequence[Solution]) -> Population:
        """Return the different V of some results, which must have been measured."""
        best = min(found, key=lambda solution: required(solution.value, "a measured V"))
        V = np.array([solution.boolean() for solution in found])
        return cls(
            best, V, np.array([float(required(solution.value, "a measured V")) for solution in found])
        ).survivors(len(found))

    def survivors(self, size: int) -> Population:
        """Return the population with the best of its different members, at most so many."""
        order = np.argsort(self.values, kind="stable")
        kept: list[int] = []
        seen: set[bytes] = set()
        for place in order:
            key = as_set(self.V[place]).tobytes()
            if key not in seen and len(kept) < size:
                seen.add(key)
                kept.append(int(place))
        return replace(self, V=self.V[kept], values=self.values[kept])


def as_set(V: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the components in an order of their own."""
    return np.asarray(V[np.lexsort(V.T)]) if V.shape[1] else V


def recombine(
    found: Sequence[Solution],
    patterns: NDArray[np.bool_],
    objective: Objective | None = None,
    *,
    generations: int = 24,
    patience: int = 12,
    children: int = 48,
    size: int = 48,
    rounds: int = 5,
    seed: int = 0,
) -> Steps:
    """Improve on the best of several results. All clients take part, because losses are compared.

    Parameters
    ----------
    found : Boolean V of the same size with their objective
    patterns : sets of columns that often occur together, patterns × features
    objective : what to minimise; the Hamming loss if None
    generations, children : how many generations at most, and how many children each of them has
    patience : stop after this many generations in a row without a better V
    size : members of the population at most
    rounds : rounds of refinement of a generation
    seed : decides who is crossed with whom, and how
    """
    objective = objective or Cost()
    check_weights(
        generations=(generations, 0), patience=(patience, 1), children=(children, 1), size=(size, 1), rounds=(rounds, 1)
    )
    at = Population.of(found)
    with best_so_far(lambda: at.solution):
        while at.generation < generations and at.failures < patience and not at.converged:
            at = yield Checkpoint(at)
            rng = stream(seed, "recombine", at.generation)
            stack = Stack.of(np.array([child(at.V, patterns, rng) for _ in range(children)]))
            for _ in range(rounds):
                weights = as_array(objective.weights(read_counts(at.solution.counts)))
                open_places = np.flatnonzero(~stack.settled)
                part = stack.part(open_places)
                sums = yield Request(STACKED_GAINS, candidates=part.V, weights=weights, all_clients=True)
                stack = stack.with_part(open_places, part.refined(sums, objective, weights=weights, rng=rng))
                sums.report(
                    loss=float(required(at.solution.value, "a measured V")),
                    measured=float(stack.values.min()),
                    generation=at.generation,
                )
                if stack.settled.all():
                    break
            at = select_population(at, stack, objective, size=size)
    return at.solution


def select_population(at: Population, stack: Stack, objective: Objective, *, size: int) -> Population:
    """Return the population with the best of the children in it."""
    best = int(np.argmin(stack.values))
    solution = at.solution
    if stack.values[best] < required(solution.value, "a measured V"):
        solution = stack.solution(best, objective, before=solution)
    everybody = Population(
        solution,
        np.concatenate([at.V, stack.best]),
        np.concatenate([at.values, stack.values]),
        at.generation + 1,
        at.failures + 1 if solution is at.solution else 0,
        bool(np.mean(stack.values <= required(solution.value, "a measured V")) >= CONVERGED),
    )
    return everybody.survivors(size)


def child(V: NDArray[np.bool_], patterns: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Cross two members: choose between matching components, or replace some of the one's by some of the other's."""
    a, b = V[rng.choice(len(V), 2, replace=len(V) < 2)]
    k = len(a)
    if rng.random() < MATCHED:
        first = rng.random(k) < rng.choice(SHARES)
        new = np.where(first[:, None], a, align(b, a))
    else:
        new = a.copy()
        size = int(rng.integers(1, max(1, k // 4) + 1))
        new[rng.choice(k, size, replace=False)] = b[rng.choice(k, size, replace=False)]
    if rng.random() < MUTATION:
        new[rng.integers(k)] = draw_public(patterns, new, rng)
    return np.asarray(new)


# -- Search without a federation: the owner of all rows crosses, perturbs and refines many V within one task ---------
#
# A population of V is kept. A proposal crosses two of them or perturbs the best; what it descends to takes the place of
# the worst. Compared with `local_search` and `recombine`, patterns may come from rows, and V is improved like U is, by
# coordinate descent on its columns with U held, since nobody else's rows count. A client of a federation does not know
# this task.

Member = tuple[float, "NDArray[np.bool_]", "NDArray[np.bool_]"]
"""The cost, U and V of a member of the population."""

CROSSED, KEPT = 0.6, 0.8
"""Chance that a proposal crosses two members, not perturbs the best one; share of a row that a first member keeps."""

FROM_ROWS, WHOLE_ROW = 0.5, 0.3
"""Chances that a pattern comes from rows, and that it then is one row, not the intersection of two."""


def search_centrally(work: Work) -> tuple[None, Update]:
    """Return the population after some proposals, the best V first, with the counts of each."""
    shard, (one, zero) = work.rows, work.weights
    members, public = (np.asarray(work.values[name], dtype=bool) for name in ("members", "patterns"))
    proposals, rounds, size = (int(work.values[name]) for name in ("proposals", "rounds", "size"))
    flips = float(work.values["flips"])
    turned = _turned(shard)
    if shard.unknown is not None:
        turned = turned.with_unknown(_turned(shard.unknown))

    def descended(V: NDArray[np.bool_]) -> Member:
        return _descend(shard, turned, V, weights=(one, zero), rounds=rounds)

    population: list[Member] = []
    for V in members:
        population = survivors(population, descended(V), size)
    for _ in range(proposals if members.shape[1] else 0):
        new = propose(shard, population, public, size=size, flips=flips, rng=work.rng)
        population = survivors(population, descended(new), size)
    population += population[:1] * (size - len(population))  # a response has one shape whatever the rows are
    # Counted with the rows assigned anew, as the last assignment does, so that losses are those a run ends with.
    updates = [
        tell_assignment(work, assign_rows(shard, V, weight_one=one, weight_zero=zero), V) for _, _, V in population
    ]
    stacked = {name: np.array([update.values[name] for update in updates]) for name in updates[0].values}
    supports = {name: np.array([update.supports[name] for update in updates]) for name in updates[0].supports}
    supports["components"] = stacked["supports"]
    components = np.array([V for _, _, V in population], dtype=np.int64)
    return None, Update({**stacked, "components": components}, supports=supports)


def _size(sizes: Sizes, values: Values) -> int:  # noqa: ARG001
    return int(values["size"])


POPULATION = 24
"""Members of a population, usually."""

CENTRALIZED_SEARCH = TaskSpec(
    "centralized_search",
    "local search",
    search_centrally,
    "the best V that the owner of all rows has found",
    {
        "members": Input("b", ("v", "k", "m")),
        "patterns": Input("b", ("p", "m")),
        "weights": WEIGHTS,
        "proposals": Input("i", (), 0, MOST_STEPS),
        "size": Input("i", (), 2, 1_000),
        "rounds": Input("i", (), 1, MOST_STEPS),
        "flips": Input("f", (), 0.0, 1.0),
    },
    {
        "counts": replace(COUNTS, shape=(_size, 4)),
        "supports": replace(SUPPORTS, shape=(_size, "k")),
        "components": Output("i", (_size, "k", "m"), high=1, made_of="named", axes=2),
    },
    sizes={"v": 256, "p": 2048},
    relations=check_counts,
)
"""One owner of all rows knows this task; a client of a federation does not."""


def survivors(population: list[Member], new: Member, size: int) -> list[Member]:
    """Return the population with a new member, the best and among equals the newest first, without doubles."""
    twin = any(new[0] == cost and np.array_equal(as_set(new[2]), as_set(V)) for cost, _, V in population)
    if twin:
        return population
    place = sum(cost < new[0] for cost, _, _ in population)
    return [*population[:place], new, *population[place:]][:size]


def propose(
    A: BinaryMatrix,
    population: list[Member],
    public: NDArray[np.bool_],
    *,
    size: int,
    flips: float,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return a V to descend from: of parts of rows while the population is small, a child of two, or a perturbed V."""
    best = population[0][2]
    if len(population) < size:
        rows = np.array([draw_row_pattern(A, rng) for _ in best])
        return np.asarray(rows & (rng.random(rows.shape) < KEPT))
    if rng.random() < CROSSED:
        new = child(np.array([V for _, _, V in population]), public, rng)
        if rng.random() < MUTATION:
            new[rng.integers(len(new))] = draw_row_pattern(A, rng)
        return new
    return perturb(A, best, public, flips=flips, rng=rng)


def _turned(A: BinaryMatrix) -> BinaryMatrix:
    return BinaryMatrix.of(A.to_scipy(np.uint8).T.tocsr())


def perturb(
    A: BinaryMatrix, V: NDArray[np.bool_], public: NDArray[np.bool_], *, flips: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return V with one or two components replaced by patterns, and some entries flipped."""
    new = V.copy()
    for component in rng.choice(len(V), min(len(V), int(rng.integers(1, 3))), replace=False):
        if rng.random() < FROM_ROWS:
            new[component] = draw_row_pattern(A, rng)
        else:
            new[component] = draw_public(public, V, rng)
    return np.asarray(new ^ (rng.random(V.shape) < flips))


def draw_row_pattern(A: BinaryMatrix, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a random row, or the intersection of two."""
    pattern = np.zeros(A.shape[1], dtype=bool)
    if len(A):
        first, second = (A.indices[A.indptr[r] : A.indptr[r + 1]] for r in rng.integers(0, len(A), 2))
        pattern[first if rng.random() < WHOLE_ROW else np.intersect1d(first, second, assume_unique=True)] = True
    return pattern


def _descend(
    A: BinaryMatrix,
    turned: BinaryMatrix,
    V: NDArray[np.bool_],
    *,
    weights: tuple[float, float],
    rounds: int,
) -> Member:
    """Return the cost, U and V after coordinate descent on both in turn, until the cost does not fall."""
    worth: dict[str, Any] = {"weight_one": weights[0], "weight_zero": weights[1]}
    U = assign_rows(A, V, **worth)
    cost = np.inf
    for _ in range(rounds):
        V = np.ascontiguousarray(descend_rows(turned, U.T, V.T, **worth).T)
        U = descend_rows(A, V, U, **worth)
        counts = count_cells(A, FactorMasks.of(U, V))
        last, cost = cost, weights[0] * counts.fn - weights[1] * counts.fp
        if cost >= last:
            break
    return cost, U, V


@dataclass(frozen=True, slots=True)
class CentralSearched:
    """The best so far, the population and the proposals that were made."""

    solution: Solution = field(metadata=holding(Solution))
    population: NDArray[np.bool_]
    made: int = 0


def centralized_search(
    solution: Solution,
    objective: Objective | None = None,
    *,
    others: Sequence[NDArray[np.bool_]] = (),
    proposals: int = 20_000,
    work: float = 1e8,
    least: int = 32,
    size: int = POPULATION,
    rounds: int = 8,
    batch: int = 100,
    flips: float = 0.02,
) -> Steps:
    """Let the owner of all rows search from a V with its counts.

    Parameters
    ----------
    solution : components with counts, and patterns of columns
    objective : what to minimise; the Hamming loss if None
    others : further V of the same size, which are members of the first population too
    proposals : how many are refined at most
    work : stop also when the ones of all rows, times the proposals, exceed this; bounds the time on large data
    least : proposals that are made whatever the work
    size : members of the population at most
    rounds : rounds of descent on V and U for a proposal
    batch : proposals within a task; a time limit is looked at between tasks
    flips : share of entries flipped in a proposal
    """
    objective = objective or Cost()
    check_weights(
        proposals=(proposals, 0), work=(work, 0), least=(least, 0), size=(size, 2), rounds=(rounds, 1), batch=(batch, 1)
    )
    check_flips(flips)
    first = required(solution.components, "a Boolean V")
    patterns = required(solution.patterns, "patterns of columns")
    counts = read_counts(required(solution.counts, "the counts of a V"))
    limit = min(proposals, max(least, int(work / max(counts.tp + counts.fn, 1))))
    at = CentralSearched(solution, np.array([first, *others]))
    with best_so_far(lambda: at.solution):
        while at.made < limit:
            at = yield Checkpoint(at)
            made = min(batch, limit - at.made)
            sums = yield Request(
                CENTRALIZED_SEARCH,
                members=at.population,
                patterns=patterns,
                weights=as_array(objective.weights(read_counts(at.solution.counts))),
                proposals=made,
                size=size,
                rounds=rounds,
                flips=flips,
                all_clients=True,
            )
            if sums.clients != 1:
                raise FederationError("this search is for one owner of all rows; use local_search in a federation")
            population = np.asarray(sums["components"], dtype=bool)
            values = [objective.value(read_counts(counts)) for counts in sums["counts"]]
            place, best = int(np.argmin(values)), at.solution
            if best.value is None or values[place] <= best.value:
                best = replace(
                    best,
                    components=population[place],
                    counts=sums["counts"][place],
                    supports=sums["supports"][place],
                    exclusive=None,
                    value=values[place],
                    weights=as_array(objective.weights(read_counts(sums["counts"][place]))),
                    settled=False,
                )
            at = CentralSearched(best, population, at.made + made)
            sums.report(loss=float(np.nan if best.value is None else best.value), proposals=at.made)
    return at.solution
