"""The output of the commands: tables for people, JSON for programs; progress bars and resumption."""

from __future__ import annotations

import json
import shlex
import sys
import textwrap
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from felb.cli.options import PATH, option
from felb.errors import ConnectionLostError, printable
from felb.runs import UNVERIFIED, reading_unverified

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rich.text import Text

    from felb.federated.loop import RunProgress
    from felb.report.tables import MarkedTable
    from felb.runs.result import Component, Result
    from felb.tables.schema import Schema

SHOWN_FEATURES = 12
SCORES = ("f1", "rmsd", "precision", "recall", "coverage", "errors")


def print_json(data: Any) -> None:
    """Print plain data as JSON."""
    from felb.records import replace_nonfinite

    if UNVERIFIED.get() and isinstance(data, dict):
        data = {**data, "unverified": True}
    echo(json.dumps(replace_nonfinite(data), indent=1, allow_nan=False))


def print_result(result: Result, folder: str, *, as_json: bool, shown: int = SHOWN_FEATURES) -> None:
    """Print the provenance, the scores and the components of a result."""
    from felb.runs.result import remarks

    if as_json:
        summary = {key: value for key, value in result.to_json().items() if key not in ("history", "columns")}
        components = [asdict(component) for component in result.described()]
        conflicts = {} if result.schema is None else {"conflicts": result.conflicts()}
        told = {"remarks": remarks(result), "rounds": result.rounds(), "components": components, **conflicts}
        print_json({**summary, **told, "folder": folder})
        return
    console = plain_console()
    facts = new_table(show_header=False)
    for name, fact in describe(result, folder).items():
        facts.add_row(name, fact)
    console.print(facts)
    console.print()
    if result.privacy is None or result.scores:
        console.print(score_table({result.provenance.method: result.scores}))
    else:
        asking = f"felb score {shlex.quote(folder)} DATA"
        console.print(f"scores stay at the clients; compute them where the data is: {asking}", soft_wrap=True)
    console.print()
    console.print(component_table(result.described(), shown=shown, schema=result.schema))
    for sentence in [*remarks(result), *result.conflicts()]:
        echo(f"warning: {sentence}", err=True)


def plain_console() -> Console:
    """Return a console that prints names as they are: no markup, emoji or highlighting, and nothing to be obeyed."""
    return _PlainConsole(markup=False, emoji=False, highlight=False)


class _PlainConsole(Console):
    """Replaces what a terminal would obey, such as escapes and marks of direction, in every text and cell."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a line; what a terminal would obey is replaced."""
    click.echo(printable(text), err=err)


def new_table(*columns: str, right: Collection[str] = (), **options: Any) -> Table:
    """Return a table without lines; the columns on the `right` hold numbers, which are not wrapped."""
    table = Table(box=None, header_style="bold", pad_edge=False, **options)
    for name in columns:
        number = name in right
        table.add_column(
            name, justify="right" if number else "left", no_wrap=number, overflow="ellipsis" if number else "fold"
        )
    return table


def describe(result: Result, folder: str) -> dict[str, str]:
    """Return the facts about a result as text."""
    from felb.federated.algorithms import count_rounds_by_phase
    from felb.privacy.disclosure import Disclosure
    from felb.runs.result import ITERATION, records_in_words

    made, source, rounds = result.provenance, result.provenance.data, result.rounds()
    phases = ", ".join(f"{phase} {count}" for phase, count in count_rounds_by_phase(rounds).items())
    total = sum(rounds.values())
    run = f"{total} iterations" if rounds.keys() <= {ITERATION} else f"{total} rounds: {phases}"
    gap = f"{'yes' if result.converged else 'no, rounded at 1/2'} (integrality gap {result.integrality_gap:.2g})"
    facts = {
        "result": folder + (" (unverified: its files may have been changed)" if UNVERIFIED.get() else ""),
        "method": f"{made.method}, seed {made.seed}, felb {made.felb}",
        "data": f"{source['source']}: "
        + f"{records_in_words(result)} x {source['columns']} features"
        + ("" if source["ones"] is None else f", {source['ones']} ones")
        + (f", {source['unknown']} unknown cells" if source.get("unknown") else ""),
        **({} if result.schema is None else {"schema": result.schema.digest}),
        "clients": describe_clients(result.clients),
        "run": run,
        "boolean": "yes" if result.integrality_gap == 0 else gap,
    }
    if result.privacy is not None:
        told = result.privacy
        place = "each client adds all of its noise" if told["noise"] == "client" else "clients add shares of the noise"
        budget = f"(epsilon, delta) = ({told['epsilon']:g}, {told['delta']:.3g}) in total"
        facts["privacy"] = f"{budget} per {told['unit']}; {place}"
    if result.disclosure is not None:
        facts["disclosure"] = Disclosure.of(result.disclosure).in_words()
    if result.withheld:
        facts["withheld"] = f"components {', '.join(map(str, result.withheld))}: too few records by the rules"
    return facts if result.complete else facts | {"complete": "no, stopped by the time limit"}


