"""Proposals with privacy: calibrated noise, nothing named that hangs on one record, a useful schema of many."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from felb.data.bounded_counts import bounded_counts
from felb.data.propose_schema import make_schema, merged
from felb.data.schema import Roles
from felb.errors import InputError
from felb.privacy.accountant import total_epsilon
from felb.privacy.private_proposal import CountNoise, private_summary

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    old = rng.random(n) < 0.4
    return pd.DataFrame(
        {
            "person": np.arange(n),
            "home": np.where(old, "own", "rent"),
            "age": np.where(old, rng.integers(60, 95, n), rng.integers(18, 60, n)),
            "children": rng.integers(0, 4, n),
            "rare": ["usual"] * (n - 12) + ["secret"] * 12,
            "note": [f"text {i}" for i in range(n)],
        }
    )


@pytest.mark.parametrize(("epsilon", "delta", "cells"), [(1.0, 1e-6, 7), (0.3, 1e-5, 61), (4.0, 1e-8, 2)])
def test_the_noise_costs_what_was_agreed_and_hides_single_records(epsilon, delta, cells):
    noise = CountNoise(epsilon, delta, cells, min_count=10)
    noisy, cost = noise.add_to([100] * 2000)
    assert 0.98 * epsilon < total_epsilon([cost], delta / 2) <= epsilon
    assert np.std(noisy) == pytest.approx(noise.sigma, rel=0.15)
    assert np.mean(noisy) == pytest.approx(100, abs=5 * noise.sigma / np.sqrt(2000))
    named_by_one = cells * norm.sf((noise.threshold - noise.min_count) / noise.sigma)
    assert 0.9 * delta / 2 < named_by_one <= delta / 2


def test_a_private_summary_makes_a_useful_schema_and_names_nothing_rare():
    told = [
        private_summary(bounded_counts(people(3000, seed), min_count=10), epsilon=2.0, delta=1e-6)[0]
        for seed in range(3)
    ]
    for summary in told:
        assert summary.records == pytest.approx(3000, abs=60)
        assert set(summary.columns["home"].counts) == {"own", "rent"}
        assert summary.columns["home"].known == pytest.approx(3000, abs=60)
        assert set(summary.columns["children"].counts) == {"0", "1", "2", "3"}
        assert summary.columns["age"].edges
        assert "note" not in summary.columns
        assert "secret" not in summary.columns["rare"].counts
    schema = make_schema(merged(told))
    assert {"home: own", "home: rent", "children: 0"} <= set(schema.names)
    assert sum(name.startswith("age") for name in schema.names) >= 3


def test_without_noise_the_counts_are_exact(monkeypatch):
    monkeypatch.setattr(CountNoise, "add_to", lambda _, counts: ([float(n) for n in counts], None))
    table = people(2000)
    summary, noise = private_summary(bounded_counts(table), epsilon=1.0, delta=1e-6)
    assert summary.records == 2000
    assert summary.columns["home"].counts == dict(table["home"].value_counts())
    bins = np.digitize(table["age"], summary.columns["age"].edges)
    assert np.bincount(bins).min() > 2000 / 4 * 0.6  # edges are ends of buckets of five years
    assert all(count >= noise.threshold for found in summary.columns.values() for count in found.counts.values())


def test_many_texts_stay_categories_and_many_numbers_become_bins(monkeypatch):
    monkeypatch.setattr(CountNoise, "add_to", lambda _, counts: ([float(n) for n in counts], None))
    table = pd.DataFrame({"town": [f"t{i % 25}" for i in range(10_000)], "day": [i % 30 for i in range(10_000)]})
    summary, _ = private_summary(bounded_counts(table), epsilon=2.0, delta=1e-6)
    assert len(summary.columns["town"].counts) == 25
    assert summary.columns["day"].edges == (8.0, 15.0, 25.0)
    assert not summary.columns["day"].counts


def test_codes_of_events_are_named_with_their_bounded_counts():
    rng = np.random.default_rng(1)
    rows = [(person, code) for person in range(2000) for code in ("A", "B", "C") if rng.random() < 0.5]
    rows += [(person, f"own {person}") for person in range(2000)]
    table = pd.DataFrame(rows, columns=["person", "code"])
    counts = bounded_counts(table, roles=Roles("person", "code"), max_events=4)
    summary, _ = private_summary(counts, epsilon=1.0, delta=1e-6)
    assert set(summary.codes) == {"A", "B", "C"}
    few = bounded_counts(table, roles=Roles("person", "code"), max_events=1)
    assert sum(few.codes.values()) < 2000  # each record has one


def test_single_records_are_not_named_by_request():
    with pytest.raises(InputError, match="min_count"):
        private_summary(bounded_counts(people(100), min_count=1), epsilon=1.0, delta=1e-6)
