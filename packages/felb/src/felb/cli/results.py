"""``felb show``, ``apply``, ``score``, ``certify``, ``report`` and ``interpret``: commands about a stored result."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felb.cli import options
from felb.cli.options import COUNT, PATH, option
from felb.cli.output import (
    SHOWN_FEATURES,
    describe,
    echo,
    list_first,
    new_table,
    plain_console,
    print_facts,
    print_json,
    print_result,
    print_rows,
    score_table,
    unverified_option,
    warnings_as_notes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from felb.metrics.comparison import Share
    from felb.runs.apply import Applied, Pair
    from felb.runs.result import Result


@click.command("show")
@options.result
@options.other_result
@option("--features", "Maximum number of feature names per component.", COUNT, SHOWN_FEATURES)
@option("--table", "Also write a CSV file with a line for each component and feature.", "FILE")
@options.force
@options.as_json
@unverified_option
def show_command(result: str, other: str | None, features: int, table: str | None, force: bool, as_json: bool) -> None:
    """Show the provenance, the scores and the components of the result in the folder RESULT.

    The support of a component is the number of records that have it. Its size is the number of its features.

    With a second result, OTHER, both are shown side by side, and their components are matched one to one by the
    Jaccard index of their features.
    """
    from felb.runs.result import Result, write_long_table

    if table is not None:
        write_long_table(Result.read(result), table, force=force)
    if other is not None:
        print_pair([Result.read(result), Result.read(other)], [result, other], as_json=as_json, shown=features)
        return
    print_result(Result.read(result), result, as_json=as_json, shown=features)


def print_pair(results: Sequence[Result], folders: Sequence[str], *, as_json: bool, shown: int) -> None:
    """Print facts, scores and matched components of two results."""
    from felb.runs.apply import pair_components

    pairs = pair_components(*results)
    if as_json:
        sides = [
            {"folder": folder, "method": result.provenance.method, "scores": result.scores}
            for folder, result in zip(folders, results, strict=True)
        ]
        print_json({"results": sides, "pairs": [asdict(pair) for pair in pairs]})
        return
    console, facts = plain_console(), new_table("", "A", "B")
    told = [describe(result, folder) for result, folder in zip(results, folders, strict=True)]
    for name in dict.fromkeys(name for side in told for name in side):
        facts.add_row(name, *(side.get(name, "-") for side in told))
    console.print(facts)
    console.print()
    names = (f"{side}: {result.provenance.method}" for side, result in zip("AB", results, strict=True))
    console.print(score_table(dict(zip(names, (result.scores for result in results), strict=True))))
    console.print()
    console.print(_tabulate_pairs(pairs, shown))


def _tabulate_pairs(pairs: Sequence[Pair], shown: int) -> Table:
    """Return the table of components: numbers, similarity, supports, and features of both or of one alone."""
    numbers = ("A", "B", "match", "support A", "support B")
    table = new_table(*numbers, "features of both; of one alone", right=numbers)
    for pair in pairs:
        sides = (pair.first, pair.second)
        found = ["-" if side is None else str(side.number) for side in sides]
        supports = ["-" if side is None or side.support is None else str(side.support) for side in sides]
        kinds = (("", pair.shared), ("only A: ", pair.only_first), ("only B: ", pair.only_second))
        parts = [head + list_first(names[:shown], more=names[shown:]) for head, names in kinds if names]
        table.add_row(*found, f"{pair.jaccard:.2f}" if all(sides) else "-", *supports, "; ".join(parts))
    return table


@click.command("score")
@options.result
@click.argument("data")
@options.client_column_left_out
@options.record_column
@options.reading
@options.as_json
@unverified_option
def score_command(result: str, data: str, as_json: bool, **reading: Any) -> None:
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
    from felb.runs.apply import score_file

    with warnings_as_notes():
        counts = score_file(result, data, **options.given(**reading))
    if as_json:
        print_json({"result": result, "data": data, "scores": counts.scores(), **asdict(counts)})
    else:
        plain_console().print(score_table({data: counts.scores()}))


@click.command("certify")
@click.argument("data")
@option("-k --components n_components", "Number of components (default: that of the result).", COUNT)
@option("--result", "Result whose errors are compared with the bound.", PATH, metavar="FOLDER")
@option(
    "--time-limit", "Time limit of the search; the bound that is proven by then is returned.", options.SECONDS, 30.0
)
@options.client_column_left_out
@options.reading
@options.as_json
@unverified_option
def certify_command(data: str, as_json: bool, **parameters: Any) -> None:
    """Prove a lower bound on the number of wrong cells of any Boolean factorization of DATA.

    No factorization with the given number of components has fewer wrong cells than the lower bound, whatever the
    method. With --result, the gap is the largest share of its wrong cells that a better result could avoid; without a
    gap, the result is optimal. The command is meant for small data: it searches up to six components, and bounds for
    more components are weak. All computation is local.
    """
    from felb.runs.apply import certify_file

    with warnings_as_notes():
        found = certify_file(data, **options.given(**parameters))
    if as_json:
        print_json({"data": data, **asdict(found), "gap": found.gap, "optimal": found.optimal})
        return
    echo(f"lower bound  {found.lower} wrong cells with {found.n_components} components (by {found.bound})")
    if found.errors is not None:
        echo(f"result       {found.errors} wrong cells")
        proven = "none; the result is optimal" if found.optimal else f"at most {found.gap:.1%} of them can be avoided"
        echo(f"gap          {proven}")


PAGE = "report.html"


@click.command("report")
@options.result
@option(
    "-o --out",
    f"HTML file to write (default: {PAGE} in the folder RESULT, or NAME.html beside NAME.felbmodel).",
    "FILE",
)
@option("--data", "Data file to evaluate the result on (default: the data of the run, if it is found).", "FILE")
@option("--labels", "Labels of the records to compare with the components; see `felb interpret`.", "SOURCE")
@option("--png", "Also write the plots as PNG files to this folder; requires felb[report].", "DIR")
@option("--csv", "Also write the tables as CSV files to this folder.", "DIR")
@options.client_column_of_data
@options.reading
@options.force
@options.as_json
@unverified_option
def report_command(
    result: str, out: str | None, png: str | None, csv: str | None, force: bool, as_json: bool, **sources: Any
) -> None:
    """Write one self-contained HTML page of the result in the folder RESULT, or of a model file (.felbmodel).

    The page shows scores with intervals, components by name, data and reconstruction, the overlap of components, the
    history of the rounds, the outbound logs and the provenance. The data is read with the settings of the run unless
    options change them. Without the data, intervals are approximate and plots of the data are omitted; the page says
    so.
    """
    from felb.report import build_result_page, gather, write_figures, write_tables

    with warnings_as_notes():
        inputs = gather(result, **options.given(**sources))
        beside = inputs.folder / PAGE if inputs.folder.is_dir() else inputs.folder.with_suffix(".html")
        target = beside if out is None else Path(out)
        facts: dict[str, Any] = {"page": str(target), "bytes": build_result_page(inputs).write(target, force=force)}
        if png is not None:
            facts["png"] = [str(Path(png) / name) for name in write_figures(inputs, png)]
        if csv is not None:
            facts["csv"] = [str(Path(csv) / name) for name in write_tables(inputs, csv)]
    if inputs.measured is not None:
        facts["data"] = inputs.measured.source
    elif inputs.absent is not None:
        facts["note"] = f"{inputs.absent} With --data FILE the page has plots of the data and better intervals."
    print_facts(facts, as_json=as_json)


SHOWN = 6


@click.command("interpret")
@options.result
@options.data_of_run
@option(
    "--labels",
    "Labels of the records: obs:NAME of an .h5ad file, a file with one label per line, or a column of the data, "
    "which may be a feature or not.",
    "SOURCE",
)
@option("--sets", "Write the components as sets of features to this GMT file (.gmt).", "FILE")
@option("--rules", "Write the components as rules 'if ... then ...' to this CSV file.", "FILE")
@option("--table", "Write the table of components and features to this CSV file.", "FILE")
@options.client_column_of_data
@options.reading
@options.as_json
@unverified_option
def interpret_command(
    result: str, labels: str | None, sets: str | None, rules: str | None, table: str | None, as_json: bool, **data: Any
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
    from felb.report import gather, write_rules, write_sets
    from felb.report.exports import interpret, write_columns

    with warnings_as_notes():
        inputs = gather(result, labels=labels, **options.given(**data))
        found = interpret(inputs)
        if sets is not None:
            write_sets(inputs, sets)
        if rules is not None:
            write_rules(inputs, rules)
        if table is not None and inputs.measured is not None:
            write_columns(inputs.measured.profile.columns(inputs.feature_names), table)
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


SHOWN_NAMES = 5


@click.command("apply")
@options.result
@click.argument("data")
@option("-o --out", "File to write: .csv, .parquet, .npz or .h5ad.", "FILE", required=True)
@option(
    "--align",
    "Match features by name: columns in another order are reordered, new columns are ignored, and the cells of "
    "missing columns are unknown (default: the columns must be the features of the result, in their order).",
    ("name",),
)
@option("--record-column", "Column with the names of the records; it is not a feature.", "NAME")
@option(
    "--reference",
    "Records of the fit to compare with (default: the counts that the result folder keeps of them).",
    "FILE",
)
@option("--drift drift_file", "Also write the drift table to this .csv or .json file.", "FILE")
@option("--rows", "Maximum number of features and of components in the printed tables.", COUNT, 10)
@options.reading
@options.force
@options.as_json
@unverified_option
def apply_command(
    result: str, data: str, out: str, drift_file: str | None, rows: int, force: bool, as_json: bool, **reading: Any
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
    from felb.runs.apply import NO_DRIFT, apply_file, check_drift_target, check_target, write_assignment, write_drift

    check_target(out, force=force)
    if drift_file is not None:
        check_drift_target(drift_file, force=force)
    with warnings_as_notes():
        found = apply_file(result, data, **options.given(**reading))
    if drift_file is not None and found.drift is None:
        raise click.UsageError(f"{NO_DRIFT} Give --reference FILE.")
    write_assignment(out, found.U, found.records, force=force)
    if drift_file is not None and found.drift is not None:
        write_drift(drift_file, found.drift, force=force)
    if as_json:
        facts: dict[str, Any] = {"out": out, "records": len(found.U), "alignment": asdict(found.alignment)}
        drift = None if found.drift is None else found.drift.to_json()
        print_json({**facts, "scores": found.counts.total.scores(), "drift": drift})
        return
    _print_applied(found, data, out, rows)


def _print_applied(found: Applied, data: str, out: str, rows: int) -> None:
    from felb.runs.apply import NO_DRIFT

    echo(f"{out}: {found.U.shape[0]} records x {found.U.shape[1]} components")
    columns = found.alignment
    if columns.missing:
        echo(f"missing features, whose cells are unknown: {_listed(columns.missing)}")
    if columns.new:
        echo(f"new columns, which are ignored: {_listed(columns.new)}")
    if columns.reordered:
        echo("the columns were in another order")
    echo()
    console = plain_console()
    console.print(score_table({data: found.counts.total.scores()}))
    echo()
    if found.drift is None:
        echo(f"{NO_DRIFT} (option --reference)")
        return
    drift = found.drift
    echo(
        f"against the {drift.records[0]} records of the fit: F1 {drift.f1[0]:.4f}, now {drift.f1[1]:.4f}; "
        f"wrong cells {drift.wrong.fit or 0:.2%}, now {drift.wrong.new or 0:.2%}"
    )
    features = [(f.name, (f.ones, f.wrong), f.changed) for f in drift.features]
    components = [(str(c.number), (c.records, c.ones), c.changed) for c in drift.components]
    for of, shares, changes in (
        ("feature", ("ones", "wrong"), features),
        ("component", ("records", "ones"), components),
    ):
        echo()
        console.print(_tabulate_drift(of, shares, changes, rows))


def _tabulate_drift(
    of: str, shares: tuple[str, str], found: list[tuple[str, tuple[Share, Share], bool]], rows: int
) -> Table:
    """Return the features or the components that have changed most."""
    heads = [head for share in shares for head in (f"{share}: fit", "new", "z")]
    table = new_table(of, *heads, "", right=heads)
    for name, values, changed in sorted(found, key=lambda entry: -max(abs(value.z) for value in entry[1]))[:rows]:
        cells = [cell for value in values for cell in (_share(value.fit), _share(value.new), f"{value.z:+.1f}")]
        table.add_row(name, *cells, "*" if changed else "")
    if len(found) > rows:
        table.add_row(f"... {len(found) - rows} more", *[""] * 7)
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _listed(names: tuple[str, ...]) -> str:
    return f"{len(names)} ({', '.join(names[:SHOWN_NAMES])}{', ...' if len(names) > SHOWN_NAMES else ''})"
