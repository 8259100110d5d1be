"""Privacy costs, and the accountant that composes them and refuses a release beyond the budget.

The only module that accounts, by the privacy loss distributions of dp-accounting. The closed form for Gaussian noise,
`gaussian_delta`, is here to check it against and as a starting point.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from felb.errors import InputError, PrivacyError, missing_extra
from felb.privacy import Neighbours as Neighbours
from felb.privacy import Unit as Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


SIZES, COLUMNS, COOCCURRENCE, STATISTICS, CHOICE, SCORES, UPLOADS = (
    "sizes",
    "columns",
    "cooccurrence",
    "statistics",
    "choice",
    "scores",
    "V",
)
"""What is charged, by the names of releases in the outbound log."""

LARGEST_DELTA = 1e-5
"""Where none is given: δ is at most this, and less for many records."""

Kind = Literal["gaussian", "laplace", "bits"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The privacy one release spends.

    Parameters
    ----------
    kind : the noise; it decides what `loss` means
        ``gaussian``: μ = Δ₂/σ of Gaussian differential privacy;
        ``laplace``: ε = Δ₁/b;
        ``bits``: ε₀ = ln((1−p)/p) of each of `count` bits flipped with probability p
    loss : positive number
    unit, neighbours : whom the release protects, and against which change of the data
    count : independent parts of the release that each cost `loss`
    """

    kind: Kind
    loss: float
    unit: Unit
    neighbours: Neighbours = "add_remove"
    count: int = 1

    def __post_init__(self) -> None:
        for name, allowed in (("kind", Kind), ("unit", Unit), ("neighbours", Neighbours)):
            if getattr(self, name) not in get_args(allowed):
                raise InputError(f"{name}={getattr(self, name)!r}: choose one of {', '.join(get_args(allowed))}")
        if isinstance(self.loss, bool) or not isinstance(self.loss, int | float):
            raise InputError(f"loss must be a number, got {type(self.loss).__name__}")
        if type(self.count) is not int:
            raise InputError(f"count must be a whole number, got {type(self.count).__name__}")
        if not (math.isfinite(self.loss) and self.loss > 0):
            raise InputError(f"a release costs a positive, finite amount, got {self.loss}; None means unprotected")
        if self.count < 1:
            raise InputError(f"a release has at least one part, got count={self.count}")

    @property
    def pure_epsilon(self) -> float:
        """ε of pure differential privacy (δ = 0) by adding up; infinite for Gaussian noise, which offers none."""
        return math.inf if self.kind == "gaussian" else self.count * self.loss

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `from_json` reads them."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Cost:
        """Read back what `to_json` gave."""
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"{values} does not describe the cost of a release: {error}") from error


INTERVAL = 1e-4
"""Privacy losses are rounded up to multiples of this, or of more where the losses would need too many of them."""

MAX_STEPS = 1 << 17
"""Multiples of the interval that a distribution of losses may take."""

MAX_BITS_EPSILON = 500.0
"""Randomized response beyond this pure ε is not composed finely: its ε is simply added."""

LOG_TRUNCATED = -60.0
"""Outcomes of randomized response rarer than e^this are counted as if they revealed everything."""

LARGEST_EPSILON = 1e6
"""Of a guarantee; beyond it nothing is guaranteed, and e^ε is no number."""

MOST_BITS = 10**8
"""Bits of randomized response beyond this many are not composed finely either: what a plan says must not fill memory
before anybody has approved it."""

