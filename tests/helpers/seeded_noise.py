"""Noise that tests can repeat."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import numpy as np


@contextmanager
def seeded_noise():
    """Noise that depends on nothing but its scale and size, in place of that of the operating system."""

    def gaussian(sigma, size):
        return np.rint(np.random.default_rng([int(1000 * sigma), size]).normal(0, sigma, size)).astype(np.int64)

    with (
        mock.patch("felb.privacy.discrete.discrete_gaussian", gaussian),
        mock.patch("felb.privacy.private_uploads.discrete_gaussian", gaussian),
        mock.patch("os.urandom", lambda size: np.random.default_rng(size).bytes(size)),
    ):
        yield
