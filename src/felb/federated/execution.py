"""Executes the generator of a server, one sum at a time, over a journal.

The server's generator, and those of the steps it is within, stand on a stack. What the journal holds is sent to them
without asking anybody: the sums of rounds, the results of finished steps, the last state of a loop. So a new execution
over the journal of an interrupted run stands where that run stood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.federated.entries import from_arrays
from felb.federated.protocol import Checkpoint, Request, Step, Sums, TimeUp

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from felb.federated.journal import Covered, Journal
    from felb.federated.protocol import Algorithm, Outcome


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
                request = Request.numbered(
                    len(self.rows), yielded.task, yielded.values, all_clients=yielded.all_clients
                )
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
