"""``felb report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from felb.cli import options
from felb.cli.output import print_facts, warnings_as_notes

PAGE = "report.html"


@click.command("report")
@click.argument("result", type=click.Path())
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    help=f"HTML file to write (default: {PAGE} in the folder RESULT, or NAME.html beside NAME.felbmodel).",
)
@click.option(
    "--data", metavar="FILE", help="Data file to evaluate the result on (default: the data of the run, if it is found)."
)
@click.option(
    "--labels", metavar="SOURCE", help="Labels of the records to compare with the components; see `felb interpret`."
)
@click.option("--png", metavar="DIR", help="Also write the plots as PNG files to this folder; requires felb[report].")
@click.option("--csv", metavar="DIR", help="Also write the tables as CSV files to this folder.")
@options.client_column_of_data
@options.reading
@options.force
@options.as_json
def command(
    result: str,
    out: str | None,
    data: str | None,
    labels: str | None,
    png: str | None,
    csv: str | None,
    force: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Write one self-contained HTML page of the result in the folder RESULT, or of a model file (.felbmodel).

    The page shows scores with intervals, components by name, data and reconstruction, the overlap of components, the
    history of the rounds, the outbound logs and the provenance. The data is read with the settings of the run unless
    options change them. Without the data, intervals are approximate and plots of the data are omitted; the page says
    so.
    """
    from felb.runs.result_places import check_result

    check_result(result)
    from felb.report import (  # slow to import, and not needed to refuse a wrong folder
        gather,
        result_page,
        write_figures,
        write_tables,
    )

    with warnings_as_notes():
        evidence = gather(result, data=data, labels=labels, **options.given(**reading))
        beside = evidence.folder / PAGE if evidence.folder.is_dir() else evidence.folder.with_suffix(".html")
        target = beside if out is None else Path(out)
        facts: dict[str, Any] = {"page": str(target), "bytes": result_page(evidence).write(target, force=force)}
        if png is not None:
            facts["png"] = [str(Path(png) / name) for name in write_figures(evidence, png)]
        if csv is not None:
            facts["csv"] = [str(Path(csv) / name) for name in write_tables(evidence, csv)]
    if evidence.measured is not None:
        facts["data"] = evidence.measured.source
    elif evidence.absent is not None:
        facts["note"] = f"{evidence.absent} With --data FILE the page has plots of the data and better intervals."
    print_facts(facts if as_json else {name: _plain(fact) for name, fact in facts.items()}, as_json=as_json)


def _plain(fact: Any) -> Any:
    return ", ".join(fact) if isinstance(fact, list) else fact
