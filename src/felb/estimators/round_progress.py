"""The progress of a federated fit: its rounds, and the latest metrics in words."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from felb.progress_bar import steps_shown

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
    """Yield a function to call after each round: it calls `on_round` and, if `verbose`, moves a bar on stderr."""
    if not verbose:
        yield on_round
        return
    with steps_shown("rounds", total, verbose=True) as advance:

        def watch(progress: RunProgress) -> None:
            advance(len(progress.history), round_note(progress))
            if on_round is not None:
                on_round(progress)

        yield watch
