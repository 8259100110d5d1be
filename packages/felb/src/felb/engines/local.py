"""The in-process transport: all clients in one process, one after the other or in threads.

It plays what a deployed federation plays, including what goes wrong there: clients that are not asked, that drop out,
that fail. A seed fixes everything.

A single client's rows are answered for in several threads: an update is a sum over rows of whole numbers, so it has the
same bits however the rows are cut. Kernels release the interpreter, so the threads run side by side.
"""

from __future__ import annotations

import warnings
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from felb.errors import FederationError, InputError
from felb.federated.client import Client
from felb.federated.gate import Gate, check_resumable, client_gate
from felb.federated.loop import Run, RunProgress, play
from felb.federated.protocol import ClientStates, Participation, Release, Request, Sums, Update
from felb.federated.tasks import ResponseValidator, TaskSpec, Work
from felb.kernels.schedule import available_cpus, one_blas_thread, split_rows, threads_at_most
from felb.progress import Deadline, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from felb.data.binary import BinaryMatrix
    from felb.federated.gate import Responses
    from felb.federated.journal import Journal
    from felb.federated.protocol import Algorithm
    from felb.federated.tasks import Expected
    from felb.privacy.disclosure import Disclosure
    from felb.privacy.mechanisms import Mechanism
    from felb.privacy.outbound_log import OutboundRecord

    AddUp = Callable[[Mapping[str, Release], Request, Iterable[str]], Sums]
    """(releases by client, their request, clients that are missing) -> their sum."""

LEAST_ONES = 20_000
"""Ones of a span; with fewer, starting a thread takes longer than the work."""


def plain_sums(algorithm: Algorithm, *, noisy: bool = False) -> AddUp:
    """Return what adds up the releases of a round in the clear, each checked as a coordinator does."""
    validator = ResponseValidator(algorithm, noisy=noisy)

    def add_up(releases: Mapping[str, Release], request: Request, missing: Iterable[str]) -> Sums:
        expected = algorithm.expected(request)
        for name, release in releases.items():
            validator.check(release.values, request, client=name, expected=expected)
        return Sums.of(releases.values(), missing=missing, number=request.round)

    return add_up


