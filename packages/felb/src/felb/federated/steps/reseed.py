"""Reseeding of the least useful component, and selection of the number of components."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import lgamma, log, log2
from typing import TYPE_CHECKING

import numpy as np

from felb.federated.journal import holding
from felb.federated.protocol import Checkpoint, Request, Update
from felb.federated.steps.assignment import read_counts
from felb.federated.steps.refine import STACKED_GAINS, Stack, refine
from felb.federated.steps.state import (
    ClientState,
    Cost,
    Cover,
    Objective,
    Solution,
    as_array,
    best_so_far,
    have_same_cells,
    reporting,
    required,
    stream,
)
from felb.federated.tasks import COMPONENTS, ROWS, WEIGHTS, Bounds, Input, Output, TaskSpec, Work, require
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import FactorMasks
from felb.kernels.gains import count_additions, count_residual_pairs, sum_residual
from felb.optim.prox import check_weights
from felb.privacy.disclosure import round_counts, round_members

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.federated.protocol import Values
    from felb.federated.steps.state import Steps
    from felb.metrics import Counts


# -- Reseeding: replace the least useful component by one built from the residual of the others ----------------------
#
# A try drops a component, asks for the ones that are left in each column, draws seed columns from these sums, asks how
# often other columns are left together with the seeds, and makes candidates of those that are so often enough. The
# candidate with the largest summed gain takes the free place, some rounds of refinement follow, and the result is kept
# if the summed objective has fallen.

CONFIDENCES = (0.2, 0.4, 0.6, 0.8, 0.95)
"""A column joins a seed's candidate if it is left in this share of the rows that the seed is left in."""

SURPRISES = (3.0, 5.0)
"""Or if it is left together with the seed this many standard deviations more often than by chance."""

LEAST_PROGRESS = 1e-4
"""A try that lowers the objective by a smaller share of it is kept, but counts as one that did not help."""


def count_residual(work: Work) -> tuple[ClientState, Update]:
    """Ones of each column that the requested components leave."""
    state, factors = _covered(work)
    return state, Update({"residual": sum_residual(work.rows, factors), "rows": np.asarray(len(work.rows))})


def count_pairs(work: Work) -> tuple[ClientState, Update]:
    """How often columns are left together with each seed column."""
    state, factors = _covered(work)
    seeds = np.asarray(work.values["seeds"])
    pairs = count_residual_pairs(work.rows, factors, seeds)
    if work.least > 1:
        columns = sum_residual(work.rows, factors)
        pairs = round_counts(pairs, np.minimum(columns[seeds, None], columns), work.least)
    return state, Update({"pairs": pairs})


def sum_candidate_gains(work: Work) -> tuple[ClientState, Update]:
    """Ones and zeros each candidate would add in the rows where it pays."""
    state, factors = _covered(work)
    one, zero = work.weights
    candidates = np.asarray(work.values["candidates"], dtype=bool)
    restricted = work.least > 1
    added = count_additions(work.rows, factors, candidates, weight_one=one, weight_zero=zero, count_rows=restricted)
    supports = {}
    if restricted:
        paying, with_zeros = added[2:]
        # A candidate that pays in all rows but a few would tell of these.
        told = paying * ((paying == len(work.rows)) | (len(work.rows) - paying >= work.least))
        supports = {"ones": told, "zeros": np.minimum(with_zeros, told)}
    return state, Update({"ones": added[0], "zeros": added[1]}, supports=supports)


def _covered(work: Work) -> tuple[ClientState, FactorMasks]:
    """Return U and V of the requested components; the requests of a try ask for the same, so U is kept for the next."""
    V, weights = work.components, np.asarray(work.values["weights"])
    state: ClientState = work.state or ClientState()
    if state.cover is None or not state.cover.is_of(V, weights):
        one, zero = work.weights
        U = round_members(assign_rows(work.rows, V, weight_one=one, weight_zero=zero), work.least)
        state = replace(state, cover=Cover(V, weights, U))
    assert state.cover is not None
    return state, FactorMasks.of(state.cover.assigned, V)


