"""Start, relaxed factorization and thresholds, each alone against a slow twin on centralized dense data."""

import numpy as np
import pytest
from driving import cut, dense, drive

from felb.data import planted
from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.federated.steps import starts as init
from felb.federated.steps.relaxed import FIRST_ROWS, SWEEPS, nmf, threshold_search
from felb.federated.steps.starts import FLOOR, SPECTRAL_ROUNDS, WIDE, orthonormal, spectral_init
from felb.federated.steps.state import Cost, NegativeF1, Solution
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


@pytest.mark.parametrize("wide", [WIDE, 0])
def test_start_is_nndsvd_of_centralized_data(wide, monkeypatch):
    monkeypatch.setattr(init, "WIDE", wide)
    # Twelve different rows, so the basis of fourteen columns spans all of them and only rounding remains.
    rows = np.random.default_rng(0).random((12, 30)) < 0.4
    A = BinaryMatrix.of(np.repeat(rows, np.arange(5, 17), axis=0))
    V = drive(spectral_init(30, 4, seed=0), cut(A, 20, 50)).solution.relaxed
    np.testing.assert_allclose(V, nndsvd(A.toarray(), 4), atol=1e-4)


def test_a_wide_basis_is_orthonormal_and_spans_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((80, 5)) @ rng.standard_normal((5, 12)) * 1e6
    span = np.linalg.svd(Y)[0][:, :5]
    monkeypatch.setattr(init, "WIDE", 11)
    Q = orthonormal(Y)
    assert Q.shape == (80, 12)
    np.testing.assert_allclose(Q.T @ Q, np.diag([1.0] * 5 + [0.0] * 7), atol=1e-7)
    np.testing.assert_allclose(span @ (span.T @ Q), Q, atol=1e-7)
    monkeypatch.setattr(init, "WIDE", 12)
    np.testing.assert_array_equal(orthonormal(Y), np.linalg.qr(Y)[0])


@pytest.mark.parametrize("wide", [WIDE, 0])
def test_start_with_more_components_than_columns_or_nothing_to_see(wide, monkeypatch):
    monkeypatch.setattr(init, "WIDE", wide)
    driven = drive(spectral_init(3, 6, seed=0), [BinaryMatrix.of(np.vstack([np.eye(3)] * 3))])
    V = driven.solution.relaxed
    assert driven.rounds == SPECTRAL_ROUNDS
    assert not driven.solution.exact
    assert V.shape == (6, 3)
    assert np.isfinite(V).all()
    assert (V > 0).all()
    for A in (np.eye(3), np.zeros((5, 3))):
        driven = drive(spectral_init(3, 6, seed=0), [BinaryMatrix.of(A)])
        assert driven.rounds == 1
        assert driven.solution.exact
        assert driven.solution.settled
        assert driven.solution.components.shape == (6, 3)
        assert driven.solution.components[: len(A)].sum() == A.sum()
        few = drive(spectral_init(3, 6, seed=0, keep_empty=False), [BinaryMatrix.of(A)]).solution
        assert len(few.components) == max(1, A.any(axis=0).sum())


def test_relaxed_is_hals_on_centralized_data():
    A = DATA.A.toarray().astype(float)
    V = np.random.default_rng(1).random((4, 40)).astype(np.float32)
    driven = drive(nmf(Solution(relaxed=V), 6), SPLITS[1])
    twin, U = V.astype(float), np.full((240, 4), FIRST_ROWS)
    for _ in range(6):
        U = hals(U, A @ twin.T, twin @ twin.T)
        loss = np.square(A - U @ twin).sum()
        twin = hals(twin.T, A.T @ U, U.T @ U).T
    np.testing.assert_allclose(driven.solution.relaxed, twin, atol=5e-3)
    np.testing.assert_allclose(driven.rows[-1]["loss"], loss, rtol=1e-3)
    np.testing.assert_allclose(driven.solution.scales, np.square(U).sum(axis=0) / U.sum(axis=0), rtol=1e-2)


@pytest.mark.parametrize("shards", SPLITS, ids=len)
def test_no_split_shows_in_the_relaxed_factor(shards):
    known = drive(spectral_init(40, 4, seed=0), ONE).solution
    np.testing.assert_array_equal(drive(spectral_init(40, 4, seed=0), shards).solution.relaxed, known.relaxed)
    centralized, split = (drive(nmf(known, 8), s).solution for s in (ONE, shards))
    np.testing.assert_array_equal(split.relaxed, centralized.relaxed)
    np.testing.assert_array_equal(split.scales, centralized.scales)


def test_remembered_statistics_are_means_over_clients():
    V = np.random.default_rng(1).random((4, 40)).astype(np.float32)
    # Twice the same client is, on average, that client.
    once, twice = (drive(nmf(Solution(relaxed=V), 4, memory=0.5), shards) for shards in (ONE, ONE * 2))
    np.testing.assert_allclose(once.solution.relaxed, twice.solution.relaxed, rtol=1e-5)
    np.testing.assert_allclose(2 * once.rows[-1]["loss"], twice.rows[-1]["loss"], rtol=1e-6)


@pytest.mark.parametrize("objective", [Cost(), Cost(3.0, 1.0), NegativeF1()])
def test_thresholds_are_the_best_pair_of_the_grid(objective):
    known = drive(nmf(drive(spectral_init(40, 4, seed=0), ONE).solution, 10), ONE).solution
    found = drive(threshold_search(known, objective), SPLITS[0]).solution
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


@pytest.mark.parametrize("step", [nmf, threshold_search])
def test_a_step_says_what_it_needs(step):
    with pytest.raises(InputError, match="needs a"):
        drive(step(Solution()), ONE)


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"memory": 1.0}, {"memory": -0.1}])
def test_impossible_settings(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        drive(nmf(Solution(components=DATA.V), **wrong), ONE)
