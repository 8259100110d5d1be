"""``felb schema``, ``felb convert`` and ``felb generate``: commands about data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felb.cli import options
from felb.cli.options import COUNT, PATH, option
from felb.cli.output import echo, new_table, plain_console, print_facts, print_json, row_progress, warnings_as_notes
from felb.errors import InputError

if TYPE_CHECKING:
    from felb.data import Schema


# -- ``felb schema``: the rules that make 0/1 features of raw tables -------------------------------------------------

DIFFERENT = 1

table_options = options.together(
    option("--record", "Column with the identifier of the record of each row (default: found by its name).", "COLUMN"),
    option("--item", "Long tables: column with the codes or feature names.", "COLUMN"),
    option("--value", "Long tables: column with the values.", "COLUMN"),
    option("--time", "Long tables: column with the dates.", "COLUMN"),
    option("--leave-out", "Column that is not used for features; can be repeated.", "COLUMN", multiple=True),
    option("--bins", "Number of bins of a column of numbers.", COUNT, 4),
    option("--prefix-length", "Group codes by their first N characters.", COUNT),
)
choice_options = options.together(
    option("--min-count", "Minimum number of records of a feature.", COUNT, 10),
    option("--max-features", "Maximum number of features.", COUNT, 1000),
    option("--max-categories", "Maximum number of categories of a column.", COUNT, 20),
    option(
        "--missing",
        "How missing values are read: as unknown cells, as 0, as a category of their own, or as an error.",
        ("unknown", "zero", "category", "error"),
        "unknown",
    ),
)
out = option("-o --out", "File to write.", PATH, required=True)


@click.group("schema")
def schema_command() -> None:
    """Define how raw tables are converted to 0/1 features.

    A schema is a TOML file: the features in order, each with its name and rule. The same schema gives the same columns
    on every machine; two sites have the same schema if the digests agree. Raw tables are files (.csv .tsv .parquet
    .arrow .dat .h5ad) or databases (duckdb:// sqlite:// postgresql:// omop://).
    """


@schema_command.command("infer")
@click.argument("data")
@out
@table_options
@choice_options
@options.force
@options.as_json
def infer_command(data: str, out: str, force: bool, as_json: bool, **settings: Any) -> None:
    """Propose a schema for the raw table DATA, for a person to edit.

    The most frequent categories and codes become features, and numbers are binned at rounded quantiles.
    """
    from felb.tables.propose import make_schema, summarize

    chosen = {name: settings.pop(name) for name in ("min_count", "max_features", "missing")}
    summary = summarize(data, **_counting(settings))
    prefixes = settings["prefix_length"] is not None
    schema = make_schema(summary, prefixes=prefixes, max_categories=settings["max_categories"], **chosen)
    schema.write(out, force=force)
    _print_schema(schema, {"schema": out, "records": summary.records}, summary.skipped, as_json=as_json)
    for column, count in summary.doubtful.items():
        echo(
            f"note: {count} records hold 'None' in {column!r}, which is read as missing; if it is a category, list "
            "missing_values without it in the schema",
            err=True,
        )


@schema_command.command("check")
@click.argument("schema", **PATH)
@click.argument("data", required=False)
@options.as_json
def check_command(schema: str, data: str | None, as_json: bool) -> None:
    """Check the file SCHEMA, and whether it can be applied to DATA.

    Values of DATA that the schema does not list are reported. No file is written.
    """
    from felb.data import Schema, read

    agreed = Schema.read(schema)
    facts: dict[str, Any] = {"schema": schema, "digest": agreed.digest, "features": len(agreed.features)}
    if data is not None:
        with warnings_as_notes():
            table = read(data, schema=agreed)
        sums = table.matrix.column_sums()
        facts |= {"records": len(table.matrix), "ones": table.matrix.nnz}
        facts |= {"unknown": 0 if table.matrix.unknown is None else table.matrix.unknown.nnz}
        empty = [name for name, count in zip(agreed.names, sums, strict=True) if not count]
        shown = f"{len(empty)}: {', '.join(empty[:10])}{', …' if len(empty) > 10 else ''}" if empty else "none"
        facts |= {"empty features": empty if as_json else shown}
        if as_json and table.applied is not None:
            facts |= {"unlisted": table.applied.unlisted, "missing": table.applied.missing}
    print_facts(facts, as_json=as_json)


@schema_command.command("show")
@click.argument("schema", **PATH)
@options.as_json
def show_command(schema: str, as_json: bool) -> None:
    """Show the features of SCHEMA with their rules, and its digest."""
    from felb.data import Schema

    _print_schema(Schema.read(schema), {"schema": schema}, {}, as_json=as_json)


@schema_command.command("diff")
@click.argument("old", **PATH)
@click.argument("new", **PATH)
@options.as_json
def diff_command(old: str, new: str, as_json: bool) -> int:
    """Show how the schema NEW differs from OLD; the exit code is 1 if they give different matrices."""
    from felb.data import Schema
    from felb.tables.schema import find_differences

    first, second = Schema.read(old), Schema.read(new)
    found = find_differences(first, second)
    if as_json:
        print_json({"same": first.digest == second.digest, "differences": found})
    else:
        for line in found or ["the schemas give the same matrix"]:
            echo(line)
    return 0 if first.digest == second.digest else DIFFERENT


@schema_command.command("propose")
@click.argument("data")
@out
@table_options
@option(
    "--min-count",
    "Minimum number of records of a category or code in the proposal.",
    COUNT,
    10,
    type=click.IntRange(min=2),
)
@option("--rounding", "Round counts down to multiples of N.", COUNT, 5)
@options.force
@options.as_json
def propose_command(
    data: str, out: str, rounding: int, min_count: int, force: bool, as_json: bool, **settings: Any
) -> None:
    """At a site of a federation: write a proposal for a common schema from DATA, to send to the coordinator.

    The proposal lists the categories and codes that at least --min-count records have, with rounded counts, and rounded
    quantiles of numbers. Inspect it before you send it.
    """
    from felb.tables.propose import limit_disclosure, summarize, write_proposal

    counting = _counting(settings)
    summary = limit_disclosure(summarize(data, **counting), min_count=min_count, base=rounding)
    write_proposal(summary, out, prefixes=counting["prefix_length"] is not None, force=force)
    facts = {"proposal": out, "columns": len(summary.columns), "codes": len(summary.codes), "records": summary.records}
    print_facts(facts, as_json=as_json)


@schema_command.command("merge")
@click.argument("proposals", nargs=-1, required=True, **PATH)
@out
@choice_options
@options.force
@options.as_json
def merge_command(proposals: tuple[str, ...], out: str, force: bool, as_json: bool, **choice: Any) -> None:
    """At the coordinator: merge the PROPOSALS... of all sites into one schema, which they approve by its digest."""
    from felb.tables.propose import make_schema, merge_summaries, read_proposal

    read_back = [read_proposal(path) for path in proposals]
    if len({proposal.prefixes for proposal in read_back}) > 1:
        raise InputError("some proposals count whole codes and some beginnings of codes; use one --prefix-length")
    summary = merge_summaries([proposal.summary for proposal in read_back])
    schema = make_schema(summary, prefixes=read_back[0].prefixes, **choice)
    schema.write(out, force=force)
    _print_schema(schema, {"schema": out, "sites": len(proposals)}, {}, as_json=as_json)


def _counting(settings: dict[str, Any]) -> dict[str, Any]:
    from felb.tables.schema import Roles

    roles = {name: settings.pop(name) for name in ("record", "item", "value", "time")}
    given = Roles(**roles) if any(roles.values()) else None
    return {**settings, "leave_out": tuple(settings["leave_out"]), "roles": given}


def _print_schema(schema: Schema, facts: dict[str, Any], skipped: dict[str, str], *, as_json: bool) -> None:
    from felb.tables.schema import format_schema

    facts = {**facts, "digest": schema.digest, "features": len(schema.features)}
    if as_json:
        print_json({**facts, "skipped": skipped, "rules": schema.to_json(), "toml": format_schema(schema)})
        return
    print_facts(facts, as_json=False)
    table = new_table("column", "feature", "rule")
    above: str | None = ""
    for feature in schema.features:
        table.add_row("" if feature.column == above else feature.column or "(codes)", feature.name, feature.rule())
        above = feature.column
    console = plain_console()
    console.print()
    console.print(table)
    for column, reason in skipped.items():
        echo(f"note: no feature of {column!r}: it {reason}", err=True)


@click.command("convert")
@click.argument("source", **PATH)
@click.argument("target", **PATH)
@options.client_column_left_out
@options.reading
@option(
    "--max-rows",
    "Maximum number of rows (default: 10 million, or the size of the file in bytes if that is larger).",
    COUNT,
)
@option(
    "--max-columns",
    "Maximum number of columns (default: 1 million, or the size of the file in bytes if that is larger).",
    COUNT,
)
@option("--max-line", "Maximum length of a line of a text file in bytes (default: 16 MiB).", COUNT)
@option("--max-expansion", "Maximum number of decompressed bytes per byte of the file (default: 64).", COUNT)
@options.force
@options.as_json
def convert_command(source: str, target: str, force: bool, as_json: bool, **reading: Any) -> None:
    """Convert the data file SOURCE to the .felb file TARGET, which the other commands use from disk.

    SOURCE is a file (.csv .tsv .npz .npy .mat .mtx .parquet .dat .fimi .h5ad). It can be larger than memory, since it
    is read block by block. With --schema it can be a raw table, or the URL of a database. TARGET is created when it is
    complete; until then its folder needs twice the space.

    What SOURCE may ask for is limited in proportion to its size. Where a limit is too low for a legitimate file, raise
    it here. The other commands have no limits for a .felb file.
    """
    from felb.data import Limits, convert

    given = options.given(**reading)
    limits = Limits(**{name: given.pop(name) for name in list(given) if name.startswith("max_")})
    with row_progress() as advance, warnings_as_notes():
        matrix = convert(source, target, force=force, on_rows=advance, limits=limits, **given).matrix
    rows, columns = matrix.shape
    unknown = 0 if matrix.unknown is None else matrix.unknown.nnz
    if as_json:
        counted = {"rows": rows, "columns": columns, "ones": matrix.nnz, "unknown": unknown}
        facts = {**counted, "fingerprint": matrix.fingerprint()}
        print_json({"source": source, "target": target, "bytes": Path(target).stat().st_size, **facts})
    else:
        told = f", {unknown} unknown" if unknown else ""
        echo(f"{target}: {rows} records x {columns} features, {matrix.nnz} ones{told}")


SPAN = {"type": (float, float), "metavar": "LOW HIGH"}
WHAT = {"data": "noisy data", "signal": "U∘V without noise", "U": "planted rows", "V": "planted components"}


@click.command("generate")
@click.argument("out", **PATH)
@option("-n --rows n", "Number of records.", COUNT, 2000)
@option("-m --columns m", "Number of features.", COUNT, 200)
@option("-k --components k", "Number of components.", COUNT, 10)
@option("--noise", "Probability that a cell is changed by noise.", options.SHARE, 0.1)
@option(
    "--kind",
    "Whether noise flips cells (xor), sets them to 1 (additive) or to 0 (destructive).",
    ("xor", "additive", "destructive"),
    "xor",
)
@option("--density", "Fraction of ones inside a tile.", options.SHARE, 0.9)
@option("--heights", "Smallest and largest height of a tile, as fractions of the records.", SPAN, (0.05, 0.25))
@option("--widths", "Smallest and largest width of a tile, as fractions of the features.", SPAN, (0.05, 0.25))
@option("--contiguous", "Place tiles on consecutive rows and columns, for plots.")
@options.seed
@options.force
@options.as_json
def generate_command(out: str, n: int, m: int, force: bool, as_json: bool, **settings: Any) -> None:
    """Generate data with planted components and write it to OUT.npz.

    The planted factors are written to OUT.U.npz and OUT.V.npz, their Boolean product to OUT.signal.npz. All files are
    SciPy sparse matrices.
    """
    from felb.data.synthetic import write_planted

    written = write_planted(out, n, m, force=force, **settings)
    if as_json:
        print_json({name: str(path) for name, path in written.items()})
    else:
        for name, path in written.items():
            echo(f"{WHAT[name]:<20}{path}")
