"""``felb show``."""

from __future__ import annotations

import click

from felb.cli import options
from felb.cli.output import SHOWN_FEATURES, print_result
from felb.runs.result import Result


@click.command("show")
@click.argument("result", type=click.Path())
@click.option(
    "--features", default=SHOWN_FEATURES, show_default=True, help="Names per component, at most.", **options.COUNT
)
@options.as_json
def command(result: str, features: int, as_json: bool) -> None:
    """Show the result in the folder RESULT: where it comes from, how good it is, its components.

    The support of a component is the number of records that have it, its size the number of its features.
    """
    print_result(Result.read(result), result, as_json=as_json, shown=features)
