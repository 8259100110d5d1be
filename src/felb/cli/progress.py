"""Commands that take long: their progress bars, and how to resume them after an interruption.

Bars are on stderr, on a terminal only, and removed at the end.
"""

from __future__ import annotations

import shlex
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
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

from felb.cli.output import print_result, warnings_as_notes
from felb.errors import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from felb.engines.nvflare.run_record import Status
    from felb.federated.loop import RunProgress
    from felb.runs.job import Job


@contextmanager
def round_progress(total: int | None) -> Iterator[Callable[[RunProgress], None]]:
    """Show a progress bar over the rounds of a run in this process, with its latest metrics."""
    with _bar("rounds", total) as update:

        def advance(progress: RunProgress) -> None:
            update(completed=len(progress.history), note=progress.history.note)

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


resume_option = click.option(
    "--resume",
    "resumed",
    type=click.Path(),
    metavar="OUT",
    help="Resume the interrupted run with the output folder OUT; no other option is allowed.",
)


def resume_run(
    verb: str,
    out: str,
    *,
    rounds_of: Callable[[Job], int | None] = lambda _: None,
    dask: str | None = None,
    as_json: bool,
) -> None:
    """Resume the interrupted run of `out` and print its result; `rounds_of` returns the number of rounds of a job."""
    _check_no_other_options(click.get_current_context())
    from felb.runs.job_runner import resume, unfinished_job

    job = unfinished_job(out)
    with running(verb, out, rounds=None if job is None else rounds_of(job)) as advance:
        result = resume(out, dask=dask, on_round=advance)
    print_result(result, out, as_json=as_json)


@contextmanager
def running(verb: str, out: str, *, rounds: int | None) -> Iterator[Callable[[RunProgress], None]]:
    """Yield the callback for completed rounds, which moves the progress bar; print warnings and advice as notes."""
    from felb.runs.job_runner import unfinished_job

    def advice() -> str | None:
        return None if unfinished_job(out) is None else f"resume with: felb {verb} --resume {shlex.quote(out)}"

    with warnings_as_notes(), advising(advice), round_progress(rounds) as advance:
        yield advance


@contextmanager
def advising(advice: Callable[[], str | None]) -> Iterator[None]:
    """Add a note to an interruption that says how to resume, if there is something to resume."""
    try:
        yield
    except (KeyboardInterrupt, OSError, MemoryError, ConnectionLostError) as error:
        text = advice()
        if text is not None:
            error.add_note(text)
        raise


def _check_no_other_options(ctx: click.Context) -> None:
    """Raise if an option is given with --resume, where it would have no effect."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name not in ("resumed", "dask", "as_json") and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            given = parameter.opts[-1] if isinstance(parameter, click.Option) else "DATA"
            raise click.UsageError(
                f"--resume cannot be combined with {given}: the run has stored its data and options.", ctx
            )
