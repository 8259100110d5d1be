"""What every privacy mechanism must satisfy; a new one is one line in the list."""

import numpy as np
import pytest

from felb.errors import InputError
from felb.privacy.accounting import Cost
from felb.privacy.mechanisms import DiscreteGaussian, NoNoise
from felb.privacy.releases import ClippedGaussian, RandomizedResponse

REAL, BITS, COUNTS = np.linspace(-1, 2, 6).reshape(2, 3), np.eye(2, 3, dtype=bool), np.arange(6).reshape(2, 3)

MECHANISMS = {
    "none": (NoNoise(), REAL),
    "clipped": (ClippedGaussian(1.5, 0.7, "replace"), REAL),
    "randomized response": (RandomizedResponse(2.0), BITS),
    "discrete counts": (DiscreteGaussian(90.0, 20.0), COUNTS),
    "discrete grid": (DiscreteGaussian(90.0, 2.0, grid=0.25, shares=3), REAL),
}
UNPROTECTED = {"none"}


def pytest_generate_tests(metafunc):
    """Take the mechanisms of the module that asks, which may be one that has imported these tests."""
    if "case" in metafunc.fixturenames:
        table = metafunc.module.MECHANISMS
        metafunc.parametrize("case", [(name, *entry) for name, entry in table.items()], ids=table.keys())


def test_a_release_keeps_shape_and_kind_and_says_its_cost(case):
    name, mechanism, value = case
    released, cost = mechanism.release("V", value, rng=np.random.default_rng(0))
    assert released.shape == value.shape
    assert released.dtype == value.dtype
    assert np.all(np.isfinite(released))
    assert (cost is None) == (name in UNPROTECTED)
    assert cost is None or (isinstance(cost, Cost) and cost.loss > 0)
    assert mechanism.name


def test_the_cost_does_not_depend_on_the_value(case):
    _, mechanism, value = case
    rng = np.random.default_rng(0)
    assert mechanism.release("V", value, rng=rng)[1] == mechanism.release("V", np.zeros_like(value), rng=rng)[1]


def test_the_argument_is_not_changed(case):
    _, mechanism, value = case
    before = value.copy()
    mechanism.release("V", value, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(value, before)


def test_what_a_mechanism_does_not_fit_is_refused(case):
    name, mechanism, _ = case
    if name == "none":
        return
    with pytest.raises(InputError, match="V is"):
        mechanism.release("V", np.array([1 + 2j, 0]), rng=np.random.default_rng(0))


def test_no_noise_is_exact_and_calls_itself_unprotected():
    value = np.arange(3)
    released, cost = NoNoise().release("V", value, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(released, value)
    assert cost is None
