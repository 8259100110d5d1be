"""Discrete noise: scales, sensitivities, refusals."""

import math
import subprocess
import sys

import numpy as np
import pytest

from felb.errors import InputError, MissingExtraError
from felb.privacy import mechanisms as discrete
from felb.privacy.accounting import Cost
from felb.privacy.audit import on_grid, scale_matches
from felb.privacy.mechanisms import DiscreteGaussian, discrete_gaussian

DRAWS = 20_000


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DiscreteGaussian(63.0, 1.0),
        lambda: DiscreteGaussian(90.0, 1.0, grid=0.3),
        lambda: DiscreteGaussian(90.0, 0.0),
        lambda: DiscreteGaussian(90.0, 1.0, shares=0),
        lambda: Cost("gaussian", 0.0, "record"),
        lambda: Cost("gaussian", 1.0, "village"),
        lambda: Cost("laplace", 1.0, "record", count=0),
    ],
)
def test_nonsense_is_refused(make):
    with pytest.raises(InputError):
        make()


def test_discrete_noise_is_integer_and_has_its_scale():
    draws = discrete_gaussian(7.3, DRAWS)
    assert draws.dtype == np.int64
    assert scale_matches(draws, 7.3)
    assert abs(draws.mean()) < 5 * 7.3 / math.sqrt(DRAWS)


def test_discrete_noise_follows_its_distribution():
    sigma, draws = 4.0, discrete_gaussian(4.0, DRAWS)
    support = np.arange(-12, 13)
    mass = np.exp(-(support**2) / (2 * sigma**2))
    mass /= np.exp(-(np.arange(-200, 201) ** 2) / (2 * sigma**2)).sum()
    seen = np.array([(draws == x).sum() for x in support])
    statistic = ((seen - DRAWS * mass) ** 2 / (DRAWS * mass)).sum()
    assert statistic < 80  # χ² with 24 degrees of freedom exceeds 80 with probability 6e-8


def test_integers_stay_integers_and_are_charged_exactly():
    released, cost = DiscreteGaussian(80.0, 20.0, "client", "replace").release("n", np.arange(5), rng=rng())
    assert released.dtype == np.int64
    assert cost == Cost("gaussian", 0.25, "client", "replace")


def test_real_values_leave_on_the_grid_and_rounding_is_charged():
    value = rng().random(100)
    released, cost = DiscreteGaussian(8.0, 2.0, grid=2.0**-4).release("S", value, rng=rng())
    assert on_grid(released, 2.0**-4)
    assert not on_grid(value, 2.0**-4)
    assert cost.loss == pytest.approx((2.0 + 2.0**-4 * 10) / 8.0)


def test_shares_of_noise_add_up():
    mechanism = DiscreteGaussian(160.0, 4.0, shares=4)
    total = sum(mechanism.release("n", np.zeros(DRAWS, dtype=np.int64), rng=rng())[0] for _ in range(4))
    assert scale_matches(total, 160.0)


def test_values_off_the_scale_and_integers_on_a_grid_are_refused():
    with pytest.raises(InputError, match="coarser"):
        DiscreteGaussian(80.0, 1.0).release("n", np.array([1 << 60]), rng=rng())
    with pytest.raises(InputError, match="grid is 1"):
        DiscreteGaussian(80.0, 1.0, grid=0.5).release("n", np.arange(3), rng=rng())


def test_without_the_sampler_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.measurements", None)
    discrete._sampler.cache_clear()
    with pytest.raises(MissingExtraError, match=r"felb\[privacy\]"):
        discrete_gaussian(5.0, 3)


def test_neither_accountant_nor_sampler_is_imported_before_it_is_needed():
    code = (
        "import sys, felb.privacy.accounting, felb.privacy.mechanisms, felb.privacy.spec, felb.federated.gate;"
        "assert not {'opendp', 'dp_accounting'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
