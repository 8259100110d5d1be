"""``felb certify``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from felb.cli import options
from felb.cli.output import print_json, warnings_as_notes


@click.command("certify")
@click.argument("data")
@click.option(
    "-k", "--components", "n_components", **options.COUNT, help="Number of components (default: that of the result)."
)
@click.option("--result", type=click.Path(), metavar="FOLDER", help="Result whose errors are compared with the bound.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="Time limit of the search; the bound that is proven by then is returned.",
)
@options.client_column_left_out
@options.reading
@options.as_json
def command(data: str, as_json: bool, **parameters: Any) -> None:
    """Prove a lower bound on the number of wrong cells of any Boolean factorization of DATA.

    No factorization with the given number of components has fewer wrong cells than the lower bound, whatever the
    method. With --result, the gap is the largest share of its wrong cells that a better result could avoid; without a
    gap, the result is optimal. The command is meant for small data: it searches up to six components, and bounds for
    more components are weak. All computation is local.
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
