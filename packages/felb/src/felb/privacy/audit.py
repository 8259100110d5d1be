"""Audits of a private release, which detect common mistakes.

`scale_matches` finds noise of the wrong size, `isolation` a statistic to which a record contributes more than its own
bounded part, `transcript` a protocol that reveals more over its rounds than was charged, `on_grid` noise that is not
discrete.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


def scale_matches(draws: NDArray[Any], sigma: float, *, alpha: float = 1e-6) -> bool:
    """Whether Σx²/σ² is what Gaussian noise of standard deviation σ gives, but for a chance of α: a χ² test.

    With 20000 draws and α = 10⁻⁶, noise of 0.9σ or 1.1σ fails.
    """
    from scipy.stats import chi2

    x = np.asarray(draws, dtype=np.float64).ravel()
    statistic = float(x @ x) / sigma**2
    return bool(chi2.ppf(alpha / 2, x.size) <= statistic <= chi2.ppf(1 - alpha / 2, x.size))


def on_grid(values: NDArray[Any], grid: float = 1.0) -> bool:
    """Whether all values are whole multiples of the grid."""
    steps = np.asarray(values, dtype=np.float64) / grid
    return bool(np.all(steps == np.rint(steps)))


@dataclass(frozen=True, slots=True)
class Isolation:
    """How a statistic depends on single records.

    Parameters
    ----------
    residual : ‖f(D) − Σ_r f({r})‖ / Δ; 0 if every record contributes its own part whatever the others are
    largest : max_r ‖f({r})‖ / Δ; at most 1 if the stated sensitivity Δ holds
    """

    residual: float
    largest: float

    @property
    def holds(self) -> bool:
        """Whether adding or removing a record moves the statistic by at most Δ, up to rounding."""
        return self.residual <= 1e-9 and self.largest <= 1 + 1e-12


def isolation(f: Callable[[BinaryMatrix], NDArray[Any]], A: BinaryMatrix, *, sensitivity: float) -> Isolation:
    """Compare f(D) with Σ_r f({r}) for a deterministic statistic f, public inputs fixed.

    Catches steps and step sizes that look at all rows, which comparing random neighbours misses: there, a single row
    among many changes little.
    """
    if A.shape[0] < 1:
        raise InputError("isolation needs at least one record")
    parts = [np.asarray(f(A.rows(r, r + 1)), dtype=np.float64) for r in range(A.shape[0])]
    residual = np.asarray(f(A), dtype=np.float64) - np.sum(parts, axis=0)
    largest = max(float(np.linalg.norm(part)) for part in parts)
    return Isolation(float(np.linalg.norm(residual)) / sensitivity, largest / sensitivity)


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a protocol revealed about a canary: an estimate of μ with its standard error."""

    mu: float
    standard_error: float

    def within(self, claimed: float, *, z: float = 4.0) -> bool:
        """Whether μ̂ − z·SE <= the claimed μ."""
        return self.mu - z * self.standard_error <= claimed


def transcript(
    f: Callable[[BinaryMatrix, Any], NDArray[Any]],
    server: Callable[[NDArray[Any], Any], Any],
    world: tuple[BinaryMatrix, BinaryMatrix],
    *,
    noise: Callable[[tuple[int, ...]], NDArray[Any]],
    sigma: float,
    start: Any,
    rounds: int,
    runs: int = 150,
) -> Transcript:
    """Play an adaptive protocol with and without a canary and measure how well the best test distinguishes them.

    Each round releases f(D, public) + noise, and the server makes the next public value of it. The log-likelihood ratio
    of a whole transcript under Gaussian noise of the given σ is the most powerful test; its distance between the worlds
    in standard deviations estimates the μ that was really spent, SE² = 2/R + μ̂²/(4R) for R runs in each world.

    Parameters
    ----------
    f : the statistic, of the data and the public value
    server : the next public value from a release and the current one
    world : the data without and with the canary, a record that uses its bounds to the full
    noise : draws the noise that the protocol really adds
    sigma : standard deviation of `noise`; an attacker knows it
    start : first public value
    """
    ratios = np.empty((2, runs))
    for truth in (0, 1):
        for run in range(runs):
            public, ratio = start, 0.0
            for _ in range(rounds):
                without, with_canary = (np.asarray(f(data, public), dtype=np.float64) for data in world)
                difference = with_canary - without
                released = (with_canary if truth else without) + noise(without.shape)
                ratio += float(difference.ravel() @ (released - without - difference / 2).ravel()) / sigma**2
                public = server(released, public)
            ratios[truth, run] = ratio
    deviation = math.sqrt(float(ratios.var(axis=1, ddof=1).mean()))
    mu = float(ratios[1].mean() - ratios[0].mean()) / deviation if deviation > 0 else 0.0
    return Transcript(mu, math.sqrt(2 / runs + mu * mu / (4 * runs)))
