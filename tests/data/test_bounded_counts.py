"""Counts with a bounded part of each record: removing any record changes few cells, by one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from felb.data.bounded_counts import bounded_counts
from felb.data.schema import Roles
from felb.errors import InputError

LONG = Roles("person", "item", "value")


def survey(n=40, seed=0):
    rng = np.random.default_rng(seed)
    ages = rng.integers(18, 95, n).astype(object)
    ages[::7] = None
    return pd.DataFrame(
        {"person": range(n), "sex": rng.choice(["F", "M"], n), "age": ages, "bmi": rng.normal(25, 4, n)}
    )


def events(n=12, most=9, seed=0, *, values=True):
    rng = np.random.default_rng(seed)
    rows = []
    for person in range(n):
        for _ in range(rng.integers(1, most)):
            value = str(rng.choice(["low", "high", "1.5", "17"])) if values and rng.random() < 0.7 else None
            rows.append((person, f"c{rng.integers(6)}", value))
    return pd.DataFrame(rows, columns=["person", "item", "value"])


def cells(counts):
    parts = {"records": {None: counts.records}, "known": counts.known, "values": counts.values}
    parts |= {"buckets": counts.buckets, "codes": counts.codes}
    return {(part, name): count for part, found in parts.items() for name, count in found.items()}


@pytest.mark.parametrize(
    ("table", "settings"),
    [
        (survey(), {}),
        (events(), {"roles": LONG, "max_events": 3}),
        (events(values=False).drop(columns="value"), {"roles": Roles("person", "item"), "max_events": 2}),
        (events(), {"roles": LONG, "max_events": 4, "prefix_length": 1}),
    ],
)
def test_no_record_moves_more_cells_than_stated_nor_any_by_more_than_one(table, settings):
    whole = bounded_counts(table, min_count=1, **settings)
    before, most = cells(whole), 0
    for person in table["person"].unique():
        after = cells(bounded_counts(table[table["person"] != person], min_count=1, **settings))
        moved = [before[cell] - after.get(cell, 0) for cell in before]
        assert set(after) <= set(before)
        assert set(moved) <= {0, 1}
        most = max(most, sum(moved))
    assert most <= whole.cells_per_record
    assert most > whole.cells_per_record / 2  # the bound is not idle


def test_counts_of_a_wide_table_are_those_of_pandas():
    table = survey(400)
    counts = bounded_counts(table, min_count=12)
    assert counts.records == 400
    assert counts.known == {"sex": 400, "age": int(table["age"].notna().sum()), "bmi": 400}
    sexes = table["sex"].value_counts()
    assert {value: n for (column, value), n in counts.values.items() if column == "sex"} == dict(sexes)
    halves = (table["age"].dropna().astype(int) // 5 * 5).value_counts()  # 10 to below 100: steps of 5
    expected = {float(start): n for start, n in halves.items() if n >= 12}
    assert {start: n for (column, start), n in counts.buckets.items() if column == "age"} == expected
    assert min(counts.values.values()) >= 12


@pytest.mark.parametrize(
    ("number", "start"),
    [(0, 0), (1, 1), (9.99, 9.5), (10, 10), (-10, -10), (-9.6, -10), (-12, -15), (0.031, 0.03), (123456, 100000)],
)
def test_a_bucket_begins_at_or_below_its_numbers(number, start):
    (bucket,) = bounded_counts(pd.DataFrame({"x": [number]}), min_count=1).buckets
    assert bucket == ("x", pytest.approx(start))
    assert bucket[1] <= number + 1e-12


def test_records_with_several_rows_in_a_wide_table_are_refused():
    twice = pd.concat([survey(), survey().iloc[:1]])
    with pytest.raises(InputError, match="'person'"):
        bounded_counts(twice, roles=Roles("person"))
