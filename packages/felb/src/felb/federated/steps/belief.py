"""Belief propagation: recover planted components under heavy or one-sided noise.

The shared state is a `felb.optim.belief.Belief`, the log-odds Θ of V with a model of the noise; what clients believe of
their own rows never leaves them. A round is one k × m sum and a few scalars. When Θ has settled, every row is inferred
once more for the Θ that is final, V = [Θ > 0], and U = [σ(L) > τ] with the τ of the largest expected F1. The last rows
depend on the belief and on their own data only: clients that missed rounds and new records are treated as all others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from felb.errors import InputError
from felb.federated.protocol import Checkpoint, Request, Update
from felb.federated.steps.assignment import read_counts, tell_assignment
from felb.federated.steps.relaxed import round_grid
from felb.federated.steps.state import ClientState, Solution, as_array, best_so_far, required
from felb.federated.tasks import (
    CELLS,
    COUNT_OF_ROWS,
    COUNTS,
    LARGEST,
    MOST,
    SUPPORTS,
    TINY,
    Bounds,
    Input,
    Output,
    TaskSpec,
    Work,
    check_counts,
    require,
)
from felb.kernels.belief import LARGEST_LOG_ODDS, UNIT
from felb.kernels.boolean import overlap_grid
from felb.kernels.schedule import sample_rows
from felb.optim.belief import (
    MAX_ROUNDS,
    THRESHOLDS,
    Belief,
    assign_new_rows,
    best_threshold,
    combine,
    count_thresholds,
    decide_rows,
    first_rows,
    infer,
    infer_new_rows,
)
from felb.privacy.disclosure import count_effectively, round_members

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Sums, Values
    from felb.federated.steps.state import Steps
    from felb.metrics import Counts
    from felb.optim.belief import Decision

MOST_ERRORS, MOST_ERRORS_FOR_F1, LEAST_GAIN = 1.05, 1.10, 1.25
"""A recovery is preferred to a fit if it has at most 1.05 times its errors, at most 1.10 times and no smaller F1, or at
least 1.25 times its F1."""

TRIAL_ROWS, TRIAL_ROUNDS = 1000, 6
"""About so many rows and rounds decide whether a recovery is worth its time."""

MOST_TRIAL_ERRORS, LEAST_TRIAL_GAIN = 1.15, 1.2
"""It is if on these rows it has at most 1.15 times the errors of the fit per one of the data, or 1.2 times its F1."""


def sum_belief_statistics(work: Work) -> tuple[ClientState, Update]:
    """What the rows say about V and the noise; their log-odds stay here."""
    belief, shard = Belief.from_values(work.values), work.rows
    # What an earlier step has left is of no use in a first round.
    before = None if work.state is None or belief.rounds == 0 else work.state.log_odds
    if "share" not in work.values:
        L, update = _tell_beliefs(work, shard, before, belief)
        return ClientState(log_odds=L), update
    rows = sample_rows(shard, float(work.values["share"]))
    kept = first_rows(len(shard), belief) if before is None else before.copy()
    kept[rows], update = _tell_beliefs(work, shard.take(rows), kept[rows], belief)
    return ClientState(log_odds=kept), update


def _tell_beliefs(
    work: Work, shard: BinaryMatrix, before: NDArray[np.float32] | None, belief: Belief
) -> tuple[NDArray[np.float32], Update]:
    """Return the log-odds of rows and what may be told of them.

    Under disclosure rules, the rows are inferred without the components that too few of them have. Of the others, an
    entry of V that few members have says nothing, and one that few of them lack is as good as certain.
    """
    L, sums = infer(shard, before, belief)
    if work.least == 1:
        return L, Update(sums)
    few = _count_members(L)[1] < work.least
    told, sums = infer(shard, before, without(belief, few)) if few.any() else (L, sums)
    shares, records = _count_members(told)
    largest = shares.max(axis=0, initial=0.0)
    ones = shard.to_scipy(np.float64).T @ shares
    unknown = 0.0 if shard.unknown is None else shard.unknown.to_scipy(np.float64).T @ shares
    having = count_effectively(ones, largest).T
    lacking = count_effectively(shares.sum(axis=0) - ones - unknown, largest).T
    certain = (lacking < work.least) & (sums["evidence"] > 0)
    sums["evidence"] = np.where(certain, int(LARGEST_LOG_ODDS / UNIT), sums["evidence"])
    made = np.where(few[:, None], 0, np.where(certain, records[:, None], np.where(lacking < work.least, 0, having)))
    cells = np.full(4, len(shard), dtype=np.int64)
    supports = {"evidence": made, "members": np.where(few, 0, records), "cells": cells, "rows": np.asarray(len(shard))}
    return L, Update(sums, supports=supports)


def _count_members(L: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return σ(L), and of how many rows the sum of each column is made."""
    shares = 1 / (1 + np.exp(-L.astype(np.float64)))
    return shares, count_effectively(shares.sum(axis=0), shares.max(axis=0, initial=0.0))