def describe_clients(clients: Mapping[str, int | None]) -> str:
    """Return the number and the sizes of the clients, as far as they are known; a single client by its name."""
    if len(clients) <= 1:
        return next(iter(clients), "none")
    sizes = [size for size in clients.values() if size is not None]
    if len(sizes) < len(clients):
        return f"{len(clients)}: {', '.join(clients)}"
    return f"{len(clients)} with {' to '.join(map(str, sorted({min(sizes), max(sizes)})))} records each"


def score_table(rows: Mapping[str, Mapping[str, float]]) -> Table:
    """Return a table of scores, one row per method or data set."""
    table = new_table("", *SCORES, right=SCORES)
    for label, scores in rows.items():
        digits = {name: 0 if name == "errors" else 4 for name in scores}
        table.add_row(label, *(f"{scores[name]:.{digits[name]}f}" if name in scores else "-" for name in SCORES))
    return table


def component_table(
    components: Sequence[Component], *, shown: int = SHOWN_FEATURES, schema: Schema | None = None
) -> Table:
    """Return a table of components: number, support, size, feature names (the first few, by column of a schema)."""
    from felb.tables.schema import grouped

    known = any(component.support is not None for component in components)
    numbers = ("component", "support", "size") if known else ("component", "size")
    table = new_table(*numbers, "features", right=numbers)
    for component in components:
        features = component.features[:shown]
        text = list_first(features if schema is None else grouped(schema, features), more=component.features[shown:])
        support = ["" if component.support is None else str(component.support)] if known else []
        table.add_row(str(component.number), *support, str(len(component.features)), text or "(empty)")
    return table


def list_first(names: Sequence[str], *, more: Sequence[str]) -> str:
    """Return names as text, and how many more there are."""
    return ", ".join(names) + (f", … ({len(more)} more)" if more else "")


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same keys as a table; the last column is wrapped, numbers are aligned to the right."""
    names = list(rows[0]) if rows else []
    numbers = [name for name in names[:-1] if not all(isinstance(row[name], str) for row in rows)]
    table = new_table(*names, right=numbers)
    for row in rows:
        table.add_row(*(str(row[name]) for name in names))
    plain_console().print(table)


def marked_grid(table: MarkedTable) -> Table:
    """Return a table of scores for the terminal; the best of a column is marked with *."""
    grid = new_table(title=table.title, title_justify="left")
    for number, text in enumerate(table.head):
        grid.add_column(text, justify="right" if number else "left", overflow="fold")
    for row in table.rows:
        grid.add_row(*row)
    return grid


def print_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print named facts as JSON, or in lines wrapped to the terminal; a fingerprint or a path stays in one piece."""
    if as_json:
        print_json(dict(facts))
        return
    indent = max(map(len, facts), default=0) + 2
    wrapper = textwrap.TextWrapper(plain_console().width, break_long_words=False, break_on_hyphens=False)
    wrapper.subsequent_indent = " " * indent
    for name, fact in facts.items():
        wrapper.initial_indent = f"{name:{indent}}"
        echo(wrapper.fill(", ".join(map(str, fact)) if isinstance(fact, list) else str(fact)))


WIDTH = 80
"""Columns of a plain terminal."""


def print_status(seen: Mapping[str, Any]) -> None:
    """Print the server, the sites and the runs of a federation."""
    print_facts(
        {
            "federation": seen["federation"],
            "server": f"{seen['server']} ({'running' if seen['reachable'] else 'not reachable'})",
            "sites": ", ".join(seen["sites"]) or "none connected",
        },
        as_json=False,
    )
    console = plain_console()
    for run in seen["runs"]:
        console.print()
        changed = str(run["changed"])[:16].replace("T", " ")
        console.print(f"run {run['run']}: {run['state']}, round {run['round']}, {changed}", soft_wrap=True)
        if run["sites"]:
            console.print(f"  answered: {', '.join(run['sites'])}", width=WIDTH)
        for site, reason in run["reasons"].items():
            console.print(f"  {site}: {reason}", width=WIDTH)
        if run["message"]:
            console.print(f"  {run['message']}", width=WIDTH)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print each warning of felb as one line without its file name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            for note in dict.fromkeys(
                " ".join(str(warning.message).split())
                for warning in caught
                if issubclass(warning.category, UserWarning | RuntimeWarning)
            ):
                echo(f"warning: {note}", err=True)


