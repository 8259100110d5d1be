"""``felb score``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from felb.cli import options
from felb.cli.output import print_json, print_scores, warnings_as_notes


@click.command("score")
@click.argument("result", type=click.Path())
@click.argument("data")
@options.client_column_left_out
@options.reading
@options.as_json
def command(
    result: str,
    data: str,
    as_json: bool,
    **reading: Any,
) -> None:
    """Assign the records of DATA to the components of RESULT and score the reconstruction.

    DATA can contain new records. Its features must be the same, in the same order. Raw data is read by the schema of
    the result, and values that are new to it are reported. Unknown cells are left out of all counts.

    \b
    f1         harmonic mean of precision and recall; 1 is best
    rmsd       square root of the fraction of wrong cells; 0 is best
    precision  fraction of the reconstructed ones that are in the data
    recall     fraction of the ones in the data that are reconstructed
    coverage   1 - wrong cells / ones in the data
    errors     number of wrong cells
    """  # noqa: D301
    from felb.runs.result_places import check_result

    check_result(result)
    from felb.runs.scoring import score_file  # slow to import, and not needed to refuse a wrong folder

    with warnings_as_notes():
        counts = score_file(result, data, **options.given(**reading))
    if as_json:
        print_json({"result": result, "data": data, "scores": counts.scores(), **asdict(counts)})
    else:
        print_scores({data: counts.scores()})
