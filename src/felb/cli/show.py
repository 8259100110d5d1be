"""``felb show``."""

from __future__ import annotations

import click

from felb.cli import options
from felb.cli.output import SHOWN_FEATURES, print_result


@click.command("show")
@click.argument("result", type=click.Path())
@click.option(
    "--features",
    default=SHOWN_FEATURES,
    show_default=True,
    help="Maximum number of feature names per component.",
    **options.COUNT,
)
@options.as_json
def command(result: str, features: int, as_json: bool) -> None:
    """Show the provenance, the scores and the components of the result in the folder RESULT.

    The support of a component is the number of records that have it. Its size is the number of its features.
    """
    from felb.runs.result import Result

    print_result(Result.read(result), result, as_json=as_json, shown=features)
