"""Noise and sums at the ends of int64: refused rather than saturated or wrapped around."""

import numpy as np
import pytest

from felb.errors import FederationError, InputError, PrivacyError
from felb.federated.protocol import Release, Sums
from felb.privacy import mechanisms as discrete
from felb.privacy.mechanisms import DiscreteGaussian


def test_noise_that_would_saturate_is_refused(monkeypatch):
    with pytest.raises(InputError, match="too wide"):
        DiscreteGaussian(1e31, 1.0)
    wide = DiscreteGaussian(2.0**40, 1.0)
    monkeypatch.setattr(discrete, "discrete_gaussian", lambda sigma, size: np.full(size, np.iinfo(np.int64).max))
    with pytest.raises(PrivacyError, match="saturated"):
        wide.release("counts", np.array([7]), rng=np.random.default_rng(0))


def test_sums_do_not_wrap_around():
    huge = Release({"counts": np.array([2**62], dtype=np.int64)})
    assert Sums.of([huge, Release({"counts": np.array([-(2**61)])})])["counts"][0] == 2**61
    with pytest.raises(FederationError, match="leaves the range"):
        Sums.of([huge, huge])
    with pytest.raises(FederationError, match="leaves the range"):
        Sums.of([Release({"counts": np.array([np.iinfo(np.int64).min])})] * 2)
