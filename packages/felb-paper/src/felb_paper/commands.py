"""``felb data`` and ``felb experiment``."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from felb.cli import options
from felb.cli.output import advising, marked_grid, plain_console, print_facts, print_json, print_rows, step_progress
from felb.errors import InputError, MissingExtraError
from felb.records import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from felb.runs.cells import Progress
    from felb_paper.data import Entry
    from felb_paper.job import Forecast
    from felb_paper.study import Claim, StudyRecord

SUFFIX = ".felb"


@click.group("data")
def data_command() -> None:
    """List public data sets, show their sources, and load their raw files.

    Nothing is downloaded. `felb data info` shows the source and the licence of a data set, and `felb data load`
    converts its raw file to a .felb matrix that the other commands use from disk.
    """


@data_command.command("list")
@options.as_json
def list_data(as_json: bool) -> None:
    """List the data sets: size, density, and whether they are included in felb."""
    from felb_paper.data import entries

    if as_json:
        print_json([_facts(entry) for entry in entries().values()])
        return
    print_rows(
        [
            {
                "name": entry.name,
                "rows": "–" if entry.shape is None else entry.shape[0],
                "columns": "–" if entry.shape is None else entry.shape[1],
                "density": "–" if entry.density is None else float(f"{entry.density:.4g}"),
                "raw file": "included in felb" if entry.shipped else "needed",
                "what": entry.title,
            }
            for entry in entries().values()
        ]
    )


@data_command.command("info")
@click.argument("name")
@options.as_json
def info(name: str, as_json: bool) -> None:
    """Show the description, licence, attribution, source and folder of the data set NAME."""
    from felb_paper.data import DATA_FOLDER, find

    entry = find(name)
    if as_json:
        print_json(_facts(entry))
        return
    about = " (of one snapshot; it grows)" if entry.grows else ""
    facts = {
        "name": entry.name,
        "what": entry.title,
        "matrix": _matrix_text(entry) + about,
        "licence": entry.licence,
        "attribution": entry.attribution,
        "publisher": entry.home,
    }
    if entry.shipped:
        facts["use"] = f"included in felb: felb simulate {entry.name} ..."
    else:
        facts |= {
            "download": entry.download,
            "files": " or ".join(entry.files) + ", plain, .gz or in the .zip",
            "put into": f"{entry.folder} (or elsewhere, with --raw; ${DATA_FOLDER} names the folder above)",
            "then": f"felb data load {entry.name} --raw PATH --out {entry.name}{SUFFIX}",
        }
    print_facts(facts, as_json=False)


@data_command.command("load")
@click.argument("name")
@click.option(
    "--raw",
    type=click.Path(),
    metavar="PATH",
    help="Raw file, or the .zip file or folder that contains it (default: the folder of `felb data info`).",
)
@click.option("-o", "--out", type=click.Path(), required=True, metavar="FILE", help="File to write; must end in .felb.")
@click.option(
    "--at-least",
    type=float,
    metavar="X",
    help="Smallest rating that is converted to 1; for data sets of ratings (default: 3.5).",
)
@click.option(
    "--any-shape",
    is_flag=True,
    help="Accept data of another shape than the published one, such as another release or a part of it.",
)
@options.force
@options.as_json
def load(
    name: str, raw: str | None, out: str, at_least: float | None, any_shape: bool, force: bool, as_json: bool
) -> None:
    """Load the raw data of the data set NAME and write it as a .felb file.

    The names of the rows are written to FILE.rows.txt, one per line. The shape of the matrix is compared with the
    published one.
    """
    from felb_paper.data import find, load_raw

    entry, target = find(name), Path(out)
    parameters: dict[str, Any] = {}
    if at_least is not None:
        if entry.loader not in ("load_goodreads", "load_movielens", "load_netflix"):
            raise click.UsageError(f"--at-least is for ratings; {entry.name} has none.")
        parameters["at_least"] = at_least
    names = target.with_suffix(".rows.txt")
    if target.suffix.lower() != SUFFIX:
        raise InputError(f"{target} does not end in {SUFFIX}; use {target.with_suffix(SUFFIX)}")
    for path in (target, names):
        if path.exists() and not force:
            raise InputError(f"{path} exists; choose another name, or set force to replace it", parameter="force")
    if not target.parent.is_dir():  # fail before minutes of reading
        raise InputError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
    table = load_raw(entry.name, raw, any_shape=any_shape, **parameters)
    table.matrix.save(target)
    if table.rows is None:
        names.unlink(missing_ok=True)  # those of a matrix that was replaced
    else:
        write(names, "".join(f"{' '.join(row.split())}\n" for row in table.rows))
    rows, columns = table.matrix.shape
    if as_json:
        facts = {"rows": rows, "columns": columns, "ones": table.matrix.nnz, "fingerprint": table.matrix.fingerprint()}
        print_json({"name": entry.name, "target": out, "row_names": str(names) if table.rows else None, **facts})
    else:
        click.echo(f"{out}: {rows} records x {columns} features, {table.matrix.nnz} ones")
        if table.rows:
            click.echo(f"{names}: names of the records")
    if entry.shape is not None and table.matrix.shape != entry.shape:
        published = " x ".join(map(str, entry.shape))
        click.echo(f"note: the published matrix is {published}, this one {rows} x {columns}", err=True)


def _back_computed_density(entry: Entry) -> float | None:
    from felb_paper.experiments.real import TABLE

    return next((row.back_computed_density for row in TABLE if row.name == entry.name), None)


def _matrix_text(entry: Entry) -> str:
    """Say size and density: measured for data that comes with felb, as the paper prints them for its own."""
    if entry.shape is None:
        return "of no published size"
    size = f"{entry.shape[0]} records x {entry.shape[1]} features, {entry.density:.4g} dense"
    found = _back_computed_density(entry)
    if found is None:
        return size
    return f"{size} as the paper prints it; {found:.4g} computed back from an RMSD of its table with F1 = 0"


def _facts(entry: Entry) -> dict[str, Any]:
    rows, columns = (None, None) if entry.shape is None else entry.shape
    said = {name: fact for name, fact in asdict(entry).items() if name not in ("title", "shape", "loader")}
    place = {"folder": None if entry.shipped else str(entry.folder), "shipped": entry.shipped}
    back = {"back_computed_density": _back_computed_density(entry)}
    return {**said, **back, "what": entry.title, "rows": rows, "columns": columns, **place}


# -- ``felb experiment``: the experiments of the paper ---------------------------------------------------------------

ALL = "all"
FOLDER = "felb-experiments"
FIGURE = "figure.png"

quick_option = click.option(
    "--quick", is_flag=True, help="Use the quick form: smaller data and fewer trials, one or two minutes on two cores."
)
out_option = click.option(
    "-o", "--out", type=click.Path(), metavar="DIR", help=f"Folder of the experiment (default: {FOLDER}/NAME-FORM)."
)


@click.group("experiment")
def experiment_command() -> None:
    """Run the experiments of the paper and show their results.

    An experiment consists of runs. A run is one trial of a method under a setting. It is stored as soon as it has
    ended, so that an interrupted experiment continues when it is run again.
    """


@experiment_command.command("list")
@options.as_json
def list_experiments(as_json: bool) -> None:
    """List the experiments and the number of runs of their quick and full forms."""
    from felb_paper.experiments import NAMES, find_study

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
    print_rows([{name: row[name] for name in ("name", "quick", "full", "question")} for row in rows])


@experiment_command.command("run")
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
@click.option(
    "--store",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Folder of stored runs, one compact file for each experiment. Its runs are used if their method still gives "
    "the same result on a small problem, and all runs are written there at the end, also after an interruption.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="M",
    help="End after M minutes; runs under way are lost, all others are kept (default: when all runs are done).",
)
@click.option("--forecast", is_flag=True, help="Print what the missing runs will cost, and run nothing.")
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
    store: str | None,
    minutes: float | None,
    forecast: bool,
    as_json: bool,
) -> None:
    """Run the experiment NAME, print its table and draw its figure; NAME may be "all".

    Runs that are stored in the folder are not repeated. A run that fails or exceeds its time limit is recorded as
    such and has no value in the table. With NAME "all", --out is the parent folder of all experiments.
    """
    from felb.kernels.schedule import available_cpus
    from felb_paper.cells import run_study
    from felb_paper.experiments import NAMES, find_study
    from felb_paper.job import forecast_costs, pack_runs, unpack_runs
    from felb_paper.measuring import with_own_methods

    names = NAMES if name == ALL else (name,)
    if own:
        sys.path.insert(0, str(Path.cwd()))  # where the user's own package is looked for first, as `python -m` does
    studies = []
    for each in names:
        reads = name != ALL or find_study(each).reads_data  # those on synthetic data take no folder
        studies.append(
            with_own_methods(find_study(each, quick=quick, trials=trials, data=data if reads else None), own)
        )
    folders = {study.name: folder_of(study.name, study.form, out, many=name == ALL) for study in studies}
    place = None if store is None else Path(store)
    for study in studies:
        stale = 0 if place is None else unpack_runs(study, place, folders[study.name])[1]
        if stale:
            click.echo(f"note: {study.name}: {stale} stored runs are of another code and are measured again", err=True)
    if forecast or place is not None:
        show_forecast(forecast_costs(studies, folders), jobs or available_cpus(), to_stderr=not forecast)
    if forecast:
        return
    told, end = [], None if minutes is None else time.monotonic() + 60 * minutes
    for study in studies:
        folder = folders[study.name]
        given = {"out": out, "trials": trials, "time_limit": time_limit, "data": data, "store": store}
        advice = partial(resume_advice, name, quick=quick, own=own, **given)
        try:
            with advising(advice), step_progress(study.name) as advance:
                watch = partial(tell, advance, end=end)
                cores = jobs or available_cpus()
                record = run_study(study, folder, jobs=cores, time_limit=time_limit, on_progress=watch)
        except TimeIsUpError:
            click.echo(f"note: the time is up; {advice()}", err=True)
            return
        finally:
            if place is not None and folder.is_dir():
                pack_runs(study, folder, place)
        figure, note = drawn(record, folder / FIGURE)
        if as_json:
            told.append(facts(record, study.judge(record), folder, figure=figure))
        else:
            show(record, study.judge(record), folder, figure=figure)
        if note:
            click.echo(f"note: {note}", err=True)
    if as_json:
        print_json(told if name == ALL else told[0])


@experiment_command.command("table")
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
    from felb_paper.experiments import find_study
    from felb_paper.tables import to_csv, to_markdown

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


@experiment_command.command("pages")
@click.argument("folder", type=click.Path())
@click.option("--to", "target", required=True, type=click.Path(), metavar="DIR", help="Folder for the pages.")
@options.as_json
def pages(folder: str, target: str, as_json: bool) -> None:
    """Write a Markdown page with table, claims and figure for each experiment in FOLDER, its runs, and an index."""
    from felb_paper.experiments import NAMES, find_study
    from felb_paper.figures import draw_study
    from felb_paper.study import MANIFEST, StudyRecord
    from felb_paper.tables import index_markdown, runs_to_csv, to_markdown

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
        click.echo("\n".join(written))


class TimeIsUpError(Exception):
    """The minutes of a job are over."""


def tell(advance: Callable[..., None], progress: Progress, *, end: float | None = None) -> None:
    """Show the progress of an experiment, and end it when the time is up."""
    advance(progress.kept + progress.measured, progress.total, progress.last)
    if end is not None and time.monotonic() >= end and progress.kept + progress.measured < progress.total:
        raise TimeIsUpError


def show_forecast(forecasts: Sequence[Forecast], cores: int, *, to_stderr: bool) -> None:
    """Print what is done and what the rest costs."""
    for each in forecasts:
        cost = "unknown, as no run is done" if each.seconds is None else f"{each.seconds / 3600:.1f} processor hours"
        line = f"{each.name}: {each.done} of {each.planned} runs done, the rest: {cost}"
        click.echo(line, err=to_stderr)
    known = [each.seconds for each in forecasts if each.seconds is not None]
    if known:
        hours = sum(known) / 3600
        rest = "" if len(known) == len(forecasts) else " without those that are unknown"
        click.echo(
            f"in all {hours:.1f} processor hours, {hours / cores:.1f} hours on {cores} cores{rest}", err=to_stderr
        )


def folder_of(name: str, form: str, out: str | None, *, many: bool = False) -> Path:
    """Return the folder of an experiment."""
    if out is not None and not many:
        return Path(out)
    return Path(FOLDER if out is None else out) / f"{name}-{form}"


def stored(name: str, quick: bool, out: str | None) -> tuple[Path, StudyRecord]:
    """Return the folder and the record of a stored experiment."""
    from felb_paper.experiments import find_study
    from felb_paper.study import MANIFEST, StudyRecord

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
    from felb_paper.figures import draw_study

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


def facts(record: StudyRecord, claims: list[Claim], folder: Path, *, figure: Path | None) -> dict[str, Any]:
    """Return an experiment as plain data."""
    from felb.runs.cells import STATUSES
    from felb_paper.tables import to_rows

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
    from felb_paper.tables import failures, study_tables, summary

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
