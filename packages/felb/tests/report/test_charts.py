"""Curves go through their points, and axes are marked by round numbers."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felb.errors import InputError
from felb.metrics.counts import History
from felb.report.figures import (
    BOTTOM,
    LEFT,
    MOST_POINTS,
    RIGHT,
    Axis,
    Series,
    curves,
    figures,
    line_chart,
    log_ticks,
    nice_ticks,
)

FINITE = st.floats(-1e9, 1e9, allow_nan=False)


@given(FINITE, FINITE)
def test_ticks_are_few_round_and_within(a, b):
    low, high = sorted((a, b))
    if high - low <= 1e-6 * max(1.0, abs(low), abs(high)):
        return
    ticks = nice_ticks(low, high)
    slack = 1e-6 * (high - low)
    assert 1 <= len(ticks) <= 9
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    if len(ticks) > 1:
        step = ticks[1] - ticks[0]
        assert re.fullmatch(r"[125]\.0+e.*|[125]e.*", f"{step:.3e}"), step


def test_log_ticks_are_powers_of_ten():
    assert log_ticks(0.5, 2000) == [1, 10, 100, 1000]
    assert log_ticks(1e-12, 1e12, 5)[1] == pytest.approx(1e-7)
    assert log_ticks(2, 5) == [2, 5]


def test_an_axis_is_linear_or_logarithmic():
    assert Axis(0, 10, 100, 200).at(2.5) == 125
    assert Axis(1, 100, 0, 1, log=True).at(10) == pytest.approx(0.5)
    assert Axis(3, 3, 0, 10).at(3) == 5


def svg(chart):
    """Parse the drawing alone; SVG within HTML is XML too."""
    return ElementTree.fromstring(re.search(r"<svg.*</svg>", chart, re.DOTALL)[0])


def points(element):
    return [tuple(map(float, point.split(","))) for point in element.get("points").split()]


def test_the_curve_goes_through_its_points():
    drawn = svg(line_chart([Series("a", [0, 1, 2], [0.0, 10.0, 5.0])], title="T", x_label="x", y_range=(0, 10)))
    (line,) = drawn.iter("polyline")
    (x0, y0), (x1, y1), (x2, y2) = points(line)
    assert (x0, x2) == (LEFT, 360 - RIGHT)
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y0 == 220 - BOTTOM
    assert y2 == pytest.approx((y0 + y1) / 2, abs=0.1)
    assert len(list(drawn.iter("circle"))) == 3


def test_the_interval_is_drawn_around_the_curve():
    drawn = svg(line_chart([Series("a", [0, 1], [1, 2], low=[0.5, 1.5], high=[2, 3])], title="T", x_label="x"))
    (band,) = drawn.iter("polygon")
    corners = points(band)
    assert len(corners) == 4
    (line,) = drawn.iter("polyline")
    for (x, y), above, below in zip(points(line), corners[:2], corners[:1:-1], strict=True):
        assert above[0] == below[0] == x
        assert above[1] < y < below[1]


def test_a_missing_value_breaks_the_curve():
    drawn = svg(line_chart([Series("a", range(5), [1, 2, None, 4, 5])], title="T", x_label="x"))
    assert [len(points(line)) for line in drawn.iter("polyline")] == [2, 2]


def test_long_curves_keep_their_ends_and_few_points():
    drawn = svg(line_chart([Series("a", range(10_000), list(range(10_000)))], title="T", x_label="x"))
    (line,) = drawn.iter("polyline")
    assert len(points(line)) == MOST_POINTS
    assert points(line)[0][0] == LEFT
    assert points(line)[-1][0] == 360 - RIGHT


def test_several_curves_have_a_legend_and_one_has_none():
    one = line_chart([Series("alone", [0, 1], [1, 2])], title="T", x_label="x")
    two = line_chart([Series("a < b", [0, 1], [1, 2]), Series("b", [0, 1], [2, 1])], title="T", x_label="x")
    assert "legend" not in one
    assert "a &lt; b" in two.partition("legend")[2]


def test_values_that_do_not_vary_are_drawn_in_the_middle():
    for value in (0.0, 7.0, -3.0):
        line_chart([Series("a", [0, 1], [value, value])], title="T", x_label="x")
    line_chart([Series("a", [1, 1], [5.0, 5.0])], title="T", x_label="x", log_x=True, log_y=True)


def test_labels_of_an_axis_are_all_powers_of_ten_or_none():
    def labels(values):
        drawn = svg(line_chart([Series("a", range(len(values)), values)], title="T", x_label="x", log_y=True))
        return [text.text for text in drawn.iter("text") if text.get("class") == "tick end"]

    assert labels([1.0, 100.0]) == ["1", "10", "100"]
    assert labels([1e-6, 1.0]) == ["10⁻⁶", "10⁻⁴", "10⁻²", "10⁰"]


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(InputError, match="series"):
        line_chart([Series("a", [0], [None])], title="T", x_label="x")
    with pytest.raises(InputError, match="10 curves"):
        line_chart([Series(str(i), [0], [1]) for i in range(11)], title="T", x_label="x")


def test_a_history_becomes_one_chart_for_every_figure_that_varies():
    history = History(
        [
            {"round": i, "task": "factor_statistics", "loss": 9.0 - i, "lam": 10.0**i, "clients": 3, "note": "x"}
            for i in range(6)
        ]
        + [{"round": 6 + i, "task": "flip_gains", "loss": 2.0, "odd<": float(i), "f1": None} for i in range(4)]
    )
    found = figures(history)
    assert list(found) == ["loss", "lam", "odd<"]
    assert [one.name for one in found["loss"]] == ["relaxed", "Boolean"]
    assert found["lam"][0].y == [10.0**i for i in range(6)]
    drawn = curves(history)
    assert len(drawn) == 3
    assert "odd&lt;" in drawn[2]
    assert curves(History()) == []


def test_the_curve_of_a_search_that_starts_anew_is_broken():
    history = History(
        [{"round": i, "task": "factor_statistics", "loss": 9.0 - i} for i in range(3)]
        + [{"round": 3 + i, "task": "flip_gains", "loss": 5.0 - i} for i in range(2)]
        + [{"round": 5 + i, "task": "factor_statistics", "loss": 8.0 - i} for i in range(3)]
        + [{"round": 8, "task": "flip_gains", "loss": 1.0}]
    )
    relaxed, boolean = figures(history)["loss"]
    assert list(zip(relaxed.x, relaxed.y, strict=True)) == [(0, 9), (1, 8), (2, 7), (4, None), (5, 8), (6, 7), (7, 6)]
    assert boolean.y == [5.0, 4.0, 1.0]
    drawn = svg(curves(history)[0])
    assert [len(points(line)) for line in drawn.iter("polyline") if line.get("class") == "line"] == [3, 3, 3]