def without(belief: Belief, gone: NDArray[np.bool_]) -> Belief:
    """Return a belief in which some components have no features."""
    return replace(belief, theta=np.where(gone[:, None], -LARGEST_LOG_ODDS, belief.theta))


def count_belief_thresholds(work: Work) -> tuple[None, Update]:
    """What each threshold would cover: in truth as far as is believed (`count_thresholds`), and of ones and zeros."""
    belief, shard = Belief.from_values(work.values), work.rows
    if "share" in work.values:
        shard = shard.take(sample_rows(shard, float(work.values["share"])))
    L = infer_new_rows(shard, belief)
    if work.least > 1:
        L = np.where(_count_members(L)[1] < work.least, -LARGEST_LOG_ODDS, L).astype(np.float32)
    rows = [round_members(decide_rows(L, float(tau)), work.least) for tau in THRESHOLDS]
    told, supports = count_thresholds(L, belief), {}
    if work.least == 1:
        tp, claimed = overlap_grid(shard, rows, [belief.components])
    else:
        (tp, claimed), records = round_grid(replace(work, rows=shard), rows, [belief.components])
        supports = {"tp": records[0, :, 0], "fp": records[1, :, 0]}
        # Of a threshold at which a component has too few records, what is claimed is told without it.
        told |= {"claimed": claimed[:, 0], "expected": np.minimum(told["expected"], (claimed[:, 0] / UNIT).astype(int))}
        anybody = np.array([np.count_nonzero(row.any(axis=1)) for row in rows])
        supports |= {"claimed": anybody, "expected": anybody}
        supports |= dict.fromkeys(("covered", "members"), np.asarray(len(shard)))
    update = {
        **told,
        "tp": tp[:, 0],
        "fp": (claimed - tp)[:, 0],
        "ones": np.asarray(shard.nnz),
        "cells": np.asarray(shard.known_cells),
    }
    return None, Update(update, supports=supports)


def assign_by_belief(work: Work) -> tuple[ClientState, Update]:
    """Assign the rows by the belief, and count."""
    belief = Belief.from_values(work.values)
    U = assign_new_rows(work.rows, belief)
    return ClientState(assigned=U), tell_assignment(work, U, belief.components)


def _check_belief_thresholds(told: Values, values: Values, bounds: Bounds) -> None:  # noqa: ARG001
    require(told["tp"] <= told["ones"], "covered ones exceed the number of ones")
    require(told["tp"] + told["fp"] <= told["cells"], "covered cells exceed the number of cells")


_BELIEF = {
    "theta": Input("f", ("k", "m"), -LARGEST, LARGEST),
    "noise": Input("f", (2,), TINY, 1.0),
    "row_rates": Input("f", ("k",), TINY, 1.0),
    "column_rate": Input("f", (), TINY, 1.0),
    "rounds": Input("i", (), 0, MAX_ROUNDS),
    "threshold": Input("f", (), 0.0, 1.0, optional=True),
}
_SAMPLED = {**_BELIEF, "share": Input("f", (), TINY, 1.0, optional=True)}
_THRESHOLDS = (len(THRESHOLDS),)

BELIEF_STATISTICS = TaskSpec(
    "belief_statistics",
    "belief propagation",
    sum_belief_statistics,
    "what the rows, or a sample of them, say about V under a model of the noise",
    _SAMPLED,
    {
        "evidence": Output("i", ("k", "m"), low=-MOST, made_of="named"),
        "members": Output("i", ("k",), made_of="named"),
        "cells": Output("i", (4,), made_of="named"),
        # Of the sampled rows, where a share of them is asked for; so not the client's number of rows.
        "rows": replace(COUNT_OF_ROWS, made_of="named"),
    },
    by_rows=True,
)
BELIEF_THRESHOLD_COUNTS = TaskSpec(
    "belief_threshold_counts",
    "belief propagation",
    count_belief_thresholds,
    "right and wrong cells for each threshold of the belief",
    _SAMPLED,
    {
        "claimed": Output("i", _THRESHOLDS, made_of="named"),
        "expected": Output("i", _THRESHOLDS, made_of="named"),
        "covered": Output("i", made_of="named"),
        "members": Output("i", made_of="named"),
        "tp": Output("i", _THRESHOLDS, high="cells", made_of="named"),
        "fp": Output("i", _THRESHOLDS, high="cells", made_of="named"),
        "ones": CELLS,
        "cells": CELLS,
    },
    relations=_check_belief_thresholds,
    by_rows=True,
)
ASSIGN_BY_BELIEF = TaskSpec(
    "assign_by_belief",
    "assignment",
    assign_by_belief,
    "right and wrong cells, and how many records have each component, for rows assigned by a model of the noise",
    _BELIEF,
    {"counts": COUNTS, "supports": SUPPORTS},
    relations=check_counts,
    by_rows=True,
    assigns=True,
)