class InProcess:
    """Clients that are simulated in this process.

    Parameters
    ----------
    algorithm : knows the tasks
    shards : rows of each client by its name
    gates : exit of each client
    pool : runs the clients, or the parts of a single client's rows
    workers : number of threads of the pool
    seed : fixes the sampling of clients and every client's own randomness
    participation : client sampling and dropout; by default all clients take part in every round
    deadline : of the run; long tasks check it
    add_up : makes the sum of the releases of a round; by default in the clear
    """

    def __init__(
        self,
        algorithm: Algorithm,
        shards: Mapping[str, BinaryMatrix],
        gates: Mapping[str, Gate],
        *,
        pool: ThreadPoolExecutor,
        seed: int,
        workers: int = 1,
        participation: Participation | None = None,
        deadline: Deadline | None = None,
        add_up: AddUp | None = None,
    ) -> None:
        self._add_up = add_up or plain_sums(algorithm)
        self._deadline = deadline
        self._algorithm, self._shards, self._gates = algorithm, shards, gates
        self._pool, self._seed = pool, seed
        self._spans = workers if len(shards) == 1 else 1
        self._participation = participation or Participation()
        self._participation.check_names(sorted(shards))
        self._states = ClientStates()

    def ask(self, request: Request) -> Sums:
        """Run the clients of the round and add up their releases in the order of their names."""
        asked, missing = self._participation.answering(sorted(self._shards), request, seed=self._seed)
        states = dict(self._states.states)
        # Dozens of clients in one memory: from here on a state lives only until its successor is there.
        self._states = ClientStates(self._states.round)
        expected = self._algorithm.check_request(request)
        jobs = {name: self._begun(name, request, states.get(name), expected) for name in asked}
        releases: dict[str, Release] = {}
        failed: list[str] = []
        quorum = self._participation.quorum
        try:
            for name in asked:
                error = jobs[name].exception()
                if error is None:
                    states[name], releases[name] = jobs.pop(name).result()
                elif quorum is None or not isinstance(error, Exception):
                    raise error
                else:
                    warnings.warn(f"round {request.round}: {name} failed ({error})", RuntimeWarning, stacklevel=2)
                    failed.append(name)
        except BaseException:
            self._pool.shutdown(cancel_futures=True)
            raise
        if len(releases) < min(quorum or 1, len(asked)):
            raise FederationError(
                f"round {request.round}: only {len(releases)} of {len(asked)} clients answered; "
                f"the quorum is {quorum}. Failed: {', '.join(failed)}"
            )
        self._states = ClientStates(request.round, states)
        return self._add_up(releases, request, missing + failed)

    @property
    def states(self) -> ClientStates:
        """The states of all clients."""
        states = {
            name: {lane: whole(state) for lane, state in lanes.items()} for name, lanes in self._states.states.items()
        }
        return ClientStates(self._states.round, states)

    def restore(self, states: ClientStates) -> None:
        """Restore stored states."""
        self._states = states

    def _begun(self, name: str, request: Request, states: Any, expected: Expected) -> Future[tuple[Any, Release]]:
        """Start a client in a thread; a single one in this thread, because the others are for parts of its rows."""
        if self._spans == 1:
            return self._pool.submit(self._respond, name, request, states, expected)
        done: Future[tuple[Any, Release]] = Future()
        try:
            done.set_result(self._respond(name, request, states, expected))
        except Exception as error:
            done.set_exception(error)
        return done

    def _respond(self, name: str, request: Request, states: Any, expected: Expected) -> tuple[Any, Release]:
        do = partial(do_in_spans, pool=self._pool, spans=self._spans)
        client = Client(name, self._algorithm, self._gates[name], self._seed, do=do)
        with within(self._deadline):
            return client.answer(states, self._shards[name], request, expected=expected)