def _check_pairs(told: Values, values: Values, bounds: Bounds) -> None:  # noqa: ARG001
    pairs, seeds = told["pairs"], np.asarray(values["seeds"])
    own = pairs[np.arange(len(seeds)), seeds]
    require(pairs <= own[:, None], "pairs occur more often than one of them")


_COVER = {"components": COMPONENTS, "weights": WEIGHTS}

RESIDUAL_COUNTS = TaskSpec(
    "residual_counts",
    "reseeding",
    count_residual,
    "ones of each column that the components leave",
    _COVER,
    {"residual": Output("i", ("m",), high="rows", made_of="counted"), "rows": ROWS},
    by_rows=True,
)
PAIR_COUNTS = TaskSpec(
    "pair_counts",
    "reseeding",
    count_pairs,
    "how often columns are left together with each seed column",
    {**_COVER, "seeds": Input("i", ("s",), 0, lambda limits: limits.n_features - 1, unique=True)},
    {"pairs": Output("i", ("s", "m"), high="rows", made_of="counted")},
    sizes={"s": 256},
    relations=_check_pairs,
    by_rows=True,
)
CANDIDATE_GAINS = TaskSpec(
    "candidate_gains",
    "reseeding",
    sum_candidate_gains,
    "ones and zeros that each candidate would cover",
    {**_COVER, "candidates": Input("b", ("p", "m"))},
    {name: Output("i", ("p",), high="cells", made_of="named") for name in ("ones", "zeros")},
    sizes={"p": 2048},
    by_rows=True,
)


def make_candidates(
    pairs_of: NDArray[np.int64], residual: NDArray[np.int64], seeds: NDArray[np.int64], *, n_rows: int
) -> NDArray[np.bool_]:
    """Return the different candidates of all seeds, one per row, in a fixed order.

    For seed s and column j with p_j = residual_j / n: confidence = pairs_sj / residual_s, and surprise = (pairs_sj −
    residual_s·p_j) / sqrt(residual_s·p_j·(1 − p_j) + 1).
    """
    found = []
    share = residual / max(n_rows, 1)
    for seed, pairs in zip(seeds, pairs_of, strict=True):
        size = max(int(residual[seed]), 1)
        expected = size * share
        surprise = (pairs - expected) / np.sqrt(expected * (1 - share) + 1)
        for candidate in (
            *(pairs >= confidence * size for confidence in CONFIDENCES),
            *(surprise > threshold for threshold in SURPRISES),
        ):
            candidate[seed] = True
            found.append(candidate)
    return drop_duplicate_rows(np.array(found))


