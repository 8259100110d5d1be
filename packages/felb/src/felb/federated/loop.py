"""The loop: executes any algorithm over any transport, from a journal if there is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.federated.client import Client, read_assignment
from felb.federated.gate import Gate
from felb.federated.journal import from_arrays
from felb.federated.protocol import Checkpoint, ClientStates, Request, Step, Sums, TimeUp
from felb.metrics.counts import History
from felb.progress import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.journal import Covered, Journal
    from felb.federated.protocol import Algorithm, Outcome, Transport


# -- Executes the generator of a server, one sum at a time, over a journal -------------------------------------------
#
# The server's generator, and those of the steps it is within, stand on a stack. What the journal holds is sent to them
# without asking anybody: the sums of rounds, the results of finished steps, the last state of a loop. So a new
# execution over the journal of an interrupted run stands where that run stood.


@dataclass(slots=True)
class _Frame:
    """A generator on the stack: its path, its first round, how many steps it has begun, where its loop began."""

    path: tuple[int, ...]
    generator: Generator[Any, Any, Any]
    first: int
    interruptible: bool = False
    steps: int = 0
    loop: int | None = None


class Execution:
    """A run at the server.

    Parameters
    ----------
    algorithm, seed : what is run
    journal : what the run has received before, and where it is kept; nowhere if None

    Attributes
    ----------
    request : what to ask next; None when the run is over
    rows : one for each round
    outcome : what was found, when the run is over
    """

    def __init__(self, algorithm: Algorithm, *, seed: int, journal: Journal | None = None) -> None:
        self.request: Request | None = None
        self.rows: list[Mapping[str, Any]] = []
        self.outcome: Outcome | None = None
        self._journal = journal
        self._stack = [_Frame((), algorithm.server(seed), 0)]
        self._open: tuple[str, Sums] | None = None
        self._ended_early = False
        self._go_on()

    def receive(self, sums: Sums) -> None:
        """Continue with the sums of the requested round."""
        assert self.request is not None
        if self._journal is not None:
            self._journal.received(self.request.round, self.request.task, sums)
        self._go_on(self._answered(self.request, sums))

    @property
    def may_end_early(self) -> bool:
        """Whether the next request is part of a step that a time limit may end, and none has."""
        return not self._ended_early and any(frame.interruptible for frame in self._stack)

    def end_early(self) -> None:
        """Raise `TimeUp` at the request that would be next."""
        assert self.request is not None
        if self._journal is not None:
            self._journal.ended_early(self.request.round)
        self._ended_early = True
        self._go_on(error=TimeUp())

    # -- the stack ---------------------------------------------------------------------------------------------------

    def _go_on(self, value: Any = None, *, error: TimeUp | None = None) -> None:
        """Drive the generators until one asks what the journal does not hold, or all are over."""
        self.request = None
        while self._stack:
            frame = self._stack[-1]
            try:
                yielded = frame.generator.send(value) if error is None else frame.generator.throw(error)
            except StopIteration as end:
                value, error = self._ended(end.value), None
                continue
            except TimeUp as up:
                self._stack.pop()
                if not self._stack:
                    raise
                error = up
                continue
            error = None
            self._close_row()
            if isinstance(yielded, Request):
                request = Request.of(yielded.parts, all_clients=yielded.all_clients, number=len(self.rows))
                if self._stored_time_up(request):
                    self._ended_early, error = True, TimeUp()
                    continue
                sums = None if self._journal is None else self._journal.sums(request.round, request.task)
                if sums is None:
                    self.request = request
                    return
                value = self._answered(request, sums)
            elif isinstance(yielded, Step):
                value = self._begin(frame, yielded)
            elif isinstance(yielded, Checkpoint):
                value = self._reach(frame, yielded)
            else:
                raise TypeError(f"a server yields requests, steps and checkpoints, not {type(yielded).__name__}")

    def _begin(self, frame: _Frame, step: Step) -> Any:
        """Return the result of a step that is finished; push the generator of another."""
        path = (*frame.path, frame.steps)
        frame.steps += 1
        stored = None if self._journal is None else self._journal.step(path)
        if stored is not None:
            step.generator.close()
            return self._skip(stored, step.result_type)
        self._stack.append(_Frame(path, step.generator, len(self.rows), step.interruptible))
        return None

    def _reach(self, frame: _Frame, checkpoint: Checkpoint) -> Any:
        """Return the state that a loop goes on from; kept, if it is worth it."""
        first_time = frame.loop is None
        frame.loop = len(self.rows) if frame.loop is None else frame.loop
        stored = self._journal.checkpoint(frame.path) if self._journal is not None and first_time else None
        state = checkpoint.state
        if stored is not None:
            frame.steps = stored.steps
            return self._skip(stored, state if isinstance(state, tuple) else type(state))
        if self._journal is not None:
            rows = self.rows[frame.loop :]
            self._journal.reached(frame.path, state, first=frame.loop, rows=rows, steps=frame.steps)
        return state

    def _ended(self, result: Any) -> Any:
        frame = self._stack.pop()
        self._close_row()
        if not self._stack:
            self.outcome = result
        elif self._journal is not None:
            self._journal.finished(frame.path, result, first=frame.first, rows=self.rows[frame.first :])
        return result

    # -- rounds ------------------------------------------------------------------------------------------------------

    def _answered(self, request: Request, sums: Sums) -> Sums:
        sums.round = request.round
        self._open = request.task, sums
        return sums

    def _close_row(self) -> None:
        """Add the row of a round once the server has reported about it."""
        if self._open is None:
            return
        task, sums = self._open
        self._open = None
        row: dict[str, Any] = {"round": len(self.rows), "task": task, "clients": sums.clients}
        if sums.missing:
            row["missing"] = list(sums.missing)
        self.rows.append({**row, **sums.metrics})

    def _skip(self, stored: Covered, like: Any) -> Any:
        """Take the rounds of a stored result as played."""
        assert self._journal is not None
        if stored.first != len(self.rows):
            raise InputError(
                f"the journal {self._journal.folder} does not fit together at round {len(self.rows)}; "
                f"{self._journal.advice}"
            )
        self.rows += stored.rows
        try:
            return from_arrays(like, stored.arrays)
        except TypeError as error:
            raise InputError(
                f"the journal {self._journal.folder} is of another algorithm ({error}); {self._journal.advice}"
            ) from error

    def _stored_time_up(self, request: Request) -> bool:
        if self._journal is None or not self.may_end_early:
            return False
        return self._journal.time_up == request.round


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Where a run stands after a round.

    Parameters
    ----------
    history : a row for every round so far
    request : the next request; None at the end of the run
    """

    history: History
    request: Request | None


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run.

    Parameters
    ----------
    outcome : what the server has found
    history : a row for every round
    assignments : the Boolean U_i of each client that this process holds; they are the clients' own
    """

    outcome: Outcome
    history: History
    assignments: Mapping[str, NDArray[np.bool_]]


def play(
    algorithm: Algorithm,
    transport: Transport,
    *,
    seed: int = 0,
    journal: Journal | None = None,
    deadline: Deadline | None = None,
    most_rounds: int | None = None,
    on_round: Callable[[RunProgress], None] = lambda _: None,
) -> Run | None:
    """Send the requests of the server to the transport and return the sums to it, until it is finished.

    Parameters
    ----------
    algorithm : the algorithm to run
    transport : how to reach the clients
    seed : fixes the server's randomness
    journal : of a new run or of one that was interrupted; the run goes on from there and is kept there
    deadline : when it has passed, the round that is being played is the last one of the search
    most_rounds : rounds to play now; None is returned if the run is not over then
    on_round : called after each completed round
    """
    deadline = deadline or Deadline()
    if deadline.seconds is not None and not algorithm.interruptible:
        raise InputError(
            f"{algorithm.name} cannot be ended early; leave out the time limit and lower its rounds instead"
        )
    if journal is not None and transport.states is not None:
        transport.restore(journal.rewind_to_states(algorithm.state_type))
        journal.on_rewind(journal.next_round)
    execution = Execution(algorithm, seed=seed, journal=journal)
    history, kept, played = History(execution.rows), transport.states, 0
    try:
        while (request := execution.request) is not None and played != most_rounds:
            if deadline.passed and execution.may_end_early:
                execution.end_early()
                continue
            sums = transport.ask(request)
            # From here on the sums of the round and the states after it belong together.
            kept = transport.states if journal is not None else None
            execution.receive(sums)
            history, played = history.plus(execution.rows[-1]), played + 1
            if journal is not None:
                journal.keep(kept)
            on_round(RunProgress(history, execution.request))
    except BaseException:
        if journal is not None and kept is not None:
            journal.save(kept)
        raise
    if execution.outcome is None:
        return None
    states = transport.states.states if transport.states else {}
    found = {name: read_assignment(lanes) for name, lanes in states.items()}
    return Run(execution.outcome, history, {name: U for name, U in found.items() if U is not None})


# -- The transport without a federation: one owner of all rows in the same process -----------------------------------

OWNER = "all rows"


class Centralized:
    """One client that holds all rows; nothing leaves, so nothing is written down.

    Parameters
    ----------
    algorithm : knows the tasks
    A : the rows
    seed : fixes the randomness of tasks
    """

    def __init__(self, algorithm: Algorithm, A: BinaryMatrix, *, seed: int) -> None:
        self._client, self._rows = Client(OWNER, algorithm, Gate(OWNER, lambda _: None), seed), A
        self._states = ClientStates()

    def ask(self, request: Request) -> Sums:
        """Do the task on all rows."""
        states, release = self._client.answer(self._states.states.get(OWNER), self._rows, request)
        self._states = ClientStates(request.round, {OWNER: states})
        return Sums.of([release], number=request.round)

    @property
    def states(self) -> ClientStates:
        """The owner's state."""
        return self._states

    def restore(self, states: ClientStates) -> None:
        """Take up the owner's state."""
        self._states = states


def fit_centralized(algorithm: Algorithm, A: BinaryMatrix, *, seed: int) -> Outcome:
    """Play an algorithm to its end on rows that need no federation, such as synthetic ones of a private server."""
    finished = play(algorithm, Centralized(algorithm, A, seed=seed), seed=seed)
    assert finished is not None
    return finished.outcome
