"""Comparison of results: matched components, intervals over trials, drift of new records."""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from felb.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from felb.metrics.counts import FeatureCounts


NO_MATCH = -1
"""In place of a number: the other set has fewer components, or none that shares a feature."""


def jaccard_matrix(V: ArrayLike, W: ArrayLike) -> NDArray[np.float64]:
    """Return |v ∩ w| / |v ∪ w| of each row v of V and each row w of W; 0 where both are empty.

    Examples
    --------
    >>> jaccard_matrix([[1, 1, 0]], [[1, 1, 1], [0, 0, 1]])
    array([[0.66666667, 0.        ]])
    """
    a, b = (np.asarray(rows, dtype=np.float64) for rows in (V, W))
    both = a @ b.T
    either = a.sum(axis=1)[:, None] + b.sum(axis=1) - both
    alike: NDArray[np.float64] = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return alike


def match_components(V: ArrayLike, W: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Match the rows of V with those of W one to one, such that the sum of their Jaccard indices is largest.

    Returns for each row of V the number of its match in W (`NO_MATCH` if it has none) and their Jaccard index. The
    assignment is found by the Hungarian algorithm.

    Examples
    --------
    >>> match_components([[1, 1, 0], [0, 0, 1]], [[0, 1, 1], [1, 1, 0]])
    (array([1, 0]), array([1. , 0.5]))
    """
    alike = jaccard_matrix(V, W)
    rows, others = linear_sum_assignment(alike, maximize=True)
    place, index = np.full(len(alike), NO_MATCH, dtype=np.int64), np.zeros(len(alike))
    index[rows] = alike[rows, others]
    place[rows] = np.where(index[rows] > 0, others, NO_MATCH)
    return place, index


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean and 95% confidence interval of some trials."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def half(self) -> float:
        """Half the width; NaN for a single trial, of which no spread is known."""
        return (self.high - self.low) / 2


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Mean x̄ and the interval x̄ ± t₀.₉₇₅(n−1) s/√n of Student's t; None without values.

    Examples
    --------
    >>> found = mean_interval([1.0, 2.0, 3.0])
    >>> found.mean, round(found.half, 3)
    (2.0, 2.484)
    """
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Interval(mean, math.nan, math.nan, 1)
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, 0.975)) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half, len(values))


# -- How well new records are explained, against those of the fit: drift of every feature and every component --------
#
# A share p = a/n of the fit and p' = a'/n' of the new records differ by z = (p' − p) / √(q(1 − q)(1/n + 1/n')) standard
# errors, with q = (a + a')/(n + n'). A share counts as changed if |z| exceeds the quantile of the normal distribution
# at the level α = 0.01 over all tests of a table, two-sided (Bonferroni).

LEVEL = 0.01
"""Probability that a table marks a share as changed although nothing has, at most."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share among the records of the fit and among new records.

    Parameters
    ----------
    fit, new : the share; None where nothing was counted
    z : by how many standard errors the new one is greater; 0 where one of both is not known
    """

    fit: float | None
    new: float | None
    z: float

    @classmethod
    def of(cls, fit: tuple[int, int], new: tuple[int, int]) -> Share:
        """Compare two pairs (counted, among)."""
        (a, n), (b, m) = fit, new
        if not n or not m:
            return cls(a / n if n else None, b / m if m else None, 0.0)
        pooled = (a + b) / (n + m)
        spread = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m)) if 0 < pooled < 1 else 0.0
        return cls(a / n, b / m, (b / m - a / n) / spread if spread else 0.0)


@dataclass(frozen=True, slots=True)
class FeatureDrift:
    """Of a feature: the share of its known cells that are ones, and the share that U∘V gets wrong."""

    name: str
    ones: Share
    wrong: Share
    changed: bool = False


@dataclass(frozen=True, slots=True)
class ComponentDrift:
    """Of a component: the share of records that have it, and the share of ones among its features there."""

    number: int
    records: Share
    ones: Share
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift between the records of a fit and new ones.

    Parameters
    ----------
    records : number of records of the fit and of new ones
    f1, wrong : F1 of either, and the share of wrong cells
    features, components : drift of each, in their order

    Examples
    --------
    >>> import felb
    >>> old, new = (felb.data.planted(500, 20, 3, noise=noise, seed=0).A for noise in (0.02, 0.2))
    >>> model = felb.FederatedBMF(3, random_state=0).fit(old)
    >>> found = felb.drift(model, new, old)
    >>> found.f1[0] > found.f1[1], len(found.features), all(feature.wrong.z > 0 for feature in found.features)
    (True, 20, True)
    """

    records: tuple[int, int]
    f1: tuple[float, float]
    wrong: Share
    features: tuple[FeatureDrift, ...]
    components: tuple[ComponentDrift, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def drift_between(fit: FeatureCounts, new: FeatureCounts, names: Sequence[str]) -> Drift:
    """Compare the counts of the fit with those of new records under the same components."""
    if len(fit.known) != len(new.known) or len(fit.supports) != len(new.supports):
        raise InputError("the counts are of other features or components than those of the fit")
    features = [
        FeatureDrift(
            name,
            Share.of((fit.ones[j], fit.known[j]), (new.ones[j], new.known[j])),
            Share.of((fit.missed[j] + fit.false[j], fit.known[j]), (new.missed[j] + new.false[j], new.known[j])),
        )
        for j, name in enumerate(names)
    ]
    components = [
        ComponentDrift(
            at,
            Share.of((fit.supports[at], fit.records), (new.supports[at], new.records)),
            Share.of((fit.inside_ones[at], fit.inside[at]), (new.inside_ones[at], new.inside[at])),
        )
        for at in range(len(fit.supports))
    ]
    old, now = fit.total, new.total
    return Drift(
        records=(fit.records, new.records),
        f1=(old.f1, now.f1),
        wrong=Share.of((old.errors, old.cells), (now.errors, now.cells)),
        features=tuple(replace(f, changed=_changed((f.ones, f.wrong), 2 * len(features))) for f in features),
        components=tuple(replace(c, changed=_changed((c.records, c.ones), 2 * len(components))) for c in components),
    )


def _changed(shares: Sequence[Share], tests: int) -> bool:
    """Tell whether one of the shares has changed, by a test at `LEVEL` over all tests of the table."""
    most = NormalDist().inv_cdf(1 - LEVEL / (2 * max(1, tests)))
    return any(abs(share.z) > most for share in shares)
