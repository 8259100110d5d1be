"""From noisy co-occurrence to synthetic rows and to components."""

import math
import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import felb
from felb.data.binary import BinaryMatrix
from felb.errors import ConvergenceWarning, InputError
from felb.federated.algorithms.private import find_candidates
from felb.kernels.assign import assign_rows
from felb.kernels.boolean import FactorMasks, count_overlaps
from felb.privacy.mechanisms import discrete_gaussian
from felb.privacy.releases import NoisyCooccurrence, weighted_cooccurrence
from felb.privacy.spec import Privacy
from felb.privacy.synthesis import (
    _correlations,
    count_classes,
    fit_latent_classes,
    gaussian_copula,
    symmetric_components,
    synthesize,
)


def planted(n, m, k, *, seed=0, density=0.9, flips=0.02, rows=0.15, columns=0.12):
    rng = np.random.default_rng(seed)
    U, V = rng.random((n, k)) < rows, rng.random((k, m)) < columns
    signal = (U.astype(np.float32) @ V.astype(np.float32)) > 0
    noisy = (signal & (rng.random(signal.shape) < density)) ^ (rng.random(signal.shape) < flips)
    return BinaryMatrix.of(noisy), BinaryMatrix.of(signal)


def exact(A, sigma=0.0):
    dense = A.toarray().astype(float)
    return NoisyCooccurrence(dense.T @ dense, float(A.shape[0]), sigma)


def f1_star(data, V):
    A, signal = data
    both, predicted, ones = count_overlaps(signal, FactorMasks.of(assign_rows(A, V), V))
    return 2 * both / (predicted + ones)


def moment_loss(P, pi, Q, q):
    """Return the loss that `fit_latent_classes` minimises."""
    m, weighted = q.size, P * pi
    residual = weighted @ P.T - Q
    np.fill_diagonal(residual, 0)
    off, excess = weighted.sum(axis=1) - q, float(pi.sum() - 1)
    return 0.5 * float((residual * residual).sum()) + m / 4 * float(off @ off) + m * m / 4 * excess**2


SMALL = planted(3000, 40, 4, columns=0.2)


# -- latent classes ----------------------------------------------------------------------------------------------------


def test_more_rounds_lower_the_loss_down_to_the_noise():
    A, _ = SMALL
    sigma = 20.0
    noisy = noisy_version(exact(A), sigma)
    Q = noisy.M / noisy.N
    q = np.diag(Q).copy()
    np.fill_diagonal(Q, 0)
    fits = (fit_latent_classes(noisy, 20, rng=np.random.default_rng(1), rounds=rounds) for rounds in (7, 25, 100))
    losses = [moment_loss(fitted.P, fitted.pi, Q, q) for fitted in fits]
    assert losses == sorted(losses, reverse=True)
    # Half the sum over all ordered pairs of squares of noise of σ/N each.
    assert losses[1] < 1.2 * 0.5 * 40 * 39 * (sigma / noisy.N) ** 2


def test_latent_classes_explain_what_they_generated():
    rng = np.random.default_rng(1)
    P, pi = rng.random((12, 3)) ** 2, np.array([0.5, 0.3, 0.2])
    M = (P * pi) @ P.T
    np.fill_diagonal(M, P @ pi)
    fitted = fit_latent_classes(NoisyCooccurrence(M * 1000, 1000.0, 0.0), 4, rng=rng)
    pairs = (fitted.P * fitted.pi) @ fitted.P.T
    off = ~np.eye(12, dtype=bool)
    assert np.abs(pairs - M)[off].max() < 0.01
    assert np.abs(fitted.P @ fitted.pi - P @ pi).max() < 0.01
    assert fitted.pi.sum() == pytest.approx(1, abs=0.01)


def test_samples_of_latent_classes_have_their_frequencies():
    fitted = fit_latent_classes(exact(SMALL[0]), 8, rng=np.random.default_rng(2))
    sample = fitted.sample(20_000, np.random.default_rng(3))
    frequencies = fitted.P @ fitted.pi / fitted.pi.sum()
    np.testing.assert_allclose(sample.mean(axis=0), frequencies, atol=5 * math.sqrt(0.25 / 20_000))
    # Eight classes cannot explain all overlaps of four tiles; pairs pull the frequencies away from the data a little.
    np.testing.assert_allclose(frequencies, np.diag(exact(SMALL[0]).M) / 3000, atol=0.05)


def test_the_number_of_classes_follows_what_stands_above_noise():
    released = exact(SMALL[0])
    assert count_classes(released) >= 8
    assert count_classes(NoisyCooccurrence(released.M, released.N, 1e9)) == 5


# -- copula ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [-0.6, -0.1, 0.0, 0.3, 0.85])
def test_correlations_invert_the_bivariate_normal(rho):
    a, b = -0.8, -1.4
    excess = multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([a, b]) - norm.cdf(a) * norm.cdf(b)
    assert _correlations(np.array([a]), np.array([b]), np.array([excess]))[0] == pytest.approx(rho, abs=2e-3)


def test_copula_rows_have_the_frequencies_and_pairs_of_the_data():
    A, _ = planted(4000, 20, 2, columns=0.3)
    factor, thresholds = gaussian_copula(exact(A))
    rows = np.random.default_rng(0).standard_normal((40_000, factor.shape[1])) @ factor.T < thresholds
    ours, theirs = rows.T.astype(float) @ rows / 40_000, exact(A).M / 4000
    np.testing.assert_allclose(np.diag(ours), np.diag(theirs), atol=0.015)
    assert np.corrcoef(ours[np.triu_indices(20, 1)], theirs[np.triu_indices(20, 1)])[0, 1] > 0.98


