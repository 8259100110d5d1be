"""Iterated local search: perturb the best V so far, refine it, and keep it if it is not worse.

A proposal replaces one or two components by patterns of columns and flips some single entries; refinement leads it to a
local minimum, and it becomes the best V if the summed objective is not larger. Several proposals are refined side by
side: a round sends them all, and the sums for all come back. Where a proposal is done, the next one takes its place.

Patterns come from what is public, summed co-occurrence and the components themselves, so nothing but sums leaves a
client, and the result is the same for any split of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import InputError
from felb.federated.entries import holding
from felb.federated.protocol import Checkpoint, Request
from felb.federated.steps.assignment import read_counts
from felb.federated.steps.known import Known, best_so_far, required, stream
from felb.federated.steps.objective import Cost, Objective, as_array
from felb.federated.steps.stack import STACKED_GAINS, Stack
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from felb.federated.protocol import Sums
    from felb.federated.steps.known import Steps


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

    known: Known = field(metadata=holding(Known))
    stack: Stack = field(metadata=holding(Stack))
    round: int = 1
    judged: int = 0
    failures: int = 0


def local_search(
    known: Known,
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
    known : components, and patterns of columns
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
    V, patterns = required(known.components, "a Boolean V"), required(known.patterns, "patterns of columns")
    if proposals == 0:
        return known
    with best_so_far(lambda: at.known):
        at = Searched(known, Stack.of(V[None]), round=0)
        # The V to start from is measured in a round of its own.
        at, sums, rng = yield from _refined(at, objective, seed=seed)
        first = at.stack.known(0, objective, before=known)
        counts = read_counts(first.counts)
        limit = max(1, min(proposals, max(least, int(work / max(counts.tp + counts.fn, 1)))))
        drawn = [proposal(first.components, patterns, rng, flips=flips) for _ in range(min(batch, limit))]
        at = Searched(first, Stack.of(np.array(drawn)))
        sums.report(loss=required(at.known.value, "a measured V"), proposals=0)
        while at.judged < limit and at.failures < patience:
            at = yield Checkpoint(at)
            at, sums, rng = yield from _refined(at, objective, seed=seed)
            done = np.flatnonzero(at.stack.settled | (at.stack.ages > rounds))
            for place in done:
                at = _judged(at, int(place), objective)
            sums.report(loss=required(at.known.value, "a measured V"), proposals=at.judged)
            if len(done) and at.judged < limit and at.failures < patience:
                new = np.array([proposal(at.known.components, patterns, rng, flips=flips) for _ in done])
                at = replace(at, stack=at.stack.with_new(done, new))
    return at.known


def _refined(
    at: Searched, objective: Objective, *, seed: int
) -> Generator[Request, Sums, tuple[Searched, Sums, np.random.Generator]]:
    """Flip entries of all proposals, by a round of everybody."""
    counts = at.known.counts
    weights = as_array(objective.weights(None if counts is None else read_counts(counts)))
    sums = yield Request(STACKED_GAINS, candidates=at.stack.V, weights=weights, all_clients=True)
    rng = stream(seed, "search", at.round)
    stack = at.stack.refined(sums, objective, weights=weights, rng=rng)
    return replace(at, round=at.round + 1, stack=stack), sums, rng


def _judged(at: Searched, place: int, objective: Objective) -> Searched:
    """Keep a proposal if it is not worse than the best."""
    value, least = float(at.stack.values[place]), at.known.value
    assert least is not None
    return replace(
        at,
        judged=at.judged + 1,
        failures=0 if value < least else at.failures + 1,
        known=at.stack.known(place, objective, before=at.known) if value <= least else at.known,
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
