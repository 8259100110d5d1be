"""A limit on wall-clock time that long computations check between their steps."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator


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
