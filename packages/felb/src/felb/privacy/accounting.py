"""Privacy costs, and the accountant that composes them and refuses a release beyond the budget."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from felb.errors import InputError, PrivacyError, missing_extra
from felb.privacy import Neighbours as Neighbours
from felb.privacy import Unit as Unit
from felb.progress import Deadline
from felb.records import read_record, replacing, try_lock

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix


# -- The privacy cost of a release, in a form that an accountant can compose -----------------------------------------

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
        return {
            "kind": self.kind,
            "loss": self.loss,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "count": self.count,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Cost:
        """Read back what `to_json` gave."""
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"{values} does not describe the cost of a release: {error}") from error


# -- The accountant: composes the costs of releases and refuses a release beyond the privacy budget ------------------
#
# The only module that accounts, by the privacy loss distributions of dp-accounting. The closed form for Gaussian noise,
# `gaussian_delta`, is here to check it against and as a starting point.

INTERVAL = 1e-4
"""Privacy losses are rounded up to multiples of this, or of more where the losses would need too many of them."""

LOCK_SECONDS = 30.0
"""How long a charge waits for another process to let go of the file."""

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


# -- Gaussian noise in closed form -------------------------------------------------------------------------------------


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


# -- accounting --------------------------------------------------------------------------------------------------------


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


# -- the accountant ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One charged release: which run, round and value, a digest of what was sent, and its cost."""

    run: str
    round: int
    what: str
    digest: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class _Stored:
    """What stands in an accountant's file."""

    agreed: dict[str, Any]
    charged: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Charge:
    """A release that asks to be charged: its key, the value as it would leave, its cost (None: unprotected)."""

    run: str
    round: int
    what: str
    value: NDArray[Any]
    cost: Cost | None


