"""The privacy specification, from which the noise is calibrated.

`Privacy` is the specification; `Privacy.plan` makes a `PrivacyPlan` of it once the size of the federation is known.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import InputError, PrivacyError
from felb.privacy import MechanismName, Neighbours, NoisePlace, Unit
from felb.privacy.accounting import (
    CHOICE,
    COLUMNS,
    COOCCURRENCE,
    LARGEST_DELTA,
    SCORES,
    SIZES,
    STATISTICS,
    UPLOADS,
    Accountant,
    calibrated_bits,
    calibrated_mu,
    check_budget,
    public_size,
)
from felb.privacy.mechanisms import DiscreteGaussian, check_bound
from felb.privacy.releases import (
    ClippedGaussian,
    RandomizedResponse,
    StatisticsBounds,
    clipped_statistics,
    row_size_histogram,
    weighted_column_counts,
    weighted_cooccurrence,
)
from felb.records import check_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from felb.privacy.mechanisms import RecordSum
    from felb.privacy.releases import Uploads


LEAST_SITES, MOST_SITES = 3, 50
"""With two sites a sum tells each the other's value; the work of a site grows with their number."""


def threshold(n: int) -> int:
    """Return t, the smallest number above 2n/3: so many shares open a secret, so many signatures name survivors.

    Examples
    --------
    >>> [threshold(n) for n in (3, 4, 10)]
    [3, 3, 7]
    """
    return 2 * n // 3 + 1


def most_dropouts(n: int) -> int:
    """Return n − t, the most sites that a sum can do without."""
    return n - threshold(n)


def most_colluders(n: int) -> int:
    """Return the most sites that may collude with the server: fewer than the 2t − n that two sets of t share at least.

    A site signs one list of survivors. If all sites that two lists share were colluders, both could get t signatures.
    """
    return 2 * threshold(n) - n - 1


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

    def noise_scales(self, *, row_bound: float) -> list[dict[str, Any]]:
        """Return μ and σ of every release: of the noise that a client adds, and of the noise in the sum, in counts.

        A bound depends on no record, so it is read off the sum over no records. The bound of a choice or of scores
        depends on earlier releases; their σ is None. `row_bound` stands for B where the run finds it privately.
        """
        nobody, bound = BinaryMatrix.of(np.zeros((0, 1), dtype=bool)), float(self.privacy.row_bound or row_bound)
        bounded: dict[str, Callable[[], RecordSum]] = {
            SIZES: lambda: row_size_histogram(nobody),
            COLUMNS: lambda: weighted_column_counts(nobody, bound),
            COOCCURRENCE: lambda: weighted_cooccurrence(nobody, bound),
            STATISTICS: lambda: clipped_statistics(nobody, np.zeros((0, 1)), self.privacy.statistics_bounds),
        }
        found = []
        for what, share in self.shares.items():
            sigmas: tuple[float | None, float | None] = (None, None)
            if what in bounded:
                statistic = bounded[what]()
                sigma = self.mechanism_for(what, statistic).sigma_of_client * statistic.grid
                sigmas = (sigma, self.sigma_of_sum(what, statistic))
            row = {"release": what, "share": share, "rounds": self.rounds_of(what), "mu": self.mu_of(what)}
            found.append({**row, "sigma_client": sigmas[0], "sigma_sum": sigmas[1]})
        return found

    def upload_mechanism(self) -> ClippedGaussian | RandomizedResponse:
        """Return the mechanism by which a client uploads its components."""
        privacy = self.privacy
        if self.uploads is None:
            raise InputError(f"{privacy.mechanism!r} does not upload V")
        if self.uploads.boolean:
            bits = self.uploads.rounds * self.uploads.size
            return RandomizedResponse(calibrated_bits(privacy.epsilon, self.delta, bits), privacy.neighbours)
        assert privacy.theta is not None
        return ClippedGaussian(privacy.theta, self.mu_of(UPLOADS), privacy.neighbours, shares=self.noise_shares)

    def accountant(self) -> Accountant:
        """Return the accountant of one client."""
        privacy = self.privacy
        return Accountant(privacy.epsilon, self.delta, unit=self.unit, neighbours=privacy.neighbours)


