"""A report says what is stored, computes only on data it was given or knows for sure, and its scores are right."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest

from felb.data import planted
from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.kernels.boolean import boolean_product_dense
from felb.metrics import Counts, confusion
from felb.report import gather, inputs
from felb.report.inputs import bootstrap_scores, count_by_row, estimate_cell_intervals, sum_counts, wilson


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
    with pytest.warns(UserWarning, match="without assignments"):
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
    assert found.is_private
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
    assert gather(copy).is_private


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


FACTORS = st.integers(0, 3).flatmap(
    lambda k: st.tuples(arrays(bool, (9, 6)), arrays(bool, (9, k)), arrays(bool, (k, 6)))
)


@settings(deadline=None)  # the first call compiles
@given(FACTORS)
def test_counts_of_rows_are_those_of_cells(factors):
    A, U, V = factors
    R = boolean_product_dense(U, V)
    expected = np.column_stack([(A & R).sum(axis=1), (~A & R).sum(axis=1), (A & ~R).sum(axis=1), np.full(9, 6)])
    found = count_by_row(BinaryMatrix.of(A), U, V)
    np.testing.assert_array_equal(found, expected)
    assert sum_counts(found) == confusion(A, U, V)


def test_counts_of_rows_do_not_depend_on_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    A, U, V = (rng.random(shape) < 0.3 for shape in ((50, 20), (50, 4), (4, 20)))
    whole = count_by_row(BinaryMatrix.of(A), U, V)
    monkeypatch.setattr(inputs, "BLOCK", 7)
    np.testing.assert_array_equal(count_by_row(BinaryMatrix.of(A), U, V), whole)
    np.testing.assert_array_equal(count_by_row(BinaryMatrix.of(A).rows(13, 31), U[13:31], V), whole[13:31])


def test_unknown_cells_count_nowhere():
    rng = np.random.default_rng(3)
    A, U, V, M = (rng.random(shape) < 0.3 for shape in ((50, 20), (50, 4), (4, 20), (50, 20)))
    data = BinaryMatrix.of(A & ~M).with_unknown(M)
    R = boolean_product_dense(U, V)
    found = count_by_row(data, U, V)
    expected = [(A & R & ~M), (~A & R & ~M), (A & ~R & ~M), ~M]
    np.testing.assert_array_equal(found, np.column_stack([cells.sum(axis=1) for cells in expected]))
    assert sum_counts(found) == confusion(data, U, V)


def test_the_bootstrap_agrees_with_drawing_records_one_by_one():
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.integers(0, 8, (200, 3)), np.full(200, 24)])
    found, resamples = bootstrap_scores(rows)
    assert resamples == 2000
    drawn = [sum_counts(rows[rng.integers(0, 200, 200)]).scores() for _ in range(3000)]
    for name, (low, high) in found.items():
        twin = np.percentile([scores[name] for scores in drawn], [2.5, 97.5])
        assert (low, high) == pytest.approx(twin, abs=0.12 * (twin[1] - twin[0])), name


def test_the_bootstrap_is_the_same_each_time_and_fewer_where_it_is_slow(monkeypatch):
    rows = np.random.default_rng(2).integers(0, 50, (300, 4)) + np.array([0, 0, 0, 150])
    assert bootstrap_scores(rows) == bootstrap_scores(rows)
    monkeypatch.setattr(inputs, "MANY_KINDS", 10)
    assert bootstrap_scores(rows)[1] == 400


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_scipy(counted):
    successes, trials = counted
    known = binomtest(successes, trials).proportion_ci(method="wilson")
    assert wilson(successes, trials) == pytest.approx((known.low, known.high), abs=1e-9)


COUNTS = st.builds(Counts, *(st.integers(0, 300) for _ in range(3)), st.integers(900, 2000))


@given(COUNTS)
def test_intervals_hold_their_scores(counts):
    scores = counts.scores()
    for name, (low, high) in estimate_cell_intervals(counts).items():
        assert low - 1e-9 <= high
        if name in ("f1", "precision", "recall") and counts.tp + counts.fp and counts.tp + counts.fn:
            assert low - 1e-9 <= scores[name] <= high + 1e-9


def test_more_cells_give_narrower_intervals():
    few, many = (estimate_cell_intervals(Counts(*(scale * count for count in (60, 20, 10, 300)))) for scale in (1, 100))
    for name, (low, high) in few.items():
        if name != "errors":
            assert many[name][1] - many[name][0] < (high - low) / 5


def test_counts_come_back_from_stored_scores(run):
    assert run.result.counts == confusion(run.matrix, run.U, run.result.components)


def test_overlap_agrees_with_sets(run):
    features, records = gather(run.folder).overlap()
    V, U = run.result.components, run.U
    for found, members in ((features, V), (records, U.T)):
        for i, j in ((0, 0), (0, 1), (3, 7), (19, 2)):
            a, b = set(np.flatnonzero(members[i])), set(np.flatnonzero(members[j]))
            assert found[i, j] == pytest.approx(len(a & b) / len(a | b))
