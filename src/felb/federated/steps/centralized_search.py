"""Local search without a federation: the owner of all rows perturbs and refines many V within one task.

Compared with `local_search`, patterns may come from rows, and V is improved like U is, by coordinate descent on its
columns with U held, since nobody else's rows count. A client of a federation does not know this task.
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
from felb.kernels.assign import assign_rows, descend_rows
from felb.metrics import confusion
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.federated.steps.known import Steps


CENTRALIZED_SEARCH = "centralized_search"

FROM_ROWS, WHOLE_ROW = 0.5, 0.3
"""Chances that a pattern comes from rows, and that it then is one row, not the intersection of two."""


def centralized_search_task(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    request: Request,
    rng: np.random.Generator,
) -> tuple[None, Update]:
    """Return the best V after some proposals, each made from the best one before, and its counts."""
    V, public = (np.asarray(request.values[name], dtype=bool) for name in ("components", "patterns"))
    proposals, rounds = (int(request.values[name]) for name in ("proposals", "rounds"))
    one, zero = (float(weight) for weight in request.values["weights"])
    turned = _turned(shard)
    if shard.unknown is not None:
        turned = turned.with_unknown(_turned(shard.unknown))
    least, U = np.inf, assign_rows(shard, V, weight_one=one, weight_zero=zero)
    if len(V):
        for proposal in range(proposals + 1):
            new = V if proposal == 0 else perturbed(shard, V, public, flips=float(request.values["flips"]), rng=rng)
            found = _descend(shard, turned, new, weights=(one, zero), rounds=rounds)
            if found[0] <= least:
                least, U, V = found
    update = assignment_counts(shard, U, V)
    return None, Update({**update, "components": V.astype(np.int64)})


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
) -> tuple[float, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the cost, U and V after coordinate descent on both in turn, until the cost does not fall."""
    worth: dict[str, Any] = {"weight_one": weights[0], "weight_zero": weights[1]}
    U = assign_rows(A, V, **worth)
    cost = np.inf
    for _ in range(rounds):
        V = np.ascontiguousarray(descend_rows(turned, U.T, V.T, **worth).T)
        U = descend_rows(A, V, U, **worth)
        counts = confusion(A, U, V)
        last, cost = cost, weights[0] * counts.fn - weights[1] * counts.fp
        if cost >= last:
            break
    return cost, U, V


@dataclass(frozen=True, slots=True)
class Searched:
    """The best so far and the proposals that were made."""

    known: Known = field(metadata=holding(Known))
    made: int = 0


def centralized_search(
    known: Known,
    objective: Objective | None = None,
    *,
    proposals: int = 20_000,
    work: float = 1e8,
    least: int = 32,
    rounds: int = 8,
    batch: int = 100,
    flips: float = 0.02,
) -> Steps:
    """Let the owner of all rows search from a V with its counts.

    Parameters
    ----------
    known : components with counts, and patterns of columns
    objective : what to minimise; the Hamming loss if None
    proposals : how many are refined at most
    work : stop also when the ones of all rows, times the proposals, exceed this; bounds the time on large data
    least : proposals that are made whatever the work
    rounds : rounds of descent on V and U for a proposal
    batch : proposals within a task; a time limit is looked at between tasks
    flips : share of entries flipped in a proposal
    """
    objective = objective or Cost()
    check_weights(proposals=(proposals, 0), work=(work, 0), least=(least, 0), rounds=(rounds, 1), batch=(batch, 1))
    check_flips(flips)
    required(known.components, "a Boolean V")
    patterns = required(known.patterns, "patterns of columns")
    counts = read_counts(required(known.counts, "the counts of a V"))
    limit = min(proposals, max(least, int(work / max(counts.tp + counts.fn, 1))))
    at = Searched(known)
    with best_so_far(lambda: at.known):
        while at.made < limit:
            at = yield Checkpoint(at)
            made = min(batch, limit - at.made)
            sums = yield Request(
                CENTRALIZED_SEARCH,
                components=required(at.known.components, "a Boolean V"),
                patterns=patterns,
                weights=as_array(objective.weights(read_counts(at.known.counts))),
                proposals=made,
                rounds=rounds,
                flips=flips,
                all_clients=True,
            )
            if sums.clients != 1:
                raise FederationError("this search is for one owner of all rows; use local_search in a federation")
            value, least_value = objective.value(read_counts(sums["counts"])), at.known.value
            best = at.known
            if least_value is None or value <= least_value:
                best = replace(
                    best,
                    components=np.asarray(sums["components"], dtype=bool),
                    counts=sums["counts"],
                    supports=sums["supports"],
                    exclusive=None,
                    value=value,
                    weights=as_array(objective.weights(read_counts(sums["counts"]))),
                    settled=False,
                )
            at = Searched(best, at.made + made)
            sums.report(loss=float(np.nan if best.value is None else best.value), proposals=at.made)
    return at.known