WIDE = 2000
"""Beyond this many columns the heavy ones are found first, and only pairs of these are counted."""

LEAST_SHARES = 2
"""Clients that share noise; a single one adds all of it itself."""
DEFAULT_ROUNDS = {"statistics": 50, "hybrid": 3}


@dataclass(frozen=True, slots=True)
class Population:
    """How many take part in a run, as publicly known."""

    n_records: int
    n_clients: int


@dataclass(frozen=True, slots=True)
class Privacy:
    """The specification: how much of one record, or one client, a whole run may reveal.

    Parameters
    ----------
    epsilon : total ε of the run; smaller protects more, above 4 little is guaranteed
    delta : total δ; by default min(10⁻⁵, 1/(10 n)) for n records, n rounded down to one digit since δ is published, and
        never as much as 1/n
    unit : whose presence is hidden, a ``record`` or a whole ``client``; by default what the mechanism hides
    mechanism : what is released. For `FederatedBMF` and records: ``cooccurrence`` once, ``statistics`` in rounds,
        ``hybrid`` first one, then the other. For methods that upload components, and clients: ``uploads``. By default
        ``cooccurrence``, or ``uploads`` for clients
    noise : where enough noise for the whole guarantee is added: by each ``client`` on its own, so that the server need
        not be trusted, or ``distributed`` over the clients, each of which adds a share; the sum has enough, so that
        secure aggregation is needed
    neighbours : data sets that may not be told apart: one with a unit more (``add_remove``), or another (``replace``)
    row_bound : B, ones of a record that count in full for co-occurrence; by default the median, found privately
    norm_bound, data_bound, gram_weight : c, s and w of the statistics: ‖u_r‖ <= c, ‖a_r‖ <= s
    theta : bound on ‖V_i‖ of an upload of real numbers
    rounds : rounds of statistics, or uploads per client (by default as many as the method plays at most)
    score_share : share of the budget for noisy scores at the end; by default there are none
    score_bound : how many cells of a record count in full for them; by default 2B, or s² where there is no B
    colluders, dropouts : with distributed noise, clients that may collude with the server (1 by default, and at least),
        and clients that may be missing in a sum; the others add enough noise

    Examples
    --------
    >>> Privacy(1.0).mechanism
    'cooccurrence'
    """

    epsilon: float
    delta: float | None = None
    _: KW_ONLY
    unit: Unit | None = None
    mechanism: MechanismName | None = None
    noise: NoisePlace = "client"
    neighbours: Neighbours = "add_remove"
    row_bound: int | None = None
    norm_bound: float = 1.0
    data_bound: float = 5.0
    gram_weight: float = 1.0
    theta: float | None = None
    rounds: int | None = None
    colluders: int | None = None
    dropouts: int = 0
    score_share: float | None = None
    score_bound: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_budget(self.epsilon, LARGEST_DELTA if self.delta is None else self.delta)
        if self.mechanism is None:
            object.__setattr__(self, "mechanism", "uploads" if self.unit == "client" else "cooccurrence")
        if self.unit is None:
            object.__setattr__(self, "unit", "client" if self.mechanism == "uploads" else "record")
        if str(self.mechanism) == "paper":
            raise InputError(
                "mechanism='paper' guarantees nothing in total and is not part of felb: the package felb-paper has "
                "the noise of the paper and its experiment (felb experiment run privacy)",
                parameter="mechanism",
            )
        choices = {"unit": Unit, "mechanism": MechanismName, "noise": NoisePlace, "neighbours": Neighbours}
        for name, allowed in choices.items():
            if getattr(self, name) not in get_args(allowed):
                value = getattr(self, name)
                raise InputError(f"{name} must be one of {', '.join(get_args(allowed))}, got {value!r}", parameter=name)
        self._check_bounds()
        self._check_scores()
        self._check_rounds()
        if self.colluders is None:
            object.__setattr__(self, "colluders", 1 if self.noise == "distributed" else 0)
        assert self.colluders is not None
        if min(self.colluders, self.dropouts) < 0:
            raise InputError("colluders and dropouts must be numbers of clients, at least 0")
        if self.noise == "distributed" and self.colluders < 1:
            raise InputError(
                "with distributed noise, colluders must be at least 1: one client could reveal its share to the server",
                parameter="colluders",
            )
        if self.noise == "client" and (self.colluders or self.dropouts):
            raise InputError("colluders and dropouts must be 0 unless noise='distributed'", parameter="noise")

    def _check_bounds(self) -> None:
        if (self.unit == "client") != (self.mechanism == "uploads"):
            raise InputError(
                f"mechanism={self.mechanism!r} does not protect unit={self.unit!r}: 'uploads' protects a client, the "
                "other mechanisms a record",
                parameter="unit",
            )
        if self.theta is not None:
            check_bound("theta", self.theta)
            if self.mechanism != "uploads":
                raise InputError(f"theta bounds uploads; mechanism={self.mechanism!r} has none")
        if self.row_bound is not None:
            check_bound("row_bound", self.row_bound)
            if self.mechanism not in ("cooccurrence", "hybrid"):
                raise InputError(f"row_bound bounds co-occurrence; mechanism={self.mechanism!r} does not release it")
        _ = self.statistics_bounds

    def _check_scores(self) -> None:
        if self.score_share is None:
            if self.score_bound is not None:
                raise InputError("score_bound needs score_share, for example 0.02")
            return
        if not 0 < self.score_share < 0.5:
            raise InputError(f"score_share must lie between 0 and ½, got {self.score_share}; for example 0.02")
        if self.mechanism == "uploads":
            raise InputError(
                "score_share is not supported for unit='client', because the scores of a client have no bound"
            )
        if self.score_bound is not None:
            check_bound("score_bound", self.score_bound)

    def _check_rounds(self) -> None:
        if self.rounds is not None and self.rounds < 1:
            raise InputError(f"rounds must be at least 1, got {self.rounds}")
        if self.mechanism == "cooccurrence" and self.rounds is not None:
            raise InputError("mechanism='cooccurrence' has one release; omit rounds, or use 'statistics' or 'hybrid'")

    @property
    def statistics_bounds(self) -> StatisticsBounds:
        """The bounds c, s, w of a round of statistics."""
        return StatisticsBounds(self.norm_bound, self.data_bound, self.gram_weight)

    @property
    def n_rounds(self) -> int:
        """Rounds of statistics or uploads; 0 where there are none."""
        return self.rounds or DEFAULT_ROUNDS.get(str(self.mechanism), 0)

    def delta_for(self, n_units: int) -> float:
        """Return δ for n records (or clients), or raise if it were large enough to expose one of them outright."""
        if n_units < 1:
            raise InputError(f"the number of {self.unit}s must be at least 1, got {n_units}")
        if self.delta is None:
            known = public_size(n_units) if self.unit == "record" else n_units
            return min(LARGEST_DELTA, 1 / (10 * known))
        if self.delta >= 1 / n_units:
            raise InputError(
                f"delta={self.delta:g} must be below 1/{n_units}: otherwise a {self.unit} could be published as it is. "
                f"Omit it, or use at most {1 / (10 * n_units):.2g}",
                parameter="delta",
            )
        return self.delta

    def plan(self, *, n_records: int, n_clients: int, n_columns: int, uploads: Uploads | None = None) -> PrivacyPlan:
        """Calibrate the noise for a federation.

        Parameters
        ----------
        n_records : records in all, as publicly known; a lower bound is safe
        n_clients : clients that take part
        n_columns : features
        uploads : what the method's clients upload, for methods that do
        """
        self._check_method(uploads)
        if n_columns < 1:
            raise InputError(f"n_columns must be at least 1, got {n_columns}")
        if self.noise == "distributed":
            self._check_shares(n_clients)
        delta = self.delta_for(n_records if self.unit == "record" else n_clients)
        return PrivacyPlan(
            privacy=self,
            delta=delta,
            mu=calibrated_mu(self.epsilon, delta),
            shares=_shares(self, n_columns),
            n_clients=n_clients,
            uploads=None if uploads is None else replace(uploads, rounds=self.rounds or uploads.rounds),
        )

    def _check_shares(self, n_clients: int) -> None:
        """Raise if too few clients would share the noise, or more collude or are missing than a secure sum allows."""
        assert self.colluders is not None
        if n_clients - self.colluders - self.dropouts < LEAST_SHARES:
            raise InputError(
                f"colluders={self.colluders} and dropouts={self.dropouts} must leave at least {LEAST_SHARES} of "
                f"{n_clients} clients that add noise; use noise='client'",
                parameter="noise",
            )
        for name, most in (("colluders", most_colluders(n_clients)), ("dropouts", most_dropouts(n_clients))):
            if getattr(self, name) > most:
                raise InputError(
                    f"{name}={getattr(self, name)} are more than a secure sum of {n_clients} clients allows, {most}",
                    parameter=name,
                )

    def _check_method(self, uploads: Uploads | None) -> None:
        """Raise if the mechanism does not fit the releases of the method."""
        if uploads is None:
            if self.mechanism == "uploads":
                raise InputError(
                    f"mechanism={self.mechanism!r} needs a method whose clients upload components (FELB, FELBMU, "
                    "PostHoc); this method sums over records: use 'cooccurrence', 'statistics' or 'hybrid'",
                    parameter="mechanism",
                )
            return
        if self.mechanism != "uploads":
            raise InputError(
                f"mechanism={self.mechanism!r} needs a method that sums over records (FederatedBMF); this method "
                "uploads components: use 'uploads', which protects a client",
                parameter="mechanism",
            )
        if uploads.boolean and self.rounds not in (None, uploads.rounds):
            raise InputError(
                f"rounds must be {uploads.rounds}, the number of uploads of this method; got {self.rounds}"
            )
        if uploads.boolean and self.noise == "distributed":
            raise InputError("Boolean uploads get their noise at each client; set noise='client'", parameter="noise")
        if not uploads.boolean and self.theta is None:
            raise InputError("real-valued uploads need theta, the bound on their length")


