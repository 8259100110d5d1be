"""``felb experiment``: the experiments of the paper."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from felb.cli import options
from felb.cli.output import marked_grid, plain_console, print_facts, print_json
from felb.cli.progress import advising, step_progress
from felb.errors import InputError, MissingExtraError
from felb.safe_files import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from felb.paper.study import Claim, StudyRecord
    from felb.runs.cell_runner import Progress

ALL = "all"
FOLDER = "felb-experiments"
FIGURE = "figure.png"
PAGE = "report.html"

quick_option = click.option(
    "--quick", is_flag=True, help="Use the quick form: smaller data and fewer trials, one or two minutes on two cores."
)
out_option = click.option(
    "-o", "--out", type=click.Path(), metavar="DIR", help=f"Folder of the experiment (default: {FOLDER}/NAME-FORM)."
)


@click.group("experiment")
def command() -> None:
    """Run the experiments of the paper and show their results.

    An experiment consists of runs. A run is one trial of a method under a setting. It is stored as soon as it has
    ended, so that an interrupted experiment continues when it is run again.
    """


@command.command("list")
@options.as_json
def list_(as_json: bool) -> None:
    """List the experiments and the number of runs of their quick and full forms."""
    from felb.paper.catalogue import NAMES, find_study

    rows = [
        {
            "name": name,
            "question": find_study(name).question,
            "quick": len(find_study(name, quick=True).cells()),
            "full": len(find_study(name).cells()),
        }
        for name in NAMES
    ]
    if as_json:
        print_json(rows)
        return
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "quick", "full", "question"):
        grid.add_column(column, justify="right" if column in ("quick", "full") else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(str(row[column]) for column in ("name", "quick", "full", "question")))
    plain_console().print(grid)


@command.command("run")
@click.argument("name")
@quick_option
@out_option
@click.option("--jobs", help="Number of runs in parallel (default: the number of cores).", **options.COUNT)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time limit of each run (default: that of the experiment; in full form 12 hours, on real data 10 minutes).",
)
@click.option(
    "--trials", help="Number of trials of each setting (default: 10 in full form, 3 on real data).", **options.COUNT
)
@click.option(
    "--data",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Folder of further matrices to run on, SciPy .npz or .felb files (default: $FELB_DATA, or ~/felb-data).",
)
@click.option(
    "--method",
    "own",
    multiple=True,
    metavar="PATH",
    help="Also run a federated method of your own, package.module:Class, or a centralized one at every client, "
    "package.module:Class+vote; it is imported, which runs its code. Can be repeated; for experiments that compare "
    "methods.",
)
@options.as_json
def run(
    name: str,
    quick: bool,
    out: str | None,
    jobs: int | None,
    time_limit: float | None,
    trials: int | None,
    data: str | None,
    own: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run the experiment NAME, print its table and draw its figure; NAME may be "all".

    Runs that are stored in the folder are not repeated. A run that fails or exceeds its time limit is recorded as
    such and has no value in the table. With NAME "all", --out is the parent folder of all experiments.
    """
    from felb.paper.catalogue import NAMES, find_study
    from felb.paper.own_federated import with_own_methods
    from felb.paper.runner import run_study

    names = NAMES if name == ALL else (name,)
    if own:
        sys.path.insert(0, str(Path.cwd()))  # where the user's own package is looked for first, as `python -m` does
    studies = [
        with_own_methods(find_study(each, quick=quick, trials=trials, data=data_for(each, data, many=name == ALL)), own)
        for each in names
    ]
    told = []
    for study in studies:
        folder = folder_of(study.name, study.form, out, many=name == ALL)
        given = {"out": out, "trials": trials, "time_limit": time_limit, "data": data}
        advice = partial(resume_advice, name, quick=quick, own=own, **given)
        with advising(advice), step_progress(study.name) as advance:
            record = run_study(
                study,
                folder,
                jobs=jobs or cores(),
                time_limit=time_limit,
                on_progress=partial(tell, advance),
            )
        figure, note = drawn(record, folder / FIGURE)
        if as_json:
            told.append(facts(record, study.judge(record), folder, figure=figure))
        else:
            show(record, study.judge(record), folder, figure=figure)
        if note:
            click.echo(f"note: {note}", err=True)
    if as_json:
        print_json(told if name == ALL else told[0])


@command.command("table")
@click.argument("name")
@quick_option
@out_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: one line for each value with its interval.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a Markdown page of the experiment.")
@options.as_json
def table(name: str, quick: bool, out: str | None, as_csv: bool, as_markdown: bool, as_json: bool) -> None:
    """Print the table of the experiment NAME from its stored runs, without starting any.

    Without --out and --quick, the full form is shown if there is one, else the quick one.
    """
    from felb.paper.catalogue import find_study
    from felb.paper.tables import to_csv, to_markdown

    if as_csv + as_markdown + as_json > 1:
        raise click.UsageError("Give one of --csv, --markdown and --json.")
    folder, record = stored(name, quick, out)
    claims = find_study(name, quick=record.form == "quick").judge(record)
    if as_csv:
        click.echo(to_csv(record), nl=False)
    elif as_markdown:
        click.echo(to_markdown(record, claims), nl=False)
    else:
        figure = folder / FIGURE if (folder / FIGURE).is_file() else None
        if as_json:
            print_json(facts(record, claims, folder, figure=figure))
        else:
            show(record, claims, folder, figure=figure)


