"""Shared code of the commands that can be interrupted and resumed."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from felb.cli.output import print_result, warnings_as_notes
from felb.cli.progress import round_progress
from felb.errors import ConnectionLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from felb.federated.loop import RunProgress
    from felb.runs.job import Job

option = click.option(
    "--resume",
    "resumed",
    type=click.Path(),
    metavar="OUT",
    help="Resume the interrupted run with the output folder OUT; no other option is allowed.",
)


def go_on(
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
