"""What every privacy mechanism must satisfy; a new one is one line in the list."""

import numpy as np
import pytest

from felb.privacy.mechanisms import NoNoise

MECHANISMS = {"none": NoNoise()}


@pytest.fixture(params=MECHANISMS.values(), ids=MECHANISMS.keys())
def mechanism(request):
    return request.param


def test_a_release_keeps_the_shape_and_says_its_cost(mechanism):
    value = np.arange(6.0).reshape(2, 3)
    released, cost = mechanism.release("V", value, rng=np.random.default_rng(0))
    assert released.shape == value.shape
    assert cost is None or cost >= 0
    assert mechanism.name


def test_the_argument_is_not_changed(mechanism):
    value = np.arange(6.0)
    mechanism.release("V", value, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(value, np.arange(6.0))


def test_no_noise_is_exact_and_calls_itself_unprotected():
    value = np.arange(3)
    released, cost = NoNoise().release("V", value, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(released, value)
    assert cost is None