@command.command("report")
@click.argument("folder", type=click.Path())
@click.option("-o", "--out", metavar="FILE", help=f"HTML file to write (default: {PAGE} in FOLDER).")
@options.force
@options.as_json
def report(folder: str, out: str | None, force: bool, as_json: bool) -> None:
    """Write one self-contained HTML page of the experiment in FOLDER: claims, plot, tables and provenance."""
    from felb.paper.study_page import study_page

    target = Path(folder) / PAGE if out is None else Path(out)
    print_facts({"page": str(target), "bytes": study_page(folder).write(target, force=force)}, as_json=as_json)


@command.command("pages")
@click.argument("folder", type=click.Path())
@click.option("--to", "target", required=True, type=click.Path(), metavar="DIR", help="Folder for the pages.")
@options.as_json
def pages(folder: str, target: str, as_json: bool) -> None:
    """Write a Markdown page with table, claims and figure for each experiment in FOLDER, its runs, and an index."""
    from felb.paper.catalogue import NAMES, find_study
    from felb.paper.figures import draw_study
    from felb.paper.study import MANIFEST, StudyRecord
    from felb.paper.tables import index_markdown, runs_to_csv, to_markdown

    place, entries, written = Path(target), [], []
    found = {path.parent: StudyRecord.read(path.parent) for path in sorted(Path(folder).glob(f"*/{MANIFEST}"))}
    if not found:
        raise InputError(
            f"there are no experiments in {folder}; run some with `felb experiment run all --out {folder}`"
        )
    place.mkdir(parents=True, exist_ok=True)
    for record in sorted(found.values(), key=lambda record: NAMES.index(record.name)):
        claims = find_study(record.name, quick=record.form == "quick").judge(record)
        page, figure, runs = (f"{record.name}.{suffix}" for suffix in ("md", "png", "csv"))
        draw_study(record, place / figure)
        write(place / page, to_markdown(record, claims, figure=figure, runs=runs))
        write(place / runs, runs_to_csv(record))
        entries.append((record, claims, page))
        written += [str(place / page), str(place / runs)]
    write(place / "README.md", index_markdown(entries))
    written.append(str(place / "README.md"))
    if as_json:
        print_json(written)
    else:
        for path in written:
            click.echo(path)


def tell(advance: Callable[..., None], progress: Progress) -> None:
    """Show the progress of an experiment."""
    advance(progress.kept + progress.measured, progress.total, progress.last)


# -- folders -----------------------------------------------------------------------------------------------------------


def folder_of(name: str, form: str, out: str | None, *, many: bool = False) -> Path:
    """Return the folder of an experiment."""
    if out is not None and not many:
        return Path(out)
    return Path(FOLDER if out is None else out) / f"{name}-{form}"


def data_for(name: str, data: str | None, *, many: bool) -> str | None:
    """Return the data folder of an experiment; None for experiments on synthetic data if all are run."""
    from felb.paper.catalogue import find_study

    return None if many and not find_study(name).reads_data else data


def stored(name: str, quick: bool, out: str | None) -> tuple[Path, StudyRecord]:
    """Return the folder and the record of a stored experiment."""
    from felb.paper.catalogue import find_study
    from felb.paper.study import MANIFEST, StudyRecord

    find_study(name)
    if out is not None:
        folder = Path(out)
    else:
        places = [folder_of(name, form, None) for form in (("quick",) if quick else ("full", "quick"))]
        folder = next((place for place in places if (place / MANIFEST).is_file()), places[0])
    record = StudyRecord.read(folder)
    if record.name != name:
        raise InputError(f"{folder} holds the experiment {record.name!r}, not {name!r}; give another folder with --out")
    return folder, record


def drawn(record: StudyRecord, path: Path) -> tuple[Path | None, str]:
    """Draw the plot; if that is not possible, return the reason."""
    from felb.paper.figures import draw_study

    if not record.count("done"):
        return None, "no run is done, so there is no figure"
    try:
        draw_study(record, path)
    except MissingExtraError as error:
        return None, f"no figure was drawn: {error}"
    return path, ""


def write(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# -- what is shown -----------------------------------------------------------------------------------------------------


def facts(record: StudyRecord, claims: list[Claim], folder: Path, *, figure: Path | None) -> dict[str, Any]:
    """Return an experiment as plain data."""
    from felb.paper.tables import to_rows
    from felb.runs.cell_records import STATUSES

    return {
        "experiment": record.name,
        "form": record.form,
        "folder": str(folder),
        "figure": None if figure is None else str(figure),
        "cells": {status: record.count(status) for status in STATUSES},
        "missing": record.missing,
        "figures": to_rows(record),
        "claims": [asdict(claim) for claim in claims],
    }


def show(record: StudyRecord, claims: list[Claim], folder: Path, *, figure: Path | None) -> None:
    """Print the tables, the claims and the files of an experiment."""
    from felb.paper.tables import failures, study_tables, summary

    console = plain_console()
    for line in (f"{record.title} ({record.form} form)", record.view.note, ""):
        console.print(line)
    for each in study_tables(record):
        console.print(marked_grid(each))
        console.print()
    console.print(summary(record))
    for reason in failures(record):
        console.print(f"no value: {reason}")
    console.print()
    for claim in claims:
        console.print(f"{claim.verdict:<15}{claim.says}: {claim.numbers}")
    console.print()
    console.print(f"runs    {folder}", soft_wrap=True)
    if figure is not None:
        console.print(f"figure  {figure}", soft_wrap=True)


def resume_advice(name: str, *, quick: bool, own: Sequence[str] = (), **given: str | float | None) -> str:
    """Return the command that resumes an experiment."""
    words = ["felb", "experiment", "run", name, *(["--quick"] if quick else [])]
    for option, value in options.given(**given).items():
        words += [f"--{option.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    words += [word for path in own for word in ("--method", path)]
    return f"finished runs are kept; resume with: {shlex.join(words)}"