SLACK = 1e-6
"""Relative distance kept from the agreed ε when noise is calibrated, so that rounding never looks like overspending."""


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), exactly, for Gaussian noise with μ = Δ₂/σ (Balle and Wang, 2018)."""
    from scipy.special import log_ndtr, ndtr

    if mu <= 0:
        return 0.0
    return max(0.0, float(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the ε with δ(ε) = `delta`, or 0 if even δ(0) is smaller."""
    from scipy.optimize import brentq

    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    upper = 1.0
    while gaussian_delta(mu, upper) > delta:
        upper *= 2
    return float(brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, upper, xtol=1e-12))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ with δ(ε) <= `delta`: the inverse of `gaussian_epsilon`."""
    from scipy.optimize import brentq

    check_budget(epsilon, delta)
    upper = 1.0
    while gaussian_delta(upper, epsilon) < delta:
        upper *= 2
    return float(brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 0.0, upper, xtol=1e-14))


def check_budget(epsilon: float, delta: float) -> None:
    """Raise unless 0 < ε <= `LARGEST_EPSILON` and 0 < δ < 1."""
    if not 0 < epsilon <= LARGEST_EPSILON:
        raise InputError(
            f"epsilon must be positive and finite, at most {LARGEST_EPSILON:g}, got {epsilon}; smaller protects more, "
            "1 is a good start"
        )
    if not 0 < delta < 1:
        raise InputError(f"delta must lie between 0 and 1, got {delta}; take less than one in the number of records")


def total_epsilon(costs: Iterable[Cost], delta: float) -> float:
    """Return the ε of all `costs` together at a total δ, by composing their privacy loss distributions."""
    squares, simple = 0.0, 0.0
    laplace: Counter[float] = Counter()
    bits: Counter[float] = Counter()
    for cost in costs:
        if cost.kind == "gaussian":
            squares += cost.count * cost.loss**2  # Gaussian noises of μ₁, μ₂ … are together one of √Σμ²
        elif cost.pure_epsilon > MAX_BITS_EPSILON:
            simple += cost.pure_epsilon
        else:
            (laplace if cost.kind == "laplace" else bits)[cost.loss] += cost.count
    for loss, count in list(bits.items()):
        if count > MOST_BITS:
            simple += bits.pop(loss) * loss
    several = tuple(sorted(laplace.items())), tuple(sorted(bits.items()))
    return simple + _composed_epsilon(math.sqrt(squares), *several, delta)


def calibrated_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ that the accountant lets Gaussian releases spend in total for (ε, δ), up to `SLACK`."""
    mu = gaussian_mu(epsilon, delta)
    for _ in range(60):
        spent = total_epsilon([Cost("gaussian", mu, "record")], delta)
        if spent <= epsilon * (1 - SLACK):
            return mu
        mu *= min(1 - SLACK, epsilon / spent)
    raise PrivacyError(f"no noise could be calibrated for epsilon={epsilon}, delta={delta}")


@lru_cache(maxsize=256)
def _composed_epsilon(
    mu: float, laplace: tuple[tuple[float, int], ...], bits: tuple[tuple[float, int], ...], delta: float
) -> float:
    if not (mu or laplace or bits):
        return 0.0
    accountant = _accountant()
    pure = sum(loss * count for loss, count in laplace + bits)
    interval = max(INTERVAL, (mu * mu / 2 + 12 * mu + pure) / MAX_STEPS)
    parts = []
    if mu:
        parts.append(accountant.from_gaussian_mechanism(1 / mu, value_discretization_interval=interval))
    for loss, count in laplace:
        # A Laplace shift by Δ₁ in one entry is easier to see than the same shift spread over many entries.
        part = accountant.from_laplace_mechanism(1 / loss, value_discretization_interval=interval)
        parts.append(part.self_compose(count) if count > 1 else part)
    for loss, count in bits:
        # At worst all bits differ, and then how many were flipped says everything; so it is rounded once, not per bit.
        likely, unlikely = _flipped(count, loss)
        parts.append(
            accountant.from_two_probability_mass_functions(
                unlikely, likely, value_discretization_interval=interval, log_mass_truncation_bound=LOG_TRUNCATED
            )
        )
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return float(whole.get_epsilon_for_delta(delta))


def _flipped(count: int, loss: float) -> tuple[dict[int, float], dict[int, float]]:
    """Return log P(j of `count` bits flipped) at p = 1/(1 + e^loss), and that of the client with the opposite bits.

    Only the j within √(30 count) of the mean are told apart. By Hoeffding's inequality the others together have a
    probability of at most 2 e^-60; they stand as one outcome, −1, that the other client never has.
    """
    from scipy.stats import binom

    p = 1 / (1 + math.exp(loss))
    mean, width = count * p, math.sqrt(-LOG_TRUNCATED / 2 * count)
    flips = np.arange(max(0, math.floor(mean - width)), min(count, math.ceil(mean + width)) + 1)
    likely = dict(zip(flips.tolist(), binom.logpmf(flips, count, p).tolist(), strict=True))
    unlikely = dict(zip(flips.tolist(), binom.logpmf(count - flips, count, p).tolist(), strict=True))
    if len(flips) <= count:
        likely[-1] = math.log(2) + LOG_TRUNCATED
    return likely, unlikely


