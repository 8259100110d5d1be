"""A plot of the expected quality of a private run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from felb.errors import InputError, missing_extra
from felb.safe_files import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

INK, PALE = "#1f4e79", "#8a8a8a"


def check_drawable(path: str | os.PathLike[str]) -> None:
    """Raise unless a plot can be written to `path`; checked before the computation."""
    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{Path(path).name!r} must end in .png; plots are PNG files")
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"there is no folder {Path(path).absolute().parent}; make it, or choose another place")
    try:
        import matplotlib.backends.backend_agg  # noqa: F401
    except ImportError as error:
        missing_extra("drawing", "report", error)


def draw_forecast(
    scores: Mapping[float, Sequence[float]],
    path: str | os.PathLike[str],
    *,
    without: float,
    chosen: float,
    title: str,
) -> None:
    """Draw the quality to expect by ε into a PNG file, which appears complete or not at all.

    Parameters
    ----------
    scores : F1 of each try by ε; the line goes through their means
    path : file to write
    without : F1 without noise, a dashed line
    chosen : the requested ε, which is highlighted
    title : what it is about
    """
    check_drawable(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=150, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    epsilons = sorted(scores)
    means = [sum(scores[epsilon]) / len(scores[epsilon]) for epsilon in epsilons]
    axes.axhline(without, color=PALE, linestyle="--", linewidth=1)
    axes.annotate("without noise", (1, without), xycoords=("axes fraction", "data"), xytext=(-4, -4),
                  textcoords="offset points", ha="right", va="top", color=PALE, fontsize=9)  # fmt: skip
    axes.axvline(chosen, color=PALE, linewidth=0.8, linestyle=":")
    axes.plot(epsilons, means, color=INK, marker="o", linewidth=2)
    for epsilon in epsilons:
        axes.plot([epsilon] * len(scores[epsilon]), scores[epsilon], color=INK, marker=".", linestyle="", alpha=0.5)
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("total ε of the run (smaller values protect more)")
    axes.set_ylabel("F1 against the planted signal")
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as partial, partial.open("wb") as file:
        FigureCanvasAgg(figure).print_png(file, metadata={"Software": None})  # type: ignore[no-untyped-call]
