"""``felb interpret``."""

from __future__ import annotations

from typing import Any

import click

from felb.cli import options
from felb.cli.output import print_json, print_rows, warnings_as_notes

SHOWN = 6


@click.command("interpret")
@click.argument("result", type=click.Path())
@click.option(
    "--data",
    metavar="FILE",
    help="Data of the run (default: the file with the name that the run has stored, if it is found).",
)
@click.option(
    "--labels",
    metavar="SOURCE",
    help="Labels of the records: obs:NAME of an .h5ad file, a file with one label per line, or a column of the data.",
)
@click.option("--sets", metavar="FILE", help="Write the components as sets of features to this .gmt or .json file.")
@click.option("--rules", metavar="FILE", help="Write the components as rules 'if ... then ...' to this CSV file.")
@click.option("--table", metavar="FILE", help="Write the table of components and features to this CSV file.")
@options.client_column_of_data
@options.reading
@options.as_json
def command(
    result: str,
    data: str | None,
    labels: str | None,
    sets: str | None,
    rules: str | None,
    table: str | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Interpret the components of RESULT, using the data of the run.

    Features are listed by lift: how many times more frequent a feature is in the records of the component than in the
    others. With --labels, the enriched labels are those with positive log-odds at a false discovery rate of 5%
    (Fisher's exact test, adjusted by Benjamini and Hochberg).

    \b
    support    records that have the component
    coverage   share of the ones of the data in its records and features
    gain       increase of the number of wrong cells without the component
    """  # noqa: D301
    from felb.runs.result_places import check_result

    check_result(result)
    from felb.report import gather, write_rules, write_sets  # slow to import, and not needed to refuse a wrong folder
    from felb.report.feature_sets import interpretation, write_columns

    with warnings_as_notes():
        evidence = gather(result, data=data, labels=labels, **options.given(**reading))
        found = interpretation(evidence)
        if sets is not None:
            write_sets(evidence, sets)
        if rules is not None:
            write_rules(evidence, rules)
        if table is not None and evidence.measured is not None:
            write_columns(evidence.measured.profile.columns(evidence.feature_names), table)
    if as_json:
        print_json({"result": result, **found})
        return
    shown = []
    for entry in found["components"]:
        row = {
            "component": entry["component"],
            "support": entry["support"],
            "coverage": f"{entry['coverage']:.0%}",
            "gain": entry["exclusive_gain"],
        }
        if labels is not None:
            enriched = [label for label in entry["labels"] if label["q"] <= 0.05 and label["log2_odds"] > 0][:2]
            row["labels"] = ", ".join(f"{label['label']} ({label['share']:.0%})" for label in enriched) or "-"
        features = [f"{f['feature']} ({f['lift']:.1f}x)" for f in entry["features"][:SHOWN]]
        row["features by lift"] = ", ".join(features) + (", …" if len(entry["features"]) > SHOWN else "")
        shown.append(row)
    print_rows(shown)
