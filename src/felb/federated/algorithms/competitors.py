"""Competitors of FELB: federated NMF, and three federated optimisers of the objective of FELB.

Each is a short chain of steps. The optimisers start from the random V that the server draws and are cut at ½ in the
end, as FELB is; all assign rows to the Boolean components by branch and bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from felb.federated.algorithms.refined import NODE_CAP
from felb.federated.protocol import Algorithm, TimeUp
from felb.federated.steps.assignment import ASSIGN, assign_exactly_task, assigned_exactly
from felb.federated.steps.compose import step
from felb.federated.steps.fedprox import FEDPROX, fedprox_steps, fedprox_task
from felb.federated.steps.init import INIT_TASKS, random_init, spectral_init
from felb.federated.steps.known import ClientState
from felb.federated.steps.local_steps import Schedule
from felb.federated.steps.nmf import FACTOR_STATISTICS, check_memory, factor_statistics_task, nmf
from felb.federated.steps.proxskip import PROXSKIP, proxskip_steps, proxskip_task
from felb.federated.steps.scaffold import SCAFFOLD, scaffold_steps, scaffold_task
from felb.federated.steps.threshold_search import THRESHOLD_COUNTS, threshold_counts_task, threshold_search
from felb.optim.checks import check_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from felb.federated.protocol import Server, Task
    from felb.federated.steps.known import Known, Steps

NMF_TASKS: dict[str, Task] = {
    **INIT_TASKS,
    FACTOR_STATISTICS: factor_statistics_task,
    THRESHOLD_COUNTS: threshold_counts_task,
}


def fednmf(n_features: int, n_components: int, *, max_rounds: int = 50, memory: float = 0.0) -> Algorithm:
    """Federated NMF from summed statistics, thresholded once; `memory` as in `nmf`."""
    check_weights(max_iter=(max_rounds, 1))
    check_memory(memory)

    def search(seed: int) -> Steps:
        known = yield from step("spectral init", spectral_init(n_features, n_components, seed=seed))
        if known.exact:
            return known
        known = yield from step("nmf", nmf(known, max_rounds, memory=memory))
        return (yield from threshold_search(known))

    return _algorithm("fednmf", NMF_TASKS, search)


def fedprox(n_features: int, n_components: int, *, gamma: float = 0.3, **schedule: float) -> Algorithm:
    """FedProx: a pull towards the shared V, plain averages; `schedule` as in `Schedule`."""
    check_weights(proximity=(gamma, 0))

    def search(start: Known, schedule: Schedule, seed: int) -> Steps:  # noqa: ARG001
        return fedprox_steps(start, schedule, gamma=gamma)

    return _optimiser(FEDPROX, fedprox_task, search, (n_features, n_components), schedule)


def scaffold(n_features: int, n_components: int, **schedule: float) -> Algorithm:
    """SCAFFOLD: control variates; `schedule` as in `Schedule`."""

    def search(start: Known, schedule: Schedule, seed: int) -> Steps:  # noqa: ARG001
        return scaffold_steps(start, schedule)

    return _optimiser(SCAFFOLD, scaffold_task, search, (n_features, n_components), schedule)


def proxskip(n_features: int, n_components: int, **schedule: float) -> Algorithm:
    """ProxSkip: control variates, and the prox of R once a round; `schedule` as in `Schedule`."""

    def search(start: Known, schedule: Schedule, seed: int) -> Steps:
        return proxskip_steps(start, schedule, seed=seed)

    return _optimiser(PROXSKIP, proxskip_task, search, (n_features, n_components), schedule)


def _optimiser(
    name: str,
    task: Task,
    search: Callable[[Known, Schedule, int], Steps],
    shape: tuple[int, int],
    parameters: Mapping[str, Any],
) -> Algorithm:
    """Return the algorithm that searches from a random V on a schedule."""
    schedule = Schedule(**parameters)
    return _algorithm(name, {name: task}, lambda seed: search(random_init(*shape, seed=seed), schedule, seed))


def _algorithm(name: str, tasks: Mapping[str, Task], search: Callable[[int], Steps]) -> Algorithm:
    """Return the algorithm that searches, and then has everybody assign their rows."""

    def server(seed: int) -> Server:
        complete = True
        try:
            known = yield from step(name, search(seed), interruptible=True)
        except TimeUp as up:
            known, complete = up.found, False
        return (
            yield from assigned_exactly(
                known.boolean(),
                np.array([1.0, -1.0]) if known.weights is None else known.weights,
                node_cap=NODE_CAP,
                relaxed=known.relaxed,
                integrality_gap=known.gap,
                converged=known.settled and complete,
                complete=complete,
            )
        )

    all_tasks = {**tasks, ASSIGN: assign_exactly_task(ClientState)}
    return Algorithm(name, all_tasks, ClientState, server, interruptible=True)
