"""Any algorithm, with its Boolean components refined before rows are assigned.

The algorithm is played until it would assign. From the components it has found, entries are flipped by what all clients
together would gain (see `felb.federated.steps.refine`), and every client then has the best assignment of its rows to
the result. With everybody in every round, the summed loss is never larger than that of the algorithm alone: refinement
measures the algorithm's own components first and keeps the best it has measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from felb.federated.steps.assignment import ASSIGN, assign_exactly_task, assigned_exactly, before_assignment
from felb.federated.steps.compose import step
from felb.federated.steps.known import Known, required
from felb.federated.steps.refine import FLIP_GAINS, REFINE_ROUNDS, flip_gains_task, refine

if TYPE_CHECKING:
    from felb.federated.protocol import Algorithm, Server

NODE_CAP = 1_000
"""Limit of the search for the best assignment of a row."""


def refined(
    algorithm: Algorithm, *, rounds: int = REFINE_ROUNDS, memory: float = 0.0, node_cap: int = NODE_CAP
) -> Algorithm:
    """Return the algorithm that refines what another one finds, for the fewest wrong cells of all clients.

    Parameters
    ----------
    algorithm : the one that finds components
    rounds, memory : of the refinement
    node_cap : limit of the search for the best assignment of a row
    """

    def server(seed: int) -> Server:
        found = yield from before_assignment(algorithm.server(seed))
        start = Known(components=found.components)
        known = yield from step("refine", refine(start, rounds=rounds, memory=memory, seed=seed))
        components, weights = known.boolean(), required(known.weights, "weights of cells")
        better = yield from assigned_exactly(components, weights, node_cap=node_cap)
        return replace(
            found,
            components=components,
            n_iter=better.n_iter,
            counts=better.counts,
            supports=better.supports,
            weights=better.weights,
            belief=None,
        )

    tasks = {**algorithm.tasks, FLIP_GAINS: flip_gains_task, ASSIGN: assign_exactly_task(algorithm.state_type)}
    return replace(algorithm, name=f"{algorithm.name}, refined", tasks=tasks, server=server, interruptible=False)
