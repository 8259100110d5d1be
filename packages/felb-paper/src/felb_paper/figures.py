"""Figures of stored experiments: every method, mean and 95% interval over the trials."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.metrics.comparison import mean_interval
from felb.report.figures import NOTE_COLOUR, TITLE_COLOUR, drawing, make_figure, write_png
from felb_paper.tables import place_text

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from felb.metrics.comparison import Interval
    from felb_paper.study import Metric, StudyRecord


# -- Colour, marker and line of each method in the figures of the paper's experiments --------------------------------

STYLES = {
    "FELB": ("#D55E00", "o", "-"),
    "FELB-MU": ("#0072B2", "s", "-"),
    "FederatedBMF": ("#111111", "D", "-"),
    "Asso": ("#E69F00", "^", "--"),
    "Asso+or": ("#E69F00", "^", "--"),
    "GreConD": ("#009E73", "v", "--"),
    "MEBF": ("#CC79A7", "P", "--"),
    "Zhang": ("#56B4E9", "X", "--"),
    "ELBMF": ("#8C8C8C", "d", "--"),
}
"""Colour (of Okabe and Ito, told apart by the colour-blind too), marker and line of each method."""

STYLES |= {
    f"{name} aligned": (STYLES[name][0], marker, ":")
    for name, marker in {"Asso": "<", "GreConD": ">", "MEBF": "p", "Zhang": "*", "ELBMF": "h"}.items()
}
STYLES |= {
    "FedNMF": ("#7F3C8D", "o", "-."),
    "FedProx": ("#A04000", "s", "-."),
    "SCAFFOLD": ("#3B6E22", "D", "-."),
    "ProxSkip": ("#2C3E90", "^", "-."),
}

STYLES |= {
    "FELB literal": (STYLES["FELB"][0], "x", ":"),
    "FELB-MU literal": (STYLES["FELB-MU"][0], "+", ":"),
    "ELBMF published": (STYLES["ELBMF"][0], "1", ":"),
    "ELBMF published aligned": (STYLES["ELBMF"][0], "2", ":"),
}

OTHER = ("#8C8C8C", ".", ":")

SETTING = " · "
"""Between a method and how it was run, where one method has several rows."""

MARKERS = ("o", "s", "D", "^", "v", "P")


def method_style(methods: Sequence[str], method: str) -> tuple[str, str, str]:
    """Return the style of a method; "FELB · 10 clients" has the colour of FELB and a marker of its own."""
    if method in STYLES or SETTING not in method:
        return STYLES.get(method, OTHER)
    family = method.split(SETTING)[0]
    number = [other for other in methods if other.split(SETTING)[0] == family].index(method)
    colour, _, line = STYLES.get(family, OTHER)
    return colour, MARKERS[number % len(MARKERS)], line


REGIMES = (("#56B4E9", "o"), ("#0072B2", "s"), ("#111111", "D"), ("#E69F00", "^"))
"""Colour and marker of the panels of ratios, in their order."""

LETTER, SYMBOL = 0.075, 0.6
"""Inches that a letter of the legend takes, and a symbol with the space around it."""

GRID = "#EBEBEB"
DPI = 160
UNIT = ("f1", "f1_star", "precision", "recall", "f1_star_local")
"""Figures between 0 and 1, drawn on the whole range."""


def draw_study(record: StudyRecord, path: str | os.PathLike[str]) -> None:
    """Draw the figure of an experiment into a PNG file; cells without figures leave gaps."""
    if Path(path).suffix.lower() != ".png":
        raise InputError(f"figures are PNG files; name {Path(path).name!r} with .png at its end")
    if not record.count("done"):
        raise InputError(f"there is nothing to draw yet: no cell of {record.name!r} is done")
    draw = {"lines": _lines, "rounds": _rounds, "points": _points, "pictures": _pictures}[record.view.kind]
    if record.view.ratio is not None:
        draw = _ratios
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with drawing():
        write_png(draw(record), path, dpi=DPI)


def _heading(figure: Any, record: StudyRecord, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Set the title above, and one legend for all panels below, in the order of the tables."""
    figure.suptitle(record.title, x=0.01, ha="left", color=TITLE_COLOUR, fontweight="bold", fontsize=14)
    if names:
        legend = figure.legend(
            handles,
            names,
            loc="outside lower left",
            ncols=names_in_a_line(names, figure.get_figwidth()),
            frameon=False,
            fontsize=10,
            handlelength=2.2,
            columnspacing=1.4,
            borderaxespad=0.2,
        )
        for text in legend.get_texts():
            text.set_color(TITLE_COLOUR)


