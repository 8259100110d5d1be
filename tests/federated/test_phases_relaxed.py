"""Start, relaxed factorization and thresholds, each alone against a slow twin on pooled dense data."""

import numpy as np
import pytest
from phase_loop import cut, dense, play

from felb.datasets import planted
from felb.errors import InputError
from felb.federated.phases.base import Known
from felb.federated.phases.objective import Cost, NegativeF1
from felb.federated.phases.relaxed import FIRST_ROWS, SWEEPS, Relaxed
from felb.federated.phases.start import FLOOR, Start
from felb.federated.phases.thresholds import Thresholds
from felb.linalg.binary import BinaryMatrix
from felb.metrics import Counts, confusion

DATA = planted(240, 40, 4, noise=0.05, seed=3)
ONE = [DATA.A]
SPLITS = [cut(DATA.A, 100), cut(DATA.A, 1, 2, 30, 31, 200), cut(DATA.A, *range(5, 240, 7))]


def nndsvd(A, k):
    left, _, right = np.linalg.svd(A.astype(float), full_matrices=False)
    V = np.zeros((k, A.shape[1]))
    for c in range(k):
        u, v = left[:, c], right[c]
        if c == 0:
            V[c] = np.abs(v)
            continue
        plus = np.linalg.norm(np.maximum(u, 0)) * np.linalg.norm(np.maximum(v, 0))
        minus = np.linalg.norm(np.minimum(u, 0)) * np.linalg.norm(np.minimum(v, 0))
        V[c] = np.maximum(v, 0) if plus >= minus else np.maximum(-v, 0)
    return V / V.max(axis=1, keepdims=True) + FLOOR


def hals(X, gathered, gram):
    X = X.copy()
    for _ in range(SWEEPS):
        for c in range(X.shape[1]):
            if gram[c, c] > 0:
                X[:, c] = np.maximum(X[:, c] + (gathered[:, c] - X @ gram[:, c]) / gram[c, c], 0)
    return X


def test_start_is_nndsvd_of_pooled_data():
    # Twelve different rows, so the basis of fourteen columns spans all of them and only rounding remains.
    rows = np.random.default_rng(0).random((12, 30)) < 0.4
    A = BinaryMatrix.of(np.repeat(rows, np.arange(5, 17), axis=0))
    V = play(Start(30, 4), cut(A, 20, 50))[-1].V
    np.testing.assert_allclose(V, nndsvd(A.toarray(), 4), atol=1e-4)


def test_start_with_more_components_than_columns_or_nothing_to_see():
    V = play(Start(3, 6), [BinaryMatrix.of(np.vstack([np.eye(3)] * 3))])[-1].V
    assert V.shape == (6, 3)
    assert np.isfinite(V).all()
    assert (V > 0).all()
    for A in (np.eye(3), np.zeros((5, 3))):
        states = play(Start(3, 6), [BinaryMatrix.of(A)])
        assert len(states) == 2
        assert Start(3, 6).result(states[-1]).components[: len(A)].sum() == A.sum()


def test_relaxed_is_hals_on_pooled_data():
    A = DATA.A.toarray().astype(float)
    V = np.random.default_rng(1).random((4, 40)).astype(np.float32)
    state = play(Relaxed(6), SPLITS[1], Known(relaxed=V))[-1]
    twin, U = V.astype(float), np.full((240, 4), FIRST_ROWS)
    for _ in range(6):
        U = hals(U, A @ twin.T, twin @ twin.T)
        loss = np.square(A - U @ twin).sum()
        twin = hals(twin.T, A.T @ U, U.T @ U).T
    np.testing.assert_allclose(state.V, twin, atol=5e-3)
    np.testing.assert_allclose(state.loss, loss, rtol=1e-3)
    scales = Relaxed(6).result(state).scales
    np.testing.assert_allclose(scales, np.square(U).sum(axis=0) / U.sum(axis=0), rtol=1e-2)


@pytest.mark.parametrize("shards", SPLITS, ids=len)
def test_no_split_shows_in_the_relaxed_factor(shards):
    start = Start(40, 4)
    known = start.result(play(start, ONE)[-1])
    np.testing.assert_array_equal(start.result(play(start, shards)[-1]).relaxed, known.relaxed)
    pooled, split = (play(Relaxed(8), s, known)[-1] for s in (ONE, shards))
    np.testing.assert_array_equal(split.V, pooled.V)
    np.testing.assert_array_equal(split.sums, pooled.sums)


def test_remembered_statistics_are_means_over_clients():
    V = np.random.default_rng(1).random((4, 40)).astype(np.float32)
    # Twice the same client is, on average, that client.
    once, twice = (play(Relaxed(4, memory=0.5), shards, Known(relaxed=V))[-1] for shards in (ONE, ONE * 2))
    np.testing.assert_allclose(once.V, twice.V, rtol=1e-5)
    np.testing.assert_allclose(2 * once.loss, twice.loss, rtol=1e-6)


@pytest.mark.parametrize("objective", [Cost(), Cost(3.0, 1.0), NegativeF1()])
def test_thresholds_are_the_best_pair_of_the_grid(objective):
    relaxed = Relaxed(10)
    start = Start(40, 4)
    known = relaxed.result(play(relaxed, ONE, start.result(play(start, ONE)[-1]))[-1])
    phase = Thresholds(objective)
    found = phase.result(play(phase, SPLITS[0], known)[-1])
    A = dense(ONE)
    V = known.relaxed.astype(float)
    U = hals(np.full((240, 4), FIRST_ROWS), A @ V.T, V @ V.T) / known.scales
    V *= known.scales[:, None]
    grid = [
        objective.value(confusion(A, a < U, b < V)) for a in np.arange(1, 10) / 10 for b in np.arange(1, 10) / 10
    ]  # fmt: skip
    assert found.value == pytest.approx(min(grid), rel=0.01)
    assert found.value == objective.value(Counts(*found.counts))
    assert found.counts[3] == 240 * 40
    assert found.components.any()


def test_a_phase_says_what_it_needs():
    for phase in (Relaxed(), Thresholds()):
        with pytest.raises(InputError, match="this phase needs a"):
            phase.start(Known(), 0)


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"memory": 1.0}, {"memory": -0.1}])
def test_impossible_settings(wrong):
    with pytest.raises(InputError):
        Relaxed(**wrong)