def do_in_spans(spec: TaskSpec, work: Work, *, pool: ThreadPoolExecutor, spans: int) -> tuple[Any, Update]:
    """Do a task, in `spans` parts of the rows where its declaration says that it may be.

    Parts have about the same work. The result has the same bits as that of the task on all rows. A state, too, is cut
    by rows, and stays so, as `Parts`, until somebody wants the whole.
    """
    shard, state = work.rows, work.state
    in_parts = spec.by_rows and work.least == 1  # of how many records numbers are made is a matter of all of them
    if not in_parts or not (state is None or isinstance(state, Parts) or hasattr(state, "rows")):
        return spec.do(replace(work, state=whole(state)))
    cuts = split_rows(shard, max(1, min(spans, len(shard), shard.nnz // LEAST_ONES)))
    if len(cuts) < 2:
        with threads_at_most(1):
            return spec.do(replace(work, state=whole(state)))
    if state is not None and not (isinstance(state, Parts) and state.cuts == cuts):
        state = Parts(cuts, tuple(whole(state).rows(start, stop) for start, stop in cuts))

    def respond(number: int) -> tuple[Any, Update]:
        part = None if state is None else state.states[number]
        with threads_at_most(1):
            return spec.do(replace(work, state=part, rows=shard.rows(*cuts[number])))

    # Each with a context of its own, in which the deadline of the run stands; the first part in this thread.
    jobs = [pool.submit(copy_context().run, respond, number) for number in range(1, len(cuts))]
    try:
        first = respond(0)
    finally:
        wait(jobs)
    states, updates = zip(first, *(job.result() for job in jobs), strict=True)
    return None if states[0] is None else Parts(cuts, states), reduce(Update.plus, updates)


@dataclass(frozen=True, slots=True)
class Parts:
    """The state of a client as states of parts of its rows."""

    cuts: list[tuple[int, int]]
    states: tuple[Any, ...]


def whole(state: Any) -> Any:
    """Return a state of all rows."""
    return type(state.states[0]).joined(state.states) if isinstance(state, Parts) else state


def run(
    algorithm: Algorithm,
    shards: Mapping[str, BinaryMatrix],
    *,
    seed: int = 0,
    participation: Participation | None = None,
    workers: int | None = None,
    deadline: Deadline | None = None,
    journal: Journal | None = None,
    on_round: Callable[[RunProgress], None] = lambda _: None,
    outbound: Callable[[str], Callable[[OutboundRecord], None]] = lambda _: lambda _: None,
    responses: Callable[[str], Responses] | None = None,
    mechanism: Mechanism | None = None,
    disclosure: Disclosure | None = None,
    secure: bool = False,
) -> Run:
    """Run an algorithm on shards that are held in this process.

    Parameters
    ----------
    algorithm : the algorithm to run
    shards : rows of each client by its name
    seed : fixes the start, the sampling of clients and every client's own randomness
    participation : client sampling and dropout; by default all clients take part in every round
    workers : number of clients that compute in parallel, or of parts of the rows if there is one client and the
        algorithm has tasks that allow it; does not change the result. By default, clients compute one after the other,
        and the rows of one client are shared by threads for all processors
    deadline : when it has passed, the round that is being played is the last one of the search
    journal : of a new run or of one that was interrupted; the run goes on from there and is kept there
    on_round : called after each completed round
    outbound : returns the outbound log of each client
    responses : for a private algorithm, gives each client's responses in this run; new ones if not given. To go on
        with an interrupted run, the same ones as before are needed: without them, a round is computed again
        and charged again, and the accountant refuses what exceeds the specification
    mechanism : noise at every client's gate, for studies of noise; without a specification nothing adds up its cost
    disclosure : rules at every client's gate for what leaves without a specification
    secure : add up by secure aggregation, so that not even the simulated server sees what a client has released
    """
    check_resumable(algorithm, journal, responses)
    add_up = plain_sums(algorithm, noisy=mechanism is not None)
    if secure:
        from felb.secure_sum.releases import MaskedSums

        plan = algorithm.privacy
        dropouts = plan.privacy.dropouts if plan is not None and plan.distributed else None
        add_up = masked = MaskedSums.simulated(shards, algorithm, dropouts=dropouts)
        participation = _all_asked(participation or Participation(), len(shards), masked.least)
    gates = {
        name: client_gate(name, algorithm, outbound(name), responses=responses, mechanism=mechanism, secure=secure)
        for name in sorted(shards)
    }
    if disclosure is not None:
        gates = {name: replace(gate, disclosure=disclosure) for name, gate in gates.items()}
    if workers is None:
        cut = any(spec.by_rows for spec in algorithm.tasks.values()) and hasattr(algorithm.state_type, "rows")
        workers = available_cpus() if len(shards) == 1 and cut else 1
    with one_blas_thread(), ThreadPoolExecutor(max(1, workers)) as pool:
        transport = InProcess(
            algorithm,
            shards,
            gates,
            pool=pool,
            seed=seed,
            workers=workers,
            participation=participation,
            deadline=deadline,
            add_up=add_up,
        )
        finished = play(algorithm, transport, seed=seed, journal=journal, deadline=deadline, on_round=on_round)
    assert finished is not None
    return finished


def _all_asked(participation: Participation, n_clients: int, least: int) -> Participation:
    """Return who plays the rounds of a run with secure sums: all clients, of which `least` must be in every sum.

    A client that joins later is missing until then; its keys are known from the start.
    """
    late = sum(first > 0 for first in participation.joins.values())
    if participation.fraction < 1 or late > n_clients - least:
        raise InputError(
            f"secure aggregation asks all clients in every round, and {least} of {n_clients} must answer; leave out "
            f"the sampling of clients, and let at most {n_clients - least} join later",
            parameter="secure",
        )
    if not participation.dropout and participation.quorum is None:
        return participation
    return replace(participation, quorum=max(least, participation.quorum or 1))