def unverified_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option that reads a result whose files were changed; what has changed is printed as a warning."""

    @wraps(function)
    def command(*, unverified: bool, **parameters: Any) -> Any:
        with warnings_as_notes(), reading_unverified() if unverified else nullcontext():
            return function(**parameters)

    text = "Read the result even if its files are not those that were written with it, and say so."
    return option("--unverified", text)(command)


# -- Commands that take long: their progress bars, and how to resume them after an interruption ----------------------
#
# Bars are on stderr, on a terminal only, and removed at the end.


class RoundsBar(NamedTuple):
    """A progress bar over the rounds of a run: shows their number at most, and after each one its metrics."""

    plan: Callable[[int | None], None]
    advance: Callable[[RunProgress], None]


@contextmanager
def step_progress(what: str) -> Iterator[Callable[..., None]]:
    """Show a progress bar over steps, with an optional note about the last one."""
    with progress_bar(what) as update:
        yield lambda done, total, note="": update(completed=done, total=total, note=note)


@contextmanager
def row_progress() -> Iterator[Callable[[int], None]]:
    """Show the number of completed rows; the total is unknown."""
    with _shown("rows", None, SpinnerColumn(), TextColumn("{task.completed:,} rows"), TimeElapsedColumn()) as update:
        yield lambda rows: update(completed=rows)


def progress_bar(what: str, total: int | None = None) -> AbstractContextManager[Callable[..., None]]:
    """Show a progress bar over a number of steps, with a note."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    described, noted = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
    return _shown(what, total, described, *columns, noted)


@contextmanager
def _shown(what: str, total: int | None, *columns: ProgressColumn) -> Iterator[Callable[..., None]]:
    disabled = not sys.stderr.isatty()  # rich also takes FORCE_COLOR as a terminal
    with Progress(*columns, console=Console(stderr=True), disable=disabled, transient=True) as progress:
        task = progress.add_task(what, total=total, note="")
        yield lambda **changes: progress.update(task, **changes)


resume_option = option(
    "--resume resumed",
    "Resume the interrupted run with the output folder OUT; no other option is allowed.",
    PATH,
    metavar="OUT",
)


def resume_run(verb: str, out: str, *, dask: str | None = None, as_json: bool) -> None:
    """Resume the interrupted run of `out` and print its result."""
    _check_no_other_options(click.get_current_context())
    from felb.runs.execute import resume

    with running(verb, out) as bar:
        result = resume(out, dask=dask, on_plan=bar.plan, on_round=bar.advance)
    print_result(result, out, as_json=as_json)


@contextmanager
def running(verb: str, out: str) -> Iterator[RoundsBar]:
    """Yield the progress bar of a run; print warnings and advice as notes."""
    from felb.runs.execute import unfinished_job

    def advice() -> str | None:
        return None if unfinished_job(out) is None else f"resume with: felb {verb} --resume {shlex.quote(out)}"

    with warnings_as_notes(), advising(advice), progress_bar("rounds") as update:
        yield RoundsBar(
            lambda rounds: update(total=rounds),
            lambda progress: update(completed=len(progress.history), note=progress.history.note),
        )


@contextmanager
def advising(advice: Callable[[], str | None]) -> Iterator[None]:
    """Add a note to an interruption that says how to resume, if there is something to resume."""
    try:
        yield
    except (KeyboardInterrupt, OSError, MemoryError, ConnectionLostError) as error:
        text = advice()
        if text is not None:
            error.add_note(text)
        raise


def _check_no_other_options(ctx: click.Context) -> None:
    """Raise if an option is given with --resume, where it would have no effect."""
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name not in ("resumed", "dask", "as_json") and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            given = parameter.opts[-1] if isinstance(parameter, click.Option) else "DATA"
            raise click.UsageError(
                f"--resume cannot be combined with {given}: the run has stored its data and options.", ctx
            )
