"""The paper's noise and the discrete one: scales, sensitivities, refusals."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from felb.errors import InputError, MissingExtraError
from felb.privacy import mechanisms as discrete
from felb.privacy.accounting import Cost, on_grid, scale_matches
from felb.privacy.mechanisms import ByName, DiscreteGaussian, discrete_gaussian
from felb.privacy.published_noise import ElementwiseClip, FrobeniusClip, PaperGaussian, PaperLaplace, PaperXor

DRAWS = 20_000


def rng(seed=0):
    return np.random.default_rng(seed)


# -- the paper's -------------------------------------------------------------------------------------------------------


def test_gaussian_noise_has_the_scale_of_the_formula():
    mechanism = PaperGaussian(0.7, 0.05, clip=FrobeniusClip(2.0))
    sigma = 2.0 * math.sqrt(2 * math.log(1.25 / 0.05)) / 0.7
    noise, cost = mechanism.release("V", np.zeros(DRAWS), rng=rng())
    assert scale_matches(noise, sigma)
    assert (cost.kind, cost.unit, cost.neighbours) == ("gaussian", "client", "add_remove")
    assert cost.loss == pytest.approx(2.0 / sigma)


def test_laplace_noise_has_the_scale_of_the_l1_sensitivity():
    mechanism = PaperLaplace(0.5, clip=ElementwiseClip(1.5))
    noise, cost = mechanism.release("V", np.zeros(DRAWS), rng=rng())
    assert np.mean(np.abs(noise)) == pytest.approx(1.5 * DRAWS / 0.5, rel=0.05)  # E|x| = b
    assert cost == Cost("laplace", 0.5, "client")


@pytest.mark.parametrize("clip", [FrobeniusClip(1.7), ElementwiseClip(1.7)])
@given(seed=st.integers(0, 10_000))
def test_clipped_uploads_differ_by_no_more_than_the_sensitivity(clip, seed):
    draw = rng(seed)
    one, other = (clip(draw.choice([-9, 0, 0.5, 9], 7) * draw.random(7)) for _ in range(2))
    assert np.linalg.norm(one - other) <= clip.l2(7, "replace") + 1e-9
    assert np.abs(one - other).sum() <= clip.l1(7, "replace") + 1e-9
    assert np.linalg.norm(one) <= clip.l2(7, "add_remove") + 1e-9
    assert np.abs(one).sum() <= clip.l1(7, "add_remove") + 1e-9


def test_the_sensitivities_are_attained():
    extremes = np.full(9, 5.0)
    frobenius, elementwise = FrobeniusClip(2.0), ElementwiseClip(2.0)
    assert np.linalg.norm(frobenius(extremes) - frobenius(-extremes)) == pytest.approx(frobenius.l2(9, "replace"))
    assert np.abs(frobenius(extremes)).sum() == pytest.approx(frobenius.l1(9, "add_remove"))
    assert np.linalg.norm(elementwise(extremes) - elementwise(-extremes)) == elementwise.l2(9, "replace")


def test_xor_flips_as_often_as_said_and_charges_every_bit():
    mechanism = PaperXor.of_epsilon(1.0)
    released, cost = mechanism.release("V", np.zeros((100, 200), dtype=bool), rng=rng())
    p = 1 / (1 + math.e)
    assert abs(released.mean() - p) < 5 * math.sqrt(p * (1 - p) / DRAWS)
    assert (cost.count, cost.unit) == (20_000, "client")
    assert cost.loss == pytest.approx(1.0)
    assert cost.pure_epsilon == pytest.approx(20_000)


@pytest.mark.parametrize("value", [np.zeros(3), np.zeros(3, dtype=np.int64)])
def test_xor_refuses_numbers(value):
    with pytest.raises(InputError, match="Boolean"):
        PaperXor(0.1).release("V", value, rng=rng())


def test_real_noise_refuses_bits():
    for mechanism in (PaperGaussian(1.0), PaperLaplace(1.0)):
        with pytest.raises(InputError, match="PaperXor"):
            mechanism.release("V", np.zeros(3, dtype=bool), rng=rng())


@pytest.mark.parametrize(
    "make",
    [
        lambda: PaperGaussian(0.0),
        lambda: PaperGaussian(1.0, 1.0),
        lambda: PaperLaplace(-1.0),
        lambda: PaperXor(0.5),
        lambda: PaperXor(0.0),
        lambda: FrobeniusClip(0.0),
        lambda: ElementwiseClip(math.inf),
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


def test_what_has_no_mechanism_does_not_leave():
    with pytest.raises(InputError, match="'loss'"):
        ByName({"V": PaperXor(0.1)}).release("loss", np.zeros(1), rng=rng())


# -- the discrete one --------------------------------------------------------------------------------------------------


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
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    discrete._sampler.cache_clear()
    with pytest.raises(MissingExtraError, match=r"felb\[privacy\]"):
        discrete_gaussian(5.0, 3)


def test_neither_accountant_nor_sampler_is_imported_before_it_is_needed():
    code = (
        "import sys, felb.privacy.accounting, felb.privacy.mechanisms, felb.privacy.spec, felb.federated.gate;"
        "assert not {'opendp', 'dp_accounting'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
