"""Asso against known errors on real data and against a version that evaluates everything anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.data import BinaryMatrix, load, planted
from felb.errors import ConvergenceWarning, InputError
from felb.metrics import confusion
from felb.progress import Deadline
from felb.sklearn.centralized import Asso

# Errors for 2, 5 and 10 components, by data set and threshold.
KNOWN = {
    ("zoo", 0.3): (326, 261, 261),
    ("zoo", 0.5): (326, 244, 229),
    ("zoo", 0.7): (358, 254, 199),
    ("zoo", 0.9): (352, 199, 86),
    ("zoo", 1.0): (442, 289, 152),
    ("soybean", 0.5): (11115, 9730, 8855),
    ("soybean", 0.7): (11622, 9999, 8472),
    ("soybean", 0.9): (13542, 10970, 9081),
    ("soybean", 1.0): (14180, 12723, 10965),
}


def slow(A, k, tau, bonus=1.0, penalty=1.0):
    """Evaluate every candidate, equal ones included, on every row for every component."""
    n, m = A.shape
    candidates = [
        np.array([(A[:, i] & A[:, j]).sum() / A[:, i].sum() >= tau for j in range(m)])
        for i in range(m)
        if A[:, i].any()
    ]
    covered = np.zeros((n, m), dtype=bool)
    U, V = np.zeros((n, k), dtype=bool), np.zeros((k, m), dtype=bool)
    for c in range(k):
        best, best_total = None, 0.0
        for candidate in candidates:
            ones = (A & candidate & ~covered).sum(axis=1)
            zeros = (~A & candidate & ~covered).sum(axis=1)
            users = bonus * ones - penalty * zeros > 0
            total = bonus * ones[users].sum() - penalty * zeros[users].sum()
            if total > best_total:
                best, best_total = (candidate, users), total
        if best is None:
            break
        V[c], U[:, c] = best
        covered |= np.outer(U[:, c], V[c])
    return U, V


def run(A, k, **parameters):
    model = Asso(k, **parameters)
    model.check()
    return model.find(BinaryMatrix.of(A), k, seed=0)


def errors_of(A, found):
    return confusion(A, found.U, found.V).errors


@pytest.mark.parametrize(("name", "tau"), KNOWN)
def test_known_errors(name, tau):
    A = load(name)
    errors = []
    for k in (2, 5, 10):
        model = Asso(k, tau=tau)
        errors.append(confusion(A, model.fit_transform(A), model.components_).errors)
        assert model.complete_
        assert model.tau_ == tau
    assert tuple(errors) == KNOWN[name, tau]


shapes = st.tuples(st.integers(1, 24), st.integers(1, 12))
weights = st.sampled_from([1.0, 2.0, 0.5, 0.1, 0.3, 3.0])


@given(
    shapes,
    st.sampled_from([0.1, 0.4, 0.7, 1.0]),
    st.sampled_from([0.2, 1 / 3, 0.5, 2 / 3, 0.9, 1.0]),
    weights,
    st.one_of(st.just(0.0), weights),
    st.integers(0, 9999),
)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_agrees_with_the_slow_version(shape, density, tau, bonus, penalty, seed):
    rng = np.random.default_rng(seed)
    A = rng.random(shape) < density
    A = A[rng.integers(0, len(A), len(A))][:, rng.integers(0, A.shape[1], A.shape[1])]  # with repeated lines, for ties
    U, V = slow(A, 4, tau, bonus, penalty)
    found = run(A, 4, tau=tau, bonus=bonus, penalty=penalty)
    np.testing.assert_array_equal(found.V, V)
    np.testing.assert_array_equal(found.U, U)
    assert found.attributes["n_iter_"] == np.count_nonzero(U.any(axis=0))


def test_agrees_with_the_slow_version_on_planted_blocks():
    A = planted(150, 70, 4, noise=0.05, seed=3).A
    for tau in (0.3, 0.6, 0.9):
        U, V = slow(A.toarray(), 6, tau)
        found = run(A, 6, tau=tau)
        np.testing.assert_array_equal(found.V, V)
        np.testing.assert_array_equal(found.U, U)


def test_confidence_equal_to_the_threshold_counts():
    A = np.array([[1, 1], [1, 0], [1, 0]] * 5, dtype=bool)  # conf(0→1) = 1/3
    assert run(A, 1, tau=1 / 3).V.tolist() == [[True, True]]
    assert run(A, 1, tau=np.nextafter(1 / 3, 1)).V.tolist() == [[True, False]]


def test_a_component_may_be_taken_again():
    # Once the cells of another component are covered, they cost nothing, and a row that did not pay may pay.
    rng = np.random.default_rng(1)
    for _ in range(300):
        A = rng.random((12, 6)) < 0.5
        found = run(A, 6, tau=0.5)
        used = [row.tobytes() for row in found.V if row.any()]
        if len(set(used)) < len(used):
            np.testing.assert_array_equal(found.V, slow(A, 6, 0.5)[1])
            return
    pytest.fail("no matrix with a repeated component")


def test_all_ones_need_one_component():
    found = run(np.ones((5, 3), dtype=bool), 3)
    assert found.attributes["n_iter_"] == 1
    assert found.U.tolist() == [[True, False, False]] * 5
    assert found.V.tolist() == [[True] * 3, [False] * 3, [False] * 3]
    assert found.complete


def test_all_zeros_have_no_component():
    with pytest.warns(ConvergenceWarning, match="no ones"):
        model = Asso(2).fit(np.zeros((4, 3), dtype=int))
    assert not model.components_.any()
    assert model.n_iter_ == 0
    assert model.complete_


def test_more_components_than_needed_stay_empty():
    A = np.kron(np.eye(3, dtype=int), np.ones((4, 2), dtype=int))
    model = Asso(8)
    with pytest.warns(UserWarning, match="n_components=8"):
        U = model.fit_transform(A)
    assert model.n_iter_ == 3
    assert model.supports_.tolist() == [4, 4, 4, 0, 0, 0, 0, 0]
    assert confusion(A, U, model.components_).errors == 0


def test_the_best_of_several_thresholds_is_kept():
    A = load("zoo")
    grid = [step / 10 for step in range(1, 11)]
    single = [errors_of(A, run(A, 10, tau=tau)) for tau in grid]
    for tau in ("auto", grid, tuple(grid), np.array(grid)):
        found = run(A, 10, tau=tau)
        assert errors_of(A, found) == min(single)
        assert found.attributes["tau_"] == grid[int(np.argmin(single))]


def test_of_equal_thresholds_the_first_is_kept():
    A = np.ones((4, 3), dtype=bool)
    assert run(A, 1, tau=(0.7, 0.2, 1.0)).attributes["tau_"] == 0.7


def test_nothing_is_random():
    A = planted(80, 30, 3, noise=0.1, seed=0).A
    fits = [Asso(3, tau=0.5, random_state=s).fit(A).components_ for s in (0, 1)]
    np.testing.assert_array_equal(*fits)


@pytest.mark.parametrize("tau", [0.8, "auto"])
def test_a_time_limit_ends_the_search_with_a_valid_result(tau):
    A = load("soybean")
    model = Asso(20, tau=tau, time_limit=1e-9)
    with pytest.warns(ConvergenceWarning, match="time limit"):
        U = model.fit_transform(A)
    assert not model.complete_
    assert model.n_iter_ == 1
    assert model.components_.shape == (20, 99)
    assert confusion(A, U, model.components_).errors < A.nnz


class Clock(Deadline):
    """A deadline that passes when it was looked at a number of times."""

    def __init__(self, looks):
        object.__setattr__(self, "looks", looks)

    @property
    def passed(self):
        object.__setattr__(self, "looks", self.looks - 1)
        return self.looks < 0


@pytest.mark.parametrize("looks", range(2, 14))
def test_what_was_found_until_then_is_the_beginning_of_the_whole(looks):
    A = load("zoo")
    whole = run(A, 6, tau=0.9)
    found = Asso(6, tau=0.9).factorize(A, 6, seed=0, deadline=Clock(looks))
    count = found.attributes["n_iter_"]
    np.testing.assert_array_equal(found.U, whole.U[:, :count])
    np.testing.assert_array_equal(found.V, whole.V[:count])
    assert found.complete == (count == 6)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tau": 0.0}, "tau must be"),
        ({"tau": 1.5}, "tau must be"),
        ({"tau": float("nan")}, "tau must be"),
        ({"tau": None}, "tau must be"),
        ({"tau": True}, "tau must be"),
        ({"tau": (0.5, "high")}, "'high'"),
        ({"tau": ()}, "tau is empty"),
        ({"tau": "all"}, '"auto"'),
        ({"bonus": 0.0}, "bonus must be positive"),
        ({"bonus": float("inf")}, "bonus must be"),
        ({"bonus": -1.0}, "bonus must be at least 0"),
        ({"penalty": -1.0}, "penalty must be at least 0"),
        ({"penalty": float("nan")}, "penalty"),
        ({"time_limit": 0.0}, "time_limit"),
    ],
)
def test_parameters_that_make_no_sense(parameters, message):
    with pytest.raises(InputError, match=message):
        Asso(2, **parameters).fit(load("zoo"))
