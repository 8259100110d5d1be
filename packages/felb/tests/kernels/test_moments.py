"""Rows of latent classes from pairs: the kernel against the same steps written plainly, and what they guarantee."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import interpret
from scipy.optimize import lsq_linear, nnls

from felb.errors import InputError
from felb.kernels import cooccurrence as moments
from felb.kernels.cooccurrence import descend_rows_of_moments, descend_weights


def problem(seed, m=7, k=3):
    rng = np.random.default_rng(seed)
    Q = rng.random((m, m))
    return rng.random((m, k)), rng.random(k), (Q + Q.T) / 2, rng.random(m)


def row_loss(P, pi, Q, q, lam, i):
    fitted = (P * pi) @ P[i]
    others = np.arange(len(P)) != i
    return ((Q[i] - fitted)[others] ** 2).sum() + lam * (q[i] - P[i] @ pi) ** 2


def loss(P, pi, Q, q, lam):
    off = Q - (P * pi) @ P.T
    np.fill_diagonal(off, 0)
    return 0.5 * (off**2).sum() + lam * ((q - P @ pi) ** 2).sum()


def plain(P, pi, Q, q, lam, *, sweeps, inner):
    P = P.copy()
    for _ in range(sweeps):
        for i in range(len(P)):
            others = np.delete(P, i, axis=0)
            X = np.vstack([others * pi, np.sqrt(lam) * pi])
            y = np.append(np.delete(Q[i], i), np.sqrt(lam) * q[i])
            for _ in range(inner):
                for a in range(len(pi)):
                    slope = X[:, a] @ (y - X @ P[i])
                    P[i, a] = np.clip(P[i, a] + slope / (X[:, a] @ X[:, a]), 0, 1)
    return P


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 9), st.integers(1, 5), st.integers(1, 3))
def test_rows_are_those_of_the_plain_steps(seed, m, k, sweeps):
    check(seed, m, k, sweeps)


def test_the_kernels_run_in_the_interpreter(monkeypatch):
    interpret(monkeypatch, moments)
    check(1, 5, 3, 2)


def check(seed, m, k, sweeps):
    P, pi, Q, q = problem(seed, m, k)
    before = P.copy()
    found = descend_rows_of_moments(P, pi, pairs=Q, frequencies=q, weight=0.7, sweeps=sweeps)
    np.testing.assert_allclose(found, plain(P, pi, Q, q, 0.7, sweeps=sweeps, inner=3), atol=1e-7)
    np.testing.assert_array_equal(P, before)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_the_loss_never_rises_and_the_diagonal_is_not_read(seed):
    P, pi, Q, q = problem(seed)
    losses = [loss(P, pi, Q, q, 2.0)]
    R, S = P, P
    other = Q + np.diag(np.full(7, 50.0))
    for _ in range(4):
        R = descend_rows_of_moments(R, pi, pairs=Q, frequencies=q, weight=2.0, sweeps=1)
        S = descend_rows_of_moments(S, pi, pairs=other, frequencies=q, weight=2.0, sweeps=1)
        losses.append(loss(R, pi, Q, q, 2.0))
        assert R.min() >= 0
        assert R.max() <= 1
    assert np.all(np.diff(losses) <= 1e-12)
    np.testing.assert_array_equal(R, S)


def test_with_enough_rounds_each_row_is_the_best_within_its_bounds():
    P, pi, Q, q = problem(3, m=9, k=3)
    found = descend_rows_of_moments(P, pi, pairs=Q, frequencies=q, weight=1.5, sweeps=1, inner=4000)
    # The last row is solved with all others as they are in the result.
    X = np.vstack([found[:-1] * pi, np.sqrt(1.5) * pi])
    best = lsq_linear(X, np.append(Q[-1, :-1], np.sqrt(1.5) * q[-1]), bounds=(0, 1), tol=1e-12)
    assert row_loss(found, pi, Q, q, 1.5, 8) == pytest.approx(2 * best.cost, abs=1e-8)


def test_weights_are_those_of_non_negative_least_squares():
    rng = np.random.default_rng(0)
    X, y = rng.random((20, 5)), rng.normal(size=20)
    found = descend_weights(X.T @ X, X.T @ y, np.ones(5), rounds=2000)
    np.testing.assert_allclose(found, nnls(X, y)[0], atol=1e-8)
    assert descend_weights(X.T @ X, X.T @ y, np.ones(5), rounds=10, least=0.01).min() >= 0.01


def test_a_class_without_weight_is_left_alone():
    P, pi, Q, q = problem(1)
    pi[1] = 0
    found = descend_rows_of_moments(P, pi, pairs=Q, frequencies=q, weight=1.0, sweeps=2)
    np.testing.assert_array_equal(found[:, 1], P[:, 1])


def test_shapes_that_do_not_fit_are_refused():
    P, pi, Q, q = problem(0)
    with pytest.raises(InputError, match="do not fit"):
        descend_rows_of_moments(P, pi, pairs=Q[:-1], frequencies=q, weight=1.0, sweeps=1)
