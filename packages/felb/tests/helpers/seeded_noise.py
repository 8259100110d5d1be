"""Noise that tests can repeat."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import numpy as np


def rounded_normal(sigma, size):
    """Return noise that depends on nothing but its scale and size."""
    return np.rint(np.random.default_rng([int(1000 * sigma), size]).normal(0, sigma, size)).astype(np.int64)


@contextmanager
def seeded_noise():
    """Draw noise by its scale and size, in place of the operating system's."""
    with (
        mock.patch("felb.privacy.mechanisms.discrete_gaussian", rounded_normal),
        mock.patch("felb.privacy.releases.discrete_gaussian", rounded_normal),
        mock.patch("os.urandom", lambda size: np.random.default_rng(size).bytes(size)),
    ):
        yield
