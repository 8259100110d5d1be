"""What was agreed about privacy, the noise that follows from it, and the statement that says so.

`Privacy` is the agreement; `Privacy.plan` makes a `PrivacyPlan` of it once the size of the federation is known.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, get_args

from felb.errors import InputError
from felb.privacy.bounds import RecordSum, check_bound
from felb.privacy.cost import Neighbours, Unit
from felb.privacy.discrete import DiscreteGaussian
from felb.privacy.ledger import Ledger, calibrated_mu, check_budget
from felb.privacy.paper import FrobeniusClip, PaperGaussian
from felb.privacy.statement import statement
from felb.privacy.statistics import StatisticsBounds

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

MechanismName = Literal["cooccurrence", "statistics", "hybrid", "paper"]
NoisePlace = Literal["client", "aggregate"]

WIDE = 2000
"""Beyond this many columns the heavy ones are found first, and only pairs of these are counted."""

LARGEST_DELTA = 1e-5
DEFAULT_ROUNDS = {"statistics": 50, "hybrid": 3}

SIZES, COLUMNS, COOCCURRENCE, STATISTICS, CHOICE, UPLOADS = (
    "sizes",
    "columns",
    "cooccurrence",
    "statistics",
    "choice",
    "V",
)
"""Names of the releases, as in the outbound log."""


@dataclass(frozen=True, slots=True)
class Privacy:
    """The agreement: how much of one record, or one client, a whole run may reveal.

    Parameters
    ----------
    epsilon : total ε of the run; smaller protects more, above 4 little is promised
    delta : total δ; by default min(10⁻⁵, 1/(10 n)) for n records, and never as much as 1/n
    unit : whose presence is hidden, a ``record`` or, with the paper's mechanism only, a whole ``client``
    mechanism : what is released: ``cooccurrence`` once, ``statistics`` in rounds, ``hybrid`` first one, then the
        other, or, to reproduce the paper, clipped V_i with its noise (``paper``)
    noise : where enough noise for the whole promise is added: by each ``client`` on its own, so that the server need
        not be trusted, or only in the ``aggregate``, to which each client adds a share
    neighbours : data sets that may not be told apart: one with a unit more (``add_remove``), or another (``replace``)
    row_bound : B, ones of a record that count in full for co-occurrence; by default the median, found privately
    norm_bound, data_bound, gram_weight : c, s and w of the statistics: ‖u_r‖ <= c, ‖a_r‖ <= s
    theta : bound on ‖V_i‖ of the paper's mechanism
    rounds : uploads per client where there are rounds
    colluders, dropouts : clients that may reveal or fail to add their share of the noise in the aggregate

    Examples
    --------
    >>> Privacy(1.0).mechanism
    'cooccurrence'
    """

    epsilon: float
    delta: float | None = None
    _: KW_ONLY
    unit: Unit = "record"
    mechanism: MechanismName = "cooccurrence"
    noise: NoisePlace = "client"
    neighbours: Neighbours = "add_remove"
    row_bound: int | None = None
    norm_bound: float = 1.0
    data_bound: float = 5.0
    gram_weight: float = 1.0
    theta: float | None = None
    rounds: int | None = None
    colluders: int = 0
    dropouts: int = 0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, LARGEST_DELTA if self.delta is None else self.delta)
        choices = {"unit": Unit, "mechanism": MechanismName, "noise": NoisePlace, "neighbours": Neighbours}
        for name, allowed in choices.items():
            if getattr(self, name) not in get_args(allowed):
                raise InputError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(get_args(allowed))}")
        self._check_bounds()
        self._check_rounds()
        if min(self.colluders, self.dropouts) < 0:
            raise InputError("colluders and dropouts are numbers of clients, 0 or more")
        if self.noise == "client" and (self.colluders or self.dropouts):
            raise InputError("colluders and dropouts matter only with noise='aggregate': alone, each client is safe")

    def _check_bounds(self) -> None:
        if (self.unit == "client") != (self.mechanism == "paper"):
            raise InputError(
                f"mechanism={self.mechanism!r} does not protect a {self.unit}: the paper's mechanism hides a client, "
                "all others a record"
            )
        if self.mechanism == "paper":
            if self.theta is None:
                raise InputError("the paper's mechanism needs theta, the bound on each upload; without it none is safe")
            if self.noise == "aggregate":
                raise InputError("the paper's mechanism adds its noise at each client; choose noise='client'")
            check_bound("theta", self.theta)
        elif self.theta is not None:
            raise InputError(f"theta bounds the uploads of the paper's mechanism, not of {self.mechanism!r}")
        if self.row_bound is not None:
            check_bound("row_bound", self.row_bound)
            if self.mechanism in ("statistics", "paper"):
                raise InputError(f"row_bound bounds co-occurrence, which {self.mechanism!r} does not release")
        _ = self.statistics_bounds

    def _check_rounds(self) -> None:
        if self.rounds is not None and self.rounds < 1:
            raise InputError(f"a run has at least one round, got rounds={self.rounds}")
        if self.mechanism == "cooccurrence" and self.rounds is not None:
            raise InputError("co-occurrence is released once; leave out rounds, or choose statistics or hybrid")
        if self.mechanism == "paper" and self.rounds is None:
            raise InputError("the paper's mechanism needs rounds: every upload costs, and the total depends on it")

    @property
    def statistics_bounds(self) -> StatisticsBounds:
        """The bounds c, s, w of a round of statistics."""
        return StatisticsBounds(self.norm_bound, self.data_bound, self.gram_weight)

    @property
    def n_rounds(self) -> int:
        """Rounds of statistics or uploads; 0 where there are none."""
        return self.rounds or DEFAULT_ROUNDS.get(self.mechanism, 0)

    def delta_for(self, n_records: int) -> float:
        """Return δ for n records, or raise if it were large enough to expose one of them outright."""
        if n_records < 1:
            raise InputError(f"privacy needs at least one record, got {n_records}")
        if self.delta is None:
            return min(LARGEST_DELTA, 1 / (10 * n_records))
        if self.delta >= 1 / n_records:
            raise InputError(
                f"delta={self.delta:g} is not below 1/{n_records}: it would allow to publish a record as it is. "
                f"Leave it out, or take at most {1 / (10 * n_records):.2g}"
            )
        return self.delta

    def plan(self, *, n_records: int, n_clients: int, n_columns: int) -> PrivacyPlan:
        """Calibrate the noise for a federation.

        Parameters
        ----------
        n_records : records in all, as publicly known; a lower bound is safe
        n_clients : clients that take part
        n_columns : features
        """
        if n_columns < 1:
            raise InputError(f"data has at least one column, got {n_columns}")
        honest = n_clients - self.colluders - self.dropouts
        if honest < 1:
            raise InputError(
                f"of {n_clients} clients, {self.colluders} colluders and {self.dropouts} dropouts leave nobody whose "
                "noise could protect"
            )
        delta = self.delta_for(n_records)
        return PrivacyPlan(
            privacy=self,
            delta=delta,
            mu=calibrated_mu(self.epsilon, delta),
            shares=_shares(self, n_columns),
            n_clients=n_clients,
        )


def _shares(privacy: Privacy, n_columns: int) -> Mapping[str, float]:
    """Return the share of μ² of each release; a release in rounds has one share for all of them."""
    if privacy.mechanism == "paper":
        return {UPLOADS: 1.0}
    if privacy.mechanism == "statistics":
        return {STATISTICS: 1.0}
    shares = {SIZES: 0.01, COOCCURRENCE: 0.95, CHOICE: 0.04}
    if n_columns > WIDE:
        shares = {SIZES: 0.01, COLUMNS: 0.29, COOCCURRENCE: 0.65, CHOICE: 0.05}
    if privacy.mechanism == "hybrid":
        shares[STATISTICS] = 0.15
        shares[COOCCURRENCE] -= 0.15
    if privacy.row_bound is not None:
        shares[COOCCURRENCE] += shares.pop(SIZES)
    return shares


@dataclass(frozen=True, slots=True)
class PrivacyPlan:
    """An agreement with its noise calibrated.

    Parameters
    ----------
    privacy : the agreement
    delta, mu : total δ, and the total μ of Gaussian noise that (ε, δ) allows
    shares : share of μ² of each release by name; they add up to 1
    n_clients : clients that take part
    """

    privacy: Privacy
    delta: float
    mu: float
    shares: Mapping[str, float]
    n_clients: int

    def mu_of(self, what: str) -> float:
        """Return μ of one release (one round) of `what`: μ √(share / rounds)."""
        if what not in self.shares:
            raise InputError(f"{what!r} is not released under this agreement, only {', '.join(self.shares)}")
        rounds = self.privacy.n_rounds if what in (STATISTICS, UPLOADS) else 1
        return self.mu * math.sqrt(self.shares[what] / rounds)

    @property
    def noise_shares(self) -> int:
        """Clients whose noise together protects: 1 if each protects itself."""
        if self.privacy.noise == "client":
            return 1
        return self.n_clients - self.privacy.colluders - self.privacy.dropouts

    def mechanism_for(self, what: str, statistic: RecordSum) -> DiscreteGaussian:
        """Return the mechanism by which a client releases a statistic, σ = Δ/μ."""
        sensitivity = statistic.sensitivity_for(self.privacy.neighbours)
        return DiscreteGaussian(
            sensitivity / self.mu_of(what),
            sensitivity,
            self.privacy.unit,
            self.privacy.neighbours,
            shares=self.noise_shares,
        )

    def sigma_of_sum(self, what: str, statistic: RecordSum, *, n_answers: int | None = None) -> float:
        """Return the noise in the sum of the clients' releases, in units of the data rather than steps."""
        noise = self.mechanism_for(what, statistic).sigma_of_client * statistic.grid
        return noise * math.sqrt(self.n_clients if n_answers is None else n_answers)

    def upload_mechanism(self) -> PaperGaussian:
        """Return the paper's Gaussian mechanism, its ε per upload such that all rounds together keep the total."""
        if self.privacy.theta is None:
            raise InputError(f"{self.privacy.mechanism!r} does not upload V")
        per_upload = self.mu_of(UPLOADS) * math.sqrt(2 * math.log(1.25 / self.delta))
        return PaperGaussian(
            per_upload, self.delta, clip=FrobeniusClip(self.privacy.theta), neighbours=self.privacy.neighbours
        )

    def ledger(self, path: str | os.PathLike[str] | None = None) -> Ledger:
        """Open the ledger of one client for this agreement."""
        privacy = self.privacy
        return Ledger(privacy.epsilon, self.delta, unit=privacy.unit, neighbours=privacy.neighbours, path=path)

    def statement(self, *, row_bound: float | None = None) -> str:
        """Say in words what is promised to whom; `row_bound` is B where it was found privately."""
        return statement(self, row_bound=row_bound)
