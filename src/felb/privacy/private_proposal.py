"""What a site proposes for a common schema under differential privacy: noisy counts, and names that many records share.

A count of a public cell (the number of records, the known values of a column) is released with Gaussian noise. A
category, bucket or code is itself a fact about records: it is named only if at least `min_count` records have it and
its noisy count reaches a threshold (the stability-based histogram of Korolova et al., 2009, with Gaussian noise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data.summarize import ColumnSummary, Summary
from felb.errors import InputError
from felb.privacy.accountant import calibrated_mu, check_budget
from felb.privacy.bounds import GRID_BITS
from felb.privacy.discrete import DiscreteGaussian

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from felb.data.bounded_counts import BoundedCounts
    from felb.privacy.cost import Cost

SCALE = 1 << GRID_BITS
"""Counts are multiplied by this before noise is added, so that it spans enough steps of the grid."""


@dataclass(frozen=True, slots=True)
class CountNoise:
    """Noise of counts of which a record changes at most `cells` by one, for (ε, δ)-differential privacy of a record.

    Half of δ belongs to the Gaussian noise, σ = √cells/μ(ε, δ/2). The other half bounds the probability that any cell
    is named because of one record: a cell that c records have is named if c >= c₀ and c + N(0, σ²) >= c₀ + zσ with
    cells · Φ(−z) = δ/2. Without that record, a cell at c = c₀ is never named; every other cell is named or not by its
    noisy count alone.

    Parameters
    ----------
    epsilon, delta : of the whole release
    cells : number of counts to which one record adds a one
    min_count : c₀
    """

    epsilon: float
    delta: float
    cells: int
    min_count: int

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)

    @property
    def mechanism(self) -> DiscreteGaussian:
        """The mechanism for counts in steps of 1/`SCALE`."""
        sensitivity = math.sqrt(self.cells) * SCALE
        return DiscreteGaussian(sensitivity / calibrated_mu(self.epsilon, self.delta / 2), sensitivity)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise of a count."""
        return self.mechanism.sigma / SCALE

    @property
    def threshold(self) -> float:
        """c₀ + zσ, and one step of the grid more: P(N >= k) of discrete noise is at most Φ(−(k − 1)/σ)."""
        from scipy.special import ndtri

        return self.min_count - float(ndtri(self.delta / 2 / self.cells)) * self.sigma + 1 / SCALE

    def add_to(self, counts: Sequence[int]) -> tuple[list[float], Cost | None]:
        """Return noisy counts and what they cost; all counts of a release at once."""
        exact = np.asarray(counts, dtype=np.int64) * SCALE
        noisy, cost = self.mechanism.release("counts of a schema proposal", exact, rng=np.random.default_rng())
        return (noisy / SCALE).tolist(), cost


def private_summary(
    counts: BoundedCounts, *, epsilon: float, delta: float, bins: int = 4, max_categories: int = 20
) -> tuple[Summary, CountNoise]:
    """Return a summary that is (ε, δ)-differentially private for every record, and the noise that was added.

    Parameters
    ----------
    counts : of a site's table, with a bounded part of each record
    epsilon, delta : privacy of the whole summary
    bins : a column of numbers is cut into so many bins, at ends of buckets
    max_categories : a column of numbers with more categories than this that could be named is cut into bins
    """
    if counts.min_count < 2:
        raise InputError(f"min_count={counts.min_count} would name single records")
    noise = CountNoise(epsilon, delta, counts.cells_per_record, counts.min_count)
    parts: tuple[Mapping[Any, int], ...] = (counts.known, counts.values, counts.buckets, counts.codes)
    noisy = iter(noise.add_to([counts.records, *(count for part in parts for count in part.values())])[0])
    records = next(noisy)
    known, *private = [{name: next(noisy) for name in part} for part in parts]
    values, buckets, codes = ({name: n for name, n in part.items() if n >= noise.threshold} for part in private)
    if not counts.columns_public:
        known = {name: n for name, n in known.items() if n >= noise.threshold}
    columns = {}
    for name, n in known.items():
        own = {value: count for (column, value), count in values.items() if column == name}
        of_numbers = {start: count for (column, start), count in buckets.items() if column == name}
        listed, numbers = sum(own.values()), sum(of_numbers.values())
        if numbers > listed / 2 and (len(own) > max_categories or listed < n / 2):
            found = ColumnSummary(edges=_quantiles(of_numbers, bins), whole=name in counts.whole)
        else:
            rest = _whole(n - listed)
            found = ColumnSummary({value: _whole(count) for value, count in own.items()}, rest)
        if found.counts or found.edges:
            columns[name] = replace(found, known=_whole(n), missing=_whole(records - n))
    named = {code: _whole(count) for code, count in codes.items() if code not in columns}
    labels = {code: label for code, label in counts.labels.items() if code in named}
    return Summary(counts.roles, _whole(records), columns, named, labels), noise


def _whole(count: float) -> int:
    return max(0, round(count))


def _quantiles(buckets: Mapping[float, float], bins: int) -> tuple[float, ...]:
    """Return the ends of buckets that are nearest above the quantiles 1/bins, 2/bins …"""
    starts = sorted(buckets)
    below = list(accumulate(buckets[start] for start in starts))  # of each bucket's upper end
    edges = set()
    for step in range(1, bins):
        upper = next((i for i, n in enumerate(below, 1) if n >= below[-1] * step / bins), len(starts))
        if upper < len(starts):
            edges.add(float(f"{starts[upper]:.6g}"))
    return tuple(sorted(edges))