def drop_duplicate_rows(rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the different rows in lexicographic order; packed, they are compared eight entries at a time."""
    packed = np.packbits(rows, axis=1)
    places = {row.tobytes(): place for place, row in enumerate(packed)}
    return rows[[places[row] for row in sorted(places)]]


@dataclass(frozen=True, slots=True)
class Tried:
    """The best so far, the tries that were begun, and those in a row that did not help."""

    solution: Solution = field(metadata=holding(Solution))
    tries: int = 0
    failures: int = 0


def reseed(
    solution: Solution,
    objective: Objective | None = None,
    *,
    tries: int = 15,
    patience: int = 4,
    rounds: int = 3,
    n_seeds: int = 8,
    seed: int = 0,
) -> Steps:
    """Try to replace components. All clients take part, because losses are compared; an unfinished try is discarded.

    Parameters
    ----------
    solution : what a refinement has found
    objective : what to minimise; the Hamming loss if None
    tries : at most this many
    patience : stop after this many in a row that did not help; the first of them drop the component whose loss would
        matter least, later ones a random one of the lesser half
    rounds : rounds of refinement in a try
    n_seeds : seed columns in a try
    seed : decides what is dropped and which columns are seeds
    """
    objective = objective or Cost()
    check_weights(tries=(tries, 0), patience=(patience, 1), rounds=(rounds, 0), n_seeds=(n_seeds, 1))
    required(solution.exclusive, "components with their exclusive gains")
    at = Tried(solution, tries=1)

    def metrics() -> dict[str, float]:
        over = at.tries > tries or at.failures >= patience
        return {
            "loss": float(np.nan if at.solution.value is None else at.solution.value),
            "tries": at.tries - int(over),
        }

    with best_so_far(lambda: at.solution):
        while at.tries <= tries and at.failures < patience:
            at = yield Checkpoint(at)
            dropped = _choose_dropped(at, seed)
            without = np.array(at.solution.components)
            without[dropped] = False
            weights = as_array(
                objective.weights(None if at.solution.counts is None else read_counts(at.solution.counts))
            )
            asked = {"components": without, "weights": weights}

            sums = yield Request(RESIDUAL_COUNTS, **asked, all_clients=True)
            sums.report_at_end(metrics)
            residual, n_rows = sums["residual"], int(sums["rows"])
            if not residual.any():
                break
            columns = choose_seed_columns(residual, n_seeds, stream(seed, "revive seeds", at.tries))
            sums = yield Request(PAIR_COUNTS, **asked, seeds=columns, all_clients=True)
            sums.report_at_end(metrics)
            candidates = make_candidates(sums["pairs"], residual, columns, n_rows=n_rows)
            sums = yield Request(CANDIDATE_GAINS, **asked, candidates=candidates, all_clients=True)
            sums.report_at_end(metrics)
            best = candidates[int(np.argmax(weights[0] * sums["ones"] + weights[1] * sums["zeros"]))]

            V = without.copy()
            V[dropped] = best
            if at.solution.settled and np.array_equal(V, at.solution.components):
                # The component that was dropped is the best candidate, and there is nothing to refine.
                at = Tried(at.solution, at.tries + 1, at.failures + 1)
                continue
            trial = refine(
                replace(at.solution, components=V), objective, rounds=rounds, seed=seed + at.tries, all_clients=True
            )
            at = _judge(at, (yield from reporting(trial, metrics)))
    return at.solution


def _judge(at: Tried, found: Solution) -> Tried:
    """Keep what a try has found if it is better, and count the try as a failure unless it is better by some share."""
    old, value = at.solution, required(found.value, "a measured V")
    if old.value is None or not have_same_cells(old.counts, found.counts):
        return Tried(found, at.tries + 1)
    if value >= old.value:
        return Tried(old, at.tries + 1, at.failures + 1)
    helped = old.value - value >= LEAST_PROGRESS * abs(old.value)
    return Tried(found, at.tries + 1, 0 if helped else at.failures + 1)


def _choose_dropped(at: Tried, seed: int) -> int:
    """Return the component that is of least use, or after a failure a random one of the lesser half."""
    order = np.argsort(required(at.solution.exclusive, "exclusive gains"), kind="stable")
    place = 0
    if at.failures:
        place = int(stream(seed, "revive drop", at.tries - 1).integers(0, max(1, len(order) // 2)))
    return int(order[place])


def choose_seed_columns(residual: NDArray[np.int64], n_seeds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Half of the seeds are the columns with the most ones left, the others are drawn by how many are left."""
    heaviest = np.argsort(-residual, kind="stable")[: max(1, n_seeds // 2)]
    drawn = rng.choice(len(residual), n_seeds - len(heaviest), p=residual / residual.sum())
    seeds = np.unique(np.concatenate([heaviest, drawn]))
    return np.asarray(seeds[residual[seeds] > 0])


# -- Rank selection: the number of components with the minimum description length, from summed counts ----------------
#
# With n records, m features, r = |U∘V| covered cells, of which fp are zeros, and fn ones left of c cells (nm, if all
# are known), the data is described in
#
#     Σ_l ( log₂(n+1) + log₂ C(n, |U_l|) + log₂(m+1) + log₂ C(m, |V_l|) )
#         + log₂(r+1) + log₂ C(r, fp) + log₂(c−r+1) + log₂ C(c−r, fn)
#
# bits: which records and features each component has, and which cells of either kind are wrong. Starting from more
# components than are needed, one after the other is dropped or merged with another, and the rest is refined.

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


def count_shared(work: Work) -> tuple[None, Update]:
    """How many records have both of two components, components × components."""
    one, zero = work.weights
    U = assign_rows(work.rows, work.components, weight_one=one, weight_zero=zero)
    # Counts stay below 2^53, so that a product of doubles is exact and fast.
    wide = round_members(U, work.least).astype(np.float64)
    shared = np.rint(wide.T @ wide).astype(np.int64)
    own = np.diagonal(shared)
    return None, Update({"shared": round_counts(shared, np.minimum(own[:, None], own), work.least)})


def _check_shared(told: Values, values: Values, bounds: Bounds) -> None:  # noqa: ARG001
    shared = told["shared"]
    own = np.diagonal(shared)
    require(shared <= np.minimum(own[:, None], own), "pairs occur more often than one of them")
    require(shared == shared.T, "shared is not symmetric")


SHARED_COUNTS = TaskSpec(
    "shared_counts",
    "rank selection",
    count_shared,
    "how many records have both of two components",
    _COVER,
    {"shared": Output("i", ("k", "k"), high="rows", made_of="counted")},
    relations=_check_shared,
    by_rows=True,
)


def merge_pairs(V: NDArray[np.bool_], shared: NDArray[np.int64], *, most: int) -> NDArray[np.bool_]:
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

    solution: Solution = field(metadata=holding(Solution))
    present: Solution = field(metadata=holding(Solution))
    candidates: NDArray[np.bool_] | None
    round: int = 0
    n_rows: int = 0
    length: float = np.inf
    failures: int = 0


def select_rank(
    solution: Solution,
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
    solution : components, usually more than are needed
    objective : what refinement minimises; the Hamming loss if None
    rounds : rounds of refinement in a turn
    drops, merges : candidates of either kind in a turn
    patience : turns without a shorter description before the end
    seed : of the refinement
    """
    objective = objective or Cost()
    check_weights(rounds=(rounds, 0), drops=(drops, 1), merges=(merges, 0), patience=(patience, 1))
    V = required(solution.components, "a Boolean V")
    V = V[V.any(axis=1)]
    at, size = Shortest(solution, solution, V[None]), len(V)
    with best_so_far(lambda: at.solution):
        while size > 0:
            at = yield Checkpoint(at)
            present, number, candidates = at.present, at.round, at.candidates
            weights = as_array(objective.weights(None if present.counts is None else read_counts(present.counts)))
            if candidates is None:
                V = required(present.components, "a Boolean V")
                sums = yield Request(SHARED_COUNTS, components=V, weights=weights, all_clients=True)
                number += 1
                merged = merge_pairs(V, sums["shared"], most=merges)
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
            found, shorter = stack.solution(place, objective, before=at.solution), lengths[place] <= at.length
            useless = bits_saved(found, n_rows=n_rows).min() < 0
            at = Shortest(
                solution=found if shorter else at.solution,
                present=found,
                candidates=without_least_useful(found, n_rows=n_rows, most=1) if useless and size > 1 else None,
                round=number,
                n_rows=n_rows,
                length=lengths[place] if shorter else at.length,
                failures=0 if shorter else at.failures + 1,
            )
            if size == 1 or at.failures >= patience:
                break
    return at.solution


def bits_saved(present: Solution, *, n_rows: int) -> NDArray[np.float64]:
    """Return the bits each component saves; a wrong cell costs the logarithm of the odds that a cell is right."""
    V, supports, exclusive = (
        required(value, "measured components") for value in (present.components, present.supports, present.exclusive)
    )
    counts = read_counts(present.counts)
    share = min(max((counts.fp + counts.fn) / max(counts.cells, 1), LEAST_WRONG), MOST_WRONG)
    bits = component_bits(V, supports, n_rows=n_rows)
    # A component of no record costs nothing, but is one too many.
    return np.where(supports > 0, exclusive * log2((1 - share) / share) - bits, -np.inf)


def without_least_useful(present: Solution, *, n_rows: int, most: int) -> NDArray[np.bool_]:
    """Return the present components without each of the least useful ones."""
    V = required(present.components, "a Boolean V")
    order = np.argsort(bits_saved(present, n_rows=n_rows), kind="stable")
    return np.array([np.delete(V, place, axis=0) for place in order[:most]])
