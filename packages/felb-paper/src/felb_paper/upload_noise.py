"""The noise of the evaluation in the paper on uploads of V, and what it costs in all.

All of it hides a client in ONE upload of V_i (k × m), and uploads add up. The noise is drawn by NumPy, whose floating
point lets an attentive receiver see through it; `felb.privacy` has the releases that withstand one. A mechanism is
given to `felb.engines.local.run(..., mechanism=...)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.privacy.accounting import Cost, gaussian_epsilon
from felb.privacy.mechanisms import NoNoise, check_bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.privacy.outbound_log import OutboundRecord
    from felb_paper.cells import Noise

UPLOAD = "V"
"""What is noised. The clients' loss and counts leave exact: they serve to score an experiment, not a deployment."""

DELTA_UPLOAD, DELTA_TOTAL = 0.05, 1e-5
"""δ of the evaluation, for one upload; and the δ at which the total of a run is told."""


@dataclass(frozen=True, slots=True)
class PaperGaussian:
    """V_i + N(0, σ²), σ = Δ₂ √(2 ln(1.25/δ)) / ε per upload; σ is a standard deviation.

    Parameters
    ----------
    epsilon, delta : of one upload, as the classical formula has it; the cost is the exact μ = Δ₂/σ
    theta : uploads are scaled down to ‖V_i‖_F <= θ = Δ₂. If None, nothing bounds V_i: Δ₂ is then taken as 1, and the
        cost is None, for unprotected
    """

    epsilon: float
    delta: float = DELTA_UPLOAD
    theta: float | None = None

    def __post_init__(self) -> None:
        _check(self.epsilon, self.theta)
        if not 0 < self.delta < 1:
            raise InputError(f"delta must lie between 0 and 1, got {self.delta}")

    @property
    def name(self) -> str:
        """The word for the log."""
        return f"paper gaussian, {'unclipped' if self.theta is None else 'clipped'}"

    @property
    def sigma(self) -> float:
        """The standard deviation."""
        return (self.theta or 1.0) * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        """Clip, add noise, charge one client one μ."""
        noisy = _clipped(what, value, self.theta) + self.sigma * rng.standard_normal(value.shape)
        cost = None if self.theta is None else Cost("gaussian", self.theta / self.sigma, "client")
        return noisy.astype(value.dtype), cost


@dataclass(frozen=True, slots=True)
class PaperLaplace:
    """V_i + Laplace(b), b = Δ₁/ε per upload, where Δ₁ = √(km) θ by Cauchy and Schwarz.

    Parameters are those of `PaperGaussian`, without δ.
    """

    epsilon: float
    theta: float | None = None

    def __post_init__(self) -> None:
        _check(self.epsilon, self.theta)

    @property
    def name(self) -> str:
        """The word for the log."""
        return f"paper laplace, {'unclipped' if self.theta is None else 'clipped'}"

    def scale(self, size: int) -> float:
        """Return b for an upload of `size` entries."""
        return (1.0 if self.theta is None else math.sqrt(size) * self.theta) / self.epsilon

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        """Clip, add noise, charge one client ε."""
        noisy = _clipped(what, value, self.theta) + rng.laplace(0.0, self.scale(value.size), value.shape)
        return noisy.astype(value.dtype), None if self.theta is None else Cost("laplace", self.epsilon, "client")


@dataclass(frozen=True, slots=True)
class PaperXor:
    """Flips each bit with probability p: randomized response, ε₀ = ln((1−p)/p) for each of the k·m bits.

    Fits Boolean uploads only; numbers are refused, also if all are 0 or 1, since nobody said that they stay so.
    """

    flip_probability: float
    name: str = "paper xor"

    def __post_init__(self) -> None:
        if not 0 < self.flip_probability < 0.5:
            raise InputError(f"flip_probability must lie between 0 and ½, got {self.flip_probability}")

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        """Flip bits; an exchanged client may change them all, so all are charged."""
        if value.dtype != np.bool_:
            raise InputError(f"{what} is {value.dtype}; xor noise fits Boolean uploads, take Gaussian or Laplace noise")
        loss = math.log((1 - self.flip_probability) / self.flip_probability)
        cost = Cost("bits", loss, "client", "replace", count=max(1, value.size))
        return value ^ (rng.random(value.shape) < self.flip_probability), cost


def _check(epsilon: float, theta: float | None) -> None:
    check_bound("epsilon", epsilon)
    if theta is not None:
        check_bound("theta", theta)


