"""Mechanisms: bounded sums over records, discrete noise on a grid, and its cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from felb.errors import InputError, PrivacyError, missing_extra
from felb.privacy.accounting import Cost, Neighbours, Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray


# -- Sums over records with a bounded part of each record: shared code of the record-level releases ------------------
#
# All parts are vectors of integers. Where they are non-negative, two of them never point in opposite directions, and
# exchanging a record moves a sum by at most √2 times what adding or removing one does; otherwise by twice as much.

GRID_BITS = 10
"""Weights and shares of a record are multiples of 2^−10: coarse enough for int64, fine enough for the noise of any
client to span `felb.privacy.mechanisms.FINEST` steps, also where it adds a share of it only."""


@dataclass(frozen=True, slots=True)
class RecordSum:
    """A statistic Σ_r f(r) as integers, ready for discrete noise.

    Parameters
    ----------
    values : int64 array, in steps of `grid`; sums over clients are sums of these
    grid : what one step means
    sensitivity : max_r ‖f(r)‖₂ in steps, however the other records look
    signed : parts may have negative entries
    """

    values: NDArray[np.int64]
    grid: float
    sensitivity: float
    signed: bool = False

    @classmethod
    def in_steps(cls, values: NDArray[np.int64], bound: float, bits: int, *, signed: bool = False) -> RecordSum:
        """Return a sum in steps of 2^−bits whose records have parts no longer than `bound`: Δ = 2^bits · bound."""
        return cls(values, math.ldexp(1.0, -bits), math.ldexp(bound, bits), signed)

    def sensitivity_for(self, neighbours: Neighbours) -> float:
        """Δ₂ in steps: the bound itself if a record is added or removed, √2 or 2 times that if it is replaced."""
        if neighbours == "add_remove":
            return self.sensitivity
        return self.sensitivity * (2.0 if self.signed else math.sqrt(2))

    def plus(self, other: RecordSum) -> RecordSum:
        """Return the sum over the records of both; a record has a part in one of them, so the bound stays."""
        if (self.grid, self.sensitivity, self.signed) != (other.grid, other.sensitivity, other.signed):
            raise InputError("two sums over records with different bounds cannot be added")
        return replace(self, values=self.values + other.values)


def floor_steps(values: NDArray[np.float64], bits: int = GRID_BITS) -> NDArray[np.int64]:
    """⌊2^bits · x⌋ for x >= 0: rounding towards zero never lengthens a vector, so bounds survive it."""
    return np.floor(np.ldexp(values, bits)).astype(np.int64)


def capped_weights(norms: NDArray[np.float64], bound: float, bits: int = GRID_BITS) -> NDArray[np.int64]:
    """Integer weights w <= 2^bits with w · norm <= 2^bits · bound: as near to min(1, bound/norm) as the grid allows."""
    full = 1 << bits
    weights = floor_steps(bound / np.maximum(norms, bound), bits)
    # The division rounds; one step less makes sure where it rounded up.
    return np.where(weights * norms > full * bound, weights - 1, weights)


def shorten_rows(rows: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    """Return rows that are scaled down where they are longer than `bound`, a little more than rounding could undo."""
    lengths = np.sqrt((rows * rows).sum(axis=1))
    return np.asarray(rows * np.minimum(1.0, (1 - 1e-12) * bound / np.maximum(lengths, 1e-300))[:, None])


def check_bound(name: str, value: float, least: float = 0.0) -> float:
    """Return a bound that is finite and above `least`, or raise."""
    if not (math.isfinite(value) and value > least):
        raise InputError(f"{name} must be finite and above {least:g}, got {value}")
    return float(value)


# -- Discrete Gaussian noise on a grid -------------------------------------------------------------------------------
#
# Adding floating-point noise to a floating-point value leaves traces of the value in the low bits of the sum. Here both
# are whole multiples of a public grid, and the noise comes from an exact sampler (Canonne, Kamath and Steinke, 2020)
# that draws from the operating system's randomness; it cannot be seeded.

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

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:  # noqa: ARG002
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
        from opendp.domains import atom_domain, vector_domain  # not the prelude, which loads scikit-learn and pandas
        from opendp.measurements import make_gaussian
        from opendp.metrics import l2_distance
        from opendp.mod import enable_features
    except ImportError as error:
        missing_extra("exact discrete Gaussian noise", "privacy", error)
    enable_features("contrib")
    return make_gaussian(vector_domain(atom_domain(T="i64")), l2_distance(T=float), scale=sigma)


class Mechanism(Protocol):
    """A release returns the value and its cost, so that neither can be had without the other."""

    @property
    def name(self) -> str:
        """The word written to the outbound log."""
        ...

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        """Return the value as it may leave and the privacy it costs; None means unprotected.

        A mechanism that does not fit the value raises an `InputError`.
        """
        ...


@dataclass(frozen=True, slots=True)
class NoNoise:
    """Releases the exact value. Not private: the cost is None, not zero."""

    name: str = "none"

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:  # noqa: ARG002
        """Return the value as it is."""
        return value, None
