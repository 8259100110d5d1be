"""``felb apply``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from felb.cli import options
from felb.cli.output import plain_console, print_json, print_scores, warnings_as_notes

if TYPE_CHECKING:
    from felb.metrics.population_drift import Drift, Share
    from felb.runs.applying import Applied

SHOWN_NAMES = 5


@click.command("apply")
@click.argument("result", type=click.Path())
@click.argument("data")
@click.option("-o", "--out", required=True, metavar="FILE", help="File to write: .csv, .parquet, .npz or .h5ad.")
@click.option(
    "--align",
    type=click.Choice(["name"]),
    help="Match features by name: columns in another order are reordered, new columns are ignored, and the cells of "
    "missing columns are unknown (default: the columns must be the features of the result, in their order).",
)
@click.option("--record-column", metavar="NAME", help="Column with the names of the records; it is not a feature.")
@click.option(
    "--reference",
    metavar="FILE",
    help="Records of the fit to compare with (default: the counts that the result folder keeps of them).",
)
@click.option("--drift", "drift_file", metavar="FILE", help="Also write the drift table to this .csv or .json file.")
@click.option(
    "--rows",
    default=10,
    show_default=True,
    help="Maximum number of features and of components in the printed tables.",
    **options.COUNT,
)
@options.reading
@options.force
@options.as_json
def command(
    result: str,
    data: str,
    out: str,
    align: str | None,
    record_column: str | None,
    reference: str | None,
    drift_file: str | None,
    rows: int,
    force: bool,
    as_json: bool,
    **reading: Any,
) -> None:
    """Assign the records of DATA to the components of RESULT, and compare them with the records of the fit.

    RESULT is the folder of a result or a model file (.felbmodel). Records are assigned as those of the fit were.
    OUT has a row for each record of DATA, with its name: from --record-column, from the schema, or from an .h5ad file;
    otherwise its number. Raw data is read by the schema of the result.

    The drift tables compare shares among the records of the fit with shares among the new records. z is the difference
    in standard errors, and a star marks what has changed (1% level over all rows of the table). They need the counts of
    the fit, which the folder of a local run keeps. They are missing in a model file and in the
    result of a private run, of a run under disclosure rules or of a federation: give records to compare with by
    --reference.

    \b
    feature    ones:    fraction of the records that have the feature
               wrong:   fraction of the records in which its cell is wrong
    component  records: fraction of the records that have the component
               ones:    fraction of ones of its features in these records
    """  # noqa: D301
    from felb.runs.result_places import check_result

    check_result(result)
    from felb.runs.applying import NO_DRIFT, apply_file  # slow to import, and not needed to refuse a wrong folder
    from felb.runs.assignment_files import check_drift_target, check_target, write_assignment, write_drift

    check_target(out, force=force)
    if drift_file is not None:
        check_drift_target(drift_file, force=force)
    with warnings_as_notes():
        found = apply_file(
            result, data, align=align, record_column=record_column, reference=reference, **options.given(**reading)
        )
    if drift_file is not None and found.drift is None:
        raise click.UsageError(f"{NO_DRIFT} Give --reference FILE.")
    write_assignment(out, found.U, found.records, force=force)
    if drift_file is not None and found.drift is not None:
        write_drift(drift_file, found.drift, force=force)
    if as_json:
        drift = None if found.drift is None else found.drift.to_json()
        scores = found.counts.total.scores()
        print_json(
            {
                "out": out,
                "records": len(found.U),
                "alignment": asdict(found.alignment),
                "scores": scores,
                "drift": drift,
            }
        )
        return
    _print(found, data, out, rows)


def _print(found: Applied, data: str, out: str, rows: int) -> None:
    from felb.runs.applying import NO_DRIFT

    click.echo(f"{out}: {found.U.shape[0]} records x {found.U.shape[1]} components")
    columns = found.alignment
    if columns.missing:
        click.echo(f"missing features, whose cells are unknown: {_listed(columns.missing)}")
    if columns.new:
        click.echo(f"new columns, which are ignored: {_listed(columns.new)}")
    if columns.reordered:
        click.echo("the columns were in another order")
    click.echo()
    print_scores({data: found.counts.total.scores()})
    click.echo()
    if found.drift is None:
        from felb.runs.applying import NO_DRIFT

        click.echo(f"{NO_DRIFT} (option --reference)")
        return
    drift, console = found.drift, plain_console()
    click.echo(
        f"against the {drift.records[0]} records of the fit: F1 {drift.f1[0]:.4f}, now {drift.f1[1]:.4f}; "
        f"wrong cells {drift.wrong.fit or 0:.2%}, now {drift.wrong.new or 0:.2%}"
    )
    for table in drift_tables(drift, rows):
        click.echo()
        console.print(table)


def drift_tables(drift: Drift, rows: int) -> list[Table]:
    """Return the features and the components that have changed most."""
    features = sorted(drift.features, key=lambda f: -max(abs(f.wrong.z), abs(f.ones.z)))
    components = sorted(drift.components, key=lambda c: -max(abs(c.records.z), abs(c.ones.z)))
    return [
        _table("feature", ("ones", "wrong"), [(f.name, (f.ones, f.wrong), f.changed) for f in features], rows),
        _table(
            "component",
            ("records", "ones"),
            [(str(c.number), (c.records, c.ones), c.changed) for c in components],
            rows,
        ),
    ]


def _table(of: str, shares: tuple[str, str], found: list[tuple[str, tuple[Share, Share], bool]], rows: int) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(of, overflow="fold")
    for share in shares:
        for head in (f"{share}: fit", "new", "z"):
            table.add_column(head, justify="right", no_wrap=True)
    table.add_column("")
    for name, values, changed in found[:rows]:
        cells = [cell for value in values for cell in (_share(value.fit), _share(value.new), f"{value.z:+.1f}")]
        table.add_row(name, *cells, "*" if changed else "")
    if len(found) > rows:
        table.add_row(f"... {len(found) - rows} more", *[""] * 7)
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _listed(names: tuple[str, ...]) -> str:
    return f"{len(names)} ({', '.join(names[:SHOWN_NAMES])}{', ...' if len(names) > SHOWN_NAMES else ''})"
