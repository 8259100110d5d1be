"""Belief propagation: recover planted components under heavy or one-sided noise.

The shared state is a `felb.optim.belief.Belief`, the log-odds Θ of V with a model of the noise; what clients believe of
their own rows never leaves them. A round is one k × m sum and a few scalars. When Θ has settled, every row is inferred
once more for the Θ that is final, V = [Θ > 0], and U = [σ(L) > τ] with the τ of the largest expected F1. The last rows
depend on the belief and on their own data only: clients that missed rounds and new records are treated as all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.messages import Broadcast, Update
from felb.federated.phases.base import ClientState, Known, required
from felb.federated.phases.objective import as_array
from felb.federated.recipes.assignment import assignment_counts, summed_counts
from felb.federated.state import holding
from felb.linalg.product import overlap_grid
from felb.optim.belief import (
    MAX_ROUNDS,
    THRESHOLDS,
    Belief,
    assign_new_rows,
    best_threshold,
    combine,
    count_thresholds,
    decide_rows,
    infer,
    infer_new_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from felb.federated.client import Task
    from felb.linalg.binary import BinaryMatrix

INFER, JUDGE, DECIDE = "infer", "judge", "decide"

MOST_ERRORS, MOST_ERRORS_FOR_F1, LEAST_GAIN = 1.05, 1.10, 1.25
"""A recovery is preferred to a fit if it has at most 1.05 times its errors, at most 1.10 times and no smaller F1, or at
least 1.25 times its F1."""


def infer_task(
    state: ClientState | None,
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """What the rows say about V and the noise; their log-odds stay here."""
    belief = Belief.from_values(broadcast.values)
    # What an earlier phase or run has left is of no use in a first round.
    before = None if state is None or belief.rounds == 0 else state.log_odds
    L, sums = infer(shard, before, belief)
    return ClientState(broadcast.round, log_odds=L), Update(sums)


def judge_task(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """What each threshold would cover: in truth as far as is believed (`count_thresholds`), and of ones and zeros."""
    belief = Belief.from_values(broadcast.values)
    L = infer_new_rows(shard, belief)
    tp, known = overlap_grid(shard, [decide_rows(L, float(tau)) for tau in THRESHOLDS], [belief.components])
    update = {
        **count_thresholds(L, belief),
        "tp": tp[:, 0],
        "fp": (known - tp)[:, 0],
        "ones": np.asarray(shard.nnz),
        "cells": np.asarray(shard.known_cells),
    }
    return ClientState(broadcast.round), Update(update)


def decide_task(
    state: ClientState | None,  # noqa: ARG001
    shard: BinaryMatrix,
    broadcast: Broadcast,
    rng: np.random.Generator,  # noqa: ARG001
) -> tuple[ClientState, Update]:
    """Assign the rows as the belief tells, and count."""
    belief = Belief.from_values(broadcast.values)
    U = assign_new_rows(shard, belief)
    return ClientState(broadcast.round, assigned=U), Update(assignment_counts(shard, U, belief.components))


@dataclass(frozen=True, slots=True)
class PropagationState:
    """The belief, and once all is over what it explains."""

    round: int
    known: Known = field(metadata=holding(Known))
    belief: Belief = field(metadata=holding(Belief))
    counts: NDArray[np.int64] | None = None
    expected_f1: float = np.nan
    recoverable: bool = True
    over: bool = False


@dataclass(frozen=True, slots=True)
class Propagation:
    """Propagate beliefs until V has settled; everybody is asked, because V is learnt from a sum over all rows.

    Parameters
    ----------
    rounds : rounds of inference at most
    most_work : do nothing where there are more than this many rows × features × components; None for no limit
    """

    rounds: int = MAX_ROUNDS
    most_work: int | None = None
    name: str = "propagation"
    state_type: type[Any] = PropagationState

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"belief propagation needs at least one round, got {self.rounds}")

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Rounds of inference, the judgement of thresholds, and the final assignment."""
        return {INFER: infer_task, JUDGE: judge_task, DECIDE: decide_task}

    def start(self, known: Known, seed: int) -> PropagationState:  # noqa: ARG002
        """Start from the belief that the thresholds leave."""
        belief: Belief = required(known.belief, "a belief to start from")
        work = summed_counts(known.counts).cells * len(belief.theta)
        return PropagationState(0, known, belief, over=self.most_work is not None and work > self.most_work)

    def broadcast(self, state: PropagationState) -> Broadcast | None:
        """Ask for a round of inference; when the belief is finished, how good each threshold would be."""
        if state.over:
            return None
        task = JUDGE if self._finished(state) else INFER
        return Broadcast(task, state.round, state.belief.to_values(), everyone=True)

    def combine(self, total: Mapping[str, NDArray[Any]], n_clients: int, state: PropagationState) -> PropagationState:  # noqa: ARG002
        """Learn V and the noise, or choose the threshold."""
        finished, state = self._finished(state), replace(state, round=state.round + 1)
        if not finished:
            return replace(state, belief=combine(state.belief, total))
        decision = best_threshold(total)
        at = int(np.flatnonzero(decision.threshold == THRESHOLDS)[0])
        tp, fp, ones = (int(x) for x in (total["tp"][at], total["fp"][at], total["ones"]))
        return replace(
            state,
            belief=replace(state.belief, threshold=decision.threshold),
            counts=np.array([tp, fp, ones - tp, int(total["cells"])]),
            expected_f1=decision.expected_f1,
            recoverable=decision.recoverable,
            over=True,
        )

    def _finished(self, state: PropagationState) -> bool:
        return state.belief.converged or state.belief.rounds >= self.rounds

    def record(self, state: PropagationState) -> Mapping[str, float]:
        """Return how much V has changed and the noise that is believed in; in the end, the F1* to expect."""
        if state.counts is not None:
            return {"expected_f1": state.expected_f1, **summed_counts(state.counts).scores()}
        return {"change": state.belief.change, "inside": state.belief.inside, "outside": state.belief.outside}

    def result(self, state: PropagationState) -> Known:
        """Return V and the belief; empty components where there is no recoverable structure."""
        belief, known = state.belief, state.known
        if not state.recoverable:
            return Known(relaxed=known.relaxed, components=np.zeros(belief.theta.shape, dtype=bool))
        return Known(
            relaxed=known.relaxed,
            components=belief.components,
            counts=state.counts,
            value=None if state.counts is None else float(summed_counts(state.counts).errors),
            weights=as_array(belief.weights),
            settled=belief.converged,
            belief=belief,
        )


def recovered_or_fitted(fitted: Known | None, recovered: Known) -> Known:
    """Choose between the fit with the fewest errors and a recovery, by their summed counts.

    Under noise the truth itself has more errors than the best fit, but not many more; a recovery that has is of data
    that is not as the model of the noise says.
    """
    if fitted is None:
        return recovered
    if recovered.counts is None:
        return fitted
    old, new = summed_counts(fitted.counts), summed_counts(recovered.counts)
    close = new.errors <= (MOST_ERRORS if new.f1 < old.f1 else MOST_ERRORS_FOR_F1) * old.errors
    return recovered if close or new.f1 >= LEAST_GAIN * old.f1 else fitted
