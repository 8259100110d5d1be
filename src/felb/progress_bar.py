"""A progress bar over the rounds of a fit in Python, on request: ``fit(X, verbose=True)``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from felb.federated.loop import RunProgress

    OnRound = Callable[[RunProgress], None]

SHOWN = (("loss", "loss", 0), ("integrality_gap", "gap", 2))
"""Metrics of a round that are shown beside the bar: key, label, number of digits."""


def round_note(progress: RunProgress) -> str:
    """Return the latest metrics in words."""
    last = progress.history[-1]
    return " ".join(f"{name} {last[key]:.{digits}f}" for key, name, digits in SHOWN if key in last)


@contextmanager
def rounds_shown(
    total: Callable[[], int | None], on_round: OnRound | None, *, verbose: bool
) -> Iterator[OnRound | None]:
    """Yield a function to call after each round: it calls `on_round` and, if `verbose`, moves a bar on stderr.

    In a notebook the bar is shown below the cell. `total` tells the largest number of rounds, if it is known.
    """
    if not verbose:
        yield on_round
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("rounds"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("rounds", total=total(), note="")

        def advance(progress: RunProgress) -> None:
            bar.update(task, completed=len(progress.history), note=round_note(progress))
            if on_round is not None:
                on_round(progress)

        yield advance
        bar.update(task, total=bar.tasks[0].completed)
