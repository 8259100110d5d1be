"""A client: what becomes of a request, the same object in a simulation, on a Dask worker and at a site.

In this order: the request is checked against the declarations of the algorithm; the tasks are done; the update passes
the gate, which adds noise, charges, logs and keeps. What was released for a request before is released again: the tasks
give the same states, and the gate finds the response that it has kept. A request that a deployed site would refuse is
refused in a simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from felb.federated.protocol import CLIENT_STREAM, NOISE_STREAM, Release, Update, random_stream
from felb.federated.tasks import TaskSpec, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.gate import Gate
    from felb.federated.protocol import Algorithm, Request
    from felb.federated.tasks import Expected

    States = Mapping[str, Any]
    """The private state of a client in each lane."""
    DoTask = Callable[[TaskSpec, Work], tuple[Any, Update]]
    """Does a task, perhaps in parts of the rows."""


def do_task(spec: TaskSpec, work: Work) -> tuple[Any, Update]:
    """Do a task on all rows at once."""
    return spec.do(work)


def compute_update(
    algorithm: Algorithm,
    states: States | None,
    rows: BinaryMatrix,
    request: Request,
    *,
    name: str,
    seed: int,
    do: DoTask = do_task,
    least: int = 1,
) -> tuple[dict[str, Any], Update]:
    """Do the tasks of a request that was checked; same inputs, same outputs, everywhere.

    Parameters
    ----------
    algorithm : declares the tasks
    states : of the client, by lane; a lane that is not asked for any more is forgotten
    rows : of the client
    request : one or more parts
    name, seed : of the client and of the run, from which its randomness follows
    do : how a task is done
    least : records that must make a number if it is to leave

    Returns
    -------
    The states after the request, and the update, which has not passed a gate yet.
    """
    after: dict[str, Any] = {}
    updates = []
    for part in request.parts:
        rng = random_stream(seed, CLIENT_STREAM, request.round, part.qualify(name))
        work = Work((states or {}).get(part.lane), rows, part.values, rng, least)
        after[part.lane], update = do(algorithm.tasks[part.task], work)
        updates.append((part, update))
    return after, Update.of_parts(updates, n_records=len(rows))


@dataclass(frozen=True, slots=True)
class Client:
    """One holder of rows in one run.

    Parameters
    ----------
    name : of the client
    algorithm : declares the tasks
    gate : its exit
    seed : of the run
    noise : randomness of the gate; None for a stream of the run's seed, as in a simulation
    do : how a task is done
    """

    name: str
    algorithm: Algorithm
    gate: Gate
    seed: int
    noise: np.random.Generator | None = None
    do: DoTask = do_task

    def answer(
        self, states: States | None, rows: BinaryMatrix, request: Request, *, expected: Expected | None = None
    ) -> tuple[States, Release]:
        """Return the states after a request, and what leaves; what was released before is released again.

        Parameters
        ----------
        states, rows : of the client
        request : what is asked
        expected : what `Algorithm.check_request` returned, where clients that share a process get a request that was
            checked for all of them
        """
        expected = self.algorithm.check_request(request) if expected is None else expected
        after, update = compute_update(
            self.algorithm, states, rows, request, name=self.name, seed=self.seed, do=self.do, least=self.gate.least
        )
        return after, self.release(update, request, expected, states=after)

    def release(self, update: Update, request: Request, expected: Expected, *, states: States | None = None) -> Release:
        """Let an update pass the gate; the states after it are kept with the response."""
        noise = self.noise
        if noise is None:
            noise = random_stream(self.seed, NOISE_STREAM, request.round, self.name)
        return self.gate.release(update, request, expected, rng=noise, states=states)


def read_assignment(states: States | None) -> NDArray[np.bool_] | None:
    """Return the client's assignment, if its last task made one."""
    found = [state.assigned for state in (states or {}).values() if state is not None and state.assigned is not None]
    return found[-1] if found else None
