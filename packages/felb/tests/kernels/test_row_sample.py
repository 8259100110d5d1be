"""Samples of rows by their content: the same for any split and order, of the size that was asked for."""

import numpy as np
import pytest
from kernel_cases import interpret, sparse

from felb.kernels import schedule as row_sample
from felb.kernels.schedule import sample_rows

ROWS = np.random.default_rng(0).random((3000, 60)) < 0.2


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_sample_has_about_its_share_of_the_rows(share):
    found = sample_rows(sparse(ROWS), share)
    assert abs(len(found) - share * 3000) <= 5 * np.sqrt(3000 * share * (1 - share))
    assert (np.diff(found) > 0).all()


def test_a_smaller_sample_is_part_of_a_larger_one():
    small, large = (set(sample_rows(sparse(ROWS), share).tolist()) for share in (0.1, 0.3))
    assert small < large


def test_the_sample_does_not_depend_on_the_split_or_on_the_order():
    whole = sample_rows(sparse(ROWS), 0.2)
    parts = [start + sample_rows(sparse(ROWS[start : start + 700]), 0.2) for start in range(0, 3000, 700)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    order = np.random.default_rng(1).permutation(3000)
    np.testing.assert_array_equal(np.sort(order[sample_rows(sparse(ROWS[order]), 0.2)]), whole)


def test_equal_rows_are_sampled_together():
    twice = sample_rows(sparse(np.vstack([ROWS, ROWS])), 0.2)
    np.testing.assert_array_equal(twice[twice < 3000] + 3000, twice[twice >= 3000])


def test_the_kernel_runs_in_the_interpreter(monkeypatch):
    matrix = sparse(ROWS[:50])
    expected = sample_rows(matrix, 0.3)
    interpret(monkeypatch, row_sample)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(sample_rows(matrix, 0.3), expected)
