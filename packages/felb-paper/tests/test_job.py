"""Stored runs in one file for each experiment: a job goes on from them, and knows which are of another code."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from felb.errors import InputError
from felb.runs import cells as cell_runner
from felb.runs.cells import CELLS
from felb_paper.cells import MethodUse, fingerprint_method, run_study
from felb_paper.job import forecast_costs, pack_runs, read_runs, store_file, unpack_runs
from felb_paper.study import CODE, StudyRecord
from study_records import ASSO, FAST, tiny
from test_study_runner import InProcess


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """A small experiment and its stored runs."""
    monkeypatch.setattr(cell_runner, "Pool", InProcess)
    study = tiny()
    run_study(study, tmp_path / "first")
    assert pack_runs(study, tmp_path / "first", tmp_path / "store") == 4
    return study, tmp_path


def test_stored_runs_are_not_measured_again_elsewhere(finished):
    study, place = finished
    assert unpack_runs(study, place / "store", place / "second") == (4, 0)
    seen = []
    record = run_study(study, place / "second", on_progress=seen.append)
    assert seen[-1].measured == 0
    first = StudyRecord.read(place / "first")
    assert record.codes == first.codes
    for method in ("FELB", "Asso"):
        assert record.mean("f1", method, 0.1) == pytest.approx(first.mean("f1", method, 0.1), rel=1e-6)


def test_the_same_runs_make_the_same_file(finished):
    study, place = finished
    before = store_file(place / "store", study).read_bytes()
    unpack_runs(study, place / "store", place / "second")
    pack_runs(study, place / "second", place / "store")
    assert store_file(place / "store", study).read_bytes() == before


def test_runs_of_another_code_are_stale_and_left_out(finished):
    study, place = finished
    codes = json.loads((place / "first" / CODE).read_text(encoding="utf-8"))
    other = {key: "00000000" if key.startswith("felb.") else code for key, code in codes.items()}
    (place / "first" / CODE).write_text(json.dumps(other), encoding="utf-8")
    pack_runs(study, place / "first", place / "store")
    assert unpack_runs(study, place / "store", place / "second") == (2, 2)
    assert len(list((place / "second" / CELLS).glob("*.json"))) == 2


def test_a_damaged_file_is_refused_by_its_name(finished):
    study, place = finished
    path = store_file(place / "store", study)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=f"{path.name} is damaged"):
        read_runs(path)


def test_the_fingerprint_tells_methods_and_parameters_apart():
    fast = fingerprint_method(FAST)
    assert fast == fingerprint_method(replace(FAST, label="another name"))
    assert (
        len({fast, fingerprint_method(ASSO), fingerprint_method(MethodUse("FELB", "felb", {"setting": "literal"}))})
        == 3
    )


def test_the_forecast_is_of_the_runs_that_are_missing(finished):
    study, place = finished
    (known,) = forecast_costs([study], {"noise": place / "first"})
    assert (known.done, known.planned, known.seconds) == (4, 4, 0)
    (unknown,) = forecast_costs([study], {"noise": place / "nowhere"})
    assert unknown.seconds is None
    (grown,) = forecast_costs([replace(study, trials=2, levels=(0.0, 0.1, 0.2))], {"noise": place / "first"})
    assert (grown.done, grown.planned) == (4, 12)
    assert grown.seconds > 0


def test_a_job_ends_when_its_minutes_are_over_and_goes_on_later(felb, in_folder, monkeypatch):
    monkeypatch.setattr(cell_runner, "Pool", InProcess)
    monkeypatch.setattr("felb_paper.experiments.find_study", lambda name, **_: tiny())
    arguments = ("experiment", "run", "noise", "--out", "a", "--store", "runs")
    done = felb(*arguments, "--minutes", "1e-9")
    assert done.code == 0
    assert "the time is up; finished runs are kept; resume with: felb experiment run noise" in done.err
    assert "--store runs" in done.err
    assert len(read_runs(in_folder / "runs" / "noise-quick.jsonl.gz")) < 4
    assert felb(*arguments).code == 0
    assert len(read_runs(in_folder / "runs" / "noise-quick.jsonl.gz")) == 4
    shown = felb(*arguments, "--forecast")
    assert "noise: 4 of 4 runs done, the rest: 0.0 processor hours" in shown.out