def _clipped(what: str, value: NDArray[Any], theta: float | None) -> NDArray[Any]:
    """V ↦ V · min(1, θ/‖V‖_F)."""
    if value.dtype.kind != "f":
        raise InputError(f"{what} is {value.dtype}; this noise is for real values, take PaperXor for Boolean uploads")
    norm = 0.0 if theta is None else float(np.linalg.norm(np.asarray(value, dtype=np.float64)))
    return np.asarray(value * min(1.0, theta / norm) if theta is not None and norm > 0 else value)


# -- by the level of an experiment -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoisyUploads:
    """Noise of a given level on uploads of V, nothing on the rest."""

    noise: Noise

    @classmethod
    def of(cls, noise: Noise | None) -> NoisyUploads | None:
        """Make the mechanism; None for a level of 0, and for noise that is not on uploads."""
        return None if noise is None or noise.mechanism == "record" or noise.level == 0 else cls(noise)

    @property
    def name(self) -> str:
        """The word for the log."""
        return f"paper {self.noise.mechanism}"

    def release(self, what: str, value: NDArray[Any], *, rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        """Noise V; hand on everything else as it is."""
        if what != UPLOAD:
            return NoNoise().release(what, value, rng=rng)
        mechanism = paper_mechanism(self.noise, value.size)
        # Post-hoc methods send Booleans in the type that sums of clients are taken in.
        sent = value.astype(bool) if self.noise.mechanism == "xor" and value.dtype == np.uint8 else value
        noisy, cost = mechanism.release(what, sent, rng=rng)
        return noisy.astype(value.dtype), cost


def paper_mechanism(noise: Noise, size: int) -> PaperGaussian | PaperLaplace | PaperXor:
    """Return the paper's mechanism that adds noise of this level to an upload of `size` entries."""
    if noise.mechanism == "xor":
        return PaperXor(noise.level)
    epsilon = upload_epsilon(noise, size)
    if noise.mechanism == "gaussian":
        return PaperGaussian(epsilon, theta=noise.theta)
    if noise.mechanism == "laplace":
        return PaperLaplace(epsilon, noise.theta)
    raise InputError(f"{noise.mechanism!r} is no noise on uploads")


def upload_epsilon(noise: Noise, size: int) -> float:
    """Return the ε that the paper's formulas give one upload at this level of noise.

    Gaussian: ε = Δ₂ √(2 ln(1.25/δ)) / σ. Laplace: ε = Δ₁/b. Without a clip nothing bounds Δ, and the formulas are used
    with Δ = 1. Flips: ε₀ = ln((1−p)/p) for each bit.
    """
    if noise.mechanism == "xor":
        return math.log((1 - noise.level) / noise.level)
    if noise.mechanism == "gaussian":
        return (noise.theta or 1.0) * math.sqrt(2 * math.log(1.25 / DELTA_UPLOAD)) / noise.level
    return (1.0 if noise.theta is None else noise.theta * math.sqrt(size)) / noise.level


def total_cost(noise: Noise, uploads: Sequence[OutboundRecord]) -> dict[str, float | None]:
    """Return ε of one upload by the paper's formula, and the honest ε of one client's whole run; None if unprotected.

    Gaussian noise composes exactly, μ² adds up and ε is told at δ = 10⁻⁵; the ε of Laplace noise and of flipped bits
    add up (δ = 0). The exact loss that clients report beside V is not counted: with it nothing would be protected.
    """
    if noise.mechanism == "record":
        return {"epsilon_total": noise.level, "uploads": None, "epsilon_upload": None}
    sent = [record for record in uploads if record.what == UPLOAD]
    if noise.level == 0 or not sent:
        return {"epsilon_total": None, "uploads": float(len(sent)), "epsilon_upload": None}
    size = math.prod(sent[0].shape)
    costs = [record.cost for record in sent]
    total: float | None = None
    if all(cost is not None for cost in costs):
        known = [cost for cost in costs if cost is not None]
        if noise.mechanism == "gaussian":
            total = gaussian_epsilon(math.sqrt(sum(cost.loss**2 for cost in known)), DELTA_TOTAL)
        else:
            total = sum(cost.pure_epsilon for cost in known)
    return {"epsilon_total": total, "uploads": float(len(sent)), "epsilon_upload": upload_epsilon(noise, size)}
