"""A Dask cluster: its client, data as blocks of rows on its workers, the transport over them, and a run."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.data.coercion import is_dask
from felb.data.files import Blocks
from felb.data.partition import client_names
from felb.engines.dask import worker as tasks
from felb.engines.dask.worker import failures_explained, gathered, state_folder
from felb.errors import FederationError, InputError, missing_extra
from felb.federated.client import Client as TaskClient
from felb.federated.gate import Gate, check_resumable, client_gate
from felb.federated.loop import OWNER, Run, RunProgress, play
from felb.federated.protocol import ClientStates, Participation, Sums
from felb.federated.tasks import ResponseValidator
from felb.kernels.schedule import one_blas_thread
from felb.metrics import confusion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from distributed import Client, Future
    from numpy.typing import NDArray

    from felb.engines.dask.worker import StateFolder
    from felb.federated.gate import Responses
    from felb.federated.journal import Journal
    from felb.federated.protocol import Algorithm, Release, Request, Server, Update
    from felb.metrics import Counts
    from felb.privacy.mechanisms import Mechanism
    from felb.privacy.outbound_log import OutboundRecord
    from felb.progress import Deadline

    Read = Callable[[Any], BinaryMatrix]


# -- The transport: a client is a block of rows on some worker -------------------------------------------------------
#
# Blocks and states stay on the workers. A round is one graph of tasks: the request, a response of each block, sums of
# eight at a time up to one, which comes back. All tasks are pure and seeded, so what a dead worker held is computed
# again by their lineage, bit for bit. Every few rounds states are written to disk, and lineage begins anew there.

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
        graph |= {end: (attrgetter("told"), key) for end, key in zip(ends, responses.values(), strict=True)}
        if self._gates is None:
            ends = [self._tree(graph, ends, place, Sums.of, Sums.merged)]
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


# -- Data of users as blocks of rows on the workers: Dask arrays and frames, AnnData on them, lists of files ---------


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A part of the data that is yet to be computed: what to call it, and its number of rows if known."""

    value: Any
    label: str
    rows: float = np.nan


