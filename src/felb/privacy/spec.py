"""The privacy specification, from which the noise is calibrated.

`Privacy` is the specification; `Privacy.plan` makes a `PrivacyPlan` of it once the size of the federation is known.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from felb.choices import MechanismName, NoisePlace
from felb.errors import InputError
from felb.privacy.accountant import calibrated_mu, check_budget
from felb.privacy.bounds import check_bound
from felb.privacy.cost import Neighbours, Unit
from felb.privacy.names import CHOICE, COLUMNS, COOCCURRENCE, SCORES, SIZES, STATISTICS, UPLOADS
from felb.privacy.plan import PrivacyPlan
from felb.privacy.quorum import most_colluders, most_dropouts
from felb.privacy.statistics import StatisticsBounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.privacy.private_uploads import Uploads

PaperNoise = Literal["gaussian", "laplace", "xor"]
ClipName = Literal["frobenius", "elementwise"]

UPLOADING = ("uploads", "paper")
"""Mechanisms for methods whose clients upload their own components; all others release sums over records."""

WIDE = 2000
"""Beyond this many columns the heavy ones are found first, and only pairs of these are counted."""

LARGEST_DELTA = 1e-5
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
        ``hybrid`` first one, then the other. For methods that upload components, and clients: ``uploads``. To
        reproduce the paper: ``paper``, for which ε and δ (0.05 by default) are those of a single upload by its
        formula, so that nothing is guaranteed in total. By default ``cooccurrence``, or ``uploads`` for clients
    noise : where enough noise for the whole guarantee is added: by each ``client`` on its own, so that the server need
        not be trusted, or ``distributed`` over the clients, each of which adds a share; the sum has enough, so that
        secure aggregation is needed
    neighbours : data sets that may not be told apart: one with a unit more (``add_remove``), or another (``replace``)
    row_bound : B, ones of a record that count in full for co-occurrence; by default the median, found privately
    norm_bound, data_bound, gram_weight : c, s and w of the statistics: ‖u_r‖ <= c, ‖a_r‖ <= s
    theta : bound on ‖V_i‖ of an upload of real numbers; ``paper`` goes without, and then bounds nothing
    rounds : rounds of statistics, or uploads per client (by default as many as the method plays at most)
    score_share : share of the budget for noisy scores at the end; by default there are none
    score_bound : how many cells of a record count in full for them; by default 2B, or s² where there is no B
    paper_noise, clip : with ``paper``: ``gaussian`` or ``laplace`` noise, or ``xor`` for Boolean uploads; clip whole
        uploads (``frobenius``) or their entries (``elementwise``) to θ
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
    paper_noise: PaperNoise | None = None
    clip: ClipName = "frobenius"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, LARGEST_DELTA if self.delta is None else self.delta)
        if self.mechanism is None:
            object.__setattr__(self, "mechanism", "uploads" if self.unit == "client" else "cooccurrence")
        if self.unit is None:
            object.__setattr__(self, "unit", "client" if self.mechanism in UPLOADING else "record")
        choices = {
            "unit": Unit,
            "mechanism": MechanismName,
            "noise": NoisePlace,
            "neighbours": Neighbours,
            "clip": ClipName,
        }
        if self.paper_noise is not None:
            choices["paper_noise"] = PaperNoise
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
        if (self.unit == "client") != (self.mechanism in UPLOADING):
            raise InputError(
                f"mechanism={self.mechanism!r} does not protect unit={self.unit!r}: 'uploads' and 'paper' protect a "
                "client, the other mechanisms a record",
                parameter="unit",
            )
        if self.mechanism != "paper" and (self.paper_noise is not None or self.clip != "frobenius"):
            raise InputError(f"paper_noise and clip are for mechanism='paper', not {self.mechanism!r}")
        if self.mechanism == "paper" and self.noise == "distributed":
            raise InputError("mechanism='paper' adds its noise at each client; set noise='client'", parameter="noise")
        if self.theta is not None:
            check_bound("theta", self.theta)
            if self.mechanism not in UPLOADING:
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
        if self.mechanism in UPLOADING:
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
        if self.delta is None or self.mechanism == "paper":
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
            if self.mechanism in UPLOADING:
                raise InputError(
                    f"mechanism={self.mechanism!r} needs a method whose clients upload components (FELB, FELBMU, "
                    "PostHoc); this method sums over records: use 'cooccurrence', 'statistics' or 'hybrid'",
                    parameter="mechanism",
                )
            return
        if self.mechanism not in UPLOADING:
            raise InputError(
                f"mechanism={self.mechanism!r} needs a method that sums over records (FederatedBMF); this method "
                "uploads components: use 'uploads' (protects a client) or 'paper' (reproduction)",
                parameter="mechanism",
            )
        if uploads.boolean and self.rounds not in (None, uploads.rounds):
            raise InputError(
                f"rounds must be {uploads.rounds}, the number of uploads of this method; got {self.rounds}"
            )
        if self.mechanism == "uploads":
            if uploads.boolean and self.noise == "distributed":
                raise InputError(
                    "Boolean uploads get their noise at each client; set noise='client'", parameter="noise"
                )
            if not uploads.boolean and self.theta is None:
                raise InputError("real-valued uploads need theta, the bound on their length")
        elif self.paper_noise is not None and (self.paper_noise == "xor") != uploads.boolean:
            kind = "Boolean: take paper_noise='xor'" if uploads.boolean else "real: take 'gaussian' or 'laplace'"
            raise InputError(f"paper_noise={self.paper_noise!r} does not fit this method, whose uploads are {kind}")


def public_size(n: int) -> int:
    """Round a number of records down to its first digit, as it may enter what is published.

    δ, and with it every σ, is published. One that followed from the exact number would tell data sets apart that differ
    in one record. More than half of the records are still counted, so that 1/(10 n) stays well below 1/n.

    Examples
    --------
    >>> public_size(20001), public_size(20000), public_size(987)
    (20000, 20000, 900)
    """
    digits = str(n)
    return int(digits[0].ljust(len(digits), "0"))


def _shares(privacy: Privacy, n_columns: int) -> Mapping[str, float]:
    """Return the share of μ² of each release; a release in rounds has one share for all of them."""
    if privacy.mechanism in UPLOADING:
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
