"""An algorithm that uploads components under a privacy specification: only V leaves, with noise.

Any algorithm whose clients upload V and then report their assignment can be played so. Losses, time that ran out and
counts stay at the clients; the server sees the sum of noisy V only. What it makes of that, including when to stop,
costs nothing more, as long as there are no more uploads than planned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.protocol import Request, Sums, Update
from felb.federated.steps.assignment import ASSIGN, nothing_assigned
from felb.privacy.discrete import require_sampler
from felb.privacy.names import UPLOADS
from felb.privacy.private_uploads import ClippedGaussian, RandomizedResponse

if TYPE_CHECKING:
    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Algorithm, Outcome, Server, Task
    from felb.privacy.plan import PrivacyPlan

UNTOLD = {"loss": np.asarray(np.nan), "unfinished": np.asarray(0)}
"""What stands in for the numbers that clients keep to themselves."""


def private_uploads(algorithm: Algorithm, plan: PrivacyPlan) -> Algorithm:
    """Return the algorithm with V as the only thing that leaves, by the mechanism of the plan.

    Parameters
    ----------
    algorithm : its clients upload V at most as often as the plan says, and its server has no steps
    plan : the specification, with its noise calibrated for these uploads
    """
    if plan.uploads is None:
        raise InputError(f"mechanism={plan.privacy.mechanism!r} releases sums over records; {algorithm.name} uploads V")
    mechanism = plan.upload_mechanism()
    if isinstance(mechanism, ClippedGaussian):
        require_sampler()
    tasks = {
        name: _silent(task) if name == ASSIGN else _uploading(task, boolean=plan.uploads.boolean)
        for name, task in algorithm.tasks.items()
    }
    return replace(
        algorithm,
        name=f"{algorithm.name}, {plan.privacy.mechanism}",
        tasks=tasks,
        server=lambda seed: told_only_uploads(algorithm.server(seed), plan),
        privacy=plan,
    )


def _uploading(task: Task, *, boolean: bool) -> Task:
    """Return the task that releases only V."""

    def upload(state: Any, shard: BinaryMatrix, request: Request, rng: np.random.Generator) -> tuple[Any, Update]:
        new, update = task(state, shard, request, rng)
        V = np.asarray(update.values[UPLOADS])
        return new, Update({UPLOADS: V.astype(bool) if boolean else V})

    return upload


def _silent(task: Task) -> Task:
    """Return the task that releases nothing."""

    def silent(state: Any, shard: BinaryMatrix, request: Request, rng: np.random.Generator) -> tuple[Any, Update]:
        new, _ = task(state, shard, request, rng)
        return new, Update({})

    return silent


def told_only_uploads(server: Server, plan: PrivacyPlan) -> Server:
    """Play a server that is told V only; where bits were flipped at a known rate, the sum that they let expect."""
    mechanism, value = plan.upload_mechanism(), None
    try:
        while True:
            asked = server.send(value)
            value = yield asked
            if not isinstance(asked, Request):
                continue
            if asked.task == ASSIGN:
                value = nothing_assigned(len(asked.values["components"]), number=value.round)
                continue
            plan.check_answers(value.clients)
            V, sums = np.asarray(value[UPLOADS]), value
            if isinstance(mechanism, RandomizedResponse):
                V = np.rint(mechanism.unbiased(V, sums.clients))
            value = Sums({UPLOADS: V, **UNTOLD}, sums.clients, number=sums.round)
            sums.report_at_end(_told(value))
    except StopIteration as end:
        outcome: Outcome = end.value
        return replace(outcome, counts=None, supports=None)


def _told(sums: Sums) -> Any:
    """Return the metrics that follow from V alone."""
    return lambda: {name: number for name, number in sums.metrics.items() if name not in UNTOLD}