class Accountant:
    """Keeps the total of everything charged within (ε, δ).

    A release is charged before it leaves. Sending the very same bits of a (run, round, what) again tells nothing new
    and is not charged again; other bits under the same key are a second look at the data and are.

    Parameters
    ----------
    epsilon, delta : the agreed total
    unit, neighbours : whom it protects; costs that speak of another unit or relation are refused
    path : file that survives the process; an existing one is read, and must hold the same specification

    Examples
    --------
    >>> import numpy as np
    >>> from felb.privacy.accounting import Cost
    >>> accountant = Accountant(1.0, 1e-5)
    >>> accountant.charge(Charge("run", 0, "sizes", np.zeros(3), Cost("gaussian", 0.1, "record")))
    >>> accountant.mu
    0.1
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        unit: Unit = "record",
        neighbours: Neighbours = "add_remove",
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        check_budget(epsilon, delta)
        self.epsilon, self.delta, self.unit, self.neighbours = float(epsilon), float(delta), unit, neighbours
        self.path = None if path is None else Path(path)
        self._entries: tuple[Entry, ...] = ()
        if self.path is not None and self.path.exists():
            self._entries = self._read(self.path)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Everything that was charged, in order."""
        return self._entries

    @property
    def mu(self) -> float:
        """√Σμ² of the Gaussian releases."""
        return math.sqrt(sum(e.cost.count * e.cost.loss**2 for e in self._entries if e.cost.kind == "gaussian"))

    @property
    def spent(self) -> float:
        """ε of everything charged so far, at the agreed δ."""
        return total_epsilon((entry.cost for entry in self._entries), self.delta)

    def charge(self, *charges: Charge) -> None:
        """Charge all or none; raises a `PrivacyError` if one is unprotected or the total would be exceeded."""
        with self._alone():
            self._charge(charges)

    def _charge(self, charges: Sequence[Charge]) -> None:
        if self.path is not None and self.path.exists():
            self._entries = self._read(self.path)  # another process may have spent since
        fresh = self._fresh(charges)
        if not fresh:
            return
        entries = (*self._entries, *fresh)
        total = total_epsilon((entry.cost for entry in entries), self.delta)
        if total > self.epsilon:
            raise PrivacyError(
                f"{', '.join(entry.what for entry in fresh)} of round {fresh[0].round} would bring the total to "
                f"epsilon={total:.4g} at delta={self.delta:g}, but {self.epsilon:g} was agreed; nothing was sent. "
                "Agree on more, plan fewer rounds, or add more noise"
            )
        if self.path is not None:
            self._write(self.path, entries)
        self._entries = entries

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other process read or write the file meanwhile: two that charge at once must see each other."""
        if self.path is None:
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f".{self.path.name}.lock")
        deadline = Deadline(LOCK_SECONDS)
        while (held := try_lock(beside)) is None:
            if deadline.passed:
                raise PrivacyError(f"{self.path} is in use by another process; nothing was sent. Try again later")
            time.sleep(0.02)
        try:
            yield
        finally:
            held.close()

    def total(self) -> dict[str, Any]:
        """Return the running total as plain values, for the outbound log."""
        return {"epsilon": self.spent, "delta": self.delta, "mu": self.mu, "unit": self.unit}

    def _fresh(self, charges: Sequence[Charge]) -> list[Entry]:
        """Return the charges of new values, or raise if one cannot be charged here."""
        known = {(entry.run, entry.round, entry.what, entry.digest) for entry in self._entries}
        fresh = []
        for charge in charges:
            if charge.cost is None:
                raise PrivacyError(
                    f"{charge.what} of round {charge.round} is not protected and may not leave under a privacy budget; "
                    "nothing was sent. Release it by a mechanism, or not at all"
                )
            if (charge.cost.unit, charge.cost.neighbours) != (self.unit, self.neighbours):
                raise PrivacyError(
                    f"{charge.what} protects a {charge.cost.unit} ({charge.cost.neighbours}), but the budget is per "
                    f"{self.unit} ({self.neighbours}); such costs cannot be added up"
                )
            entry = Entry(charge.run, charge.round, charge.what, _digest(charge.value), charge.cost)
            if (entry.run, entry.round, entry.what, entry.digest) not in known:
                fresh.append(entry)
        return fresh

    def _spec(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "delta": self.delta, "unit": self.unit, "neighbours": self.neighbours}

    def _write(self, path: Path, entries: Sequence[Entry]) -> None:
        rows = [
            {"run": e.run, "round": e.round, "what": e.what, "digest": e.digest, "cost": e.cost.to_json()}
            for e in entries
        ]
        with replacing(path) as partial:
            partial.write_text(json.dumps({"agreed": self._spec(), "charged": rows}, indent=1), encoding="utf-8")

    def _read(self, path: Path) -> tuple[Entry, ...]:
        stored = read_record(path, _Stored, advice="restore it, it says what was spent")
        if stored.agreed != self._spec():
            raise PrivacyError(
                f"{path} was agreed as {stored.agreed}, not as {self._spec()}; use the same specification"
            )
        return stored.charged


def _digest(value: NDArray[Any]) -> str:
    array = np.ascontiguousarray(value)
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(array.tobytes())
    return digest.hexdigest()


# -- Audits of a private release, which detect common mistakes -------------------------------------------------------
#
# `scale_matches` finds noise of the wrong size, `isolation` a statistic to which a record contributes more than its own
# bounded part, `transcript` a protocol that reveals more over its rounds than was charged, `on_grid` noise that is
# not discrete.


def scale_matches(draws: NDArray[Any], sigma: float, *, alpha: float = 1e-6) -> bool:
    """Whether Σx²/σ² is what Gaussian noise of standard deviation σ gives, but for a chance of α: a χ² test.

    With 20000 draws and α = 10⁻⁶, noise of 0.9σ or 1.1σ fails.
    """
    from scipy.stats import chi2

    x = np.asarray(draws, dtype=np.float64).ravel()
    statistic = float(x @ x) / sigma**2
    return bool(chi2.ppf(alpha / 2, x.size) <= statistic <= chi2.ppf(1 - alpha / 2, x.size))


def on_grid(values: NDArray[Any], grid: float = 1.0) -> bool:
    """Whether all values are whole multiples of the grid."""
    steps = np.asarray(values, dtype=np.float64) / grid
    return bool(np.all(steps == np.rint(steps)))


@dataclass(frozen=True, slots=True)
class Isolation:
    """How a statistic depends on single records.

    Parameters
    ----------
    residual : ‖f(D) − Σ_r f({r})‖ / Δ; 0 if every record contributes its own part whatever the others are
    largest : max_r ‖f({r})‖ / Δ; at most 1 if the stated sensitivity Δ holds
    """

    residual: float
    largest: float

    @property
    def holds(self) -> bool:
        """Whether adding or removing a record moves the statistic by at most Δ, up to rounding."""
        return self.residual <= 1e-9 and self.largest <= 1 + 1e-12


def isolation(f: Callable[[BinaryMatrix], NDArray[Any]], A: BinaryMatrix, *, sensitivity: float) -> Isolation:
    """Compare f(D) with Σ_r f({r}) for a deterministic statistic f, public inputs fixed.

    Catches steps and step sizes that look at all rows, which comparing random neighbours misses: there, a single row
    among many changes little.
    """
    if A.shape[0] < 1:
        raise InputError("isolation needs at least one record")
    parts = [np.asarray(f(A.rows(r, r + 1)), dtype=np.float64) for r in range(A.shape[0])]
    residual = np.asarray(f(A), dtype=np.float64) - np.sum(parts, axis=0)
    largest = max(float(np.linalg.norm(part)) for part in parts)
    return Isolation(float(np.linalg.norm(residual)) / sensitivity, largest / sensitivity)


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a protocol revealed about a canary: an estimate of μ with its standard error."""

    mu: float
    standard_error: float

    def within(self, claimed: float, *, z: float = 4.0) -> bool:
        """Whether μ̂ − z·SE <= the claimed μ."""
        return self.mu - z * self.standard_error <= claimed


