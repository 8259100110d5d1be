"""One figure for the choice of k: held-out cells, error, stability and description length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.report.exports import COLOURS, INK, MUTED, draw_png
from felb.report.forecast_page import check_drawable

if TYPE_CHECKING:
    import os

    from felb.analysis.rank_choice import RankChoice


def write_choice(choice: RankChoice, path: str | os.PathLike[str]) -> None:
    """Draw the scores over the number of components into a PNG file.

    Examples
    --------
    >>> import felb
    >>> choice = felb.choose_k(felb.data.load("zoo"), range(2, 5), cv=2, n_resamples=0)
    >>> write_choice(choice, "choice.png")
    """
    check_drawable(path)
    panels = _panels(choice)
    draw_png(Path(path), (3.2 * len(panels), 2.8), lambda figure: _draw(figure, choice, panels))


def _panels(choice: RankChoice) -> dict[str, list[float]]:
    """Return the curves by title."""
    rows = choice.scores
    panels = {
        "F1 of held-out cells": [row.mean for row in rows],
        "Wrong cells of the fit, %": [100 * row.error_rate for row in rows],
        "Components found by refits, %": [100 * (row.stability or 0.0) for row in rows],
        "Description length, kbit": [row.description_length / 1000 for row in rows],
    }
    if any(row.stability is None for row in rows):
        del panels["Components found by refits, %"]
    return panels


def _draw(figure: Any, choice: RankChoice, panels: dict[str, list[float]]) -> None:
    from matplotlib.ticker import MaxNLocator

    k = [row.n_components for row in choice.scores]
    chosen = {"Description length, kbit": choice.shortest_k, "F1 of held-out cells": choice.best_k}
    for axes, (title, values) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        axes.plot(k, values, color=COLOURS[0], linewidth=1.4, marker="o", markersize=3)
        if title == "F1 of held-out cells":
            errors = [row.standard_error for row in choice.scores]
            axes.errorbar(k, values, yerr=errors, color=COLOURS[0], linewidth=0, elinewidth=1)
        if title in chosen:
            at = chosen[title]
            axes.axvline(at, color=COLOURS[1], linewidth=1, linestyle=":")
            axes.plot([at], [values[k.index(at)]], color=COLOURS[1], marker="o", markersize=6)
            low = values[k.index(at)] < (min(values) + max(values)) / 2
            where = {"xycoords": ("data", "axes fraction"), "xytext": (4, 0), "textcoords": "offset points"}
            axes.annotate(f"k = {at}", (at, 0.92 if low else 0.04), fontsize=8, color=COLOURS[1], **where)
        axes.set_title(title, fontsize=9, loc="left", color=INK)
        axes.set_xlabel("components k", fontsize=8, color=MUTED)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(labelsize=7, colors=MUTED)
        axes.spines[["top", "right"]].set_visible(False)
