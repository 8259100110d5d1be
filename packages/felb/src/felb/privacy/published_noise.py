"""The noise of the evaluation in the paper, for reproduction; its cost is stated per upload.

All of it hides a client in ONE upload of V_i (k × m), and uploads add up. The noise is drawn by NumPy, whose floating
point lets an attentive receiver see through it; see `felb.privacy.mechanisms` for releases that must withstand one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from felb.errors import InputError
from felb.privacy.accounting import Cost, Neighbours

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Clip(Protocol):
    """Bounds what one client can contribute, and says by how much two clients' uploads can then differ."""

    def __call__(self, value: NDArray[Any]) -> NDArray[Any]:
        """Return the clipped value."""
        ...

    def l2(self, size: int, neighbours: Neighbours) -> float:
        """Return Δ₂, the largest Euclidean distance between uploads of `size` entries from neighbouring data."""
        ...

    def l1(self, size: int, neighbours: Neighbours) -> float:
        """Return Δ₁, the largest sum of absolute differences."""
        ...


@dataclass(frozen=True, slots=True)
class FrobeniusClip:
    """V ↦ V · min(1, θ/‖V‖_F).

    Δ₂ = θ if a client is added or removed, 2θ if it is replaced; Δ₁ <= √(km) Δ₂.
    """

    theta: float

    def __post_init__(self) -> None:
        _check_positive(theta=self.theta)

    def __call__(self, value: NDArray[Any]) -> NDArray[Any]:
        """Scale down if too long."""
        norm = float(np.linalg.norm(np.asarray(value, dtype=np.float64)))
        return np.asarray(value * min(1.0, self.theta / norm) if norm > 0 else value)

    def l2(self, size: int, neighbours: Neighbours) -> float:  # noqa: ARG002
        """θ or 2θ."""
        return self.theta * (2 if neighbours == "replace" else 1)

    def l1(self, size: int, neighbours: Neighbours) -> float:
        """√(km) Δ₂, by Cauchy and Schwarz."""
        return math.sqrt(size) * self.l2(size, neighbours)


@dataclass(frozen=True, slots=True)
class ElementwiseClip:
    """V ↦ min(max(V, 0), θ), entry by entry: Δ₂ = θ√(km), Δ₁ = θkm, whichever neighbours."""

    theta: float

    def __post_init__(self) -> None:
        _check_positive(theta=self.theta)

    def __call__(self, value: NDArray[Any]) -> NDArray[Any]:
        """Clip to [0, θ]."""
        return np.asarray(np.clip(value, 0, self.theta))

    def l2(self, size: int, neighbours: Neighbours) -> float:  # noqa: ARG002
        """θ√(km)."""
        return self.theta * math.sqrt(size)

    def l1(self, size: int, neighbours: Neighbours) -> float:  # noqa: ARG002
        """θkm."""
        return self.theta * size


@dataclass(frozen=True, slots=True)
class PaperGaussian:
    """V_i + N(0, σ²), σ = Δ₂ √(2 ln(1.25/δ)) / ε per upload; σ is a standard deviation.

    Parameters
    ----------
    epsilon, delta : of one upload, as the classical formula has it; the cost is the exact μ = Δ₂/σ
    clip : without one nothing bounds V_i: Δ₂ is then taken as 1 and the cost is None, for unprotected
    neighbours : of the client
    """

    epsilon: float
    delta: float = 0.05
    clip: Clip | None = None
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        _check_positive(epsilon=self.epsilon)
        if not 0 < self.delta < 1:
            raise InputError(f"delta must lie between 0 and 1, got {self.delta}")

    @property
    def name(self) -> str:
        """The word for the log."""
        return f"paper gaussian, {'clipped' if self.clip else 'unclipped'}"

    def sigma(self, size: int) -> float:
        """Return the standard deviation for an upload of `size` entries."""
        return self._sensitivity(size) * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        """Clip, add noise, charge one client one μ."""
        value = _real(what, value)
        sigma = self.sigma(value.size)
        noisy = (self.clip(value) if self.clip else value) + sigma * rng.standard_normal(value.shape)
        return noisy.astype(value.dtype), self.cost(value.size)

    def cost(self, size: int) -> Cost | None:
        """Return what an upload of `size` entries costs; None without a bound."""
        if not self.clip:
            return None
        return Cost("gaussian", self._sensitivity(size) / self.sigma(size), "client", self.neighbours)

    def _sensitivity(self, size: int) -> float:
        return self.clip.l2(size, self.neighbours) if self.clip else 1.0


@dataclass(frozen=True, slots=True)
class PaperLaplace:
    """V_i + Laplace(b), b = Δ₁/ε per upload; Δ₁ is the L1 sensitivity of the whole upload.

    Parameters are those of `PaperGaussian`, without δ.
    """

    epsilon: float
    clip: Clip | None = None
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        _check_positive(epsilon=self.epsilon)

    @property
    def name(self) -> str:
        """The word for the log."""
        return f"paper laplace, {'clipped' if self.clip else 'unclipped'}"

    def scale(self, size: int) -> float:
        """Return b for an upload of `size` entries."""
        return (self.clip.l1(size, self.neighbours) if self.clip else 1.0) / self.epsilon

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        """Clip, add noise, charge one client ε."""
        value = _real(what, value)
        clipped = self.clip(value) if self.clip else value
        noisy = clipped + rng.laplace(0.0, self.scale(value.size), value.shape)
        return noisy.astype(value.dtype), self.cost(value.size)

    def cost(self, size: int) -> Cost | None:  # noqa: ARG002
        """Return what an upload costs, ε whatever its size; None without a bound."""
        return Cost("laplace", self.epsilon, "client", self.neighbours) if self.clip else None


@dataclass(frozen=True, slots=True)
class PaperXor:
    """Flips each bit with probability p: randomized response, ε₀ = ln((1−p)/p) for each of the k·m bits.

    Fits Boolean uploads only; numbers are refused, also if all are 0 or 1, since nobody said that they stay so.
    """

    flip_probability: float
    name: str = "paper xor"
    neighbours: Neighbours = "replace"

    def __post_init__(self) -> None:
        if not 0 < self.flip_probability < 0.5:
            raise InputError(f"flip_probability must lie between 0 and ½, got {self.flip_probability}")

    @classmethod
    def of_epsilon(cls, epsilon: float, neighbours: Neighbours = "replace") -> PaperXor:
        """Make the mechanism with ε₀ = `epsilon` per bit: p = 1/(1 + e^ε₀)."""
        _check_positive(epsilon=epsilon)
        return cls(1 / (1 + math.exp(epsilon)), neighbours=neighbours)

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        """Flip bits; an exchanged client may change them all, so all are charged."""
        if value.dtype != np.bool_:
            raise InputError(f"{what} is {value.dtype}; xor noise fits Boolean uploads, take Gaussian or Laplace noise")
        return value ^ (rng.random(value.shape) < self.flip_probability), self.cost(value.size)

    def cost(self, size: int) -> Cost:
        """Return what an upload of `size` bits costs."""
        loss = math.log((1 - self.flip_probability) / self.flip_probability)
        return Cost("bits", loss, "client", self.neighbours, count=max(1, size))


PaperMechanism = PaperGaussian | PaperLaplace | PaperXor


def _real(what: str, value: NDArray[Any]) -> NDArray[Any]:
    if value.dtype.kind != "f":
        raise InputError(f"{what} is {value.dtype}; this noise is for real values, take PaperXor for Boolean uploads")
    return value


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} must be positive and finite, got {value}")
