"""Scores and intervals agree with their obvious twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binomtest

from felb.data.binary import BinaryMatrix
from felb.kernels.boolean import boolean_product_dense
from felb.metrics import Counts, confusion
from felb.report import evidence as measures
from felb.report.evidence import bootstrap, cell_intervals, jaccard, row_counts, total, wilson

FACTORS = st.integers(0, 3).flatmap(
    lambda k: st.tuples(arrays(bool, (9, 6)), arrays(bool, (9, k)), arrays(bool, (k, 6)))
)


@settings(deadline=None)  # the first call compiles
@given(FACTORS)
def test_counts_of_rows_are_those_of_cells(factors):
    A, U, V = factors
    R = boolean_product_dense(U, V)
    expected = np.column_stack([(A & R).sum(axis=1), (~A & R).sum(axis=1), (A & ~R).sum(axis=1), np.full(9, 6)])
    found = row_counts(BinaryMatrix.of(A), U, V)
    np.testing.assert_array_equal(found, expected)
    assert total(found) == confusion(A, U, V)


def test_counts_of_rows_do_not_depend_on_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    A, U, V = (rng.random(shape) < 0.3 for shape in ((50, 20), (50, 4), (4, 20)))
    whole = row_counts(BinaryMatrix.of(A), U, V)
    monkeypatch.setattr(measures, "BLOCK", 7)
    np.testing.assert_array_equal(row_counts(BinaryMatrix.of(A), U, V), whole)
    np.testing.assert_array_equal(row_counts(BinaryMatrix.of(A).rows(13, 31), U[13:31], V), whole[13:31])


def test_unknown_cells_count_nowhere():
    rng = np.random.default_rng(3)
    A, U, V, M = (rng.random(shape) < 0.3 for shape in ((50, 20), (50, 4), (4, 20), (50, 20)))
    data = BinaryMatrix.of(A & ~M).with_unknown(M)
    R = boolean_product_dense(U, V)
    found = row_counts(data, U, V)
    expected = [(A & R & ~M), (~A & R & ~M), (A & ~R & ~M), ~M]
    np.testing.assert_array_equal(found, np.column_stack([cells.sum(axis=1) for cells in expected]))
    assert total(found) == confusion(data, U, V)


def test_the_bootstrap_agrees_with_drawing_records_one_by_one():
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.integers(0, 8, (200, 3)), np.full(200, 24)])
    found, resamples = bootstrap(rows)
    assert resamples == 2000
    drawn = [total(rows[rng.integers(0, 200, 200)]).scores() for _ in range(3000)]
    for name, (low, high) in found.items():
        twin = np.percentile([scores[name] for scores in drawn], [2.5, 97.5])
        assert (low, high) == pytest.approx(twin, abs=0.12 * (twin[1] - twin[0])), name


def test_the_bootstrap_is_the_same_each_time_and_fewer_where_it_is_slow(monkeypatch):
    rows = np.random.default_rng(2).integers(0, 50, (300, 4)) + np.array([0, 0, 0, 150])
    assert bootstrap(rows) == bootstrap(rows)
    monkeypatch.setattr(measures, "MANY_KINDS", 10)
    assert bootstrap(rows)[1] == 400


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_scipy(counted):
    successes, trials = counted
    known = binomtest(successes, trials).proportion_ci(method="wilson")
    assert wilson(successes, trials) == pytest.approx((known.low, known.high), abs=1e-9)


COUNTS = st.builds(Counts, *(st.integers(0, 300) for _ in range(3)), st.integers(900, 2000))


@given(COUNTS)
def test_intervals_hold_their_scores(counts):
    scores = counts.scores()
    for name, (low, high) in cell_intervals(counts).items():
        assert low - 1e-9 <= high
        if name in ("f1", "precision", "recall") and counts.tp + counts.fp and counts.tp + counts.fn:
            assert low - 1e-9 <= scores[name] <= high + 1e-9


def test_more_cells_give_narrower_intervals():
    few, many = (cell_intervals(Counts(*(scale * count for count in (60, 20, 10, 300)))) for scale in (1, 100))
    for name, (low, high) in few.items():
        if name != "errors":
            assert many[name][1] - many[name][0] < (high - low) / 5


def test_counts_come_back_from_stored_scores(run):
    assert run.result.counts == confusion(run.matrix, run.U, run.result.components)


@given(arrays(bool, (8, 4)))
def test_jaccard_agrees_with_sets(members):
    found = jaccard(members)
    halves = jaccard({"a": members[:3], "b": members[3:]})
    np.testing.assert_allclose(found, halves)
    for i in range(4):
        for j in range(4):
            a, b = set(np.flatnonzero(members[:, i])), set(np.flatnonzero(members[:, j]))
            assert found[i, j] == pytest.approx(len(a & b) / len(a | b) if a | b else 0)
