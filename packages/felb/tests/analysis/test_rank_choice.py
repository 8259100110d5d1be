"""Held-out cells choose the planted number of components, the same in a federation."""

import numpy as np
import pytest

import felb
from felb.analysis import RankChoice, held_out_cells
from felb.analysis.rank_choice import RankScores
from felb.data import planted

DATA = planted(300, 50, 3, noise=0.05, heights=(0.15, 0.3), widths=(0.15, 0.3), seed=0)


def test_held_out_cells_are_a_share_without_common_cells_and_unknown_to_the_fit():
    dense = DATA.A.toarray()
    masks = []
    for fold in range(4):
        held = held_out_cells(DATA.A, fold=fold, share=0.25, seed=3)
        mask = held.cells.toarray()
        masks.append(mask)
        np.testing.assert_array_equal(held.training.toarray(), dense & ~mask)
        np.testing.assert_array_equal(held.training.unknown.toarray(), mask)
        np.testing.assert_array_equal(held.ones.toarray(), dense & mask)
        assert mask.mean() == pytest.approx(0.25, abs=0.02)
    np.testing.assert_array_equal(np.sum(masks, axis=0), 1)


def test_rows_of_clients_have_the_cells_of_the_whole():
    whole = held_out_cells(DATA.A, seed=1)
    blocks = [held_out_cells(DATA.A.rows(a, b), seed=1, first_row=a) for a, b in ((0, 90), (90, 300))]
    joined = felb.BinaryMatrix.vstack([block.cells for block in blocks])
    assert joined == whole.cells
    assert held_out_cells(DATA.A, seed=2).cells != whole.cells


def test_counts_are_those_of_the_held_out_cells():
    held, rng = held_out_cells(DATA.A, seed=1), np.random.default_rng(0)
    U, V = rng.random((300, 3)) < 0.4, rng.random((3, 50)) < 0.4
    R = (U.astype(int) @ V.astype(int)) > 0
    mask, dense = held.cells.toarray(), DATA.A.toarray()
    counts = held.counts(U, V)
    assert counts.tp == (R & dense & mask).sum()
    assert counts.fp == (R & ~dense & mask).sum()
    assert counts.fn == (~R & dense & mask).sum()
    assert counts.cells == mask.sum()


def test_cells_that_are_unknown_already_are_not_held_out():
    unknown = np.random.default_rng(0).random(DATA.A.shape) < 0.2
    A = felb.BinaryMatrix.of(DATA.A.toarray() & ~unknown).with_unknown(unknown)
    held = held_out_cells(A, seed=1)
    assert not (held.cells.toarray() & unknown).any()
    np.testing.assert_array_equal(held.training.unknown.toarray(), unknown | held.cells.toarray())


def test_the_planted_number_is_chosen_and_a_federation_chooses_the_same():
    groups = felb.data.partition.uneven(300, 4)
    centralized = felb.choose_k(DATA.A, range(1, 7), n_resamples=2)
    shared = felb.choose_k(DATA.A, range(1, 7), groups=groups, n_resamples=0)
    listed = felb.choose_k([DATA.A.rows(0, 120), DATA.A.rows(120, 300)], range(1, 7), n_resamples=0)
    assert centralized.best_k == 3
    for other in (shared, listed):
        for a, b in zip(centralized.scores, other.scores, strict=True):
            assert a.held_out == b.held_out
            assert a.description_length == b.description_length
    assert centralized.shortest_k == 3
    assert centralized.scores[2].stability == 1.0
    assert shared.scores[2].stability is None
    errors = [row.error_rate for row in centralized.scores]
    assert errors[0] > errors[2]


def test_the_smallest_number_within_one_standard_error_is_chosen():
    rows = [RankScores(k, f, 0.0, 0.0, 0.0, None) for k, f in ((1, (0.5, 0.5)), (2, (0.79, 0.78)), (3, (0.81, 0.77)))]
    assert RankChoice(tuple(rows), 0.1, 0, 0).best_k == 2
    assert rows[2].standard_error == pytest.approx(0.02)


def test_wrong_input_is_named():
    for options, match in (
        ({"n_components": []}, "n_components"),
        ({"n_components": [0]}, "n_components"),
        ({"cv": 0}, "cv"),
        ({"cv": 11}, "fold"),
        ({"share": 1.5}, "share"),
    ):
        with pytest.raises(felb.InputError, match=match):
            felb.choose_k(DATA.A, **({"n_components": [2]} | options))
