"""The paper's noise on what clients send, by its level, and what it costs in all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import InputError
from felb.privacy.accountant import gaussian_epsilon
from felb.privacy.mechanisms import NoNoise
from felb.privacy.published_noise import FrobeniusClip, PaperGaussian, PaperLaplace, PaperXor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from felb.paper.experiment_cells import Noise
    from felb.privacy.cost import Cost
    from felb.privacy.outbound_log import OutboundRecord

UPLOAD = "V"
"""What is noised. The clients' loss and counts leave exact: they serve to score an experiment, not a deployment."""

DELTA_UPLOAD, DELTA_TOTAL = 0.05, 1e-5
"""δ of the evaluation, for one upload; and the δ at which the total of a run is told."""


@dataclass(frozen=True, slots=True)
class NoisyUploads:
    """Noise of a given level on uploads of V, nothing on the rest."""

    noise: Noise

    @classmethod
    def of(cls, noise: Noise) -> NoisyUploads | None:
        """Make the mechanism; None for a level of 0."""
        return cls(noise) if noise.level > 0 else None

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
    clip = None if noise.theta is None else FrobeniusClip(noise.theta)
    epsilon = upload_epsilon(noise, size)
    if noise.mechanism == "gaussian":
        return PaperGaussian(epsilon, DELTA_UPLOAD, clip=clip)
    if noise.mechanism == "laplace":
        return PaperLaplace(epsilon, clip=clip)
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
