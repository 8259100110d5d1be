"""Algorithms around others: refinement of Boolean components, uploads under a privacy specification."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.federated.protocol import Request, Sums, Update
from felb.federated.steps.assignment import (
    ASSIGN,
    assign_task,
    make_empty_assignment,
    play_until_assignment,
    request_exact_assignment,
)
from felb.federated.steps.refine import FLIP_GAINS, REFINE_ROUNDS, refine
from felb.federated.steps.state import Solution, required, step
from felb.federated.tasks import TaskSpec, Work, declare
from felb.privacy.accounting import UPLOADS
from felb.privacy.mechanisms import require_sampler
from felb.privacy.releases import ClippedGaussian, RandomizedResponse

if TYPE_CHECKING:
    from felb.federated.protocol import Algorithm, Outcome, Server
    from felb.privacy.spec import PrivacyPlan


# -- Any algorithm, with its Boolean components refined before rows are assigned -------------------------------------
#
# The algorithm is played until it would assign. From the components it has found, entries are flipped by what all
# clients together would gain (see `felb.federated.steps.refine`), and every client then has the best assignment of its
# rows to the result. With everybody in every round, the summed loss is never larger than that of the algorithm alone:
# refinement measures the algorithm's own components first and keeps the best it has measured.

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
        found = yield from play_until_assignment(algorithm.server(seed))
        start = Solution(components=found.components)
        solution = yield from step("refine", refine(start, rounds=rounds, memory=memory, seed=seed))
        components, weights = solution.boolean(), required(solution.weights, "weights of cells")
        better = yield from request_exact_assignment(components, weights, node_cap=node_cap)
        return replace(
            found,
            components=components,
            n_iter=better.n_iter,
            counts=better.counts,
            supports=better.supports,
            weights=better.weights,
            belief=None,
        )

    tasks = {**algorithm.tasks, **declare(FLIP_GAINS, assign_task(algorithm.state_type, exactly=True))}
    limits = replace(algorithm.limits, node_cap=node_cap)
    name = f"{algorithm.name}, refined"
    return replace(algorithm, name=name, tasks=tasks, server=server, limits=limits, interruptible=False)


# -- An algorithm that uploads components under a privacy specification: only V leaves, with noise -------------------
#
# Any algorithm whose clients upload V and then report their assignment can be played so. Losses, time that ran out and
# counts stay at the clients; the server sees the sum of noisy V only. What it makes of that, including when to stop,
# costs nothing more, as long as there are no more uploads than planned.

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
        name: silence(spec) if spec.assigns else _uploading(spec, boolean=plan.uploads.boolean)
        for name, spec in algorithm.tasks.items()
    }
    return replace(
        algorithm,
        name=f"{algorithm.name}, {plan.privacy.mechanism}",
        tasks=tasks,
        server=lambda seed: play_on_uploads(algorithm.server(seed), plan),
        privacy=plan,
    )


def _uploading(spec: TaskSpec, *, boolean: bool) -> TaskSpec:
    """Return the task that releases only V."""

    def upload(work: Work) -> tuple[Any, Update]:
        new, update = spec.do(work)
        V = np.asarray(update.values[UPLOADS])
        return new, Update({UPLOADS: V.astype(bool) if boolean else V})

    V = replace(spec.outputs[UPLOADS], kind="b" if boolean else "f", made_of=None, axes=None)
    meaning = "the client's own components, with noise"
    return replace(spec, do=upload, meaning=meaning, outputs={UPLOADS: V}, relations=None)


def silence(spec: TaskSpec) -> TaskSpec:
    """Return the task that releases nothing."""

    def do_silently(work: Work) -> tuple[Any, Update]:
        new, _ = spec.do(work)
        return new, Update({})

    return replace(spec, do=do_silently, meaning="nothing", outputs={}, relations=None)


def play_on_uploads(server: Server, plan: PrivacyPlan) -> Server:
    """Play a server that is told V only; where bits were flipped at a known rate, the sum that they let expect."""
    mechanism, value = plan.upload_mechanism(), None
    try:
        while True:
            asked = server.send(value)
            value = yield asked
            if not isinstance(asked, Request):
                continue
            if asked.task == ASSIGN:
                value = make_empty_assignment(len(asked.values["components"]), number=value.round)
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