def transcript(
    f: Callable[[BinaryMatrix, Any], NDArray[Any]],
    server: Callable[[NDArray[Any], Any], Any],
    world: tuple[BinaryMatrix, BinaryMatrix],
    *,
    noise: Callable[[tuple[int, ...]], NDArray[Any]],
    sigma: float,
    start: Any,
    rounds: int,
    runs: int = 150,
) -> Transcript:
    """Play an adaptive protocol with and without a canary and measure how well the best test distinguishes them.

    Each round releases f(D, public) + noise, and the server makes the next public value of it. The log-likelihood ratio
    of a whole transcript under Gaussian noise of the given σ is the most powerful test; its distance between the worlds
    in standard deviations estimates the μ that was really spent, SE² = 2/R + μ̂²/(4R) for R runs in each world.

    Parameters
    ----------
    f : the statistic, of the data and the public value
    server : the next public value from a release and the current one
    world : the data without and with the canary, a record that uses its bounds to the full
    noise : draws the noise that the protocol really adds
    sigma : standard deviation of `noise`; an attacker knows it
    start : first public value
    """
    ratios = np.empty((2, runs))
    for truth in (0, 1):
        for run in range(runs):
            public, ratio = start, 0.0
            for _ in range(rounds):
                without, with_canary = (np.asarray(f(data, public), dtype=np.float64) for data in world)
                difference = with_canary - without
                released = (with_canary if truth else without) + noise(without.shape)
                ratio += float(difference.ravel() @ (released - without - difference / 2).ravel()) / sigma**2
                public = server(released, public)
            ratios[truth, run] = ratio
    deviation = math.sqrt(float(ratios.var(axis=1, ddof=1).mean()))
    mu = float(ratios[1].mean() - ratios[0].mean()) / deviation if deviation > 0 else 0.0
    return Transcript(mu, math.sqrt(2 / runs + mu * mu / (4 * runs)))
