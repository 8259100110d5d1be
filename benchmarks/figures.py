"""What a benchmark finds: figures, some with a bar to hold, tables of them, and the page that shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.records import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One measured number; `bar` says in words what it must hold and `met` whether it does."""

    what: str
    measured: str
    bar: str = ""
    met: bool | None = None

    @property
    def verdict(self) -> str:
        """Return "met", "missed", or nothing without a bar."""
        return "" if self.met is None else "met" if self.met else "**missed**"


@dataclass(frozen=True)
class Section:
    """A heading, a sentence on how its figures were taken, and the figures."""

    title: str
    how: str
    figures: Sequence[Figure]

    def markdown(self) -> str:
        """Return the section as Markdown."""
        rows = [f"| {f.what} | {f.measured} | {f.bar} | {f.verdict} |" for f in self.figures]
        head = ["| | measured | bar | |", "|---|---|---|---|"]
        return "\n".join([f"## {self.title}", "", self.how, "", *head, *rows, ""])


def at_least(what: str, ratio: float, bar: float | None, detail: str = "") -> Figure:
    """Return a ratio that must reach its bar, if it has one."""
    measured = f"{ratio:.2f}x" + (f" ({detail})" if detail else "")
    return Figure(what, measured) if bar is None else Figure(what, measured, f">= {bar}x", ratio >= bar)


def at_most(what: str, value: float, bar: float | None, unit: str) -> Figure:
    """Return an amount that must stay below its bar, if it has one."""
    measured = f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"
    return Figure(what, measured) if bar is None else Figure(what, measured, f"<= {bar:g} {unit}", value <= bar)


def smallest(runs: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Return the smallest time of each, run in turn so that all see the same machine."""
    best = dict.fromkeys(runs, np.inf)
    for _ in range(repeats):
        for name, run in runs.items():
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    return best


def write_page(path: Path, text: str) -> None:
    """Write a page of results; a page that is there is replaced as a whole."""
    with replacing(path) as partial:
        partial.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
