"""Discrete Gaussian noise on a grid.

Adding floating-point noise to a floating-point value leaves traces of the value in the low bits of the sum. Here both
are whole multiples of a public grid, and the noise comes from an exact sampler (Canonne, Kamath and Steinke, 2020) that
draws from the operating system's randomness; it cannot be seeded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError, PrivacyError, missing_extra
from felb.privacy.cost import Cost, Neighbours, Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

FINEST = 64.0
"""Least standard deviation of a client's noise in grid steps. From here on, the δ of discrete noise is that of
continuous noise, by which it is accounted, to within a hundredth; at 4 steps it is up to a tenth more. Sums of discrete
Gaussians differ from one discrete Gaussian by less than e^(−π²·64²)."""

WIDEST = 2.0**40
"""Largest standard deviation in grid steps. Beyond it the sampler's integers come near the end of their range, where
they saturate, and what is added to a saturated draw can be read off."""

SATURATED = 1 << 61
"""No draw of noise that is narrow enough gets there."""

LARGEST = 1 << 52
"""Values beyond this many grid steps are refused: they could not be told apart in float64, nor summed safely."""


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """x + N_grid(0, σ²): noise of standard deviation σ on the multiples of a grid.

    Integers stay integers (their grid is 1). Real values are first rounded to the grid; rounding can move two
    neighbouring values apart by one step in each of d entries, so the sensitivity is charged as Δ₂ + grid·√d.

    Parameters
    ----------
    sigma : standard deviation of the noise that protects
    sensitivity : Δ₂, the largest distance between the values of neighbouring data; who makes the values ensures it
    unit, neighbours : whom that protects
    grid : distance of possible values, a power of two
    shares : number of clients whose noise together makes up `sigma`; each adds σ/√shares. Above 1 the release
        protects only as part of a sum, so the sum must be all that anybody sees
    """

    sigma: float
    sensitivity: float
    unit: Unit = "record"
    neighbours: Neighbours = "add_remove"
    grid: float = 1.0
    shares: int = 1

    def __post_init__(self) -> None:
        for name in ("sigma", "sensitivity", "grid"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise InputError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if math.frexp(self.grid)[0] != 0.5:
            raise InputError(f"grid must be a power of two, so that its multiples are exact; got {self.grid}")
        if self.shares < 1:
            raise InputError(f"noise has at least one share, got {self.shares}")
        if self.sigma_of_client < FINEST * self.grid:
            raise InputError(
                f"a client's noise of {self.sigma_of_client:.3g} spans fewer than {FINEST:g} steps of the grid "
                f"{self.grid:g}; choose a finer grid, or scale integer values up before their release"
            )

        if self.sigma / self.grid > WIDEST:
            raise InputError(f"noise of {self.sigma:.3g} is too wide for the grid {self.grid:g}; choose a coarser one")

    @property
    def name(self) -> str:
        """The word for the log."""
        return "discrete gaussian" if self.shares == 1 else f"discrete gaussian, 1 of {self.shares} shares"

    @property
    def sigma_of_client(self) -> float:
        """Standard deviation of the noise that one client adds."""
        return self.sigma / math.sqrt(self.shares)

    def release(
        self,
        what: str,
        value: NDArray[Any],
        *,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> tuple[NDArray[Any], Cost | None]:
        """Put on the grid, add noise, charge μ = Δ₂/σ."""
        steps, sensitivity = self._steps(what, value)
        noise = discrete_gaussian(self.sigma_of_client / self.grid, steps.size).reshape(steps.shape)
        if noise.size and (int(noise.max()) > SATURATED or int(noise.min()) < -SATURATED):
            raise PrivacyError(f"a draw of the noise for {what} has saturated; nothing was sent")
        noisy = steps + noise  # |steps| <= 2^52 and |noise| <= 2^61: the sum cannot wrap around
        cost = Cost("gaussian", sensitivity / self.sigma, self.unit, self.neighbours)
        return (noisy if value.dtype.kind in "ui" else noisy * self.grid), cost

    def _steps(self, what: str, value: NDArray[Any]) -> tuple[NDArray[np.int64], float]:
        """Return the value in steps of the grid and the sensitivity after rounding."""
        if value.dtype.kind in "ui":
            if self.grid != 1.0:
                raise InputError(f"{what} holds integers, whose grid is 1, not {self.grid:g}")
            steps, sensitivity = value, self.sensitivity
        elif value.dtype.kind == "f":
            steps = np.rint(np.asarray(value, dtype=np.float64) / self.grid)
            sensitivity = self.sensitivity + self.grid * math.sqrt(value.size)
        else:
            raise InputError(f"{what} is {value.dtype}; discrete Gaussian noise fits integers and real values")
        if steps.size and not float(np.max(np.abs(steps))) <= LARGEST:
            raise InputError(f"{what} reaches beyond {LARGEST} steps of the grid; choose a coarser one")
        return steps.astype(np.int64), sensitivity


def discrete_gaussian(sigma: float, size: int) -> NDArray[np.int64]:
    """Draw `size` integers x with probability proportional to exp(−x²/(2σ²)), exactly and without a seed."""
    if size == 0:
        return np.zeros(0, dtype=np.int64)
    return np.asarray(_sampler(float(sigma))([0] * size), dtype=np.int64)


def require_sampler() -> None:
    """Raise unless the exact sampler is installed: to be known before anything leaves, not after half of it has."""
    _sampler(1.0)


@lru_cache(maxsize=8)
def _sampler(sigma: float) -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        missing_extra("exact discrete Gaussian noise", "privacy", error)
    dp.enable_features("contrib")
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float), scale=sigma)
