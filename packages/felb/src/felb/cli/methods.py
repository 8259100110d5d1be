"""``felb compare`` and ``felb cite``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felb.cli import options
from felb.cli.analysis import Numbers
from felb.cli.options import COUNT, PATH, option
from felb.cli.output import (
    advising,
    echo,
    marked_grid,
    plain_console,
    print_facts,
    print_json,
    step_progress,
    warnings_as_notes,
)
from felb.errors import InputError
from felb.federated.algorithms.registry import DEFAULT, summaries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.runs.compare import Compared

METHODS = "bmf,felb,felb-mu,asso+vote,grecond+vote,mebf+vote"


@click.command("compare", epilog=options.methods(*summaries()))
@click.argument("data")
@option(
    "--methods",
    "Methods to compare, or import paths of your own, package.module:Class; a path is imported, which runs its code.",
    "A,B,…",
    METHODS,
)
@option("-k --components", "Numbers of components.", {"type": Numbers(), "metavar": "N,N,…|N-N"}, "5,10,20")
@options.clients
@option("--seeds", "Number of trials, with seeds 0, 1, ….", COUNT, 3)
@option("-o --out", "Folder for the runs, the tables and the page.", PATH, required=True)
@option("--jobs", "Number of runs in parallel.", COUNT, 1)
@option("--time-limit", "Time limit of each run, in seconds.", options.SECONDS, 600.0)
@option(
    "-p --param given",
    "Parameter of one method, for example asso+vote:tau=0.9, or of all methods that have it; can be repeated.",
    options.PAIRS,
    metavar="[METHOD:]NAME=VALUE",
)
@options.reading
@options.as_json
def compare_command(
    data: str,
    methods: str,
    components: list[int],
    clients: int | None,
    seeds: int,
    out: str,
    jobs: int,
    time_limit: float,
    given: dict[str, Any],
    as_json: bool,
    **reading: Any,
) -> None:
    """Compare methods on DATA and write the tables and a page to the folder OUT.

    Every method is run with every number of components and every seed; federated methods over the clients, methods for
    centralized data (such as asso and grecond) on all rows. A run is stored when it has ended: execute the command
    again to resume an interrupted comparison, or to add methods, numbers of components or seeds.

    OUT contains table.csv, table.md, table.tex (bold: best, underlined: second best of a column) and comparison.html.
    Seconds are processor time of a run without compilation.
    """
    from felb.runs.job import Job

    names = tuple(dict.fromkeys(word.strip() for word in methods.split(",") if word.strip()))
    if any(":" in name for name in names):
        sys.path.insert(0, str(Path.cwd()))  # where the user's own package is looked for first, as `python -m` does
    count = options.count_of(clients, reading["client_column"])
    job = Job(data, DEFAULT, components[0], clients=count, **options.given(**reading))
    job.check_names()
    from felb.runs.compare import Comparison, compare  # slow to import, and not needed to refuse wrong names

    comparison = Comparison(job, names, tuple(sorted(set(components))), seeds, sort_by_method(given))
    advice = f"finished runs are kept; resume with: felb {shlex.join(sys.argv[1:])}"
    with warnings_as_notes(), advising(lambda: advice), step_progress("runs") as advance:
        on_progress = lambda done: advance(done.kept + done.measured, done.total, done.last)  # noqa: E731
        compared = compare(comparison, out, jobs=jobs, time_limit=time_limit, on_progress=on_progress)
    print_comparison(compared, out, as_json=as_json)


def sort_by_method(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return parameters by method; "" for those of all methods."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        method, _, parameter = name.rpartition(":")
        if not parameter:
            raise InputError(f"{name!r} names no parameter; use METHOD:NAME=VALUE", parameter="param")
        found.setdefault(method, {})[parameter] = value
    return found


def print_comparison(compared: Compared, out: str, *, as_json: bool) -> None:
    """Write the tables and the page, and print the tables."""
    from felb.report.exports import write_comparison
    from felb.report.tables import comparison_tables, describe_comparison

    files = write_comparison(compared, out)
    if as_json:
        cells = [
            {"method": method, "components": k, "seed": seed, "status": cell.status, **cell.figures}
            for (method, k, seed), cell in compared.cells.items()
        ]
        print_json({"data": compared.source, "shape": compared.shape, "cells": cells, "files": files})
        return
    console = plain_console()
    for table in comparison_tables(compared):
        console.print(marked_grid(table))
        console.print()
    console.print(f"{describe_comparison(compared)} * best of a column")
    for reason, where in compared.failures().items():
        console.print(f"no scores: {', '.join(where)}: {reason}")
    console.print()
    print_facts(files, as_json=False)


@click.command("cite", epilog=options.methods(*summaries()))
@click.argument("method", required=False)
@options.as_json
def cite_command(method: str | None, as_json: bool) -> None:
    """Print the publications of METHOD as BibTeX; without METHOD, those of all methods.

    A post-hoc method such as asso+vote has those of its centralized method and of the paper that federates it.
    """
    from felb.sklearn.methods import read_publications

    found = read_publications(method)
    if as_json:
        print_json(found)
    else:
        echo("\n\n".join(found.values()))
