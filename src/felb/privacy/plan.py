"""A privacy specification that is calibrated for one federation: noise and cost of each release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from felb.errors import InputError, PrivacyError
from felb.privacy.accountant import SLACK, Accountant, calibrated_bits, total_epsilon
from felb.privacy.discrete import DiscreteGaussian
from felb.privacy.names import STATISTICS, UPLOADS
from felb.privacy.private_uploads import ClippedGaussian, RandomizedResponse
from felb.privacy.published_noise import ElementwiseClip, FrobeniusClip, PaperGaussian, PaperLaplace, PaperXor
from felb.privacy.statement import statement

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from felb.privacy.bounds import RecordSum
    from felb.privacy.cost import Unit
    from felb.privacy.private_uploads import Uploads
    from felb.privacy.published_noise import Clip, PaperMechanism
    from felb.privacy.spec import Privacy


@dataclass(frozen=True, slots=True)
class PrivacyPlan:
    """A specification with its noise calibrated.

    Parameters
    ----------
    privacy : the specification
    delta, mu : total δ, and the total μ of Gaussian noise that (ε, δ) allows
    shares : share of μ² of each release by name; they add up to 1
    n_clients : clients that take part
    uploads : what clients upload, for methods that do
    """

    privacy: Privacy
    delta: float
    mu: float
    shares: Mapping[str, float]
    n_clients: int
    uploads: Uploads | None = None

    @property
    def unit(self) -> Unit:
        """Whose presence is hidden."""
        assert self.privacy.unit is not None
        return self.privacy.unit

    def rounds_of(self, what: str) -> int:
        """Return how often `what` is released."""
        if what == UPLOADS:
            return 0 if self.uploads is None else self.uploads.rounds
        return self.privacy.n_rounds if what == STATISTICS else 1

    def mu_of(self, what: str) -> float:
        """Return μ of one release (one round) of `what`: μ √(share / rounds)."""
        if what not in self.shares:
            raise InputError(f"{what!r} is not released under this specification, only {', '.join(self.shares)}")
        return self.mu * math.sqrt(self.shares[what] / self.rounds_of(what))

    @property
    def noise_shares(self) -> int:
        """Clients whose noise together protects: 1 if each protects itself."""
        if self.privacy.noise == "client":
            return 1
        assert self.privacy.colluders is not None
        return self.n_clients - self.privacy.colluders - self.privacy.dropouts

    @property
    def distributed(self) -> bool:
        """Whether a release protects only as part of a secure sum."""
        return self.privacy.noise == "distributed"

    def check_answers(self, n_clients: int) -> None:
        """Raise if fewer clients answered than their shares of the noise were planned for."""
        privacy = self.privacy
        if self.distributed and n_clients < self.n_clients - privacy.dropouts:
            raise PrivacyError(
                f"{n_clients} of {self.n_clients} clients answered, but noise was planned for at most "
                f"{privacy.dropouts} missing; agree on more dropouts, or on noise='client'"
            )

    # -- sums over records -------------------------------------------------------------------------------------------

    def mechanism_for(self, what: str, statistic: RecordSum) -> DiscreteGaussian:
        """Return the mechanism by which a client releases a sum over records, σ = Δ/μ."""
        sensitivity = statistic.sensitivity_for(self.privacy.neighbours)
        return DiscreteGaussian(
            sensitivity / self.mu_of(what),
            sensitivity,
            self.unit,
            self.privacy.neighbours,
            shares=self.noise_shares,
        )

    def sigma_of_sum(self, what: str, statistic: RecordSum, *, n_answers: int | None = None) -> float:
        """Return the noise in the sum of the clients' releases, in units of the data rather than steps."""
        noise = self.mechanism_for(what, statistic).sigma_of_client * statistic.grid
        return noise * math.sqrt(self.n_clients if n_answers is None else n_answers)

    # -- uploads -----------------------------------------------------------------------------------------------------

    def upload_mechanism(self) -> ClippedGaussian | RandomizedResponse | PaperMechanism:
        """Return the mechanism by which a client uploads its components."""
        privacy = self.privacy
        if self.uploads is None:
            raise InputError(f"{privacy.mechanism!r} does not upload V")
        if privacy.mechanism == "paper":
            return self._as_in_the_paper()
        if self.uploads.boolean:
            bits = self.uploads.rounds * self.uploads.size
            return RandomizedResponse(calibrated_bits(privacy.epsilon, self.delta, bits), privacy.neighbours)
        assert privacy.theta is not None
        return ClippedGaussian(privacy.theta, self.mu_of(UPLOADS), privacy.neighbours, shares=self.noise_shares)

    def _as_in_the_paper(self) -> PaperMechanism:
        """Return the noise of one upload by the paper's formula for the ε and δ of that upload."""
        privacy, uploads = self.privacy, self.uploads
        assert uploads is not None
        if uploads.boolean:
            return PaperXor.of_epsilon(privacy.epsilon, privacy.neighbours)
        clip: Clip | None = None
        if privacy.theta is not None:
            clip = (FrobeniusClip if privacy.clip == "frobenius" else ElementwiseClip)(privacy.theta)
        if privacy.paper_noise == "laplace":
            return PaperLaplace(privacy.epsilon, clip, privacy.neighbours)
        return PaperGaussian(privacy.epsilon, self.delta_of_upload, clip, privacy.neighbours)

    @property
    def delta_of_upload(self) -> float:
        """δ in the paper's formula for one upload."""
        return PAPER_DELTA if self.privacy.delta is None else self.privacy.delta

    @property
    def total_epsilon(self) -> float:
        """ε of the whole run at `delta`: what was agreed, or what the paper's uploads really add up to."""
        if self.privacy.mechanism != "paper":
            return self.privacy.epsilon
        assert self.uploads is not None
        cost = self._as_in_the_paper().cost(self.uploads.size)
        return math.inf if cost is None else total_epsilon([cost] * self.uploads.rounds, self.delta)

    # -- the record of it --------------------------------------------------------------------------------------------

    def accountant(self, path: str | os.PathLike[str] | None = None) -> Accountant | None:
        """Open the accountant of one client; None where the paper's mechanism bounds nothing that could be added up."""
        total = self.total_epsilon
        if math.isinf(total):
            return None
        if self.privacy.mechanism == "paper":
            total *= 1 + SLACK
        return Accountant(total, self.delta, unit=self.unit, neighbours=self.privacy.neighbours, path=path)

    def statement(self, *, row_bound: float | None = None) -> str:
        """Say in words what is guaranteed to whom; `row_bound` is B where it was found privately."""
        return statement(self, row_bound=row_bound)


PAPER_DELTA = 0.05
"""δ of one upload in the paper's formula, unless another was given."""
