"""What the verbs print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import shlex
import warnings
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from felb.runs.result import Result, finite

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from felb.runs.result import Component

SHOWN_FEATURES = 12
SCORES = ("f1", "rmsd", "precision", "recall", "coverage", "errors")


def print_json(data: Any) -> None:
    """Print plain data as JSON."""
    click.echo(json.dumps(finite(data), indent=1, allow_nan=False))


def print_result(result: Result, folder: str, *, as_json: bool, shown: int = SHOWN_FEATURES) -> None:
    """Print where a result comes from, its scores and its components."""
    if as_json:
        summary = {key: value for key, value in result.to_json().items() if key not in ("history", "columns")}
        components = [asdict(component) for component in result.described()]
        print_json({**summary, "rounds": result.rounds(), "components": components, "folder": folder})
        return
    console = plain_console()
    facts = Table(box=None, show_header=False, pad_edge=False)
    for name, fact in describe(result, folder).items():
        facts.add_row(name, fact)
    console.print(facts)
    console.print()
    if result.privacy is None or result.scores:
        console.print(score_table({result.provenance.method: result.scores}))
    else:
        asking = f"felb score {shlex.quote(folder)} DATA"
        console.print(f"scores stay with the clients; who holds the data can compute them: {asking}", soft_wrap=True)
    console.print()
    console.print(component_table(result.described(), shown=shown))


def print_scores(rows: Mapping[str, Mapping[str, float]]) -> None:
    """Print a table of scores."""
    plain_console().print(score_table(rows))


def plain_console() -> Console:
    """Return a console that prints names as they are: no markup, emoji or colours read into them."""
    return Console(markup=False, emoji=False, highlight=False)


def describe(result: Result, folder: str) -> dict[str, str]:
    """Return the facts about a result in words."""
    made, rounds, source = result.provenance, result.rounds(), result.provenance.data
    tasks = f" ({', '.join(f'{count} {task}' for task, count in rounds.items())})" if len(rounds) > 1 else ""
    gap = f"{'yes' if result.converged else 'no, cut at 1/2'} (integrality gap {result.integrality_gap:.2g})"
    facts = {
        "result": folder,
        "method": f"{made.method}, seed {made.seed}, felb {made.felb}",
        "data": f"{source['source']}: {source['rows']} records x {source['columns']} features"
        + ("" if source["ones"] is None else f", {source['ones']} ones")
        + (f", {source['unknown']} unknown cells" if source.get("unknown") else ""),
        "clients": describe_clients(result.clients),
        "rounds": f"{sum(rounds.values())}{tasks}",
        "boolean": "yes" if result.integrality_gap == 0 else gap,
    }
    if result.privacy is not None:
        facts["privacy"] = describe_privacy(result.privacy)
    return facts if result.complete else facts | {"complete": "no, ended by its time limit"}


def describe_privacy(guaranteed: Mapping[str, Any]) -> str:
    """Return what was guaranteed, in a line."""
    if guaranteed["mechanism"] == "paper":
        return "noise as in the paper, for reproduction; nothing is guaranteed"
    budget = f"(epsilon, delta) = ({guaranteed['epsilon']:g}, {guaranteed['delta']:.3g}) in total"
    place = (
        "each client adds all of its noise" if guaranteed["noise"] == "client" else "clients add shares of the noise"
    )
    return f"{budget} per {guaranteed['unit']}; {place}"


def describe_clients(clients: Mapping[str, int | None]) -> str:
    """Return how many clients there are and how large, as far as that is known; one alone by its name."""
    if len(clients) <= 1:
        return next(iter(clients), "none")
    sizes = [size for size in clients.values() if size is not None]
    if len(sizes) < len(clients):
        return f"{len(clients)}: {', '.join(clients)}"
    return f"{len(clients)} with {' to '.join(map(str, sorted({min(sizes), max(sizes)})))} records each"


def score_table(rows: Mapping[str, Mapping[str, float]]) -> Table:
    """Return a table of scores, one row per method or data set."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("", overflow="fold")
    for name in SCORES:
        table.add_column(name, justify="right", no_wrap=True)
    for label, scores in rows.items():
        table.add_row(label, *(_score(name, scores.get(name)) for name in SCORES))
    return table


def _score(name: str, value: float | None) -> str:
    """Return a score in words; a dash where there is none, as when clients keep their counts to themselves."""
    if value is None:
        return "-"
    return f"{value:.0f}" if name == "errors" else f"{value:.4f}"


def component_table(components: Sequence[Component], *, shown: int = SHOWN_FEATURES) -> Table:
    """Return a table of components: number, support, size, feature names (the first few)."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    known = any(component.support is not None for component in components)
    for name in ("component", "support", "size") if known else ("component", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("features", overflow="fold")
    for component in components:
        features = component.features[:shown]
        more = len(component.features) - len(features)
        text = ", ".join(features) + (f", … ({more} more)" if more else "")
        support = ["" if component.support is None else str(component.support)] if known else []
        table.add_row(str(component.number), *support, str(len(component.features)), text or "(empty)")
    return table


def print_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Print named facts, as a table or as JSON."""
    if as_json:
        print_json(dict(facts))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(overflow="fold")  # a fingerprint or a path is of no use without its end
    for name, fact in facts.items():
        table.add_row(name, str(fact))
    plain_console().print(table, soft_wrap=True)


WIDTH = 80
"""Columns of a plain terminal."""


def print_status(seen: Mapping[str, Any]) -> None:
    """Print a federation's server, sites and runs."""
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
    """Print felb's warnings as one line each instead of Python's form with a file name."""
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
                click.echo(f"warning: {note}", err=True)
