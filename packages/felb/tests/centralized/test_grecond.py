"""GreConD against known concepts of real data and against a version on plain Boolean arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.data import BinaryMatrix, load, planted
from felb.errors import ConvergenceWarning, InputError
from felb.metrics import confusion
from felb.sklearn.centralized import GreConD

# Components of the exact factorization, errors of ten, and rows, columns and newly covered ones of the first.
KNOWN = {
    "zoo": (22, 69, [(38, 6, 228), (20, 6, 120), (16, 6, 93)]),
    "soybean": (132, 9256, [(222, 19, 4218), (89, 15, 1335), (256, 15, 2800), (177, 5, 706), (24, 29, 696)]),
}


def slow(A, k):
    """Grow every concept by trying all columns, without any shortcut."""
    n, m = A.shape
    uncovered = A.copy()
    U, V = [], []
    while len(U) < k and uncovered.any():
        candidates = np.flatnonzero(uncovered.any(axis=0))
        rows, columns, value = np.ones(n, dtype=bool), np.zeros(m, dtype=bool), 0
        while True:
            best = None
            for j in candidates:
                a = rows & A[:, j]
                b = A[a].all(axis=0)
                covers = uncovered[np.ix_(a, b)].sum()
                if covers > value:
                    best, value = (a, b), covers
            if best is None or np.array_equal(best[1], columns):
                break
            rows, columns = best
        U.append(rows)
        V.append(columns)
        uncovered[np.ix_(rows, columns)] = False
    return np.array(U, dtype=bool).reshape(-1, n).T, np.array(V, dtype=bool).reshape(-1, m)


def run(A, k):
    return GreConD(k).find(BinaryMatrix.of(A), k, seed=0)


@pytest.mark.parametrize("name", KNOWN)
def test_known_concepts(name):
    A = load(name)
    count, errors, first = KNOWN[name]
    found = run(A, 150)
    assert found.attributes["n_iter_"] == count
    assert found.U[:, :count].any(axis=0).all()
    assert not found.U[:, count:].any()
    assert not found.V[count:].any()
    assert confusion(A, found.U, found.V).errors == 0
    assert confusion(A, found.U[:, : count - 1], found.V[: count - 1]).errors > 0
    assert confusion(A, found.U[:, :10], found.V[:10]).errors == errors
    covered = [confusion(A, found.U[:, :i], found.V[:i]).tp for i in range(len(first) + 1)]
    shapes = zip(found.U.sum(axis=0).tolist(), found.V.sum(axis=1).tolist(), np.diff(covered).tolist(), strict=False)
    assert list(shapes) == first


@pytest.mark.parametrize("name", KNOWN)
def test_errors_of_ten_components(name):
    A = load(name)
    model = GreConD(10)
    counts = confusion(A, model.fit_transform(A), model.components_)
    assert (counts.fn, counts.fp) == (KNOWN[name][1], 0)
    assert model.n_iter_ == 10
    assert model.complete_


@given(
    st.tuples(st.integers(1, 24), st.integers(1, 14)), st.sampled_from([0.1, 0.4, 0.7, 0.9, 1.0]), st.integers(0, 9999)
)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_agrees_with_the_slow_version(shape, density, seed):
    rng = np.random.default_rng(seed)
    A = rng.random(shape) < density
    A = A[rng.integers(0, len(A), len(A))][:, rng.integers(0, A.shape[1], A.shape[1])]  # with repeated lines, for ties
    U, V = slow(A, 20)
    found = run(A, 20)
    count = found.attributes["n_iter_"]
    assert count == len(V)
    np.testing.assert_array_equal(found.V[:count], V)
    np.testing.assert_array_equal(found.U[:, :count], U)
    assert found.complete


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_agrees_with_the_slow_version_on_planted_blocks(noise):
    A = planted(120, 150, 4, noise=noise, seed=5).A  # rows of three words
    U, V = slow(A.toarray(), 6)
    found = run(A, 6)
    np.testing.assert_array_equal(found.V, V)
    np.testing.assert_array_equal(found.U, U)


@given(st.integers(0, 9999), st.sampled_from([0.05, 0.3, 0.6]))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_components_are_concepts_and_never_cover_a_zero(seed, density):
    A = np.random.default_rng(seed).random((40, 25)) < density
    found = run(A, 12)
    assert confusion(A, found.U, found.V).fp == 0
    for c in range(found.attributes["n_iter_"]):
        np.testing.assert_array_equal(A[found.U[:, c]].all(axis=0), found.V[c])
        np.testing.assert_array_equal(A[:, found.V[c]].all(axis=1), found.U[:, c])


def test_all_ones_need_one_component():
    found = run(np.ones((5, 3), dtype=bool), 2)
    assert found.U.tolist() == [[True, False]] * 5
    assert found.V.tolist() == [[True] * 3, [False] * 3]


def test_all_zeros_have_no_component():
    with pytest.warns(ConvergenceWarning, match="no ones"):
        model = GreConD(2).fit(np.zeros((4, 3), dtype=int))
    assert model.n_iter_ == 0
    assert model.complete_


def test_more_components_than_needed_stay_empty():
    A = np.kron(np.eye(3, dtype=int), np.ones((4, 2), dtype=int))
    with pytest.warns(UserWarning, match="n_components=8"):
        model = GreConD(8).fit(A)
    assert model.supports_.tolist() == [4, 4, 4, 0, 0, 0, 0, 0]
    assert model.n_iter_ == 3


def test_nothing_is_random():
    A = planted(80, 30, 3, noise=0.1, seed=0).A
    np.testing.assert_array_equal(*(GreConD(3, random_state=s).fit(A).components_ for s in (0, 1)))


def test_a_time_limit_ends_the_search_with_a_valid_result():
    A = load("soybean")
    model = GreConD(20, time_limit=1e-9)
    with pytest.warns(ConvergenceWarning, match="time limit"):
        U = model.fit_transform(A)
    assert not model.complete_
    assert model.n_iter_ == 1
    counts = confusion(A, U, model.components_)
    assert counts.tp > 0
    assert counts.fp == 0


def test_a_time_limit_that_passes_at_the_very_end_changes_nothing():
    with pytest.warns(UserWarning, match="n_components=4"):
        model = GreConD(4, time_limit=1e-9).fit(np.ones((5, 3), dtype=int))
    assert model.complete_


def test_a_time_limit_must_be_positive():
    with pytest.raises(InputError, match="time_limit"):
        GreConD(2, time_limit=-1.0).fit(load("zoo"))
