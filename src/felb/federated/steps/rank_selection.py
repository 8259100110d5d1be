"""Rank selection: the number of components with the minimum description length, from summed counts.

With n records, m features, r = |U∘V| covered cells, of which fp are zeros, and fn ones left of c cells (nm, if all are
known), the data is described in

    Σ_l ( log₂(n+1) + log₂ C(n, |U_l|) + log₂(m+1) + log₂ C(m, |V_l|) )
        + log₂(r+1) + log₂ C(r, fp) + log₂(c−r+1) + log₂ C(c−r, fn)

bits: which records and features each component has, and which cells of either kind are wrong. Starting from more
components than are needed, one after the other is dropped or merged with another, and the rest is refined.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import lgamma, log, log2
from typing import TYPE_CHECKING

import numpy as np

from felb.federated.entries import holding
from felb.federated.protocol import Checkpoint, Request, Update
from felb.federated.steps.assignment import read_counts
from felb.federated.steps.known import ClientState, Known, best_so_far, required, stream
from felb.federated.steps.objective import Cost, Objective, as_array
from felb.federated.steps.stack import STACKED_GAINS, Stack
from felb.kernels.assign import assign_rows
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.steps.known import Steps
    from felb.metrics import Counts

SHARED_COUNTS = "shared_counts"

LEAST_WRONG, MOST_WRONG = 1e-6, 0.4
"""Limits for the share of wrong cells where the worth of a cell is estimated from it."""


def subset_bits(size: int, chosen: int) -> float:
    """log₂(size + 1) + log₂ C(size, chosen): how many are chosen, and which."""
    return (log(size + 1) + lgamma(size + 1) - lgamma(chosen + 1) - lgamma(size - chosen + 1)) / log(2)


def component_bits(V: NDArray[np.bool_], supports: NDArray[np.int64], *, n_rows: int) -> NDArray[np.float64]:
    """Return the bits that tell the records and the features of each component; 0 for one that is in no record."""
    m = V.shape[1]
    bits = [
        subset_bits(n_rows, int(support)) + subset_bits(m, int(size)) if support and size else 0.0
        for support, size in zip(supports, np.count_nonzero(V, axis=1), strict=True)
    ]
    return np.array(bits, dtype=np.float64)


def description_length(V: NDArray[np.bool_], supports: NDArray[np.int64], counts: Counts, *, n_rows: int) -> float:
    """Return the bits that describe the known cells by U and V and the cells where U∘V is wrong."""
    covered = counts.tp + counts.fp
    wrong = subset_bits(covered, counts.fp) + subset_bits(counts.cells - covered, counts.fn)
    return float(component_bits(V, supports, n_rows=n_rows).sum() + wrong)


def shared_counts_task(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[None, Update]:
    """How many records have both of two components, components × components."""
    V = np.asarray(request.values["components"], dtype=bool)
    one, zero = (float(weight) for weight in request.values["weights"])
    U = assign_rows(shard, V, weight_one=one, weight_zero=zero)
    # Counts stay below 2^53, so that a product of doubles is exact and fast.
    wide = U.astype(np.float64)
    return None, Update({"shared": np.rint(wide.T @ wide).astype(np.int64)})


def merged_pairs(V: NDArray[np.bool_], shared: NDArray[np.int64], *, most: int) -> NDArray[np.bool_]:
    """Return V with two components replaced by their union, for the pairs that are most alike.

    Pieces of one component have much the same records or much the same features, so the likeness of two is the larger
    of the Jaccard indices of their records and of their features.
    """
    alike = np.maximum(_jaccard(shared), _jaccard(V.astype(np.int64) @ V.T.astype(np.int64)))
    first, second = np.triu_indices(len(V), 1)
    order = np.argsort(-alike[first, second], kind="stable")[:most]
    found = []
    for a, b in zip(first[order], second[order], strict=True):
        merged = V.copy()
        merged[a] |= V[b]
        found.append(np.delete(merged, b, axis=0))
    return np.array(found, dtype=bool).reshape(len(found), len(V) - 1, V.shape[1])


def _jaccard(common: NDArray[np.int64]) -> NDArray[np.float64]:
    sizes = np.diagonal(common)
    return np.asarray(common / np.maximum(sizes[:, None] + sizes - common, 1))


@dataclass(frozen=True, slots=True)
class Shortest:
    """What has the shortest description, and the present components with the candidates of one component less.

    `candidates` is None where pairs of the present components are yet to be compared.
    """

    known: Known = field(metadata=holding(Known))
    present: Known = field(metadata=holding(Known))
    candidates: NDArray[np.bool_] | None
    round: int = 0
    n_rows: int = 0
    length: float = np.inf
    failures: int = 0


def select_rank(
    known: Known,
    objective: Objective | None = None,
    *,
    rounds: int = 3,
    drops: int = 4,
    merges: int = 8,
    patience: int = 3,
    seed: int = 0,
) -> Steps:
    """Take away components one by one and keep the number with the shortest description.

    While a component costs more bits than it seems to save, the one that costs most is dropped. From there on, every
    turn tries to drop each of the least useful components and to merge pairs that are alike, refines all of these and
    takes the one with the shortest description; after some turns without a shorter one it ends.

    Parameters
    ----------
    known : components, usually more than are needed
    objective : what refinement minimises; the Hamming loss if None
    rounds : rounds of refinement in a turn
    drops, merges : candidates of either kind in a turn
    patience : turns without a shorter description before the end
    seed : of the refinement
    """
    objective = objective or Cost()
    check_weights(rounds=(rounds, 0), drops=(drops, 1), merges=(merges, 0), patience=(patience, 1))
    V = required(known.components, "a Boolean V")
    V = V[V.any(axis=1)]
    at, size = Shortest(known, known, V[None]), len(V)
    with best_so_far(lambda: at.known):
        while size > 0:
            at = yield Checkpoint(at)
            present, number, candidates = at.present, at.round, at.candidates
            weights = as_array(objective.weights(None if present.counts is None else read_counts(present.counts)))
            if candidates is None:
                V = required(present.components, "a Boolean V")
                sums = yield Request(SHARED_COUNTS, components=V, weights=weights, all_clients=True)
                number += 1
                merged = merged_pairs(V, sums["shared"], most=merges)
                candidates = np.concatenate([without_least_useful(present, n_rows=at.n_rows, most=drops), merged])
            stack = Stack.of(candidates)
            while not stack.settled.all() and stack.ages[0] <= rounds:
                sums = yield Request(STACKED_GAINS, candidates=stack.V, weights=weights, all_clients=True)
                number += 1
                stack = stack.refined(sums, objective, weights=weights, rng=stream(seed, "rank", number))
            n_rows, size = int(sums["rows"]), stack.best.shape[1]
            lengths = [
                description_length(V, supports, read_counts(counts), n_rows=n_rows)
                for V, supports, counts in zip(stack.best, stack.supports, stack.counts, strict=True)
            ]
            place = int(np.argmin(lengths))
            sums.report(n_components=size, description_length=lengths[place])
            found, shorter = stack.known(place, objective, before=at.known), lengths[place] <= at.length
            useless = bits_saved(found, n_rows=n_rows).min() < 0
            at = Shortest(
                known=found if shorter else at.known,
                present=found,
                candidates=without_least_useful(found, n_rows=n_rows, most=1) if useless and size > 1 else None,
                round=number,
                n_rows=n_rows,
                length=lengths[place] if shorter else at.length,
                failures=0 if shorter else at.failures + 1,
            )
            if size == 1 or at.failures >= patience:
                break
    return at.known


def bits_saved(present: Known, *, n_rows: int) -> NDArray[np.float64]:
    """Return the bits each component saves; a wrong cell costs the logarithm of the odds that a cell is right."""
    V, supports, exclusive = (
        required(value, "measured components") for value in (present.components, present.supports, present.exclusive)
    )
    counts = read_counts(present.counts)
    share = min(max((counts.fp + counts.fn) / max(counts.cells, 1), LEAST_WRONG), MOST_WRONG)
    bits = component_bits(V, supports, n_rows=n_rows)
    # A component of no record costs nothing, but is one too many.
    return np.where(supports > 0, exclusive * log2((1 - share) / share) - bits, -np.inf)


def without_least_useful(present: Known, *, n_rows: int, most: int) -> NDArray[np.bool_]:
    """Return the present components without each of the least useful ones."""
    V = required(present.components, "a Boolean V")
    order = np.argsort(bits_saved(present, n_rows=n_rows), kind="stable")
    return np.array([np.delete(V, place, axis=0) for place in order[:most]])
