"""``felb privacy``: what left, what was promised, and what a promise would cost."""

from __future__ import annotations

import textwrap

import click

from felb.cli import options
from felb.cli.outbound import print_outbound
from felb.cli.output import plain_console, print_json
from felb.experiments.logs import outbound_lines
from felb.privacy.outbound import summarize
from felb.results import Result

HANGING = 21
"""Columns of a statement's subjects."""


@click.group("privacy")
def command() -> None:
    """Show what left the clients of a run and what was promised; plan a promise before any data is touched.

    Needs felb[privacy] for everything that adds noise.
    """


@command.command("log")
@click.argument("run", type=click.Path())
@click.option("--client", metavar="NAME", help="Only what left this client.")
@options.as_json
def log(run: str, client: str | None, as_json: bool) -> None:
    """Show everything that left: client, rounds, what, shape, bytes, mechanism, cost, running total.

    RUN is the folder of a simulated run, the folder of a site of a federation, or one log (.jsonl). The cost is the μ
    of Gaussian noise or the ε of other noise, of all arrays of the line together; the total is the ε that the client
    has spent by then.
    """
    lines = outbound_lines(run, client=client)
    if as_json:
        print_json([left.to_json() for left in summarize(lines)])
    else:
        print_outbound(lines, nothing=f"{run} has no log of this kind: nothing left, or the sites keep their own")


@command.command("statement")
@click.argument("run", type=click.Path())
@options.as_json
def statement(run: str, as_json: bool) -> None:
    """Say what the result in the folder RUN promises: to whom, against whom, how much, on which conditions."""
    result = Result.read(run)
    if as_json:
        print_json({"result": run, "privacy": result.privacy})
        return
    if result.privacy is not None:
        print_statement(result.privacy["text"])
        return
    console = plain_console()
    console.print(
        "No privacy was agreed on: no noise was added, and nothing is promised. Records did not leave their clients, "
        "but what was computed from them did, exactly:"
    )
    console.print()
    print_outbound(outbound_lines(run), nothing="nothing is logged here: the data was pooled, or sites keep their logs")


def print_statement(text: str) -> None:
    """Print a statement, its lines folded to the terminal under their subjects."""
    width = max(60, plain_console().width)
    for line in text.splitlines():
        click.echo(textwrap.fill(line, width, subsequent_indent=" " * HANGING, break_on_hyphens=False))
