"""A report says what is stored, and computes only on data it was given or knows for sure."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from felb.data import planted
from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.metrics import confusion
from felb.report import gather


@pytest.fixture
def copy(run, tmp_path):
    """The run alone, without its data beside it."""
    shutil.copytree(run.folder, tmp_path / "away" / "run")
    return tmp_path / "away" / "run"


def test_data_beside_the_result_is_found_by_its_fingerprint(run):
    for place in (run.folder, run.folder / "result.json"):
        found = gather(place)
        assert found.measured.same
        assert found.measured.stored
        assert found.absent is None
        assert found.measured.counts == confusion(run.matrix, run.U, run.result.components)


def test_stored_assignments_are_put_into_the_order_of_the_rows(run):
    np.testing.assert_array_equal(gather(run.folder).measured.U, run.U)


def test_counts_of_clients_add_up(run):
    found = gather(run.folder).measured
    by_client = found.counts_of_clients()
    assert list(by_client) == list(run.result.clients)
    assert sum(by_client.values()) == found.counts


def test_data_in_the_working_folder_is_found(run, copy, tmp_path, monkeypatch):
    shutil.copy(run.data, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert gather(copy).measured.same


def test_without_data_it_says_so(copy):
    found = gather(copy)
    assert found.measured is None
    assert "data.felb" in found.absent
    assert found.members is not None


def test_other_data_of_the_same_name_is_not_used(run, copy):
    other = planted(50, 120, 2, seed=9).A.with_columns(run.matrix.columns)
    other.save(copy.parent / "data.felb")
    assert gather(copy).measured is None


def test_a_damaged_file_of_the_same_name_is_not_used(copy):
    (copy.parent / "data.felb").write_bytes(b"nonsense")
    assert gather(copy).measured is None


def test_other_data_that_was_asked_for_is_assigned_anew(run, copy, tmp_path):
    other = planted(50, 120, 2, seed=9).A.with_columns(run.matrix.columns)
    other.save(tmp_path / "other.felb")
    found = gather(copy, data=str(tmp_path / "other.felb")).measured
    assert found.same is False
    assert not found.stored
    assert found.counts_of_clients() == {}
    assert len(found.U) == 50


def test_stored_assignments_that_do_not_give_the_stored_scores_are_not_trusted(run, copy, rewrite):
    rewrite(copy, scores__errors=run.result.scores["errors"] + 1)
    found = gather(copy, data=str(run.data)).measured
    assert found.same
    assert not found.stored


def test_missing_assignments_are_made_anew(run, copy):
    shutil.rmtree(copy / "assignments")
    found = gather(copy, data=str(run.data))
    assert found.assignments is None
    assert not found.measured.stored
    assert found.members is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda A: A[:, :-1], "119 columns, the result has 120"),
        (lambda A: A[:, ::-1], "order"),
    ],
)
def test_data_with_other_features_is_refused(run, copy, tmp_path, change, message):
    names = np.array(run.matrix.columns)
    BinaryMatrix.of(change(run.matrix.toarray()), columns=change(names[None, :])[0].tolist()).save(tmp_path / "x.felb")
    with pytest.raises(InputError, match=message):
        gather(copy, data=str(tmp_path / "x.felb"))


def test_a_folder_without_a_result_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no result\.json"):
        gather(tmp_path)


def test_a_private_run_shows_no_assignments(run, copy, rewrite):
    (copy / "private.json").unlink()
    rewrite(copy, privacy={"text": "Privacy\n  Guarantee  (epsilon, delta) = (1, 1e-05)"})
    rewrite(copy, supports=[None] * 20, scores={}, provenance__data__fingerprint=None, provenance__data__ones=None)
    found = gather(copy)
    assert found.private
    assert "Guarantee" in found.statement
    assert found.assignments is None
    assert found.members is None
    assert found.measured is None
    assert "does not identify" in found.absent
    assert set(found.supports) == {None}
    told = gather(copy, data=str(run.data))
    assert told.measured.same is None
    assert told.supports == tuple(told.measured.U.sum(axis=0).tolist())


def test_a_run_whose_parameters_tell_of_privacy_is_private(copy, rewrite):
    rewrite(copy, provenance__parameters__privacy={"epsilon": 1.0})
    assert gather(copy).private


def test_a_log_that_was_cut_short_is_read_as_far_as_it_goes(copy):
    log = next((copy / "outbound").glob("*.jsonl"))
    whole = len(gather(copy).outbound)
    with log.open("a", encoding="utf-8") as file:
        file.write('[1]\n{"time": "20')
    assert len(gather(copy).outbound) == whole


def test_the_duration_is_from_the_first_to_the_last_line(copy):
    shutil.rmtree(copy / "outbound")
    assert gather(copy).seconds() is None
    (copy / "outbound").mkdir()
    words = {"client": "a", "task": "t", "what": "w", "dtype": "int64", "mechanism": "none", "cost": None}
    line = {**words, "round": 0, "shape": [2], "bytes": 16}
    lines = [{**line, "time": f"2026-01-01T00:00:{second:02}+00:00"} for second in (5, 2, 45)]
    (copy / "outbound" / "a.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert gather(copy).seconds() == 43
    found = gather(copy)
    assert dataclasses.replace(found, outbound=({"time": "noon"},)).seconds() is None
