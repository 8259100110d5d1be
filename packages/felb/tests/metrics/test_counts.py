"""Scores against their textbook definitions on dense matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.errors import InputError
from felb.metrics import Counts, confusion, integrality_gap


@st.composite
def factorizations(draw):
    n, m, k = draw(st.integers(1, 12)), draw(st.integers(1, 12)), draw(st.integers(1, 4))
    return tuple(draw(hnp.arrays(bool, shape)) for shape in ((n, m), (n, k), (k, m)))


@settings(max_examples=40)
@given(factorizations())
def test_counts_and_scores_match_the_dense_reconstruction(case):
    A, U, V = case
    R = (U.astype(int) @ V.astype(int)) > 0
    counts = confusion(A, U, V)
    assert (counts.tp, counts.fp, counts.fn) == ((A & R).sum(), (~A & R).sum(), (A & ~R).sum())
    assert counts.errors == (A ^ R).sum()
    assert counts.rmsd == pytest.approx(np.sqrt(((A.astype(float) - R) ** 2).mean()))
    assert counts.rmsd_table == pytest.approx(50 * counts.rmsd)
    if A.any() and R.any():
        precision, recall = (A & R).sum() / R.sum(), (A & R).sum() / A.sum()
        assert counts.precision == pytest.approx(precision)
        assert counts.recall == pytest.approx(recall)
        assert counts.coverage == pytest.approx(1 - counts.errors / A.sum())
        if precision + recall:
            assert counts.f1 == pytest.approx(2 * precision * recall / (precision + recall))


@settings(max_examples=25)
@given(factorizations(), st.integers(0, 12))
def test_counts_add_across_clients(case, cut):
    A, U, V = case
    cut = min(cut, len(A))
    parts = [confusion(A[rows], U[rows], V) for rows in (slice(0, cut), slice(cut, None)) if len(A[rows])]
    assert sum(parts) == confusion(A, U, V)


def test_empty_reconstruction_and_empty_data():
    nothing = Counts(tp=0, fp=0, fn=5, cells=20)
    assert (nothing.f1, nothing.recall, nothing.precision, nothing.coverage) == (0, 0, 1, 0)
    both = Counts(cells=20)
    assert (both.f1, both.recall, both.coverage, both.rmsd) == (1, 1, 1, 0)
    assert Counts(fp=1, cells=20).coverage == 0


def test_published_all_zero_rows_give_the_tables_unit():
    """An all-zero reconstruction of density d has RMSD 50·sqrt(d) in the tables: .01002 gives 5.005."""
    assert Counts(fn=1002, cells=100_000).rmsd_table == pytest.approx(5.005, abs=0.001)


def test_scores_name_every_measure():
    assert set(Counts(1, 1, 1, 9).scores()) == {
        "f1", "rmsd", "rmsd_table", "precision", "recall", "coverage", "errors",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("U", "V", "message"),
    [
        (np.ones((2, 1)), np.ones((1, 3)), "A is"),
        (np.ones((3, 2)), np.ones((1, 3)), "components"),
        (np.full((3, 1), 0.5), np.ones((1, 3)), "U must be Boolean"),
        (np.ones(3), np.ones((1, 3)), "U must be 2D"),
    ],
)
def test_wrong_factors_are_named(U, V, message):
    with pytest.raises(InputError, match=message):
        confusion(np.eye(3), U, V)


def test_integrality_gap():
    assert integrality_gap(np.array([[0.0, 1.0]])) == 0
    assert integrality_gap(np.array([[0.0, 0.8, 1.0]])) == pytest.approx(0.2)
    assert integrality_gap(np.array([[1.3]])) == pytest.approx(0.3)
    assert integrality_gap(np.zeros((0, 3))) == 0
