"""Search without a federation: the owner of all rows crosses, perturbs and refines many V within one task.

A population of V is kept. A proposal crosses two of them or perturbs the best; what it descends to takes the place of
the worst. Compared with `local_search` and `recombine`, patterns may come from rows, and V is improved like U is, by
coordinate descent on its columns with U held, since nobody else's rows count. A client of a federation does not know
this task.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import FederationError
from felb.federated.entries import holding
from felb.federated.protocol import Checkpoint, Request, Update
from felb.federated.steps.assignment import assignment_counts, read_counts
from felb.federated.steps.known import ClientState, Known, best_so_far, required
from felb.federated.steps.local_search import check_flips, draw_public
from felb.federated.steps.objective import Cost, Objective, as_array
from felb.federated.steps.recombine import MUTATION, as_set, child
from felb.kernels.assign import assign_rows, descend_rows
from felb.kernels.boolean import FactorMasks
from felb.metrics.counts import cell_counts
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.federated.steps.known import Steps


CENTRALIZED_SEARCH = "centralized_search"

Member = tuple[float, "NDArray[np.bool_]", "NDArray[np.bool_]"]
"""The cost, U and V of a member of the population."""

CROSSED, KEPT = 0.6, 0.8
"""Chance that a proposal crosses two members, not perturbs the best one; share of a row that a first member keeps."""

FROM_ROWS, WHOLE_ROW = 0.5, 0.3
"""Chances that a pattern comes from rows, and that it then is one row, not the intersection of two."""


def centralized_search_task(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,
) -> tuple[None, Update]:
    """Return the population after some proposals, the best V first, with the counts of each."""
    members, public = (np.asarray(request.values[name], dtype=bool) for name in ("components", "patterns"))
    proposals, rounds, size = (int(request.values[name]) for name in ("proposals", "rounds", "size"))
    one, zero = (float(weight) for weight in request.values["weights"])
    flips = float(request.values["flips"])
    turned = _turned(shard)
    if shard.unknown is not None:
        turned = turned.with_unknown(_turned(shard.unknown))

    def descended(V: NDArray[np.bool_]) -> Member:
        return _descend(shard, turned, V, weights=(one, zero), rounds=rounds)

    population: list[Member] = []
    for V in members:
        population = survivors(population, descended(V), size)
    for _ in range(proposals if members.shape[1] else 0):
        new = proposed(shard, population, public, size=size, flips=flips, rng=rng)
        population = survivors(population, descended(new), size)
    population += population[:1] * (size - len(population))  # a response has one shape whatever the rows are
    # Counted with the rows assigned anew, as the last assignment does, so that losses are those a run ends with.
    updates = [
        assignment_counts(shard, assign_rows(shard, V, weight_one=one, weight_zero=zero), V) for _, _, V in population
    ]
    stacked = {name: np.array([update[name] for update in updates]) for name in updates[0]}
    return None, Update({**stacked, "components": np.array([V for _, _, V in population], dtype=np.int64)})


def survivors(population: list[Member], new: Member, size: int) -> list[Member]:
    """Return the population with a new member, the best and among equals the newest first, without doubles."""
    twin = any(new[0] == cost and np.array_equal(as_set(new[2]), as_set(V)) for cost, _, V in population)
    if twin:
        return population
    place = sum(cost < new[0] for cost, _, _ in population)
    return [*population[:place], new, *population[place:]][:size]


def proposed(
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
        rows = np.array([row_pattern(A, rng) for _ in best])
        return np.asarray(rows & (rng.random(rows.shape) < KEPT))
    if rng.random() < CROSSED:
        new = child(np.array([V for _, _, V in population]), public, rng)
        if rng.random() < MUTATION:
            new[rng.integers(len(new))] = row_pattern(A, rng)
        return new
    return perturbed(A, best, public, flips=flips, rng=rng)


def _turned(A: BinaryMatrix) -> BinaryMatrix:
    return BinaryMatrix.of(A.to_scipy(np.uint8).T.tocsr())


def perturbed(
    A: BinaryMatrix, V: NDArray[np.bool_], public: NDArray[np.bool_], *, flips: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return V with one or two components replaced by patterns, and some entries flipped."""
    new = V.copy()
    for component in rng.choice(len(V), min(len(V), int(rng.integers(1, 3))), replace=False):
        if rng.random() < FROM_ROWS:
            new[component] = row_pattern(A, rng)
        else:
            new[component] = draw_public(public, V, rng)
    return np.asarray(new ^ (rng.random(V.shape) < flips))


def row_pattern(A: BinaryMatrix, rng: np.random.Generator) -> NDArray[np.bool_]:
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
        counts = cell_counts(A, FactorMasks.of(U, V))
        last, cost = cost, weights[0] * counts.fn - weights[1] * counts.fp
        if cost >= last:
            break
    return cost, U, V


@dataclass(frozen=True, slots=True)
class Searched:
    """The best so far, the population and the proposals that were made."""

    known: Known = field(metadata=holding(Known))
    population: NDArray[np.bool_]
    made: int = 0


def centralized_search(
    known: Known,
    objective: Objective | None = None,
    *,
    others: Sequence[NDArray[np.bool_]] = (),
    proposals: int = 20_000,
    work: float = 1e8,
    least: int = 32,
    size: int = 24,
    rounds: int = 8,
    batch: int = 100,
    flips: float = 0.02,
) -> Steps:
    """Let the owner of all rows search from a V with its counts.

    Parameters
    ----------
    known : components with counts, and patterns of columns
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
    first = required(known.components, "a Boolean V")
    patterns = required(known.patterns, "patterns of columns")
    counts = read_counts(required(known.counts, "the counts of a V"))
    limit = min(proposals, max(least, int(work / max(counts.tp + counts.fn, 1))))
    at = Searched(known, np.array([first, *others]))
    with best_so_far(lambda: at.known):
        while at.made < limit:
            at = yield Checkpoint(at)
            made = min(batch, limit - at.made)
            sums = yield Request(
                CENTRALIZED_SEARCH,
                components=at.population,
                patterns=patterns,
                weights=as_array(objective.weights(read_counts(at.known.counts))),
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
            place, best = int(np.argmin(values)), at.known
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
            at = Searched(best, population, at.made + made)
            sums.report(loss=float(np.nan if best.value is None else best.value), proposals=at.made)
    return at.known