def calibrated_bits(epsilon: float, delta: float, count: int) -> float:
    """Return the largest ε₀ per bit for which `count` bits together cost at most ε at δ, up to `SLACK`."""
    check_budget(epsilon, delta)

    def spent(loss: float) -> float:
        return total_epsilon([Cost("bits", loss, "client", count=count)], delta)

    # Each bit is worth a Gaussian release of about μ = ε₀; ε/count is always enough.
    low, high = epsilon / count * (1 - SLACK), max(epsilon / count, 2 * gaussian_mu(epsilon, delta) / math.sqrt(count))
    for _ in range(25):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) <= epsilon * (1 - SLACK) else (low, middle)
    return low


def _accountant() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        missing_extra("privacy accounting", "privacy", error)
    return privacy_loss_distribution


@dataclass(frozen=True, slots=True)
class Charge:
    """A release and its cost: which run, round and value, and a digest of what leaves."""

    run: str
    round: int
    what: str
    digest: str
    cost: Cost

    @classmethod
    def of(cls, run: str, number: int, what: str, value: NDArray[Any], cost: Cost | None) -> Charge:
        """Return the charge for a value as it would leave; raises if it is unprotected (a cost of None)."""
        if cost is None:
            raise PrivacyError(
                f"{what} of round {number} is not protected and may not leave under a privacy budget; nothing was "
                "sent. Release it by a mechanism, or not at all"
            )
        array = np.ascontiguousarray(value)
        digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
        return cls(run, number, what, digest.hexdigest(), cost)


class Accountant:
    """Keeps the total of everything charged within (ε, δ).

    A release is charged before it leaves. Sending the very same bits of a (run, round, what) again tells nothing new
    and is not charged again; other bits under the same key are a second look at the data and are.

    Parameters
    ----------
    epsilon, delta : the agreed total
    unit, neighbours : whom it protects; costs that speak of another unit or relation are refused

    Examples
    --------
    >>> import numpy as np
    >>> accountant = Accountant(1.0, 1e-5)
    >>> accountant.charge(Charge.of("run", 0, "sizes", np.zeros(3), Cost("gaussian", 0.1, "record")))
    >>> accountant.mu
    0.1
    """

    def __init__(
        self, epsilon: float, delta: float, *, unit: Unit = "record", neighbours: Neighbours = "add_remove"
    ) -> None:
        check_budget(epsilon, delta)
        self.epsilon, self.delta, self.unit, self.neighbours = float(epsilon), float(delta), unit, neighbours
        self.entries: tuple[Charge, ...] = ()
        """Everything that was charged, in order."""

    @property
    def mu(self) -> float:
        """√Σμ² of the Gaussian releases."""
        return math.sqrt(sum(e.cost.count * e.cost.loss**2 for e in self.entries if e.cost.kind == "gaussian"))

    @property
    def spent(self) -> float:
        """ε of everything charged so far, at the agreed δ."""
        return total_epsilon((entry.cost for entry in self.entries), self.delta)

    def charge(self, *charges: Charge) -> None:
        """Charge all or none; raises a `PrivacyError` if the total would be exceeded."""
        for charge in charges:
            if (charge.cost.unit, charge.cost.neighbours) != (self.unit, self.neighbours):
                raise PrivacyError(
                    f"{charge.what} protects a {charge.cost.unit} ({charge.cost.neighbours}), but the budget is per "
                    f"{self.unit} ({self.neighbours}); such costs cannot be added up"
                )
        known = {(entry.run, entry.round, entry.what, entry.digest) for entry in self.entries}
        fresh = [each for each in charges if (each.run, each.round, each.what, each.digest) not in known]
        if not fresh:
            return
        entries = (*self.entries, *fresh)
        total = total_epsilon((entry.cost for entry in entries), self.delta)
        if total > self.epsilon:
            raise PrivacyError(
                f"{', '.join(entry.what for entry in fresh)} of round {fresh[0].round} would bring the total to "
                f"epsilon={total:.4g} at delta={self.delta:g}, but {self.epsilon:g} was agreed; nothing was sent. "
                "Agree on more, plan fewer rounds, or add more noise"
            )
        self.entries = entries

    def total(self) -> dict[str, Any]:
        """Return the running total as plain values, for the outbound log."""
        return {"epsilon": self.spent, "delta": self.delta, "mu": self.mu, "unit": self.unit}


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
