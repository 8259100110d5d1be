"""``felb show``."""

from __future__ import annotations

import click

from felb.cli import options
from felb.cli.output import SHOWN_FEATURES, print_result
from felb.cli.side_by_side import print_pair


@click.command("show")
@click.argument("result", type=click.Path())
@click.argument("other", type=click.Path(), required=False)
@click.option(
    "--features",
    default=SHOWN_FEATURES,
    show_default=True,
    help="Maximum number of feature names per component.",
    **options.COUNT,
)
@options.as_json
def command(result: str, other: str | None, features: int, as_json: bool) -> None:
    """Show the provenance, the scores and the components of the result in the folder RESULT.

    The support of a component is the number of records that have it. Its size is the number of its features.

    With a second result, OTHER, both are shown side by side, and their components are matched one to one by the
    Jaccard index of their features.
    """
    from felb.runs.result_places import check_result

    for place in filter(None, (result, other)):
        check_result(place)
    from felb.runs.result import Result  # slow to import, and not needed to refuse a wrong folder

    if other is not None:
        print_pair([Result.read(result), Result.read(other)], [result, other], as_json=as_json, shown=features)
        return
    print_result(Result.read(result), result, as_json=as_json, shown=features)
