"""Curves of a history: one small chart for every metric with values in several rounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from felb.report.charts import Series, line_chart

if TYPE_CHECKING:
    from felb.metrics.history import History
    from felb.report.page import Html

TITLES = {
    "loss": "Loss ‖A − UV‖²",
    "errors": "Wrong cells",
    "f1": "F1",
    "integrality_gap": "Integrality gap of V",
    "change": "Change per round",
    "lam": "Weight λ of the regularizer",
    "flips": "Changed entries of V",
    "gain": "Gain of a further component",
    "inside": "Estimated share of ones inside components",
    "outside": "Estimated share of ones outside components",
    "clients": "Clients that responded",
}
"""Figures that have a name in words, in the order of the charts."""

LEFT_OUT = {"round", "rmsd", "rmsd_table", "precision", "recall", "coverage", "measured", "tries"}
"""Figures that say the same as others, or nothing on their own."""

RELAXED = {"factor_statistics"}
"""Tasks whose factors are not Boolean, in methods that go on with Boolean ones."""

MOST_CHARTS = 9

WIDE = 1000
"""Ratio of the largest to the smallest value beyond which the axis is logarithmic."""

FEW = 2
"""Points that make no curve."""


def curves(history: History) -> list[Html]:
    """Return the charts of a history."""
    last = max((float(row.get("round", number)) for number, row in enumerate(history)), default=0.0)
    return [_chart(key, series, last) for key, series in list(figures(history).items())[:MOST_CHARTS]]


def figures(history: History) -> dict[str, list[Series]]:
    """Return the curves of every metric that varies over the rounds, the best known metrics first."""
    keys = list(dict.fromkeys([*TITLES, *(key for row in history for key in row)]))
    found = {}
    for key in keys:
        points = [
            (float(row.get("round", number)), float(row[key]), str(row.get("task", "")) in RELAXED)
            for number, row in enumerate(history)
            if key not in LEFT_OUT and _is_number(row.get(key))
        ]
        if len(points) > FEW and len({value for _, value, _ in points}) > 1:
            found[key] = _series(points)
    return found


def _series(points: list[tuple[float, float, bool]]) -> list[Series]:
    """Return one curve, or two where a relaxed search came first; it is broken where another start was tried."""
    relaxed = [(x, y) for x, y, is_relaxed in points if is_relaxed]
    groups: dict[str, list[tuple[float, float | None]]] = {
        "relaxed": _broken(relaxed),
        "Boolean": [(x, y) for x, y, is_relaxed in points if not is_relaxed],
    }
    return [
        Series(name, [x for x, _ in kept], [y for _, y in kept], marks=False) for name, kept in groups.items() if kept
    ]


def _broken(points: list[tuple[float, float]]) -> list[tuple[float, float | None]]:
    """Put a gap wherever rounds are left out."""
    broken: list[tuple[float, float | None]] = []
    for number, (x, y) in enumerate(points):
        if number and x > points[number - 1][0] + 1:
            broken.append((x - 1, None))
        broken.append((x, y))
    return broken


def _chart(key: str, series: list[Series], last: float) -> Html:
    """Draw one metric; the axis of rounds is the same for all, so that charts can be compared."""
    title = TITLES.get(key, key.replace("_", " "))
    return line_chart(series, title=title, x_label="round", log_y=is_wide(series), x_range=(0.0, last), whole_x=True)


def is_wide(series: list[Series]) -> bool:
    """Whether values range so far that only a logarithmic axis shows them."""
    values = [y for one in series for y in one.y if y is not None]
    return min(values) > 0 and max(values) / min(values) > WIDE


def _is_number(value: object) -> bool:
    return type(value) is not bool and isinstance(value, int | float) and math.isfinite(value)
