"""MEBF against known results, and against a twin that follows its rules on dense arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import felb
from felb.centralized import mebf
from felb.data import BinaryMatrix, load, planted
from felb.errors import ConvergenceWarning, InputError
from felb.metrics import confusion
from felb.sklearn.centralized import MEBF

# -- the slow twin -----------------------------------------------------------------------------------------------------


def worth(M, rows, columns):
    return (rows.sum() - 1) * (columns.sum() - 1) - (~M[np.ix_(rows, columns)]).sum()


def joined(M, rows, t):
    """Return the columns that resemble a set of rows."""
    return M[rows].sum(axis=0) >= min(t * rows.sum() + 1, rows.sum())


def seeds(M):
    """Return the columns of median size."""
    sizes = M.sum(axis=0)
    if not sizes.any() or np.median(sizes[sizes > 0]) <= 1:
        return []
    return np.flatnonzero(sizes == sizes[sizes >= np.median(sizes[sizes > 0])].min())


def pair(M, t):
    """Return the block of what the two fullest columns have in common."""
    order = np.argsort(-M.sum(axis=0), kind="stable")
    rows = M[:, order[0]] & M[:, order[1]]
    if rows.sum() <= 1:
        return -np.inf, None, None
    columns = joined(M, rows, t)
    return worth(M, rows, columns), rows, columns


def slow_block(M, t):
    best, block = 0, None
    for j in seeds(M):
        rows = M[:, j]
        columns = joined(M, rows, t)
        if worth(M, rows, columns) > best:
            best, block = worth(M, rows, columns), (rows, columns)
    for i in seeds(M.T):
        columns = M[i]
        rows = joined(M.T, columns, t)
        if worth(M, rows, columns) > best:
            best, block = worth(M, rows, columns), (rows, columns)
    if block is None:
        (of_columns, *first), (of_rows, columns, rows) = pair(M, t), pair(M.T, t)
        if max(of_columns, of_rows) > -np.inf:
            block = tuple(first) if of_columns > of_rows else (rows, columns)
    return block


def slow_mebf(A, k, t, p):
    M, U, V = A.copy(), [], []
    for _ in range(min(k, min(A.shape) - 1)):
        block = None if M.sum() <= p * A.sum() else slow_block(M, t)
        if block is None:
            break
        U.append(block[0].copy())
        V.append(block[1].copy())
        M[np.ix_(*block)] = False
    return np.array(U, dtype=bool).reshape(len(U), A.shape[0]).T, np.array(V, dtype=bool).reshape(len(V), A.shape[1])


def draw(n, m, density, seed, double):
    rng = np.random.default_rng(seed)
    A = rng.random((n, m)) < density
    if double:  # many lines of equal size, so that ties decide
        A = np.vstack([A, A[rng.permutation(n)]])
    return A


# -- agreement ---------------------------------------------------------------------------------------------------------


@given(
    st.builds(
        draw,
        st.integers(1, 40),
        st.integers(1, 90),
        st.sampled_from([0.0, 0.03, 0.1, 0.3, 0.6, 1.0]),
        st.integers(0, 999),
        st.booleans(),
    ),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.05, 0.5]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
@pytest.mark.filterwarnings("ignore")
def test_factors_are_those_of_the_slow_twin(A, k, t, p):
    model = MEBF(n_components=k, threshold=t, uncovered=p)
    U = model.fit_transform(A.astype(int))
    slow_U, slow_V = slow_mebf(A, k, t, p)
    found = model.n_iter_
    assert found == len(slow_V)
    np.testing.assert_array_equal(U[:, :found], slow_U)
    np.testing.assert_array_equal(model.components_[:found], slow_V)
    assert not U[:, found:].any()
    assert not model.components_[found:].any()


def test_planted_data_of_some_size():
    A = planted(3000, 60, 5, noise=0.03, seed=3).A  # enough rows for packed words and several chunks
    model = MEBF(n_components=6)
    U = model.fit_transform(A)
    slow_U, slow_V = slow_mebf(A.toarray(), 6, 0.5, 0.05)
    np.testing.assert_array_equal(U, slow_U)
    np.testing.assert_array_equal(model.components_, slow_V)


@pytest.mark.parametrize(
    ("name", "k", "factors", "errors", "f1"),
    [
        ("zoo", 5, 5, 278, 0.8249),
        ("zoo", 10, 9, 244, 0.8498),
        ("soybean", 5, 5, 11050, 0.7425),
        ("soybean", 10, 10, 10433, 0.7635),
    ],
)
def test_known_results(name, k, factors, errors, f1):
    A = load(name)
    model = MEBF(n_components=k, threshold=0.5, uncovered=0.05)
    counts = confusion(A, model.fit_transform(A), model.components_)
    assert (model.n_iter_, counts.errors, round(counts.f1, 4)) == (factors, errors, f1)


# -- properties --------------------------------------------------------------------------------------------------------


def test_the_search_ends_when_enough_is_covered():
    A = load("zoo")
    for uncovered in (0.5, 0.3, 0.1):
        model = MEBF(n_components=16, uncovered=uncovered)
        U = model.fit_transform(A)
        covered = [confusion(A, U[:, :f], model.components_[:f]).recall for f in range(model.n_iter_ + 1)]
        assert covered[-2] < 1 - uncovered <= covered[-1]


def test_random_state_is_ignored_and_the_data_is_left_alone():
    data = planted(150, 30, 3, noise=0.05, seed=5).A
    before = data.toarray()
    fits = [MEBF(n_components=4, random_state=s).fit(X) for s, X in ((0, data), (1, before.astype(int)))]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
    np.testing.assert_array_equal(data.toarray(), before)
    np.testing.assert_array_equal(fits[0].supports_, fits[1].supports_)


def test_a_slice_of_rows_is_factorized_like_a_copy():
    data = planted(200, 30, 3, noise=0.05, seed=5).A
    part = data.rows(50, 150)
    np.testing.assert_array_equal(
        MEBF(4).fit_transform(part), MEBF(4).fit_transform(BinaryMatrix.of(part.toarray().astype(int)))
    )


def test_all_one_is_one_factor_and_all_zero_is_none():
    model = MEBF(n_components=3)
    U = model.fit_transform(np.ones((8, 5), dtype=int))
    assert model.n_iter_ == 1
    assert model.inverse_transform(U).all()
    assert model.components_.shape == (3, 5)
    with pytest.warns(ConvergenceWarning, match="no ones"):
        model.fit(np.zeros((8, 5), dtype=int))
    assert model.n_iter_ == 0
    assert not model.components_.any()


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (1, 1), (2, 2)])
@pytest.mark.filterwarnings("ignore:n_components=:UserWarning", "ignore::felb.errors.ConvergenceWarning")
def test_tiny_data(shape):
    model = MEBF(n_components=2).fit(np.ones(shape, dtype=int))
    assert model.n_iter_ == (1 if min(shape) > 1 else 0)


def test_the_time_limit_ends_the_search_with_what_was_found():
    A = load("zoo")
    model = MEBF(n_components=10, time_limit=1e-9)
    with pytest.warns(ConvergenceWarning, match="time limit"):
        U = model.fit_transform(A)
    assert not model.complete_
    assert model.n_iter_ == 1
    whole = MEBF(n_components=10)
    np.testing.assert_array_equal(U[:, 0], whole.fit_transform(A)[:, 0])
    np.testing.assert_array_equal(model.components_[0], whole.components_[0])
    assert whole.complete_


@pytest.mark.parametrize("name", ["threshold", "uncovered"])
@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_shares_outside_of_0_and_1_are_refused(name, value):
    with pytest.raises(InputError, match=f"{name} "):
        MEBF(**{name: value}).fit(felb.data.load("zoo"))


def test_no_lines_are_of_median_size_if_most_hold_a_single_one():
    assert mebf.median_lines(BinaryMatrix.of(np.eye(4, dtype=int))).size == 0
    assert mebf.median_lines(BinaryMatrix.of(np.zeros((3, 3), dtype=int))).size == 0
    np.testing.assert_array_equal(mebf.median_lines(BinaryMatrix.of(np.tri(5, dtype=int))), [2])
