"""What the verbs share that can be interrupted and go on."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from felb.experiments import unfinished_job

if TYPE_CHECKING:
    from collections.abc import Iterator

option = click.option(
    "--resume", "resumed", type=click.Path(), metavar="OUT", help="Go on with the interrupted run of OUT."
)


def check_alone(ctx: click.Context) -> None:
    """Refuse options next to --resume that would have no effect."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name not in ("resumed", "as_json") and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            given = parameter.opts[-1] if isinstance(parameter, click.Option) else "DATA"
            raise click.UsageError(f"--resume does not go with {given}: the run remembers its data and options.", ctx)


@contextmanager
def telling_how_to_go_on(verb: str, out: str) -> Iterator[None]:
    """Note on an interruption how to go on, if there is something to go on with."""
    try:
        yield
    except (KeyboardInterrupt, OSError, MemoryError) as error:
        if unfinished_job(out) is not None:
            error.add_note(f"go on with: felb {verb} --resume {shlex.quote(out)}")
        raise
