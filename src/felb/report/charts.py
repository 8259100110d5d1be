"""Curves as inline SVG: text in the page's font, colours from its style sheet, so that both themes and print fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb.errors import InputError
from felb.report.page import Html, tag
from felb.report.parts import legend, significant

if TYPE_CHECKING:
    from collections.abc import Sequence

STYLES = 10
"""Curves of a chart that can be told apart: five colours, drawn through and dashed."""

MOST_POINTS = 400
"""Of a curve; more would not be seen."""

SHORTEST, LONGEST = 1e-3, 1e5
"""Numbers beyond these are written as powers of ten."""

LEFT, RIGHT, TOP, BOTTOM = 46, 14, 14, 36
"""Pixels around the plot."""


@dataclass(frozen=True, slots=True)
class Series:
    """A curve, with its interval where `low` and `high` are given.

    Parameters
    ----------
    name : for the legend
    x, y : points in order of x; a y of None breaks the curve
    low, high : ends of the interval at each x
    marks : draw the points too; by default where there are few
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    marks: bool | None = None


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of numbers laid over a range of pixels, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers between low and high, about `count` of them, 1, 2 or 5 · 10^z apart.

    Examples
    --------
    >>> nice_ticks(0, 70)
    [0, 20, 40, 60]
    """
    if not high > low:
        return [low]
    raw = (high - low) / max(1, count - 1)
    power = 10 ** math.floor(math.log10(raw))
    step = min((factor * power for factor in (1, 2, 5, 10)), key=lambda s: abs(math.log(s / raw)))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def log_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return powers of ten between low and high, every second or third if there are many."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last < first:
        return [low, high]
    every = max(1, math.ceil((last - first + 1) / count))
    return [10.0**i for i in range(first, last + 1, every)]


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str | None = None,
    size: tuple[int, int] = (360, 220),
    log_x: bool = False,
    log_y: bool = False,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    whole_x: bool = False,
) -> Html:
    """Return curves over one axis, with a legend if there are several.

    Parameters
    ----------
    series : at most as many as there are styles
    title : what is seen, for the heading and for screen readers
    x_label, y_label : of the axes; the y label stands above the plot
    size : width and height in pixels; the figure shrinks with the page and never grows beyond it
    log_x, log_y : logarithmic axes; all values must be above 0
    x_range, y_range : of the axes; by default what the values need
    whole_x : mark whole numbers only
    """
    if len(series) > STYLES:
        raise InputError(f"a chart shows at most {STYLES} curves, got {len(series)}; split it")
    xs = [float(x) for s in series for x in s.x]
    ys = [float(y) for s in series for values in (s.y, s.low or (), s.high or ()) for y in values if y is not None]
    if not ys:
        raise InputError(f"nothing to draw in {title!r}: no series has a value")
    width, height = size
    x_axis = Axis(*(x_range or _room(min(xs), max(xs), log=log_x)), LEFT, width - RIGHT, log_x)
    y_axis = Axis(
        *(y_range or _room(min(ys), max(ys), log=log_y, pad=0.06)), height - BOTTOM, TOP + (16 if y_label else 0), log_y
    )
    content = [
        tag("title", _summary(title, series)),
        _grid(x_axis, y_axis, labels=(x_label, y_label), whole_x=whole_x),
        *(_curve(s, i, x_axis, y_axis) for i, s in enumerate(series)),
    ]
    chart = tag("svg", content, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img", class_="chart")
    entries = {s.name: f"s{i}" for i, s in enumerate(series)} if len(series) > 1 else {}
    return tag("div", tag("h3", title), chart, legend(entries) if entries else None, class_="plot")


def _room(low: float, high: float, *, log: bool, pad: float = 0.0) -> tuple[float, float]:
    """Return a range with room around the values; one that is not empty even if they are all the same."""
    if log:
        room = max(2.0 if low == high else 1.0, (high / low) ** pad)
        return low / room, high * room
    if low == high:
        return (low - 0.5, high + 0.5) if low == 0 else (low - abs(low) / 2, high + abs(high) / 2)
    room = pad * (high - low)
    # A quantity that is never negative does not get an axis that is.
    return (max(0.0, low - room) if low >= 0 else low - room), high + room


def _grid(x_axis: Axis, y_axis: Axis, *, labels: tuple[str, str | None], whole_x: bool) -> list[Html]:
    x_label, y_label = labels
    drawn = []
    for tick, label in _labelled(y_axis):
        y = f"{y_axis.at(tick):.1f}"
        drawn.append(tag("line", x1=x_axis.start, x2=x_axis.end, y1=y, y2=y, class_="grid"))
        drawn.append(tag("text", label, x=x_axis.start - 7, y=y, dy=".32em", class_="tick end"))
    base = y_axis.start
    drawn.append(tag("line", x1=x_axis.start, x2=x_axis.end, y1=base, y2=base, class_="axis"))
    for tick, label in _labelled(x_axis):
        if whole_x and tick != int(tick):
            continue
        x = f"{x_axis.at(tick):.1f}"
        drawn.append(tag("line", x1=x, x2=x, y1=base, y2=base + 4, class_="axis"))
        drawn.append(tag("text", label, x=x, y=base + 16, class_="tick middle"))
    drawn.append(tag("text", x_label, x=x_axis.end, y=base + 31, class_="label end"))
    if y_label:
        drawn.append(tag("text", y_label, x=x_axis.start - 40, y=12, class_="label"))
    return drawn


def _labelled(axis: Axis) -> list[tuple[float, str]]:
    """Return the marks of an axis with their labels: all as powers of ten, or none."""
    ticks = (log_ticks if axis.log else nice_ticks)(axis.low, axis.high)
    long = any(tick and not SHORTEST <= abs(tick) < LONGEST for tick in ticks)
    return [(tick, _power(tick) if long and tick else significant(tick, 4)) for tick in ticks]


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    power = f"10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
    return power if mantissa == "1.0" else f"{mantissa.removesuffix('.0')}·{power}"


def _curve(series: Series, colour: int, x_axis: Axis, y_axis: Axis) -> Html:
    chosen = _thinned(len(series.x))
    pieces: list[list[tuple[float, float]]] = [[]]
    for i in chosen:
        y = series.y[i]
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append((x_axis.at(series.x[i]), y_axis.at(y)))
    pieces = [piece for piece in pieces if piece]
    drawn: list[Html] = []
    if series.low is not None and series.high is not None:
        up = [(x_axis.at(series.x[i]), y_axis.at(series.high[i])) for i in chosen]
        down = [(x_axis.at(series.x[i]), y_axis.at(series.low[i])) for i in reversed(chosen)]
        drawn.append(tag("polygon", points=_points(up + down), class_="band"))
    drawn += [tag("polyline", points=_points(piece), class_="line") for piece in pieces if len(piece) > 1]
    few = sum(map(len, pieces)) <= 24
    marks = [p for piece in pieces if (few if series.marks is None else series.marks) or len(piece) == 1 for p in piece]
    if pieces and not marks:
        marks = [pieces[-1][-1]]
    drawn += [tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.6) for x, y in marks]
    return tag("g", drawn, class_=f"s{colour}")


def _thinned(n: int) -> list[int]:
    """Return at most `MOST_POINTS` numbers of points, evenly, with the first and the last."""
    if n <= MOST_POINTS:
        return list(range(n))
    return [round(i * (n - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _summary(title: str, series: Sequence[Series]) -> str:
    told = []
    for s in series:
        known = [(x, y) for x, y in zip(s.x, s.y, strict=True) if y is not None]
        if known:
            (x0, y0), (x1, y1) = known[0], known[-1]
            told.append(f"{s.name}: {significant(y0)} at {significant(x0)}, {significant(y1)} at {significant(x1)}")
    return f"{title}. {'; '.join(told)}"