def read_privacy(terms: Mapping[str, Any]) -> Privacy:
    """Return the privacy specification of these keywords, or raise an error that names the wrong one."""
    known = [entry.name for entry in fields(Privacy)]
    unknown = sorted(set(terms) - set(known))
    if unknown:
        raise InputError(f"a privacy specification has no {unknown[0]!r}; it has {', '.join(known)}")
    if "epsilon" not in terms:
        raise InputError("a privacy specification needs epsilon, how much a run may reveal in all; 1 is a good start")
    try:
        return Privacy(**terms)
    except TypeError as error:  # a word where a number belongs
        raise InputError(f"the privacy specification is not understood ({error}); check its values") from error


def _shares(privacy: Privacy, n_columns: int) -> Mapping[str, float]:
    """Return the share of μ² of each release; a release in rounds has one share for all of them."""
    if privacy.mechanism == "uploads":
        return {UPLOADS: 1.0}
    shares = {STATISTICS: 1.0} if privacy.mechanism == "statistics" else _cooccurrence_shares(privacy, n_columns)
    if privacy.score_share is None:
        return shares
    return {what: share * (1 - privacy.score_share) for what, share in shares.items()} | {SCORES: privacy.score_share}


def _cooccurrence_shares(privacy: Privacy, n_columns: int) -> dict[str, float]:
    shares = {SIZES: 0.01, COOCCURRENCE: 0.95, CHOICE: 0.04}
    if n_columns > WIDE:
        shares = {SIZES: 0.01, COLUMNS: 0.29, COOCCURRENCE: 0.65, CHOICE: 0.05}
    if privacy.mechanism == "hybrid":
        shares[STATISTICS] = 0.15
        shares[COOCCURRENCE] -= 0.15
    if privacy.row_bound is not None:
        shares[COOCCURRENCE] += shares.pop(SIZES)
    return shares
