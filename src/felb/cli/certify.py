"""``felb certify``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from felb.cli import options
from felb.cli.output import print_json, warnings_as_notes


@click.command("certify")
@click.argument("data")
@click.option("-k", "--components", "n_components", **options.COUNT, help="Rank; by default that of the result.")
@click.option("--result", type=click.Path(), metavar="FOLDER", help="Result whose errors are compared with the bound.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="Time of the search at most; the bound is what was proven until then.",
)
@options.client_column_left_out
@options.reading
@options.as_json
def command(data: str, as_json: bool, **parameters: Any) -> None:
    """Prove how few wrong cells a Boolean factorization of DATA can have.

    No factorization with K components has fewer wrong cells than the lower bound, whatever the method. With a result,
    the gap says which share of its wrong cells a better one could avoid at most; if there is none, the result is
    optimal. For small data: up to six components are searched, and bounds for more are weak. Nothing leaves this
    computer.
    """
    from felb.runs.scoring import certify_file

    with warnings_as_notes():
        found = certify_file(data, **options.given(**parameters))
    if as_json:
        print_json({"data": data, **asdict(found), "gap": found.gap, "optimal": found.optimal})
        return
    click.echo(f"lower bound  {found.lower} wrong cells with {found.n_components} components (by {found.bound})")
    if found.errors is not None:
        click.echo(f"result       {found.errors} wrong cells")
        proven = "none; the result is optimal" if found.optimal else f"at most {found.gap:.1%} of them can be avoided"
        click.echo(f"gap          {proven}")
