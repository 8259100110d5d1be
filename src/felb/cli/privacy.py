"""``felb privacy``: what left, what was guaranteed, and what a guarantee would cost."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import click

from felb.cli import options
from felb.cli.forecast import print_forecast
from felb.cli.log_table import print_outbound
from felb.cli.output import plain_console, print_json
from felb.cli.privacy_options import spec
from felb.cli.progress import step_progress
from felb.errors import InputError
from felb.privacy.noise_forecast import Shape
from felb.privacy.outbound_log import summarize
from felb.report.forecast_page import check_drawable, draw_forecast
from felb.runs.job import agreed
from felb.runs.log_files import outbound_lines
from felb.runs.privacy_forecast import forecast
from felb.runs.result import Result

DEFAULT_DENSITY = 0.1
SEED: dict[str, Any] = {"type": click.IntRange(min=0), "metavar": "N"}
HANGING = 21
"""Columns of a statement's subjects."""


@click.group("privacy")
def command() -> None:
    """Show what left the clients of a run and what was guaranteed; plan a guarantee before any data is touched.

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


@command.command("plan")
@click.option("-n", "--records", required=True, help="Records of all clients.", **options.COUNT)
@click.option("-m", "--features", required=True, help="Features of a record.", **options.COUNT)
@click.option("-k", "--components", default=10, show_default=True, help="Components to be found.", **options.COUNT)
@click.option("--clients", default=10, show_default=True, help="Clients that take part.", **options.COUNT)
@click.option(
    "--density", type=click.FloatRange(0, 1, min_open=True, max_open=True), metavar="P",
    help="Expected share of ones (default: 0.1).",
)  # fmt: skip
@click.option(
    "--ones-per-record", type=click.FloatRange(min=0, min_open=True), metavar="X",
    help="Or features that a record has.",
)  # fmt: skip
@click.option("--row-bound", help="Ones of a record that count in full; else found with noise.", **options.COUNT)
@spec
@click.option("--png", type=click.Path(), metavar="FILE", help="Draw the table; needs felb[report].")
@click.option("--seed", default=0, show_default=True, help="Fixes the planted data; noise cannot be fixed.", **SEED)
@options.force
@options.as_json
def plan(
    records: int,
    features: int,
    components: int,
    clients: int,
    density: float | None,
    ones_per_record: float | None,
    row_bound: int | None,
    privacy: dict[str, Any] | None,
    png: str | None,
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    """Plan a private run before any data is touched: its noise, and the quality to expect.

    Components of equal size are planted in data of the shape given, and found again under the noise that the guarantee
    takes, for a few ε around the one given. F1* compares what is found with what was planted: 1 is all of it. Large
    data is simulated by smaller data, with noise that hides its components no less. It takes about a minute.

    \b
    share           of the budget (of mu squared)
    sd              standard deviation of the noise, in counts
    expected        count that must be told from the noise, of one component
    noise           sd of the sum as a share of that count
    """  # noqa: D301
    if density is not None and ones_per_record is not None:
        raise click.UsageError("Give either --density or --ones-per-record.")
    terms = (privacy or {}) | options.given(row_bound=row_bound)
    if "epsilon" not in terms:
        raise click.UsageError("Give --epsilon, how much the run may reveal in all; 1 is a good start.")
    if png is not None:
        check_drawable(png)
        if Path(png).exists() and not force:
            raise InputError(f"{png} exists; choose another file, or replace it with --force")
    ones = ones_per_record if ones_per_record is not None else (density or DEFAULT_DENSITY) * features
    shape = Shape.of(records, features, components, ones_per_record=ones)
    with step_progress("simulating") as advance:
        found = forecast(shape, agreed(terms), clients=clients, seed=seed, on_step=advance)
    if png is not None:
        title = f"{records:,} records x {features:,} features, k = {components}, {clients} clients"
        scores = {row.epsilon: row.scores for row in found.expected}
        draw_forecast(scores, png, without=sum(found.without) / len(found.without), chosen=found.epsilon, title=title)
    if as_json:
        print_json(found.to_json())
    else:
        print_forecast(found)


@command.command("statement")
@click.argument("run", type=click.Path())
@options.as_json
def statement(run: str, as_json: bool) -> None:
    """Say what the result in the folder RUN guarantees: to whom, against whom, how much, on which conditions."""
    result = Result.read(run)
    if as_json:
        print_json({"result": run, "privacy": result.privacy})
        return
    if result.privacy is not None:
        print_statement(result.privacy["text"])
        return
    lines = outbound_lines(run)
    plain_console().print("No privacy was agreed on: no noise was added, and nothing is guaranteed.")
    if not lines:
        click.echo("Nothing is logged here: the data was pooled, or the sites keep their own logs.")
        return
    plain_console().print(
        "Records did not leave their clients, but what was computed from them did, exactly:", end="\n\n"
    )
    print_outbound(lines, nothing="")


def print_statement(text: str) -> None:
    """Print a statement, its lines folded to the terminal under their subjects."""
    width = max(60, plain_console().width)
    for line in text.splitlines():
        click.echo(textwrap.fill(line, width, subsequent_indent=" " * HANGING, break_on_hyphens=False))
