"""The rounds of a run, one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from felb.metrics.counts import History

ROWS = [{"round": 0, "loss": 9.0}, {"round": 1, "loss": 4.0}, {"round": 2, "f1": 0.5}]


def test_rows_and_figures():
    history = History(ROWS)
    assert len(history) == 3
    assert list(history) == ROWS
    assert history[1] == ROWS[1]
    assert history[-1]["f1"] == 0.5
    assert history["loss"].tolist() == [9.0, 4.0]
    assert history["loss"].dtype == np.float64
    assert history["unknown"].size == 0
    assert history[1:] == History(ROWS[1:])
    assert repr(history) == "History(3 rounds)"
    with pytest.raises(IndexError):
        history[3]


def test_plus_leaves_the_shorter_history_alone():
    short = History(ROWS[:1])
    row = dict(ROWS[1])
    longer = short.plus(row)
    assert (len(short), len(longer)) == (1, 2)
    assert longer == History(ROWS[:2])
    row["loss"] = -1.0
    assert longer[1]["loss"] == 4.0, "later changes of the row do not show"


def test_changes_of_the_source_do_not_show():
    rows = [{"round": 0}]
    history = History(rows)
    rows[0]["round"] = 7
    rows.append({"round": 8})
    assert list(history) == [{"round": 0}]


def test_equality_is_by_content():
    assert History(ROWS) == History(list(ROWS))
    assert History(ROWS) != History(ROWS[:2])
    assert History(ROWS) != ROWS
    assert hash(History(ROWS)) == hash(History(list(ROWS)))
