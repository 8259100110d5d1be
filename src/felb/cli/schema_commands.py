"""``felb schema``: the rules that make 0/1 features of raw tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from felb.cli import options
from felb.cli.output import plain_console, print_facts, print_json, warnings_as_notes
from felb.errors import InputError

if TYPE_CHECKING:
    from felb.data import Schema
    from felb.data.summarize import Summary
    from felb.privacy.private_proposal import CountNoise

DIFFERENT = 1

table_options = options.together(
    click.option(
        "--record",
        metavar="COLUMN",
        help="Column with the identifier of the record of each row (default: found by its name).",
    ),
    click.option("--item", metavar="COLUMN", help="Long tables: column with the codes or feature names."),
    click.option("--value", metavar="COLUMN", help="Long tables: column with the values."),
    click.option("--time", metavar="COLUMN", help="Long tables: column with the dates."),
    click.option(
        "--leave-out", multiple=True, metavar="COLUMN", help="Column that is not used for features; can be repeated."
    ),
    click.option(
        "--bins", default=4, show_default=True, help="Number of bins of a column of numbers.", **options.COUNT
    ),
    click.option("--prefix-length", help="Group codes by their first N characters.", **options.COUNT),
)
choice_options = options.together(
    click.option(
        "--min-count", default=10, show_default=True, help="Minimum number of records of a feature.", **options.COUNT
    ),
    click.option(
        "--max-features", default=1000, show_default=True, help="Maximum number of features.", **options.COUNT
    ),
    click.option(
        "--max-categories",
        default=20,
        show_default=True,
        help="Maximum number of categories of a column.",
        **options.COUNT,
    ),
    click.option(
        "--missing",
        type=click.Choice(["unknown", "zero", "category", "error"]),
        default="unknown",
        show_default=True,
        help="How missing values are read: as unknown cells, as 0, as a category of their own, or as an error.",
    ),
)
out = click.option("-o", "--out", type=click.Path(), required=True, help="File to write.")


@click.group("schema")
def command() -> None:
    """Define how raw tables are converted to 0/1 features.

    A schema is a TOML file: the features in order, each with its name and rule. The same schema gives the same columns
    on every machine; two sites have the same schema if the digests agree. Raw tables are files (.csv .tsv .parquet
    .arrow .dat .h5ad) or databases (duckdb:// sqlite:// postgresql:// omop://).
    """


@command.command("infer")
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
    from felb.data.propose_schema import infer

    schema, skipped = infer(data, **_counting(settings))
    schema.write(out, force=force)
    _print_schema(schema, {"schema": out}, skipped, as_json=as_json)


@command.command("check")
@click.argument("schema", type=click.Path())
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
        facts |= {"empty features": [name for name, count in zip(agreed.names, sums, strict=True) if not count]}
        if as_json and table.applied is not None:
            facts |= {"unlisted": table.applied.unlisted, "missing": table.applied.missing}
    print_facts(facts if as_json else {name: _plain(fact) for name, fact in facts.items()}, as_json=as_json)


@command.command("show")
@click.argument("schema", type=click.Path())
@options.as_json
def show_command(schema: str, as_json: bool) -> None:
    """Show the features of SCHEMA with their rules, and its digest."""
    from felb.data import Schema

    _print_schema(Schema.read(schema), {"schema": schema}, {}, as_json=as_json)


@command.command("diff")
@click.argument("old", type=click.Path())
@click.argument("new", type=click.Path())
@options.as_json
def diff_command(old: str, new: str, as_json: bool) -> int:
    """Show how the schema NEW differs from OLD; the exit code is 1 if they give different matrices."""
    from felb.data import Schema
    from felb.data.schema_diff import differences

    first, second = Schema.read(old), Schema.read(new)
    found = differences(first, second)
    if as_json:
        print_json({"same": first.digest == second.digest, "differences": found})
    else:
        for line in found or ["the schemas give the same matrix"]:
            click.echo(line)
    return 0 if first.digest == second.digest else DIFFERENT


@command.command("propose")
@click.argument("data")
@out
@table_options
@click.option(
    "--min-count",
    default=10,
    show_default=True,
    type=click.IntRange(min=2),
    metavar="N",
    help="Minimum number of records of a category or code in the proposal.",
)
@click.option("--rounding", default=5, show_default=True, help="Round counts down to multiples of N.", **options.COUNT)
@click.option(
    "--site",
    "folder",
    type=click.Path(),
    help="Folder of the site; its policy is applied, and its privacy budget is charged.",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="Add noise to all counts for (ε, δ)-differential privacy of records; needs --site, whose budget is charged.",
)
@click.option(
    "--delta",
    type=click.FloatRange(0, 1),
    default=1e-6,
    show_default=True,
    metavar="X",
    help="δ of the guarantee of --epsilon.",
)
@click.option(
    "--max-events",
    default=20,
    show_default=True,
    help="With --epsilon: maximum number of events of a record that are counted; a larger number needs more noise.",
    **options.COUNT,
)
@options.force
@options.as_json
def propose_command(
    data: str,
    out: str,
    rounding: int,
    folder: str | None,
    epsilon: float | None,
    delta: float,
    max_events: int,
    min_count: int,
    force: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """At a site of a federation: write a proposal for a common schema from DATA, to send to the coordinator.

    The proposal lists the categories and codes that at least --min-count records have, with rounded counts, and rounded
    quantiles of numbers. Inspect it before you send it. With --epsilon the counts are noisy, and a category or code
    must also reach a higher threshold, which the command prints.
    """
    from felb.data.propose_schema import check_new, disclosed, write_proposal
    from felb.data.summarize import summarize

    counting = _counting(settings)
    check_new(out, force=force)  # a proposal that cannot be written must not be charged
    facts: dict[str, Any] = {"proposal": out}
    if epsilon is None:
        if folder is not None:
            _check_exact(folder)
        summary = disclosed(summarize(data, **counting), min_count=min_count, base=rounding)
    else:
        summary, noise = _propose_privately(
            folder, data, epsilon=epsilon, delta=delta, min_count=min_count, max_events=max_events, **counting
        )
        facts |= {"epsilon": epsilon, "delta": delta, "noise": round(noise.sigma, 1)}
        facts |= {"named from": math.ceil(noise.threshold)}
    write_proposal(summary, out, prefixes=counting["prefix_length"] is not None, force=force)
    facts |= {"columns": len(summary.columns), "codes": len(summary.codes), "records": summary.records}
    print_facts(facts, as_json=as_json)


def _check_exact(folder: str) -> None:
    from felb.engines.nvflare.proposals import check_exact_proposal
    from felb.engines.nvflare.provisioning import Site

    check_exact_proposal(Site.open(folder))


def _propose_privately(folder: str | None, data: str, **settings: Any) -> tuple[Summary, CountNoise]:
    from felb.engines.nvflare.proposals import propose_privately
    from felb.engines.nvflare.provisioning import Site

    if folder is None:
        raise InputError("noisy counts are charged to the budget of a site; name its folder", parameter="site")
    return propose_privately(Site.open(folder), data, **settings)


@command.command("merge")
@click.argument("proposals", nargs=-1, required=True, type=click.Path())
@out
@choice_options
@options.force
@options.as_json
def merge_command(proposals: tuple[str, ...], out: str, force: bool, as_json: bool, **choice: Any) -> None:
    """At the coordinator: merge the PROPOSALS... of all sites into one schema, which they approve by its digest."""
    from felb.data.propose_schema import make_schema, merged, read_proposal

    read_back = [read_proposal(path) for path in proposals]
    if len({prefixes for _, prefixes in read_back}) > 1:
        raise InputError("some proposals count whole codes and some beginnings of codes; use one --prefix-length")
    schema = make_schema(merged([summary for summary, _ in read_back]), prefixes=read_back[0][1], **choice)
    schema.write(out, force=force)
    _print_schema(schema, {"schema": out, "sites": len(proposals)}, {}, as_json=as_json)


def _counting(settings: dict[str, Any]) -> dict[str, Any]:
    from felb.data.schema import Roles

    roles = {name: settings.pop(name) for name in ("record", "item", "value", "time")}
    given = Roles(**roles) if any(roles.values()) else None
    return {**settings, "leave_out": tuple(settings["leave_out"]), "roles": given}


def _print_schema(schema: Schema, facts: dict[str, Any], skipped: dict[str, str], *, as_json: bool) -> None:
    from felb.data.schema_file import schema_text

    facts = {**facts, "digest": schema.digest, "features": len(schema.features)}
    if as_json:
        print_json({**facts, "skipped": skipped, "rules": schema.to_json(), "toml": schema_text(schema)})
        return
    print_facts(facts, as_json=False)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("column", "feature", "rule"):
        table.add_column(name, overflow="fold")
    above: str | None = ""
    for feature in schema.features:
        table.add_row("" if feature.column == above else feature.column or "(codes)", feature.name, feature.rule())
        above = feature.column
    console = plain_console()
    console.print()
    console.print(table)
    for column, reason in skipped.items():
        click.echo(f"note: no feature of {column!r}: it {reason}", err=True)


def _plain(fact: Any) -> Any:
    if isinstance(fact, list):
        return f"{len(fact)}: {', '.join(fact[:10])}{', …' if len(fact) > 10 else ''}" if fact else "none"
    return Path(fact) if isinstance(fact, Path) else fact
