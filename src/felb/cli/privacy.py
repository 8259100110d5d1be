"""``felb privacy``: outbound logs, privacy statements and forecasts."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import click

from felb.cli import options
from felb.cli.forecast import print_forecast
from felb.cli.log_table import print_outbound
from felb.cli.output import plain_console, print_json
from felb.cli.progress import step_progress
from felb.errors import InputError

DEFAULT_DENSITY = 0.1
SEED: dict[str, Any] = {"type": click.IntRange(min=0), "metavar": "N"}
HANGING = 21
"""Width of the first column of a statement."""


@click.group("privacy")
def command() -> None:
    """Show the releases and the privacy guarantee of a run; forecast a private run before any data is read.

    Commands that add noise require felb[privacy].
    """


@command.command("log")
@click.argument("run", type=click.Path())
@click.option("--client", metavar="NAME", help="Show only this client.")
@options.as_json
def log(run: str, client: str | None, as_json: bool) -> None:
    """Show the outbound logs: client, rounds, arrays, shape, bytes, mechanism, cost, running total.

    RUN is the folder of a simulated run, the folder of a site of a federation, or one log file (.jsonl). The cost is
    the μ of Gaussian noise, or the ε of other noise, of all arrays of a line together. The total is the ε that the
    client has spent up to this line.
    """
    from felb.privacy.outbound_log import summarize
    from felb.runs.log_files import outbound_lines

    lines = outbound_lines(run, client=client)
    if as_json:
        print_json([left.to_json() for left in summarize(lines)])
    else:
        print_outbound(lines, nothing=f"{run} has no outbound log: nothing was sent, or the logs are at the sites")


@command.command("plan")
@click.option("-n", "--records", required=True, help="Number of records of all clients.", **options.COUNT)
@click.option("-m", "--features", required=True, help="Number of features.", **options.COUNT)
@click.option("-k", "--components", default=10, show_default=True, help="Number of components.", **options.COUNT)
@click.option("--clients", default=10, show_default=True, help="Number of clients.", **options.COUNT)
@click.option(
    "--density", type=click.FloatRange(0, 1, min_open=True, max_open=True), metavar="P",
    help="Expected fraction of ones in the data (default: 0.1).",
)  # fmt: skip
@click.option(
    "--ones-per-record", type=click.FloatRange(min=0, min_open=True), metavar="X",
    help="Expected number of ones per record; replaces --density.",
)  # fmt: skip
@click.option(
    "--row-bound", help="Number of ones of a record that count in full (default: found with noise).", **options.COUNT
)
@options.privacy_spec
@click.option(
    "--png",
    type=click.Path(),
    metavar="FILE",
    help="PNG file for a plot of the expected quality; requires felb[report].",
)
@click.option(
    "--seed", default=0, show_default=True, help="Seed of the planted data; privacy noise has no seed.", **SEED
)
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
    """Forecast the noise and the quality of a private run before any data is read.

    Components of equal size are planted in data of the given shape and searched under the noise of the guarantee, for a
    few values of ε around --epsilon, which is required here. F1* compares the result with the planted components; 1 is
    best. Large data is replaced by smaller data with noise that hides its components at least as well. Takes about a
    minute.

    \b
    share           fraction of the privacy budget (of mu squared)
    sd              standard deviation of the noise, in counts
    expected        expected count of one component without noise
    noise           sd of the noise in the sum, relative to that count
    """  # noqa: D301
    from felb.privacy.noise_forecast import Shape
    from felb.report.forecast_page import check_drawable, draw_forecast
    from felb.runs.job import agreed
    from felb.runs.privacy_forecast import forecast

    if density is not None and ones_per_record is not None:
        raise click.UsageError("Give either --density or --ones-per-record.")
    terms = (privacy or {}) | options.given(row_bound=row_bound)
    if "epsilon" not in terms:
        raise click.UsageError("Give --epsilon, the privacy budget of the run, for example 1.")
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
    """Show the privacy guarantee of the result in the folder RUN: unit, attackers, budget and conditions."""
    from felb.runs.log_files import outbound_lines
    from felb.runs.result import Result

    result = Result.read(run)
    if as_json:
        print_json({"result": run, "privacy": result.privacy})
        return
    if result.privacy is not None:
        print_statement(result.privacy["text"])
        return
    lines = outbound_lines(run)
    plain_console().print("This run has no privacy specification: no noise was added, and nothing is guaranteed.")
    if not lines:
        click.echo("There is no outbound log: the data was centralized, or the logs are at the sites.")
        return
    plain_console().print(
        "Records did not leave their clients. These exact values, computed from them, did:", end="\n\n"
    )
    print_outbound(lines, nothing="")


def print_statement(text: str) -> None:
    """Print a statement, wrapped to the width of the terminal."""
    width = max(60, plain_console().width)
    for line in text.splitlines():
        click.echo(textwrap.fill(line, width, subsequent_indent=" " * HANGING, break_on_hyphens=False))
