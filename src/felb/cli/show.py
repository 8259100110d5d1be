"""``felb show``."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.console import Console

from felb.cli import options
from felb.cli.output import component_table, print_json, score_table
from felb.results import Result


@click.command("show")
@click.argument("result", type=click.Path())
@click.option("--features", type=click.IntRange(min=1), default=12, show_default=True, help="Names shown at most.")
@options.as_json
def command(result: str, features: int, as_json: bool) -> None:
    """Show the components of RESULT with the names of their features and their supports."""
    found = Result.read(result)
    if as_json:
        print_json({"components": [asdict(component) for component in found.described()]})
        return
    console = Console()
    console.print(score_table({found.provenance.method: found.scores}))
    console.print(component_table(found.described(), shown=features))
