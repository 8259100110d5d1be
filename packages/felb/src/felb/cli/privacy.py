"""``felb privacy``: outbound logs, privacy statements and the noise of a guarantee."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from rich.padding import Padding

from felb.cli import options
from felb.cli.options import COUNT, PATH, option
from felb.cli.output import echo, new_table, plain_console, print_json, print_rows, unverified_option
from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from felb.privacy.outbound_log import Left


def print_outbound(lines: Sequence[Mapping[str, Any]], *, nothing: str) -> None:
    """Print one line for each kind of array that left; clients with equal tables are grouped."""
    from felb.privacy.outbound_log import summarize

    console = plain_console()
    if not lines:
        console.print(nothing, soft_wrap=True)
        return
    left = summarize(lines)
    for names, parts in group_alike(left):
        who = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others, each"
        console.print(who if parts[0].run is None else f"{who}, run {parts[0].run}", soft_wrap=True)
        table = new_table("rounds", "what", "shape", "bytes", "mechanism", "cost", "total", right=("bytes",))
        for part in parts:
            what = part.what if part.what == part.task else f"{part.task}: {part.what}"
            shape = "x".join(map(str, part.shape)) or "1"
            row = (describe_rounds(part), what, shape, f"{part.bytes:,}", part.mechanism)
            table.add_row(*row, part.cost_in_words, part.total_in_words)
        console.print(Padding(table, (0, 0, 1, 2)))
    console.print(describe_total(left), soft_wrap=True)


def group_alike(left: Sequence[Left]) -> list[tuple[list[str], list[Left]]]:
    """Group clients whose tables are equal."""
    by_client: dict[tuple[str | None, str], list[Left]] = {}
    for part in left:
        by_client.setdefault((part.run, part.client), []).append(part)
    groups: dict[str, tuple[list[str], list[Left]]] = {}
    for (_, client), parts in by_client.items():
        same = repr([replace(part, client="") for part in parts])  # which includes the run: runs are never grouped
        groups.setdefault(same, ([], parts))[0].append(client)
    return list(groups.values())


def describe_rounds(part: Left) -> str:
    """Return the rounds of a line: 3, or 0-49, or 5 of 0-49 if some rounds are missing."""
    first, last = part.rounds
    if first == last:
        return str(first)
    return f"{first}-{last}" if part.count == last - first + 1 else f"{part.count} of {first}-{last}"


def describe_total(left: Sequence[Left]) -> str:
    """Return a sentence with the total size and the total privacy cost."""
    from felb.privacy.outbound_log import SYNTHETIC

    clients = sorted({part.client for part in left})
    size = sum(part.bytes for part in left)
    count = sum(part.count for part in left)
    text = f"total: {count:,} arrays, {size:,} bytes, from {len(clients)} client{'s' if len(clients) > 1 else ''}"
    bare = sum(part.count for part in left if part.cost is None and part.mechanism != SYNTHETIC)
    if bare:
        return (
            f"{text}; {'none' if bare == count else f'{bare:,} not'} protected by noise, so there is no privacy total"
        )
    totals = [part.total for part in left if part.total is not None]
    if not totals:
        return text
    worst = max(totals, key=lambda total: float(total["epsilon"]))
    return f"{text}; each has spent at most (epsilon, delta) = ({worst['epsilon']:.4g}, {worst['delta']:.3g})"


HANGING = 21
"""Width of the first column of a statement."""


@click.group("privacy")
def privacy_command() -> None:
    """Show the releases and the privacy guarantee of a run, or the noise that a guarantee needs.

    Commands that add noise require felb[privacy].
    """


@privacy_command.command("log")
@click.argument("run", **PATH)
@option("--client", "Show only this client.", "NAME")
@options.as_json
def log(run: str, client: str | None, as_json: bool) -> None:
    """Show the outbound logs: client, rounds, arrays, shape, bytes, mechanism, cost, running total.

    RUN is the folder of a simulated run, the folder of a site of a federation, or one log file (.jsonl). The cost is
    the μ of Gaussian noise, or the ε of other noise, of all arrays of a line together. The total is the ε that the
    client has spent up to this line.
    """
    from felb.privacy.outbound_log import summarize
    from felb.runs.folder import outbound_lines

    lines = outbound_lines(run, client=client)
    if as_json:
        print_json([left.to_json() for left in summarize(lines)])
    else:
        print_outbound(lines, nothing=f"{run} has no outbound log: nothing was sent, or the logs are at the sites")


@privacy_command.command("plan")
@option("-n --records", "Number of records of all clients.", COUNT, required=True)
@option("-m --features", "Number of features.", COUNT, required=True)
@option("--clients", "Number of clients.", COUNT, 10)
@option(
    "--ones-per-record", "Median number of ones per record: the row bound, unless the specification has one.", COUNT, 20
)
@options.privacy_spec("required")
@options.as_json
def plan(
    records: int, features: int, clients: int, ones_per_record: int, privacy: dict[str, Any] | None, as_json: bool
) -> None:
    """Show how much noise a guarantee needs, before any data is read; --epsilon is required.

    Compare the noise of the sum with the counts that matter: a component of 1000 records is found if 1000 is several
    times the noise of the co-occurrence counts. The noise of a choice or of scores depends on earlier releases.

    \b
    share   fraction of the privacy budget (of mu squared)
    sd      standard deviation of the noise, in counts
    """  # noqa: D301
    from felb.privacy.spec import read_privacy

    if "epsilon" not in (privacy or {}):
        raise click.UsageError("Give --epsilon, the privacy budget of the run, for example 1.")
    spec = read_privacy(privacy or {})
    if spec.unit != "record":
        raise InputError("plans are for mechanisms that protect a record", parameter="unit")
    found = spec.plan(n_records=records, n_clients=clients, n_columns=features)
    releases = found.noise_scales(row_bound=min(ones_per_record, features))
    if as_json:
        print_json({"epsilon": spec.epsilon, "delta": found.delta, "mu": found.mu, "releases": releases})
        return
    echo(f"(epsilon, delta) = ({spec.epsilon:g}, {found.delta:.3g}) in total per record; mu = {found.mu:.3g}")
    forms = {"share": "{:.0%}", "rounds": "{}", "mu": "{:.3g}", "sigma_client": "{:,.1f}", "sigma_sum": "{:,.1f}"}
    titles = ("share", "rounds", "mu", "sd at a client", "sd of the sum")
    print_rows(
        [
            {"release": row["release"]}
            | {
                title: "-" if row[name] is None else form.format(row[name])
                for title, (name, form) in zip(titles, forms.items(), strict=True)
            }
            for row in releases
        ]
    )


@privacy_command.command("statement")
@click.argument("run", **PATH)
@options.as_json
@unverified_option
def statement(run: str, as_json: bool) -> None:
    """Show the privacy guarantee of the result in the folder RUN: unit, attackers, budget and conditions."""
    from felb.runs.folder import outbound_lines
    from felb.runs.result import Result

    result = Result.read(run)
    if as_json:
        print_json({"result": run, "privacy": result.privacy})
        return
    if result.privacy is not None:
        print_statement(result.privacy["text"])
        return
    lines = outbound_lines(run)
    plain_console().print("This run has no privacy specification: no noise was added, and nothing is guaranteed.")
    if not lines:
        echo("There is no outbound log: the data was centralized, or the logs are at the sites.")
        return
    plain_console().print(
        "Records did not leave their clients. These exact values, computed from them, did:", end="\n\n"
    )
    print_outbound(lines, nothing="")


def print_statement(text: str) -> None:
    """Print a statement, wrapped to the width of the terminal."""
    width = max(60, plain_console().width)
    for line in text.splitlines():
        echo(textwrap.fill(line, width, subsequent_indent=" " * HANGING, break_on_hyphens=False))
