"""Certificates: never above the optimum of brute force, and equal to it where the search ends."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import felb
from felb.centralized.certificate import (
    Certificate,
    certify,
    distinct_bound,
    isolated_bound,
    isolated_rows,
    search_bound,
)
from felb.errors import InputError
from felb.kernels import exact
from felb.progress import Deadline

tiny = hnp.arrays(bool, st.tuples(st.integers(1, 7), st.integers(1, 4)))


def optimum(A, k):
    """Try every V; the best set of components of a row is a minimum over all of them."""
    best = A.sum()
    for V in product(product((False, True), repeat=A.shape[1]), repeat=k):
        V = np.array(V)
        unions = np.array([V[list(chosen)].any(axis=0) for chosen in map(np.flatnonzero, product((0, 1), repeat=k))])
        best = min(best, (A[:, None, :] ^ unions).sum(axis=2).min(axis=1).sum())
    return int(best)


@given(tiny, st.integers(1, 2))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_no_bound_exceeds_the_optimum_and_the_search_reaches_it(A, k):
    best = optimum(A, k)
    for cells in (A, A.T):
        assert distinct_bound(cells, k) <= best
        assert isolated_bound(cells, k) <= best
        assert search_bound(cells, k, errors=None, deadline=Deadline()) == best
        assert search_bound(cells, k, errors=best, deadline=Deadline()) == best
    assert certify(A, k, errors=best, time_limit=None).optimal


@given(hnp.arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 4))))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_three_components(A):
    assert certify(A, 3, time_limit=None).lower == optimum(A, 3)


@given(tiny, st.integers(1, 3), st.integers(0, 9))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_isolated_ones_are_isolated(A, k, seed):
    order = np.random.default_rng(seed).permutation(len(A))
    rows = isolated_rows(A, order)
    columns = [next(c for c in product(range(A.shape[1]), repeat=len(rows)) if _isolated(A, rows, c))] if rows else []
    assert len(set(rows)) == len(rows)
    assert bool(columns) == bool(rows)


def _isolated(A, rows, columns):
    ones = list(zip(rows, columns, strict=True))
    return all(A[i, j] for i, j in ones) and all(
        not (A[i, d] and A[c, j]) for n, (i, j) in enumerate(ones) for c, d in ones[:n]
    )


def test_an_identity_needs_a_component_for_each_one():
    found = certify(np.eye(40, dtype=bool), 10, errors=30)
    assert (found.lower, found.bound, found.optimal, found.gap) == (30, "isolated ones", True, 0.0)


def test_rows_of_their_own_are_counted():
    A = np.array(list(product((False, True), repeat=5)))
    assert distinct_bound(np.vstack([A, A]), 4) == 32


def test_zoo_with_two_components_is_proven():
    zoo = felb.data.load("zoo")
    model = felb.FederatedBMF(2, objective="hamming", random_state=0).fit(zoo)
    found = certify(zoo, 2, errors=model.counts_.errors, time_limit=600)
    assert found == Certificate(2, 271, "search", 271)
    assert found.optimal


def test_a_search_that_is_stopped_proves_less(monkeypatch):
    zoo = felb.data.load("zoo").toarray()
    monkeypatch.setattr(exact, "NODES_BETWEEN_LOOKS", 500)

    class Passed(Deadline):
        passed = True

    stopped = search_bound(zoo, 4, errors=None, deadline=Passed())
    assert 0 < stopped < certify(zoo, 2, errors=271, time_limit=600).lower


def test_the_gap_is_the_share_of_errors_that_could_be_avoided():
    assert Certificate(3, 30, "search", 40).gap == pytest.approx(0.25)
    assert Certificate(3, 30, "search").gap is None
    assert not Certificate(3, 30, "search").optimal
    assert Certificate(3, 0, "search", 0).gap == 0.0


def test_what_cannot_be_certified():
    A = np.eye(4, dtype=bool)
    with pytest.raises(InputError, match="n_components"):
        certify(A, 0)
    with pytest.raises(InputError, match="unknown"):
        certify(felb.BinaryMatrix.of(A).with_unknown(~A), 2)
    with pytest.raises(InputError, match="too large"):
        certify(felb.BinaryMatrix.of(np.zeros((3000, 3000), dtype=bool)), 2)
    with pytest.raises(InputError, match="less than any"):
        certify(np.eye(40, dtype=bool), 10, errors=3)


def test_the_search_runs_in_the_interpreter(monkeypatch):
    A = np.random.default_rng(0).random((6, 4)) < 0.5
    expected = search_bound(A, 2, errors=None, deadline=Deadline())
    monkeypatch.setattr(exact, "search_columns_into", exact.search_columns_into.py_func)
    assert search_bound(A, 2, errors=None, deadline=Deadline()) == expected
