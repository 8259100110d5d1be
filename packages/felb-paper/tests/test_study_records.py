"""Stored experiments: intervals, and folders that are read back."""

from __future__ import annotations

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from felb.errors import InputError
from felb.metrics.comparison import mean_interval
from felb.runs.cells import CELLS, CellRecord
from felb_paper.study import CLAIMS, MANIFEST, Claim, Metric, Planned, StudyRecord, View, write_claims

numbers = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12).filter(lambda values: np.std(values) > 1e-6)


@given(numbers)
def test_mean_and_interval_are_those_of_students_t(values):
    found = mean_interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert found.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9, abs=1e-9)
    assert found.n == len(values)


def test_one_trial_has_no_interval_and_none_has_no_mean():
    assert mean_interval([]) is None
    assert mean_interval([3.0]).mean == 3
    assert math.isnan(mean_interval([3.0]).half)
    assert mean_interval([2.0, 2.0]).half == 0


VIEW = View("lines", "noise", (Metric("f1", "F1", "high"),), ("A", "B"), ratio=("f1", "A", "B"))
PLANNED = tuple(Planned(f"{method}{trial}", method, 0.1, "", trial) for trial in range(3) for method in "AB")


def record(**cells):
    return StudyRecord("noise", "Noise", "?", "quick", VIEW, PLANNED, cells=cells)


def written(folder, *cells):
    (folder / CELLS).mkdir()
    record().write_manifest(folder)
    for cell in cells:
        cell.write(folder)
    return folder


def test_a_folder_is_read_back(tmp_path):
    cells = [
        CellRecord("A0", "done", {"f1": 0.5, "gone": None}, {"loss": [3.0, 2.0]}, {"p": ["01"]}),
        CellRecord("A1", "done", {"f1": float("nan")}),
        CellRecord("B0", "timeout", message="no answer", limit=3.0),
        CellRecord("B1", "failed", message="no"),
        CellRecord("Z9", "done", {"f1": 1.0}),
    ]
    found = StudyRecord.read(written(tmp_path, *cells))
    assert found.view == VIEW
    assert found.planned == PLANNED
    assert set(found.cells) == {"A0", "A1", "B0", "B1"}  # Z9 belongs to no planned cell
    assert found.cells["A0"] == cells[0]
    assert found.by_trial("f1", "A", 0.1) == {0: 0.5}  # what is not finite is no figure
    assert found.interval("f1", "B", 0.1) is None
    assert (found.count("done"), found.count("timeout"), found.count("failed"), found.missing) == (2, 1, 1, 2)
    assert found.trials == 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "A0"}', '{"key": "B0", "status": "done"}'])
def test_a_damaged_cell_counts_as_not_run(tmp_path, text):
    folder = written(tmp_path)
    (folder / CELLS / "A0.json").write_text(text, encoding="utf-8")
    assert StudyRecord.read(folder).missing == len(PLANNED)


def test_a_folder_without_or_with_a_damaged_manifest_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"experiment.*felb experiment run"):
        StudyRecord.read(tmp_path)
    folder = written(tmp_path)
    raw = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    for text in ("{", "[]", json.dumps({**raw, "view": {}}), json.dumps({**raw, "format": "felb-experiment-0"})):
        (folder / MANIFEST).write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="experiment"):
            StudyRecord.read(folder)


def test_figures_are_paired_by_trial():
    cells = {key: CellRecord(key, "done", {"f1": value}) for key, value in (("A0", 1.0), ("A2", 3.0), ("B2", 6.0))}
    found = record(**cells)
    assert found.by_trial("f1", "A", 0.1) == {0: 1.0, 2: 3.0}
    assert found.by_trial("f1", "B", 0.1) == {2: 6.0}


def test_claims_are_kept(tmp_path):
    claims = [Claim("it works", "reproduced", "1 > 0"), Claim("it flies", "contradicted", "0 < 1")]
    write_claims(tmp_path, claims)
    assert msgspec.json.decode((tmp_path / CLAIMS).read_bytes(), type=list[Claim]) == claims
