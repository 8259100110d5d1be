"""Noise in counts, before there is any data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from felb.errors import InputError
from felb.privacy import Privacy
from felb.privacy.noise_forecast import INSIDE, Shape, release_noise

pytest.importorskip("dp_accounting")

SHAPE = Shape.of(20_000, 200, 10, ones_per_record=20)


def planned(privacy, *, clients=10, shape=SHAPE):
    plan = privacy.plan(n_records=shape.n_records, n_clients=clients, n_columns=shape.n_features)
    return plan, {part.what: part for part in release_noise(plan, shape)}


@given(
    m=st.integers(2, 30_000), k=st.integers(1, 50), share=st.floats(0.001, 0.89), n=st.integers(50, 10**7)
)  # fmt: skip
def test_imagined_components_explain_the_ones_of_a_record(m, k, share, n):
    k = min(k, m)
    shape = Shape.of(n, m, k, ones_per_record=share * m)
    assert 0.1 <= shape.height <= 1
    assert min(2, m) <= shape.width <= m
    covered = INSIDE * m * (1 - (1 - shape.height * shape.width / m) ** k)
    if 2 < shape.width < m:
        assert covered == pytest.approx(share * m, rel=1e-6)
    else:
        assert shape.width in (2, m)


def test_the_noise_of_cooccurrence_is_that_of_the_closed_form():
    plan, parts = planned(Privacy(1.0))
    bound = math.sqrt(20 * 21 / 2 + 1)
    part = parts["cooccurrence"]
    assert part.sigma_client == pytest.approx(bound / (plan.mu * math.sqrt(0.95)))
    assert part.sigma_sum == pytest.approx(math.sqrt(10) * part.sigma_client)
    assert part.expected == pytest.approx(20_000 * SHAPE.height * 0.81)
    assert part.relative == pytest.approx(part.sigma_sum / part.expected)
    assert parts["sizes"].sigma_client == pytest.approx(1 / (plan.mu * 0.1))
    assert (parts["choice"].sigma_sum, parts["choice"].relative) == (None, None)
    assert sum(part.share for part in parts.values()) == pytest.approx(1)


def test_expected_counts_are_those_of_planted_data():
    from felb.data import planted
    from felb.privacy.private_cooccurrence import weighted_cooccurrence

    _, parts = planned(Privacy(1.0, row_bound=10))
    height, width = SHAPE.height, SHAPE.width / 200
    data = planted(20_000, 200, 10, heights=(height, height), widths=(width, width), seed=0)
    M = np.zeros((200, 200))
    released = weighted_cooccurrence(data.A, 10)
    M[np.triu_indices(200)] = released.values[:-1] * released.grid
    pairs = [M[i, j] for row in data.V for i in np.flatnonzero(row) for j in np.flatnonzero(row) if i < j]
    # A record beyond the bound counts for less the more ones it has, which the mean alone does not tell exactly.
    assert np.median(pairs) == pytest.approx(parts["cooccurrence"].expected, rel=0.35)


def test_distributed_noise_does_not_grow_with_clients():
    _, alone = planned(Privacy(1.0), clients=1)
    _, shared = planned(Privacy(1.0, noise="distributed"), clients=25)
    _, each = planned(Privacy(1.0), clients=25)
    expected = math.sqrt(25 / 24) * alone["cooccurrence"].sigma_sum  # one of the shares may be known to the server
    assert shared["cooccurrence"].sigma_sum == pytest.approx(expected)
    assert each["cooccurrence"].sigma_sum == pytest.approx(5 * alone["cooccurrence"].sigma_sum)


def test_statistics_are_released_in_rounds():
    plan, parts = planned(Privacy(1.0, mechanism="statistics", rounds=16))
    part = parts["statistics"]
    assert part.rounds == 16
    assert part.mu == pytest.approx(plan.mu / 4)
    assert part.sigma_client == pytest.approx(math.sqrt(26) / part.mu)


def test_wide_data_has_its_columns_counted_first():
    _, parts = planned(Privacy(1.0), shape=Shape.of(20_000, 5000, 10, ones_per_record=20))
    assert list(parts) == ["sizes", "columns", "cooccurrence", "choice"]
    assert parts["columns"].expected > parts["cooccurrence"].expected


@pytest.mark.parametrize(
    ("size", "ones", "said"),
    [
        ((0, 10, 2), 1, "at least 1 of records"),
        ((10, 0, 2), 1, "at least 1 of features"),
        ((100, 10, 0), 1, "at least 1 of components"),
        ((100, 10, 11), 1, "can tell apart"),
        ((100, 10, 2), 0, "more than none"),
        ((100, 10, 2), 9, "fewer than 90%"),
        ((100, 10, 2), float("nan"), "more than none"),
    ],
)
def test_data_that_cannot_be_is_refused(size, ones, said):
    with pytest.raises(InputError, match=said):
        Shape.of(*size, ones_per_record=ones)
