"""Recombination: cross the components of several V and refine the offspring side by side.

Starts end in different local minima, and each of them has found some components that the others have missed. A child
takes components of two parents of the population, which are matched by how much they have in common, so that what both
have is inherited and no component comes twice. A few rounds of refinement lead all children of a generation to local
minima of their own, and the best of parents and children are the next population. Nothing but summed gains is asked
for, those of a whole generation in one round, so the result is the same for any split of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from felb.federated.alignment import align
from felb.federated.entries import holding
from felb.federated.protocol import Checkpoint, Request
from felb.federated.steps.assignment import read_counts
from felb.federated.steps.known import Known, best_so_far, required, stream
from felb.federated.steps.local_search import draw_public
from felb.federated.steps.objective import Cost, Objective, as_array
from felb.federated.steps.stack import STACKED_GAINS, Stack
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.federated.steps.known import Steps

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

    known: Known = field(metadata=holding(Known))
    V: NDArray[np.bool_]
    values: NDArray[np.float64]
    generation: int = 0
    failures: int = 0
    converged: bool = False

    @classmethod
    def of(cls, found: Sequence[Known]) -> Population:
        """Return the different V of some results, which must have been measured."""
        best = min(found, key=lambda known: required(known.value, "a measured V"))
        V = np.array([known.boolean() for known in found])
        return cls(best, V, np.array([float(required(known.value, "a measured V")) for known in found])).survivors(
            len(found)
        )

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
    found: Sequence[Known],
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
    with best_so_far(lambda: at.known):
        while at.generation < generations and at.failures < patience and not at.converged:
            at = yield Checkpoint(at)
            rng = stream(seed, "recombine", at.generation)
            stack = Stack.of(np.array([child(at.V, patterns, rng) for _ in range(children)]))
            for _ in range(rounds):
                weights = as_array(objective.weights(read_counts(at.known.counts)))
                open_places = np.flatnonzero(~stack.settled)
                part = stack.part(open_places)
                sums = yield Request(STACKED_GAINS, candidates=part.V, weights=weights, all_clients=True)
                stack = stack.with_part(open_places, part.refined(sums, objective, weights=weights, rng=rng))
                sums.report(
                    loss=float(required(at.known.value, "a measured V")),
                    measured=float(stack.values.min()),
                    generation=at.generation,
                )
                if stack.settled.all():
                    break
            at = succeeded(at, stack, objective, size=size)
    return at.known


def succeeded(at: Population, stack: Stack, objective: Objective, *, size: int) -> Population:
    """Return the population with the best of the children in it."""
    best = int(np.argmin(stack.values))
    known = at.known
    if stack.values[best] < required(known.value, "a measured V"):
        known = stack.known(best, objective, before=known)
    everybody = Population(
        known,
        np.concatenate([at.V, stack.best]),
        np.concatenate([at.values, stack.values]),
        at.generation + 1,
        at.failures + 1 if known is at.known else 0,
        bool(np.mean(stack.values <= required(known.value, "a measured V")) >= CONVERGED),
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
