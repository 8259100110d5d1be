"""Forecast of the noise of a privacy specification and of the expected counts, without data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.privacy.names import COLUMNS, COOCCURRENCE, SIZES, STATISTICS
from felb.privacy.private_cooccurrence import row_size_histogram, weighted_column_counts, weighted_cooccurrence
from felb.privacy.statistics import clipped_statistics

if TYPE_CHECKING:
    from felb.privacy.bounds import RecordSum
    from felb.privacy.plan import PrivacyPlan

INSIDE = 0.9
"""Chance that a record with a component has one of its features, in the data that is imagined."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Data as it may be described without looking at it.

    Parameters
    ----------
    n_records, n_features, n_components : n, m and k
    ones_per_record : r, features that a record has
    height : share of the records that have a component
    width : features of a component
    """

    n_records: int
    n_features: int
    n_components: int
    ones_per_record: float
    height: float
    width: float

    @classmethod
    def of(cls, n_records: int, n_features: int, n_components: int, *, ones_per_record: float) -> Shape:
        """Imagine components of equal size that explain so many ones per record.

        The part of the features that a record's components cover is r/(0.9 m) = 1 − (1 − height · width/m)^k. The
        height is a tenth, or, where components would then be wider than that, the same share as the width. A component
        has at least two features, since a single one is no pattern.
        """
        for name, value in (("records", n_records), ("features", n_features), ("components", n_components)):
            if value < 1:
                raise InputError(f"data has at least 1 of {name}, got {value}")
        if n_components > min(n_records, n_features):
            raise InputError(
                f"{n_components} components are more than {n_records} records of {n_features} features can tell apart"
            )
        if not 0 < ones_per_record < INSIDE * n_features:
            raise InputError(
                f"a record has more than none and fewer than {INSIDE:.0%} of the {n_features} features, "
                f"got {ones_per_record:g} ones per record"
            )
        tile = 1 - (1 - ones_per_record / (INSIDE * n_features)) ** (1 / n_components)
        height = max(0.1, math.sqrt(tile))
        width = min(float(n_features), max(2.0, tile / height * n_features))
        return cls(n_records, n_features, n_components, ones_per_record, height, width)


@dataclass(frozen=True, slots=True)
class ReleaseNoise:
    """The noise of one release.

    Parameters
    ----------
    what : its name in the outbound log
    share, mu : of the budget, and what one round of it costs
    rounds : how often it is released
    sigma_client, sigma_sum : standard deviations of the noise one client adds, and of the sum of all clients, in
        counts; None where the bound on a record comes out of the run
    expected : the count to be told from that noise; None likewise
    """

    what: str
    share: float
    mu: float
    rounds: int
    sigma_client: float | None
    sigma_sum: float | None
    expected: float | None

    @property
    def relative(self) -> float | None:
        """Noise of the sum as a share of the expected count."""
        return None if self.expected is None or self.sigma_sum is None else self.sigma_sum / self.expected


def release_noise(plan: PrivacyPlan, shape: Shape) -> list[ReleaseNoise]:
    """Return the noise of each release of a specification on data of that shape.

    The expected counts are those of what has to be seen: records of the most common size, for sizes; records that have
    a feature, or two, of the same component. What one record can say in the choice, or in scores, is
    bounded by what was released before, so that noise is not known yet.
    """
    found = []
    for what, share in plan.shares.items():
        if what not in (SIZES, COLUMNS, COOCCURRENCE, STATISTICS):
            found.append(ReleaseNoise(what, share, plan.mu_of(what), 1, None, None, None))
            continue
        statistic, expected = _imagined(what, plan, shape)
        sigma = plan.mechanism_for(what, statistic).sigma_of_client * statistic.grid
        rounds = plan.privacy.n_rounds if what == STATISTICS else 1
        found.append(
            ReleaseNoise(what, share, plan.mu_of(what), rounds, sigma, plan.sigma_of_sum(what, statistic), expected)
        )
    return found


def _imagined(what: str, plan: PrivacyPlan, shape: Shape) -> tuple[RecordSum, float]:
    """Return the sum over no records, which has the bound of any, and the count that is expected of many."""
    nobody = BinaryMatrix.of(np.zeros((0, 1), dtype=bool))
    n, held = shape.n_records, shape.n_records * shape.height
    bound = float(plan.privacy.row_bound or max(1, round(shape.ones_per_record)))
    # A record with r ones beyond the bound B counts for about B/r in pairs, and √(B/r) in single features.
    pairs = min(1.0, bound / shape.ones_per_record)
    if what == SIZES:
        spread = max(1.0, math.sqrt(2 * math.pi * shape.ones_per_record))  # of a Poisson number of ones
        return row_size_histogram(nobody), n / spread
    if what == COLUMNS:
        return weighted_column_counts(nobody, bound), held * INSIDE * math.sqrt(pairs)
    if what == COOCCURRENCE:
        return weighted_cooccurrence(nobody, bound), held * INSIDE**2 * pairs
    bounds = plan.privacy.statistics_bounds
    shortened = min(1.0, bounds.s / math.sqrt(shape.ones_per_record)) * min(1.0, bounds.c)
    return clipped_statistics(nobody, np.zeros((0, 1)), bounds), held * INSIDE * shortened
