"""Progress bars: on stderr, on a terminal only, removed at the end."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from felb.estimators.round_progress import round_note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from felb.engines.nvflare.run_record import Status
    from felb.federated.loop import RunProgress


@contextmanager
def round_progress(total: int | None) -> Iterator[Callable[[RunProgress], None]]:
    """Show a progress bar over the rounds of a run in this process, with its latest metrics."""
    with _bar("rounds", total) as update:

        def advance(progress: RunProgress) -> None:
            update(completed=len(progress.history), note=round_note(progress))

        yield advance


@contextmanager
def run_progress(total: int | None) -> Iterator[tuple[Callable[[Status], None], Callable[[str], None]]]:
    """Show a progress bar over the rounds of a federation; failures and recoveries are printed on stderr."""
    with _bar("rounds", total) as update:
        yield (
            lambda status: update(completed=status.round, description=status.state),
            lambda line: click.echo(f"note: {line}", err=True),
        )


@contextmanager
def step_progress(what: str) -> Iterator[Callable[..., None]]:
    """Show a progress bar over steps, with an optional note about the last one."""
    with _bar(what) as update:
        yield lambda done, total, note="": update(completed=done, total=total, note=note)


@contextmanager
def row_progress() -> Iterator[Callable[[int], None]]:
    """Show the number of completed rows; the total is unknown."""
    with _shown("rows", None, SpinnerColumn(), TextColumn("{task.completed:,} rows"), TimeElapsedColumn()) as update:
        yield lambda rows: update(completed=rows)


def _bar(what: str, total: int | None = None) -> AbstractContextManager[Callable[..., None]]:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    described, noted = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
    return _shown(what, total, described, *columns, noted)


@contextmanager
def _shown(what: str, total: int | None, *columns: ProgressColumn) -> Iterator[Callable[..., None]]:
    disabled = not sys.stderr.isatty()  # rich also takes FORCE_COLOR as a terminal
    with Progress(*columns, console=Console(stderr=True), disable=disabled, transient=True) as progress:
        task = progress.add_task(what, total=total, note="")
        yield lambda **changes: progress.update(task, **changes)
