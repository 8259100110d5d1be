"""A progress bar over the steps of a computation in Python, on request: ``fit(X, verbose=True)``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Protocol

    class Advance(Protocol):
        """Tells how many steps are done, and something about the last one."""

        def __call__(self, done: int, note: str = "") -> None:
            """Move the bar."""


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
