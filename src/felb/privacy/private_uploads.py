"""Noise on uploads of the components of a client, which protects the whole client.

Real components are shortened to a length and get discrete Gaussian noise; Boolean ones have their bits flipped at
random. Both draw from the operating system's randomness, and neither looks at anything but the upload.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.privacy.bounds import check_bound
from felb.privacy.cost import Cost, Neighbours
from felb.privacy.discrete import discrete_gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS = 64
"""A client's noise spans at least this many steps of the grid that its upload is put on."""

DRAWS = 1 << 64
"""Flips are decided by whole numbers below this."""


@dataclass(frozen=True, slots=True)
class Uploads:
    """What a method uploads: how many times at most, how many numbers, and whether they are bits."""

    rounds: int
    size: int
    boolean: bool = False

    def __post_init__(self) -> None:
        if min(self.rounds, self.size) < 1:
            raise InputError(f"there is at least one upload of one number, got {self.rounds} of {self.size}")


@dataclass(frozen=True, slots=True)
class ClippedGaussian:
    """max(V, 0) · min(1, θ/‖V‖) on a grid, with discrete Gaussian noise of standard deviation σ.

    Entries are rounded towards zero, so an upload is never longer than θ. Without a client its upload counts as zero
    (``add_remove``): Δ₂ = θ. Two non-negative uploads differ by at most √2 θ (``replace``).

    Parameters
    ----------
    theta : θ
    mu : what one upload costs; σ = Δ₂/μ
    neighbours : of the client
    shares : clients whose noise together makes up σ, see `felb.privacy.discrete.DiscreteGaussian`
    """

    theta: float
    mu: float
    neighbours: Neighbours = "add_remove"
    shares: int = 1

    def __post_init__(self) -> None:
        check_bound("theta", self.theta)
        check_bound("mu", self.mu)

    @property
    def name(self) -> str:
        """The word for the log."""
        return "clipped discrete gaussian" + ("" if self.shares == 1 else f", 1 of {self.shares} shares")

    @property
    def sensitivity(self) -> float:
        """Δ₂."""
        return self.theta * (math.sqrt(2) if self.neighbours == "replace" else 1.0)

    @property
    def sigma_of_client(self) -> float:
        """Standard deviation of the noise that one client adds."""
        return self.sensitivity / self.mu / math.sqrt(self.shares)

    @property
    def grid(self) -> float:
        """Distance of possible values, a power of two; public."""
        return 2.0 ** math.floor(math.log2(self.sigma_of_client / STEPS))

    def release(
        self,
        what: str,
        value: NDArray[Any],
        *,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> tuple[NDArray[Any], Cost | None]:
        """Shorten, put on the grid, add noise, charge μ."""
        if value.dtype.kind != "f":
            raise InputError(f"{what} is {value.dtype}; this noise is for real uploads")
        steps = self.clipped(value)
        noise = discrete_gaussian(self.sigma_of_client / self.grid, steps.size).reshape(steps.shape)
        cost = Cost("gaussian", self.mu, "client", self.neighbours)
        return (steps + noise) * self.grid, cost

    def clipped(self, value: NDArray[Any]) -> NDArray[np.int64]:
        """Return the upload without its noise, in steps of the grid; never longer than θ."""
        upload = np.maximum(np.asarray(value, dtype=np.float64), 0.0)
        length = float(np.linalg.norm(upload))
        shortened = upload * min(1.0, (1 - 1e-12) * self.theta / max(length, 1e-300))
        return np.floor(shortened / self.grid).astype(np.int64)


@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """Flips each bit with probability p = 1/(1 + e^ε₀), rounded up to a multiple of 2^−64.

    Two clients may differ in all bits, so all are charged, under either relation of neighbours.
    """

    epsilon: float
    neighbours: Neighbours = "add_remove"
    name: str = "randomized response"

    def __post_init__(self) -> None:
        check_bound("epsilon", self.epsilon, 1e-9)

    @property
    def threshold(self) -> int:
        """A draw below it flips the bit."""
        return min(DRAWS // 2 - 1, math.ceil((1 + 1e-15) * DRAWS / (1 + math.exp(min(self.epsilon, 40.0)))))

    @property
    def flip_probability(self) -> float:
        """Probability p that a bit is flipped."""
        return self.threshold / DRAWS

    def cost(self, size: int) -> Cost:
        """Return what an upload of `size` bits costs."""
        return Cost("bits", self.epsilon, "client", self.neighbours, count=max(1, size))

    def release(
        self,
        what: str,
        value: NDArray[Any],
        *,
        rng: np.random.Generator,  # noqa: ARG002
    ) -> tuple[NDArray[Any], Cost | None]:
        """Flip bits, charge them all."""
        if value.dtype != np.bool_:
            raise InputError(f"{what} is {value.dtype}; bits are flipped in Boolean uploads only")
        draws = np.frombuffer(os.urandom(8 * value.size), dtype=np.uint64).reshape(value.shape)
        return value ^ (draws < np.uint64(self.threshold)), self.cost(value.size)

    def unbiased(self, total: NDArray[Any], n_clients: int) -> NDArray[Any]:
        """Return the sum of bits that a sum of flipped ones lets expect: (Σ − Cp)/(1 − 2p)."""
        p = self.flip_probability
        return np.asarray((total - n_clients * p) / (1 - 2 * p))