def names_in_a_line(names: Sequence[str], width: float) -> int:
    """Return how many names a line of the legend holds in a figure of that width: all, if there is room."""
    if sum(LETTER * len(name) + SYMBOL for name in names) <= width:
        return len(names)
    return max(1, int(width / (LETTER * max(map(len, names)) + SYMBOL)))


def _dress(axes: Any) -> None:
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=NOTE_COLOUR, labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#BBBBBB")


# -- figures over an axis ----------------------------------------------------------------------------------------------


def _drawn(record: StudyRecord) -> list[Metric]:
    return [metric for metric in record.view.metrics if metric.better]


def _lines(record: StudyRecord) -> Any:
    metrics, panels = _drawn(record), record.view.panels
    if len(panels) == 1:  # one panel: the metrics share the page
        columns = 2 if len(metrics) in (2, 4) else min(3, len(metrics))
        rows = -(-len(metrics) // columns)
        places = {(metric.key, panels[0]): divmod(number, columns) for number, metric in enumerate(metrics)}
    else:
        rows, columns = len(metrics), len(panels)
        places = {(m.key, panel): (i, j) for i, m in enumerate(metrics) for j, panel in enumerate(panels)}
    width = 4.6 if columns <= 2 else 3.9 if columns == 3 else 2.9
    figure = make_figure((width * columns, 0.9 + 3.0 * rows))
    grid = figure.subplots(rows, columns, squeeze=False, sharey="row" if len(panels) > 1 else False)
    handles: dict[str, Any] = {}
    for metric in metrics:
        for panel in panels:
            axes = grid[places[metric.key, panel]]
            _dress(axes)
            for method in record.methods(panel):
                handles.setdefault(method, _line(axes, record, metric, method, panel))
            _scale(axes, record, metric, panel)
            titles = [panel] if places[metric.key, panel][0] == 0 and len(panels) > 1 else []
            if titles:
                axes.set_title(panel, loc="left", fontsize=11, color=TITLE_COLOUR)
            if len(panels) == 1 or places[metric.key, panel][1] == 0:
                axes.set_ylabel(metric.label, color=NOTE_COLOUR, fontsize=10)
            if len(panels) == 1 or places[metric.key, panel][0] == rows - 1:
                axes.set_xlabel(record.view.axes.get(panel, record.view.axis), color=NOTE_COLOUR, fontsize=10)
    names = [method for method in record.view.methods if method in handles]
    _heading(figure, record, [handles[name] for name in names], names)
    return figure


def _line(axes: Any, record: StudyRecord, metric: Metric, method: str, panel: str) -> Any:
    colour, marker, style = STYLES.get(method, OTHER)
    found = [(float(p), record.interval(metric.key, method, p, panel)) for p in record.places(panel)]
    known = [(place, interval) for place, interval in found if interval is not None]
    xs, means = [place for place, _ in known], [interval.mean for _, interval in known]
    halves = [0.0 if math.isnan(interval.half) else interval.half for _, interval in known]
    axes.errorbar(
        _aside(xs, record, method, panel), means, yerr=halves, fmt="none", ecolor=colour, elinewidth=1.1, alpha=0.4
    )
    front = 3 if style == "-" else 2
    (line,) = axes.plot(
        xs, means, color=colour, marker=marker, markersize=5.5, linestyle=style, linewidth=1.8, zorder=front,
        markeredgecolor="white", markeredgewidth=0.6,
    )  # fmt: skip
    return line


def _aside(xs: Sequence[float], record: StudyRecord, method: str, panel: str) -> list[float]:
    """Move the intervals of a method a little to its side, so that those of all methods can be told apart."""
    methods = record.methods(panel)
    share = (methods.index(method) - (len(methods) - 1) / 2) / max(1, len(record.view.methods))
    if record.view.scale == "log2":
        return [x * 2 ** (0.14 * share) for x in xs]
    places = [float(place) for place in record.places(panel)]
    return [x + 0.04 * (max(places) - min(places)) * share for x in xs]


def _scale(axes: Any, record: StudyRecord, metric: Metric, panel: str) -> None:
    """Set scales and limits from the means; wide intervals of few trials may run out of the picture."""
    places = [float(place) for place in record.places(panel)]
    if record.view.scale == "log2":
        axes.set_xscale("log", base=2)
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    elif record.view.percent:
        axes.set_xticks(places, [place_text(record, place) for place in places])
    means = [
        mean
        for each in (record.view.panels if len(record.view.panels) > 1 else (panel,))
        for method in record.methods(each)
        for place in record.places(each)
        if (mean := record.mean(metric.key, method, place, each)) is not None
    ]
    if metric.log and means and min(means) > 0:
        axes.set_yscale("log")
        axes.set_ylim(min(means) / 1.6, max(means) * 1.6)
    elif metric.key in UNIT:
        axes.set_ylim(-0.03, 1.03)
    elif means:
        low, high = min(means), max(means)
        room = 0.08 * (high - low or abs(high) or 1)
        axes.set_ylim(low - room if low > room or metric.key == "loss" else -room, high + room)


# -- figures over rounds -----------------------------------------------------------------------------------------------


def _rounds(record: StudyRecord) -> Any:
    metrics = _drawn(record)
    figure = make_figure((9.2, 0.9 + 3.0 * -(-len(metrics) // 2)))
    grid = figure.subplots(-(-len(metrics) // 2), 2, squeeze=False)
    handles: dict[str, Any] = {}
    for axes, metric in zip(grid.flat, metrics, strict=False):
        _dress(axes)
        for method in record.methods():
            colour, _, style = STYLES.get(method, OTHER)
            curves = [cell.curves.get(metric.key, ()) for cell in record.done(method)]
            table = mean_curves(curves)
            if not table:
                continue
            xs = np.arange(1, len(table) + 1)
            axes.fill_between(
                xs, [low for _, low, _ in table], [high for _, _, high in table], color=colour, alpha=0.15, lw=0
            )
            (line,) = axes.plot(xs, [mean for mean, _, _ in table], color=colour, linestyle=style, linewidth=1.8)
            handles.setdefault(method, line)
        axes.set_ylabel(metric.label, color=NOTE_COLOUR, fontsize=10)
        axes.set_xlabel(record.view.axis, color=NOTE_COLOUR, fontsize=10)
        if metric.key in UNIT:
            axes.set_ylim(-0.03, 1.03)
        elif metric.key == "integrality_gap":
            axes.set_ylim(bottom=0)  # an interval may reach below, a gap cannot
    _heading(figure, record, list(handles.values()), list(handles))
    return figure


def mean_curves(curves: Sequence[Sequence[float | None]]) -> list[tuple[float, float, float]]:
    """Return mean, low and high of every round; a run that ended earlier stays at its last value."""
    known = [[value for value in curve if value is not None] for curve in curves]
    known = [curve for curve in known if curve]
    length = max((len(curve) for curve in known), default=0)
    found = []
    for number in range(length):
        interval = mean_interval([curve[min(number, len(curve) - 1)] for curve in known])
        assert interval is not None
        single = math.isnan(interval.half)
        found.append(
            (interval.mean, interval.mean if single else interval.low, interval.mean if single else interval.high)
        )
    return found


# -- figures per data set ----------------------------------------------------------------------------------------------


def _points(record: StudyRecord) -> Any:
    """Draw a row for each data set and a point for each method; hollow points are published."""
    metrics = _drawn(record)
    published = sorted({name for metric in metrics for name in record.view.published.get(metric.key, {})})
    measured = [str(place) for place in record.places()]
    # Published figures of other data than was measured have rows of their own.
    alone = [name for name in published if not any(record.published(metric.key, name) for metric in metrics)]
    alone += [name for name in published if name not in measured and name not in alone]
    places = [*measured, *(f"{name} (published)" if name in measured else name for name in alone)]
    paper_of = dict(zip(places, [*(None if name in alone else name for name in measured), *alone], strict=True))
    figure = make_figure((4.4 * len(metrics) + 1, 1.6 + max(0.62, 0.07 * len(record.methods())) * len(places)))
    grid = figure.subplots(1, len(metrics), squeeze=False, sharey=True)
    handles: dict[str, Any] = {}
    for axes, metric in zip(grid.flat, metrics, strict=True):
        _dress(axes)
        methods = record.methods()
        for offset, method in zip(np.linspace(-0.3, 0.3, len(methods)), methods, strict=True):
            colour, marker, _ = method_style(methods, method)
            for row, place in enumerate(places):
                found = record.interval(metric.key, method, place)
                paper = record.view.published.get(metric.key, {}).get(paper_of[place] or "", {}).get(method)
                if paper is not None:
                    axes.plot(paper, row + offset, marker, color=colour, markersize=6, markerfacecolor="white")
                if found is not None:
                    handles.setdefault(method, _dot(axes, found, row + offset, colour=colour, marker=marker))
        values = [mean for method in methods for place in places if (mean := record.mean(metric.key, method, place))]
        values += [
            value for row in record.view.published.get(metric.key, {}).values() for value in row.values() if value
        ]
        if metric.log and values:
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter("")  # within a decade, they would run into each other
            axes.set_xlim(min(values) / 1.6, max(values) * 1.6)
        elif metric.key in UNIT:
            axes.set_xlim(-0.03, 1.03)
        else:
            axes.set_xlim(0, 1.08 * max(values, default=1.0))
        axes.set_yticks(range(len(places)), places)
        for row in range(1, len(places)):
            axes.axhline(row - 0.5, color="#DDDDDD", linewidth=0.8)
        axes.grid(axis="y", visible=False)
        axes.set_ylim(len(places) - 0.5, -0.5)
        axes.set_xlabel(metric.label, color=NOTE_COLOUR, fontsize=10)
    names = [method for method in record.view.methods if method in handles]
    _heading(figure, record, [handles[name] for name in names], names)
    if published:
        grid.flat[0].set_title("filled: measured here, hollow: published", loc="left", fontsize=10, color=NOTE_COLOUR)
    return figure


def _dot(axes: Any, interval: Interval, height: float, *, colour: str, marker: str) -> Any:
    half = 0.0 if math.isnan(interval.half) else interval.half
    axes.errorbar(interval.mean, height, xerr=half, fmt="none", ecolor=colour, elinewidth=1, alpha=0.45)
    (dot,) = axes.plot(interval.mean, height, marker, color=colour, markersize=6)
    return dot


def _ratios(record: StudyRecord) -> Any:
    """Draw one metric of a method over that of another, trial by trial, for each data set and panel."""
    assert record.view.ratio is not None
    metric, above, below = record.view.ratio
    panels, places = record.view.panels, record.places(record.view.panels[0])
    figure = make_figure((7.6, 1.5 + 0.7 * len(places)))
    axes = figure.subplots()
    _dress(axes)
    axes.axvline(1, color="#888888", linewidth=1)
    handles, means = [], []
    offsets = np.linspace(-0.22, 0.22, len(panels))
    for (colour, marker), panel, offset in zip(REGIMES, panels, offsets, strict=False):
        dot = None
        for row, place in enumerate(places):
            one, other = (record.by_trial(metric, method, place, panel) for method in (above, below))
            interval = mean_interval([one[trial] / other[trial] for trial in one if other.get(trial)])
            if interval is not None:
                means.append(interval.mean)
                dot = _dot(axes, interval, row + offset, colour=colour, marker=marker)
        if dot is not None:
            handles.append((panel, dot))
    axes.set_yticks(range(len(places)), [str(place) for place in places])
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    reach = 1.6 * max([abs(mean - 1) for mean in means], default=0.0) + 0.01
    axes.set_xlim(1 - reach, 1 + reach)
    axes.set_xlabel(f"{metric.upper()}({above}) / {metric.upper()}({below})", color=NOTE_COLOUR, fontsize=10)
    axes.annotate(
        f"{below} better →", (0.99, 0.02), xycoords="axes fraction", ha="right", fontsize=9, color=NOTE_COLOUR
    )
    axes.annotate(f"← {above} better", (0.01, 0.02), xycoords="axes fraction", ha="left", fontsize=9, color=NOTE_COLOUR)
    _heading(figure, record, [dot for _, dot in handles], [f"synchronised {panel}" for panel, _ in handles])
    return figure


# -- pictures ----------------------------------------------------------------------------------------------------------

ROWS = {"data": "data", "local": "found alone", "aggregated": "found together"}


def _pictures(record: StudyRecord) -> Any:
    """Draw the first trial of the first two methods side by side: data, local and aggregated reconstructions."""
    shown = [(method, record.done(method)[0]) for method in record.methods()[:2] if record.done(method)]
    clients = sum(name.startswith("data/") for name in shown[0][1].pictures)
    figure = make_figure((13.2, 3.7))
    blocks = figure.subfigures(1, len(shown), squeeze=False, wspace=0.03)
    for block, (method, cell) in zip(blocks.flat, shown, strict=True):
        score = cell.figures.get("f1_star")
        note = "" if score is None else f"   F1* {score:.2f}"
        block.suptitle(f"{method}{note}", x=0.035, ha="left", color=TITLE_COLOUR, fontsize=13, fontweight="bold")
        grid = block.subplots(len(ROWS), clients + 1)
        for row, (kind, label) in enumerate(ROWS.items()):
            parts = [_pixels(cell.pictures[f"{kind}/{number}"]) for number in range(1, clients + 1)]
            most = np.mean(parts, axis=0) >= 0.5
            for column, pixels in enumerate([most, *parts]):
                axes = grid[row, column]
                axes.imshow(~pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                axes.set_xticks([])
                axes.set_yticks([])
                for side in axes.spines.values():
                    side.set_color("#111111" if column == 0 else "#C8C8C8")
                if column == 0:
                    axes.set_ylabel(label, color=NOTE_COLOUR, fontsize=10)
                if row == 0:
                    title = "most clients" if column == 0 else f"client {column}"
                    axes.set_title(title, fontsize=9, color=NOTE_COLOUR)
    return figure


def _pixels(rows: Sequence[str]) -> Any:
    return np.array([[mark == "1" for mark in row] for row in rows])
