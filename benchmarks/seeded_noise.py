"""Noise for benchmarks: of the size of that of real releases, fast and with a seed, and so good for nothing else."""

from __future__ import annotations

import numpy as np

from felb.privacy import mechanisms as discrete
from felb.privacy import releases as uploads


def draw_by_seed(seed: int) -> None:
    """From now on draw normal noise, rounded to whole steps, by NumPy in place of the exact sampler."""
    rng = np.random.default_rng(seed)
    discrete.discrete_gaussian = uploads.discrete_gaussian = lambda sigma, size: np.rint(  # type: ignore[assignment]
        rng.normal(0.0, sigma, size)
    ).astype(np.int64)
