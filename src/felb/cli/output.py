"""What the verbs print: tables for people, JSON for programs, progress where there is a terminal."""

from __future__ import annotations

import json
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from felb.results.result import Result, finite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from felb.engines import Snapshot
    from felb.results import Component

SHOWN_FEATURES = 12


def print_json(data: Any) -> None:
    """Print plain data as JSON."""
    click.echo(json.dumps(finite(data), indent=1, allow_nan=False))


def print_result(result: Result, out: str, *, as_json: bool) -> None:
    """Print the scores and the components of a finished run."""
    if as_json:
        summary = {key: value for key, value in result.to_json().items() if key not in ("history", "columns")}
        print_json({**summary, "rounds": len(result.history), "out": out})
        return
    console = Console()
    console.print(score_table({result.provenance.method: result.scores}))
    console.print(component_table(result.described()))
    if not result.converged:
        console.print(f"not yet Boolean: integrality gap {result.integrality_gap:.2g}; try more rounds")
    console.print(f"result in {out}", highlight=False)


def score_table(rows: dict[str, Any]) -> Table:
    """Return a table of scores, one row per method or data set."""
    table = Table(box=None, header_style="bold")
    table.add_column("")
    names = ("f1", "rmsd", "precision", "recall", "coverage", "errors")
    for name in names:
        table.add_column(name, justify="right")
    for label, scores in rows.items():
        cells = (f"{scores[name]:.0f}" if name == "errors" else f"{scores[name]:.4f}" for name in names)
        table.add_row(label, *cells)
    return table


def component_table(components: Sequence[Component], *, shown: int = SHOWN_FEATURES) -> Table:
    """Return a table of components: number, support, size, feature names (the first few)."""
    table = Table(box=None, header_style="bold")
    for name in ("component", "support", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("features", overflow="fold")
    for component in components:
        features = component.features[:shown]
        more = len(component.features) - len(features)
        text = ", ".join(features) + (f", … ({more} more)" if more else "")
        support = "" if component.support is None else str(component.support)
        table.add_row(str(component.number), support, str(len(component.features)), text or "(empty)")
    return table


@contextmanager
def round_progress(total: int | None) -> Iterator[Callable[[Snapshot], None]]:
    """Show a bar over the rounds on a terminal; silent elsewhere."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("rounds", total=total, figures="")

        def advance(snapshot: Snapshot) -> None:
            last = snapshot.history[-1]
            figures = f"loss {last['loss']:.0f} gap {last['integrality_gap']:.2f}" if "loss" in last else ""
            progress.update(task, completed=len(snapshot.history), figures=figures)

        yield advance


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print felb's warnings as one line each instead of Python's form with a file name."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            for warning in dict.fromkeys(
                str(w.message) for w in caught if issubclass(w.category, UserWarning | RuntimeWarning)
            ):
                click.echo(f"warning: {warning}", err=True)