@dataclass(frozen=True, slots=True)
class DistributedRows:
    """Blocks on workers, all with the same columns and none empty.

    Parameters
    ----------
    blocks : rows of each client by its name, as futures, in the order of the rows
    facts : what is known of each
    columns : column names, if there are any
    """

    blocks: Mapping[str, Future]
    facts: Mapping[str, tasks.BlockFacts]
    columns: tuple[str, ...] | None

    @classmethod
    def of(cls, X: Any, client: Client, *, read: Read, fingerprint: bool = False) -> DistributedRows:
        """Compute the chunks of X and check them, where they are; they stay there.

        Parameters
        ----------
        X : a two-dimensional Dask array of dense or CSR chunks, a Dask frame, AnnData on an array, or `Blocks`
        client : of the cluster
        read : makes a chunk a `BinaryMatrix`
        fingerprint : also compute what identifies the cells
        """
        from dask import delayed

        chunks, columns = _chunks_of(X)
        if not chunks:
            raise InputError("the data has no blocks; give at least one")
        make = delayed(tasks.make_block, pure=False, traverse=False)
        with failures_explained(client, "reading the data"):
            parts = [make(chunk.value, chunk.label, read, columns) for chunk in chunks]
            futures = _spread(parts, client) if isinstance(X, Blocks) else client.compute(parts)
            facts = gathered(client, client.map(tasks.describe, futures, fingerprint=fingerprint, pure=False))
            kept = [at for at, found in enumerate(facts) if found.rows > 0]  # a filter leaves partitions empty
            if not kept:
                raise InputError(f"Found array with 0 sample(s): all {len(chunks)} blocks are empty")
            _check_alike([chunks[at] for at in kept], [facts[at] for at in kept])
            if columns is None:
                [columns] = gathered(client, [client.submit(tasks.column_names, futures[kept[0]], pure=False)])
        names = client_names(len(kept))
        return cls(
            {name: futures[at] for name, at in zip(names, kept, strict=True)},
            {name: facts[at] for name, at in zip(names, kept, strict=True)},
            columns,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(number of rows, number of columns)."""
        return sum(fact.rows for fact in self.facts.values()), next(iter(self.facts.values())).columns

    @property
    def template(self) -> BinaryMatrix:
        """A matrix without rows that has the columns."""
        return BinaryMatrix(np.zeros(1, np.int64), np.zeros(0, np.int64), self.shape[1], self.columns)


def _spread(parts: Sequence[Any], client: Client) -> list[Future]:
    """Compute as many parts on each worker, neighbours together; a part that is only the name of a file costs nothing.

    Dask weighs results by their size and would keep such names together on one worker.
    """
    workers = sorted(client.nthreads())
    return [
        client.compute(part, workers=[workers[at * len(workers) // len(parts)]], allow_other_workers=True)
        for at, part in enumerate(parts)
    ]


def _chunks_of(X: Any) -> tuple[list[_Chunk], tuple[str, ...] | None]:
    """Return the parts of the data and the column names, if they are known before."""
    if isinstance(X, Blocks):
        rows = [np.nan if block.stop is None else block.stop - block.start for block in X]
        return [_Chunk(block, str(block), n) for block, n in zip(X, rows, strict=True)], None
    if not is_dask(X):  # AnnData
        chunks, _ = _chunks_of(X.X)
        return chunks, tuple(str(name) for name in X.var_names)
    if hasattr(X, "npartitions") and hasattr(X, "columns"):
        parts = X.to_delayed(optimize_graph=False)
        return [_Chunk(part, f"partition {at}") for at, part in enumerate(parts)], tuple(map(str, X.columns))
    if not hasattr(X, "chunks"):
        raise InputError(
            f"a Dask collection of type {type(X).__name__} has no rows and columns; make an array or a frame of it"
        )
    if X.ndim != 2:
        raise InputError(f"expected 2D data (records x features), got {X.ndim}D")
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    starts, parts = np.cumsum([0, *X.chunks[0][:-1]]), X.to_delayed(optimize_graph=False).ravel()
    return [
        _Chunk(part, f"chunk {at}" if np.isnan(start) else f"chunk {at} (its first row is row {start:.0f})", n)
        for at, (part, start, n) in enumerate(
            zip(X.to_delayed(optimize_graph=False).ravel(), starts, X.chunks[0], strict=True)
        )
    ], None


def _check_alike(chunks: Sequence[_Chunk], facts: Sequence[tasks.BlockFacts]) -> None:
    """Raise unless all blocks have the same columns."""
    first = facts[0]
    if first.columns == 0:
        raise InputError("the data has no columns: 0 feature(s) while a minimum of 1 is required")
    for chunk, found in zip(chunks, facts, strict=True):
        if found.columns != first.columns:
            raise InputError(
                f"{chunk.label} has {found.columns} columns where {chunks[0].label} has {first.columns}; all blocks "
                "need the same columns"
            )
        if found.names != first.names:
            raise InputError(
                f"the column names of {chunk.label} are not those of {chunks[0].label}; bring the columns of all "
                "blocks into one order"
            )


# -- with a fitted model ---------------------------------------------------------------------------------------------


def transform_lazily(model: Any, X: Any) -> Any:
    """Return the assignments as a Dask array that is computed when it is asked for, chunk by chunk."""
    try:
        import dask.array as da
        from dask import delayed
    except ImportError as error:
        missing_extra("transforming data in blocks", "dask", error)
    chunks, columns = _chunks_of(X)
    k = model.components_.shape[0]
    shared, assign = delayed(model, pure=False, traverse=False), delayed(assign_chunk, pure=False)
    parts = [
        da.from_delayed(assign(shared, chunk.value, chunk.label, columns), shape=(chunk.rows, k), dtype=bool)
        for chunk in chunks
    ]
    return da.concatenate(parts, axis=0)


def score_of(model: Any, X: Any, client: Client) -> Counts:
    """Return the summed confusion counts of the reconstruction of X under the fixed components."""
    from dask import delayed

    chunks, columns = _chunks_of(X)
    shared, count = delayed(model, pure=False, traverse=False), delayed(count_chunk, pure=False)
    with failures_explained(client, "scoring"):
        futures = client.compute([count(shared, chunk.value, chunk.label, columns) for chunk in chunks])
        counts: list[Counts] = gathered(client, futures)
    return sum(counts[1:], counts[0])


def assign_chunk(model: Any, chunk: Any, label: str, columns: Sequence[str] | None) -> NDArray[np.bool_]:
    """Assign the rows of a chunk."""
    rows = tasks.rows_of(tasks.make_block(chunk, label, model._read, columns))
    if not len(rows):
        return np.zeros((0, model.components_.shape[0]), dtype=bool)
    return np.asarray(model.transform(rows))


def count_chunk(model: Any, chunk: Any, label: str, columns: Sequence[str] | None) -> Counts:
    """Count right and wrong cells of a chunk."""
    rows = tasks.rows_of(tasks.make_block(chunk, label, model._read, columns))
    return confusion(rows, assign_chunk(model, rows, label, None), model.components_)


# -- Play an algorithm over the blocks of a Dask cluster -------------------------------------------------------------


def run(
    algorithm: Algorithm,
    blocks: Mapping[str, Future],
    *,
    client: Client,
    seed: int = 0,
    participation: Participation | None = None,
    deadline: Deadline | None = None,
    journal: Journal | None = None,
    states: Path | None = None,
    persist_every: int | None = None,
    on_round: Callable[[RunProgress], None] = lambda _: None,
    outbound: Callable[[str], Callable[[OutboundRecord], None]] = lambda _: lambda _: None,
    responses: Callable[[str], Responses] | None = None,
    mechanism: Mechanism | None = None,
    owner: str = OWNER,
) -> Run:
    """Play an algorithm to its end on blocks that Dask workers hold.

    Blocks are one owner's: nothing leaves the cluster but the result, and what a privacy plan lets out. Under a plan
    about records, the sum over all blocks passes one gate, with noise as for one client. Under a plan about clients,
    every block is a client with a gate of its own.

    Parameters
    ----------
    algorithm, seed, participation, deadline, on_round, outbound, responses, mechanism : as on the local engine
    blocks : rows of each client by its name, as futures
    client : of the cluster
    journal : of a new run or of one that was interrupted; needs `states`
    states : folder that all workers share, for the states of clients
    persist_every : rounds between two times that states are written; by default what Dask's setting
        ``felb.persist-every`` says, or 10
    owner : name of the one client under a plan about records
    """
    import dask

    check_resumable(algorithm, journal, responses)
    if journal is not None and journal.folder is not None and states is None:
        raise InputError("a run on Dask that keeps a journal needs a folder for states that all workers share")
    every: Any = persist_every or dask.config.get("felb.persist-every", PERSIST_EVERY)
    if not isinstance(every, int) or every < 1:
        raise InputError(f"felb.persist-every must be a whole number of rounds, got {every!r}")

    def gate(name: str) -> Gate:
        return client_gate(name, algorithm, outbound(name), responses=responses, mechanism=mechanism)

    gates: Gate | Mapping[str, Gate] | None = None
    if algorithm.privacy is not None and algorithm.privacy.uploads is None:
        gates = gate(owner)
    elif algorithm.privacy is not None or mechanism is not None:
        gates = {name: gate(name) for name in sorted(blocks)}
    with one_blas_thread(), state_folder(client, states) as store:
        transport = DaskWorkers(
            algorithm,
            blocks,
            client=client,
            seed=seed,
            gates=gates,
            participation=participation,
            states=store,
            persist_every=every,
        )
        finished = play(algorithm, transport, seed=seed, journal=journal, deadline=deadline, on_round=on_round)
        assert finished is not None
        return replace(finished, assignments=transport.assignments)
