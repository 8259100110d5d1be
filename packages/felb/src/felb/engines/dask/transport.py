"""The transport over Dask: a client is a block of rows on some worker of a cluster.

Blocks and states stay on the workers. A round is one graph of tasks: the request, a response of each block, sums of
eight at a time up to one, which comes back. All tasks are pure and seeded, so what a dead worker held is computed again
by their lineage, bit for bit. Every few rounds states are written to disk, and lineage begins anew there.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from felb.engines.dask import worker as tasks
from felb.engines.dask.worker import failures_explained, gathered
from felb.errors import FederationError
from felb.federated.client import Client as TaskClient
from felb.federated.gate import Gate
from felb.federated.protocol import ClientStates, Participation, Sums
from felb.federated.tasks import ResponseValidator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from distributed import Client, Future
    from numpy.typing import NDArray

    from felb.engines.dask.worker import StateFolder
    from felb.federated.protocol import Algorithm, Release, Request, Server, Update

FAN_IN = 8
"""Sums that are added by one task; a power of two, as the order of `add_in_pairs` asks for."""

PERSIST_EVERY = 10
"""Rounds between two times that states are written to disk."""


class DaskWorkers:
    """Clients that are blocks of rows on Dask workers.

    Parameters
    ----------
    algorithm : knows the tasks
    blocks : rows of each client by its name, as futures
    client : of the cluster
    seed : fixes the sampling of clients and every client's own randomness
    gates : None for a gate at each block, on its worker. One gate where the owner of the cluster is the client: its
        blocks are added up first. A gate for each block where noise is added to each; then updates come to the caller
    participation : who plays a round; everybody without it
    states : where states are kept; without it, lineage goes back to the first round
    persist_every : rounds between two times that states are written
    """

    def __init__(
        self,
        algorithm: Algorithm,
        blocks: Mapping[str, Future],
        *,
        client: Client,
        seed: int,
        gates: Gate | Mapping[str, Gate] | None = None,
        participation: Participation | None = None,
        states: StateFolder | None = None,
        persist_every: int = PERSIST_EVERY,
    ) -> None:
        self._algorithm, self._client, self._seed = algorithm, client, seed
        self._validator = ResponseValidator(algorithm, noisy=gates is not None)
        self._names = sorted(blocks)
        self._blocks = dict(blocks)
        self._gates = gates
        self._participation = participation or Participation()
        self._participation.check_names(self._names)
        self._store, self._persist_every = states, persist_every
        self._held: dict[str, Future] = {}
        self._persisted = -1
        self._token = uuid.uuid4().hex[:12]
        self._places = self._find_places()
        # The workers need the tasks, not the server, which may hold anything.
        workers_part = replace(algorithm, server=_no_server)
        [self._tasks] = self._submit({self._key("tasks"): (tasks.identity, workers_part)}, [self._key("tasks")])

    def ask(self, request: Request) -> Sums:
        """Let the blocks of the round respond, and return what they tell in sum."""
        asked, missing = self._participation.answering(self._names, request, seed=self._seed)
        with failures_explained(self._client, f"round {request.round}"):
            total = self._sum_of_round(request, asked)
            if self._store is not None and request.round - self._persisted >= self._persist_every:
                self._persist(request.round, self._store)
        sums = total.of_round(request.round, missing=missing)
        self._validator.check_sum(sums, request)
        return sums

    @property
    def states(self) -> ClientStates | None:
        """The round whose states are on disk; the states themselves stay with the workers."""
        return None if self._store is None else ClientStates(self._persisted)

    def restore(self, states: ClientStates) -> None:
        """Go on from the states that are on disk."""
        self._held, self._persisted = {}, states.round
        if states.round >= 0:
            assert self._store is not None
            self._load(states.round, self._store.names(states.round), self._store)

    @property
    def assignments(self) -> Mapping[str, NDArray[np.bool_]]:
        """The assignment of each block, fetched one at a time."""
        return Assignments(self._client, self._held)

    # -- a round -----------------------------------------------------------------------------------------------------

    def _sum_of_round(self, request: Request, asked: Sequence[str]) -> Sums:
        place = f"{request.round}"
        graph: dict[str, Any] = {self._key("request", place): (tasks.identity, request)}
        step = tasks.respond_and_release if self._gates is None else tasks.respond
        responses = {name: self._key("respond", place, str(i)) for i, name in enumerate(asked)}
        for name, key in responses.items():
            graph[key] = (
                step,
                self._tasks,
                self._held.get(name),
                self._blocks[name],
                self._key("request", place),
                tasks.WorkerClient(name, self._seed),
            )
        # What is told is a result of its own: the worker that adds it up would otherwise fetch the states with it.
        ends = [self._key("told", place, str(i)) for i in range(len(asked))]
        graph |= {end: (tasks.told_by, key) for end, key in zip(ends, responses.values(), strict=True)}
        if self._gates is None:
            ends = [self._tree(graph, ends, place, tasks.add_releases, tasks.add_sums)]
        elif isinstance(self._gates, Gate):
            ends = [self._tree(graph, ends, place, tasks.merge_updates, tasks.merge_updates)]
        futures = self._submit(graph, [*responses.values(), *ends], self._pins(responses))
        # From here on a state lives only until its successor is there.
        self._held |= dict(zip(responses, futures, strict=False))
        told = gathered(self._client, futures[len(responses) :])
        return self._released(told, request, asked)

    def _tree(
        self,
        graph: dict[str, Any],
        parts: list[str],
        place: str,
        first: Callable[..., Any],
        further: Callable[..., Any],
    ) -> str:
        """Add tasks that sum up the parts, some at a time; return the key of the total."""
        level, add = 0, first
        while len(parts) > 1 or level == 0:
            keys = [self._key("sum", place, f"{level}-{at}") for at in range(0, len(parts), FAN_IN)]
            for at, key in enumerate(keys):
                graph[key] = (add, parts[FAN_IN * at : FAN_IN * (at + 1)])
            parts, level, add = keys, level + 1, further
        return parts[0]

    def _released(self, told: list[Any], request: Request, asked: Sequence[str]) -> Sums:
        """Let pass the gates what has none on its worker."""
        gates = self._gates
        if gates is None:
            [total] = told
            assert isinstance(total, Sums)
            return total
        pairs = [(gates, told[0])] if isinstance(gates, Gate) else [(gates[n], u) for n, u in zip(asked, told)]  # noqa: B905
        return Sums.of(self._release(gate, update, request) for gate, update in pairs)

    def _release(self, gate: Gate, update: Update, request: Request) -> Release:
        return TaskClient(gate.client, self._algorithm, gate, self._seed).release(
            update, request, self._algorithm.expected(request)
        )

    def _find_places(self) -> dict[str, str]:
        """Return the worker that has each block. Its rows are worked on there, unless that worker dies or is behind.

        Without this, Dask would put the blocks of a file, which are but a name to it, all on one worker.
        """
        holders = self._client.who_has(list(self._blocks.values()))
        return {name: min(holders[future.key]) for name, future in self._blocks.items() if holders.get(future.key)}

    def _pins(self, keys: Mapping[str, str]) -> dict[str, str]:
        """Return the worker that each of these tasks prefers; there is a task for each client."""
        return {key: self._places[name] for name, key in keys.items() if name in self._places}

    # -- states on disk ----------------------------------------------------------------------------------------------

    def _persist(self, number: int, store: StateFolder) -> None:
        names = sorted(self._held)
        keys = {name: self._key("save", str(number), str(i)) for i, name in enumerate(names)}
        graph = {
            key: (tasks.save_state, self._held[name], store.path, number, self._names.index(name))
            for name, key in keys.items()
        }
        gathered(self._client, self._submit(graph, list(keys.values())))
        store.complete(number, names)
        self._persisted = number
        self._load(number, names, store)

    def _load(self, number: int, names: Sequence[str], store: StateFolder) -> None:
        """Take the states from disk, each beside its block; nothing earlier is needed to compute them again."""
        strangers = set(names) - set(self._names)
        if strangers:
            raise FederationError(
                f"there is a stored state of {min(strangers)!r}, which is not a block of this run; start the run again"
            )
        keys = {name: self._key("load", str(number), str(i)) for i, name in enumerate(names)}
        graph = {
            key: (
                tasks.load_state,
                self._blocks[name],
                (store.path, number, self._names.index(name)),
                self._algorithm.state_type,
            )
            for name, key in keys.items()
        }
        self._held = dict(zip(names, self._submit(graph, list(keys.values()), self._pins(keys)), strict=True))

    def _key(self, what: str, *place: str) -> str:
        return "-".join([f"felb_{what}", self._token, *place])

    def _submit(self, graph: dict[str, Any], keys: list[str], pins: Mapping[str, str] | None = None) -> list[Future]:
        """Send all tasks in one message, which is what keeps a round short; pinned ones prefer a worker."""
        import dask

        with dask.annotate(workers=partial(tasks.pinned, pins or {}), allow_other_workers=True):
            return list(self._client.get(graph, keys, sync=False))


class Assignments(Mapping[str, "NDArray[np.bool_]"]):
    """The assignments of blocks, each fetched from its worker when it is asked for and not kept.

    Parameters
    ----------
    client : of the cluster
    states : futures of the blocks' states after the last round
    """

    def __init__(self, client: Client, states: Mapping[str, Future]) -> None:
        self._client, self._held = client, dict(states)

    def __getitem__(self, name: str) -> NDArray[np.bool_]:
        with failures_explained(self._client, f"the assignment of {name}"):
            future = self._client.submit(tasks.assignment_of, self._held[name], pure=False)
            found: NDArray[np.bool_] = gathered(self._client, [future])[0]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._held))

    def __len__(self) -> int:
        return len(self._held)


def _no_server(seed: int) -> Server:
    raise FederationError(f"the server of a run (seed {seed}) does not run on a worker")