def test_noise_alone_correlates_nothing():
    rng = np.random.default_rng(0)
    independent = BinaryMatrix.of(rng.random((5000, 15)) < 0.2)
    factor, _ = gaussian_copula(exact(independent, sigma=60.0))
    np.testing.assert_allclose(factor @ factor.T, np.eye(15), atol=1e-6)


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_synthesis_is_fixed_by_its_seed_and_has_the_sizes_it_says():
    one, same, other = (synthesize(exact(SMALL[0], 5.0), fits=2, copulas=1, rows=100, seed=seed) for seed in (0, 0, 1))
    assert one.mix == same.mix
    assert one.mix != other.mix
    assert (one.latent.shape, one.copula.shape, one.mix.shape) == ((200, 40), (100, 40), (300, 40))
    only = synthesize(exact(SMALL[0], 5.0), fits=0, copulas=1, rows=50)
    assert (only.latent.shape[0], only.copula.shape[0]) == (0, 50)
    with pytest.raises(InputError, match="one model"):
        synthesize(exact(SMALL[0]), fits=0, copulas=0)


def test_columns_below_the_noise_are_left_out_and_come_back_empty():
    A = BinaryMatrix.of(np.hstack([np.zeros((3000, 3), dtype=bool), SMALL[0].toarray()]))
    made = synthesize(exact(A, 30.0), fits=1, copulas=1, rows=50)
    assert made.columns.min() >= 3
    whole = made.expand(np.ones((2, made.columns.size), dtype=bool), 4)
    assert whole.shape == (4, 43)
    assert whole.sum(axis=1).tolist() == [made.columns.size] * 2 + [0, 0]
    assert not whole[:, :3].any()


def noisy_version(released, sigma, seed=0):
    noise = np.triu(np.random.default_rng(seed).normal(0, sigma, released.M.shape))
    return NoisyCooccurrence(released.M + noise + np.triu(noise, 1).T, released.N, sigma)


def test_synthetic_rows_of_latent_classes_co_occur_as_released_within_the_noise():
    sigma, n = 40.0, 3000
    released = noisy_version(exact(SMALL[0]), sigma)
    made = synthesize(released, fits=4, copulas=0, rows=10_000)
    rows = made.latent.toarray().astype(float)
    ours = rows.T @ rows / len(rows)
    target = released.of_columns(made.columns).M / n
    off = np.triu_indices(made.columns.size, 1)
    # Noise of the release, and of drawing the rows.
    spread = math.hypot(sigma / n, 0.5 / math.sqrt(len(rows)))
    assert np.sqrt(np.mean((ours - target)[off] ** 2)) < 1.1 * spread
    assert np.abs(np.diag(ours) - np.diag(target)).max() < 5 * spread
    # They are nearer to the data than the release is: the model averages noise out.
    data = exact(SMALL[0]).of_columns(made.columns).M / n
    assert np.sqrt(np.mean((ours - data)[off] ** 2)) < 0.7 * sigma / n


def test_candidates_of_exact_counts_are_nearly_as_good_as_centralized_rows():
    def factorize(rows, k, seed):
        return felb.FederatedBMF(k, objective="hamming", random_state=seed).fit(rows).components_

    data = planted(4000, 60, 5, columns=0.2)
    found = find_candidates(exact(data[0]), 5, factorize=factorize, seed=0, rows=800)
    centralized = f1_star(data, factorize(data[0], 5, 0))
    mix, loose, latent, _, direct = (f1_star(data, V) for V in found.V)
    assert centralized > 0.97
    assert min(mix, loose, latent, direct) > centralized - 0.02


def test_hopeless_noise_still_gives_rows():
    rng = np.random.default_rng(0)
    M = rng.normal(0, 1e4, (12, 12))
    made = synthesize(NoisyCooccurrence(M + M.T, -5.0, 1e4), fits=1, copulas=1, rows=20)
    assert made.mix.shape[0] == 40
    assert symmetric_components(NoisyCooccurrence(M + M.T, -5.0, 1e4), 3, restarts=1, iterations=20).shape == (3, 12)


def test_the_symmetric_solver_finds_planted_components_and_refuses_too_many():
    V = symmetric_components(exact(SMALL[0]), 4, seed=0)
    assert f1_star(SMALL, V) > 0.95
    np.testing.assert_array_equal(V, symmetric_components(exact(SMALL[0]), 4, seed=0))
    with pytest.raises(InputError, match="components"):
        symmetric_components(exact(SMALL[0]), 41)


def test_components_survive_privacy_on_planted_data():
    # 20000 records of 10 clients, each with its own full noise: the sum carries √10 times the noise of one.
    data, plan = (
        planted(20_000, 200, 10),
        Privacy(1.0, row_bound=30).plan(n_records=20_000, n_clients=10, n_columns=200),
    )
    statistic = weighted_cooccurrence(data[0], 30)
    noise = plan.mechanism_for("cooccurrence", statistic).sigma_of_client * math.sqrt(10)
    released = NoisyCooccurrence.of(
        statistic.values + discrete_gaussian(noise, statistic.values.size),
        200,
        grid=statistic.grid,
        sigma=plan.sigma_of_sum("cooccurrence", statistic),
    )
    assert released.sigma == pytest.approx(noise * statistic.grid)
    assert f1_star(data, symmetric_components(released, 10, restarts=3)) > 0.97
    made = synthesize(released, fits=2, copulas=1, rows=1500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = felb.ELBMF(n_components=10, l2_rate=1.05, max_iter=150, random_state=0).fit(made.mix)
    assert f1_star(data, made.expand(model.components_)) > 0.95
