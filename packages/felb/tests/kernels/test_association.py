"""Which features come along with others, against confidences counted one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret, sparse

from felb.errors import InputError
from felb.kernels import bits, cooccurrence
from felb.kernels import cooccurrence as association


def draw(n, m, density, seed):
    rng = np.random.default_rng(seed)
    A = rng.random((n, m)) < density
    return A[:, rng.integers(0, m, m)] if m else A  # with repeated columns


def slow(A, tau):
    """Return the distinct sets in the order of the first column that has them."""
    sets = []
    for i in range(A.shape[1]):
        size = int(A[:, i].sum())
        if size:
            found = [j for j in range(A.shape[1]) if int((A[:, i] & A[:, j]).sum()) / size >= tau]
            if found not in sets:
                sets.append(found)
    return sets


def fast(A, tau):
    return [found.tolist() for block in association.Associations(sparse(A)).sets(tau) for found in block]


@given(
    st.builds(draw, st.integers(0, 40), st.integers(0, 20), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.integers(0, 999)),
    st.sampled_from([1e-9, 0.2, 1 / 3, 0.5, 0.6, 1.0]),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_sets_agree_with_the_definition(A, tau):
    assert fast(A, tau) == slow(A, tau)


@pytest.mark.parametrize("counted_columns", [0, 100])
@pytest.mark.parametrize("at_a_time", [100, 10_000])
@pytest.mark.parametrize("interpreted", [False, True])
def test_wide_and_narrow_data_are_treated_alike(counted_columns, at_a_time, interpreted, monkeypatch):
    if interpreted:
        for module in (bits, cooccurrence, association):
            interpret(monkeypatch, module)
    monkeypatch.setattr(association, "COUNTED_COLUMNS", counted_columns)
    monkeypatch.setattr(association, "PAIRS_AT_A_TIME", at_a_time)
    for seed in range(3):
        A = draw(60, 30, 0.2, seed)
        for tau in (0.1, 0.25, 1.0):
            assert fast(A, tau) == slow(A, tau)


def test_sets_come_in_lists_of_bounded_work(monkeypatch):
    monkeypatch.setattr(association, "COUNTED_COLUMNS", 0)
    monkeypatch.setattr(association, "PAIRS_AT_A_TIME", 50)
    assert len(list(association.Associations(sparse(draw(60, 30, 0.2, 0))).sets(0.5))) > 5


def test_more_sets_than_there_was_room_for(monkeypatch):
    monkeypatch.setattr(association, "COUNTED_COLUMNS", 0)
    A = np.random.default_rng(0).random((30, 200)) < 0.5
    assert fast(A, 0.2) == slow(A, 0.2)


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan")])
def test_a_threshold_that_is_not_positive_is_refused(tau):
    with pytest.raises(InputError, match="tau="):
        fast(np.eye(3, dtype=bool), tau)
