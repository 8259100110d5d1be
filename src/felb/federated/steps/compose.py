"""Composition of steps: a named step, the best of several, one whose rounds report for another."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from felb.federated.protocol import Checkpoint, Request, Step, Sums, TimeUp
from felb.federated.steps.known import Known, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    import numpy as np
    from numpy.typing import NDArray


def step(name: str, generator: Steps, *, interruptible: bool = False) -> Steps:
    """Play a step; the journal keeps its result."""
    known: Known = yield Step(name, generator, Known, interruptible)
    return known


def best_of(first: Steps, *others: Steps) -> Steps:
    """Play steps that start from the same knowledge and return the result with the smallest objective."""
    return (yield from better_of((yield from first), *others))


def better_of(best: Known, *others: Steps, better: Callable[[Known, Known], Known] | None = None) -> Steps:
    """Play steps and return the best of their results and of what is known already.

    Parameters
    ----------
    better : chooses between the best so far and another one; that with the smaller objective, if not given
    """
    choose = better or smaller_objective
    for other in others:
        try:
            best = choose(best, (yield from other))
        except TimeUp as up:
            up.found = best if up.found is None else choose(best, up.found)
            raise
    return best


def all_of(*steps: Steps) -> Generator[Request | Step | Checkpoint, Any, list[Known]]:
    """Play steps that start from the same knowledge and return all results; a time limit ends with the best so far."""
    found: list[Known] = []
    for one in steps:
        try:
            found.append((yield from one))
        except TimeUp as up:
            up.found = reduce(smaller_objective, [*found, *([] if up.found is None else [up.found])])
            raise
    return found


def smaller_objective(old: Known, new: Known) -> Known:
    """Return the knowledge with the smaller objective, the older of equals; the newer, if they are of other cells."""
    if new.value is None:
        return old
    better = old.value is None or new.value < old.value or not same_cells(old.counts, new.counts)
    return new if better else old


def same_cells(old: NDArray[np.int64] | None, new: NDArray[np.int64] | None) -> bool:
    """Tell whether two counts are of the same cells: where a client has come in meanwhile, they cannot be compared."""
    return old is None or new is None or bool(old[3] == new[3])


def reporting(
    generator: Generator[Request, Sums, Known], metrics: Callable[[], Mapping[str, float]]
) -> Generator[Request, Sums, Known]:
    """Play a step whose rounds report metrics of its caller in place of their own."""
    value: Any = None
    try:
        while True:
            sums = yield generator.send(value)
            sums.report_at_end(metrics)
            value = Sums(sums, sums.clients, missing=sums.missing, number=sums.round)
    except StopIteration as end:
        known: Known = end.value
        return known
