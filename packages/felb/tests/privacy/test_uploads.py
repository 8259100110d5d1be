"""Uploads of a client: bounded whatever they hold, noise of the right size, on a grid, at the stated cost."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from felb.errors import InputError
from felb.privacy.accounting import Cost, calibrated_bits, total_epsilon
from felb.privacy.audit import on_grid, scale_matches, transcript
from felb.privacy.mechanisms import discrete_gaussian
from felb.privacy.releases import ClippedGaussian, RandomizedResponse, Uploads

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

THETA = 3.0


# -- real uploads ------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20), st.floats(1e-3, 1e3), st.floats(1e-2, 5))
def test_an_upload_is_never_longer_than_its_bound(values, theta, mu):
    mechanism = ClippedGaussian(theta, mu)
    steps = mechanism.clipped(np.array(values))
    assert np.linalg.norm(steps * mechanism.grid) <= theta
    assert steps.min() >= 0
    assert mechanism.sigma_of_client >= 64 * mechanism.grid


def test_an_upload_within_its_bound_stays_as_it_is_up_to_the_grid():
    value = np.array([[0.5, 0.0], [1.0, 0.25]])
    mechanism = ClippedGaussian(THETA, 1.0)
    assert np.abs(mechanism.clipped(value) * mechanism.grid - value).max() <= mechanism.grid


@pytest.mark.parametrize("shares", [1, 4])
@pytest.mark.parametrize(("neighbours", "factor"), [("add_remove", 1.0), ("replace", math.sqrt(2))])
def test_noise_is_what_the_bound_asks_for(shares, neighbours, factor):
    mechanism = ClippedGaussian(THETA, 0.7, neighbours, shares=shares)
    released, cost = mechanism.release("V", np.zeros((40, 100)), rng=None)
    sigma = factor * THETA / 0.7 / math.sqrt(shares)
    assert scale_matches(released, sigma)
    assert not scale_matches(released, 1.2 * sigma)
    assert not scale_matches(released / 2, sigma), "halved noise must be found"
    assert on_grid(released, mechanism.grid)
    assert cost == Cost("gaussian", 0.7, "client", neighbours)


def test_floating_point_noise_would_be_found():
    mechanism = ClippedGaussian(THETA, 1.0)
    assert not on_grid(np.random.default_rng(0).standard_normal(50), mechanism.grid)


def play(mu=3.0, rounds=4, noise_factor=1.0, forget_rounds=False, clip=True):
    """Audit adaptive uploads of a client against none from it; the total μ is calibrated, or wrongly so."""
    mechanism = ClippedGaussian(THETA, mu / (1 if forget_rounds else math.sqrt(rounds)))
    sigma = mechanism.sigma_of_client / mechanism.grid * noise_factor

    def upload(size, V):
        if size == 0:
            return np.zeros(V.shape, np.int64)
        V_i = size * (V + 1)
        return mechanism.clipped(V_i) if clip else np.floor(V_i / mechanism.grid)

    return transcript(
        upload,
        lambda released, _: np.clip(released * mechanism.grid, 0, 1),
        (0, 10),
        noise=lambda shape: discrete_gaussian(sigma, math.prod(shape)).reshape(shape),
        sigma=sigma,
        start=np.full((2, 5), 0.5),
        rounds=rounds,
        runs=100,
    )


def test_honest_uploads_reveal_what_was_charged_and_not_more():
    found = play()
    assert found.within(3.0)
    assert found.mu + 4 * found.standard_error > 0.8 * 3.0, "the canary does not saturate, so the audit would be blind"


@pytest.mark.parametrize("defect", [{"noise_factor": 0.5}, {"forget_rounds": True}, {"clip": False}])
def test_uploads_that_reveal_more_are_found(defect):
    assert not play(**defect).within(3.0)


# -- bits --------------------------------------------------------------------------------------------------------------


def exact_delta(epsilon, count, loss):
    """δ(ε) of `count` flipped bits, by summing over the number of flips."""
    p = binom.pmf(np.arange(count + 1), count, 1 / (1 + math.exp(loss)))
    return float(np.maximum(0, p[::-1] - math.exp(epsilon) * p).sum())


@pytest.mark.parametrize(("count", "loss"), [(1, 0.5), (7, 0.3), (90, 0.2), (2000, 0.011)])
def test_accountant_and_closed_form_agree_on_bits(count, loss):
    epsilon = total_epsilon([Cost("bits", loss, "client", count=count)], 1e-5)
    assert exact_delta(epsilon, count, loss) <= 1e-5 * (1 + 1e-6)
    assert exact_delta(epsilon - 2e-3, count, loss) > 1e-5


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("count", [1, 60, 2000])
def test_bits_are_calibrated_to_the_total_and_no_more(epsilon, count):
    loss = calibrated_bits(epsilon, 1e-5, count)
    assert exact_delta(epsilon, count, loss) <= 1e-5
    assert exact_delta(epsilon, count, 1.05 * loss) > 1e-5


def test_bits_flip_as_often_as_they_should():
    mechanism = RandomizedResponse(1.0)
    flips, cost = mechanism.release("V", np.zeros((100, 200), dtype=bool), rng=None)
    p = 1 / (1 + math.e)
    assert mechanism.flip_probability == pytest.approx(p)
    assert math.log((1 - mechanism.flip_probability) / mechanism.flip_probability) <= 1.0
    assert abs(flips.mean() - p) < 5 * math.sqrt(p * (1 - p) / flips.size)
    assert cost == Cost("bits", 1.0, "client", count=20_000)
    total = 7 * (1 - p) + 3 * p  # of ten clients, seven have the bit
    assert mechanism.unbiased(np.array(total), 10) == pytest.approx(7)


def test_uploads_of_the_wrong_kind_are_refused():
    with pytest.raises(InputError, match="real uploads"):
        ClippedGaussian(1.0, 1.0).release("V", np.zeros(3, dtype=bool), rng=None)
    with pytest.raises(InputError, match="Boolean uploads only"):
        RandomizedResponse(1.0).release("V", np.zeros(3), rng=None)
    for make in (lambda: ClippedGaussian(0.0, 1.0), lambda: RandomizedResponse(0.0), lambda: Uploads(0, 5)):
        with pytest.raises(InputError):
            make()
