"""``felb score``."""

from __future__ import annotations

import click
from rich.console import Console

from felb.cli import options
from felb.cli.output import print_json, score_table
from felb.experiments.scoring import score_file


@click.command("score")
@click.argument("result", type=click.Path())
@click.argument("data")
@options.reading
@options.as_json
def command(result: str, data: str, header: bool | None, binarize_threshold: float | None, as_json: bool) -> None:
    """Assign the records of DATA to the components of RESULT and score the reconstruction."""
    counts = score_file(result, data, header=header, binarize_threshold=binarize_threshold)
    if as_json:
        print_json({"scores": counts.scores(), "tp": counts.tp, "fp": counts.fp, "fn": counts.fn})
    else:
        Console().print(score_table({data: counts.scores()}))