def propagate_beliefs(solution: Solution, rounds: int = MAX_ROUNDS) -> Steps:
    """Propagate beliefs until V has converged. All clients take part, because V is computed from a sum over all rows.

    Parameters
    ----------
    solution : with the belief that the threshold search leaves
    rounds : rounds of inference at most
    """
    if rounds < 1:
        raise InputError(f"belief propagation needs at least one round, got rounds={rounds}")
    belief: Belief = required(solution.belief, "a belief to start from")
    with best_so_far(lambda: make_believed(solution, belief)):
        while not belief.converged and belief.rounds < rounds:
            belief = yield Checkpoint(belief)
            sums = yield Request(BELIEF_STATISTICS, **belief.to_values(), all_clients=True)
            belief = combine(belief, sums)
            sums.report(change=belief.change, inside=belief.inside, outside=belief.outside)
        sums = yield Request(BELIEF_THRESHOLD_COUNTS, **belief.to_values(), all_clients=True)
    decision, counts = _decide(sums)
    sums.report(expected_f1=decision.expected_f1, **read_counts(counts).scores())
    if not decision.recoverable:
        return Solution(relaxed=solution.relaxed, components=np.zeros(belief.theta.shape, dtype=bool))
    return make_believed(solution, replace(belief, threshold=decision.threshold), counts)


def _decide(sums: Sums) -> tuple[Decision, NDArray[np.int64]]:
    """Return the threshold with the largest expected F1, and its counts."""
    decision = best_threshold(sums)
    at = int(np.flatnonzero(decision.threshold == THRESHOLDS)[0])
    tp, fp, ones = (int(x) for x in (sums["tp"][at], sums["fp"][at], sums["ones"]))
    return decision, np.array([tp, fp, ones - tp, int(sums["cells"])])


def recover_if_it_may_pay(solution: Solution, fitted: Solution, *, rounds: int, most_work: int) -> Steps:
    """Propagate beliefs as far as a trial on a sample of the rows says that it could be preferred to a fit.

    Parameters
    ----------
    solution : with the belief that the threshold search leaves
    fitted : what a recovery must be preferred to, see `choose_recovery_or_fit`
    rounds : rounds of inference at most
    most_work : do nothing where there are more than this many rows × features × components
    """
    belief: Belief = required(solution.belief, "a belief to start from")
    cells = read_counts(solution.counts).cells
    if cells * len(belief.theta) > most_work:
        return make_believed(solution, belief)
    share = min(1.0, TRIAL_ROWS * belief.theta.shape[1] / max(1, cells))
    with best_so_far(lambda: make_believed(solution, belief)):
        tried = belief
        for _ in range(TRIAL_ROUNDS):
            sums = yield Request(BELIEF_STATISTICS, **tried.to_values(), share=share, all_clients=True)
            tried = combine(tried, sums)
            sums.report(change=tried.change)
        sums = yield Request(BELIEF_THRESHOLD_COUNTS, **tried.to_values(), share=share, all_clients=True)
    _, counts = _decide(sums)
    sums.report(**read_counts(counts).scores())
    if not may_pay(read_counts(counts), read_counts(fitted.counts)):
        return make_believed(solution, belief)
    return (yield from propagate_beliefs(solution, rounds))


def may_pay(tried: Counts, fitted: Counts) -> bool:
    """Tell whether a recovery of some rows is close to the fit of all: in errors per one of the data, or in F1.

    One that covers no ones has found nothing; of very sparse data, that alone is close.
    """
    if tried.tp == 0:
        return False
    errors, least = tried.errors * (fitted.tp + fitted.fn), fitted.errors * (tried.tp + tried.fn)
    return errors <= MOST_TRIAL_ERRORS * least or tried.f1 >= LEAST_TRIAL_GAIN * fitted.f1


def make_believed(solution: Solution, belief: Belief, counts: NDArray[np.int64] | None = None) -> Solution:
    """Return V as it is believed, with its counts once they are known."""
    return Solution(
        relaxed=solution.relaxed,
        components=belief.components,
        counts=counts,
        value=None if counts is None else float(read_counts(counts).errors),
        weights=as_array(belief.weights),
        settled=belief.converged,
        belief=belief,
    )


def choose_recovery_or_fit(fitted: Solution, recovered: Solution) -> Solution:
    """Choose between the fit with the fewest errors and a recovery, by their summed counts.

    Under noise the truth itself has more errors than the best fit, but not many more; a recovery that has is of data
    that is not as the model of the noise says.
    """
    if recovered.counts is None:
        return fitted
    old, new = read_counts(fitted.counts), read_counts(recovered.counts)
    close = new.errors <= (MOST_ERRORS if new.f1 < old.f1 else MOST_ERRORS_FOR_F1) * old.errors
    return recovered if close or new.f1 >= LEAST_GAIN * old.f1 else fitted
