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
from felb.privacy.mechanisms import check_bound

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
class NoisyUploads:
    """Noise of a given level on uploads of V, nothing on the rest.

    Gaussian noise: V_i + N(0, σ²). Laplace noise: V_i + Laplace(b). Before either, V ↦ V · min(1, θ/‖V‖_F), so that
    Δ₂ = θ and Δ₁ <= √(km) θ; without θ nothing bounds V_i, and the cost is None, for unprotected. Flips, each bit with
    probability p, are randomized response: ε₀ = ln((1−p)/p) for each of the k·m bits, all of which an exchanged client
    may change. They fit Boolean uploads only; real numbers are refused, also if all are 0 or 1, since nobody said that
    they stay so.
    """

    noise: Noise

    def __post_init__(self) -> None:
        check_bound("level", self.noise.level)
        if self.noise.theta is not None:
            check_bound("theta", self.noise.theta)
        if self.noise.mechanism == "record":
            raise InputError("'record' is no noise on uploads")
        if self.noise.mechanism == "xor" and self.noise.level >= 0.5:
            raise InputError(f"the probability of a flip must be below ½, got {self.noise.level}")

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
            return value, None
        noisy, cost = (self._flip if self.noise.mechanism == "xor" else self._blur)(value, rng)
        return noisy.astype(value.dtype), cost

    def _flip(self, value: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], Cost]:
        # Post-hoc methods send Booleans in the type that sums of clients are taken in.
        if value.dtype not in (np.bool_, np.uint8):
            raise InputError(f"V is {value.dtype}; xor noise fits Boolean uploads, take Gaussian or Laplace noise")
        cost = Cost("bits", upload_epsilon(self.noise, value.size), "client", "replace", count=max(1, value.size))
        return value.astype(bool) ^ (rng.random(value.shape) < self.noise.level), cost

    def _blur(self, value: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], Cost | None]:
        if value.dtype.kind != "f":
            raise InputError(f"V is {value.dtype}; this noise is for real values, take xor noise for Boolean uploads")
        theta, gaussian = self.noise.theta, self.noise.mechanism == "gaussian"
        if theta is not None and (norm := float(np.linalg.norm(np.asarray(value, dtype=np.float64)))) > 0:
            value = value * min(1.0, theta / norm)
        scale = upload_scale(self.noise, value.size)
        draws = scale * rng.standard_normal(value.shape) if gaussian else rng.laplace(0.0, scale, value.shape)
        if theta is None:
            return value + draws, None
        if gaussian:
            return value + draws, Cost("gaussian", theta / scale, "client")
        return value + draws, Cost("laplace", upload_epsilon(self.noise, value.size), "client")


def upload_epsilon(noise: Noise, size: int) -> float:
    """Return the ε that the paper's formulas give one upload at this level of noise.

    Gaussian: ε = Δ₂ √(2 ln(1.25/δ)) / σ. Laplace: ε = Δ₁/b. Without a clip nothing bounds Δ, and the formulas are used
    with Δ = 1. Flips: ε₀ = ln((1−p)/p) for each bit.
    """
    if noise.mechanism == "xor":
        return math.log((1 - noise.level) / noise.level)
    return _sensitivity(noise, size) / noise.level


def upload_scale(noise: Noise, size: int) -> float:
    """Return σ or b for that ε: the level, but for the last digit."""
    return _sensitivity(noise, size) / upload_epsilon(noise, size)


def _sensitivity(noise: Noise, size: int) -> float:
    """Return Δ₂ √(2 ln(1.25/δ)) of Gaussian noise, or Δ₁ of Laplace noise."""
    if noise.mechanism == "gaussian":
        return (noise.theta or 1.0) * math.sqrt(2 * math.log(1.25 / DELTA_UPLOAD))
    return 1.0 if noise.theta is None else noise.theta * math.sqrt(size)


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
