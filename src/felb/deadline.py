"""A limit on wall-clock time that long work looks at between its steps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from felb.errors import InputError


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
