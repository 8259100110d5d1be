"""Long work: time limits that it checks between its steps, and progress bars."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    class Advance(Protocol):
        """Tells how many steps are done, and something about the last one."""

        def __call__(self, done: int, note: str = "") -> None:
            """Move the bar."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of a time limit that starts to run when this is made; without `seconds` it never comes.

    Long work asks `passed` where it could stop with a valid result, and then stops.
    """

    seconds: float | None = None
    _start: float = field(default_factory=time.monotonic, repr=False, compare=False)

    def __post_init__(self) -> None:
        number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if self.seconds is not None and not (number and self.seconds > 0):
            raise InputError(f"time_limit must be a positive number of seconds, got {self.seconds}")

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return self.seconds is not None and time.monotonic() - self._start >= self.seconds


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def within(deadline: Deadline | None) -> Iterator[None]:
    """Let what is called inside ask for this deadline; a client's task has no other way to know of it."""
    token = _current.set(deadline)
    try:
        yield
    finally:
        _current.reset(token)


def current_deadline() -> Deadline | None:
    """Return the deadline of the run that this is computed for; None if it has none, as at a site of a federation."""
    found = _current.get()
    return None if found is None or found.seconds is None else found


@contextmanager
def steps_shown(what: str, total: Callable[[], int | None], *, verbose: bool) -> Iterator[Advance]:
    """Yield a function to call after each step: if `verbose`, it moves a bar on stderr.

    In a notebook the bar is shown below the cell. `total` tells the largest number of steps, if it is known.
    """
    if not verbose:
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total(), note="")
        yield lambda done, note="": bar.update(task, completed=done, note=note)
        bar.update(task, total=bar.tasks[0].completed)


def _nothing(done: int, note: str = "") -> None:
    """Show nothing."""
