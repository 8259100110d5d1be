"""Proposals: from one table, and from sites that tell no small counts."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from raw_tables import EVENTS, write_csv_table

from felb.data import read
from felb.errors import InputError, SchemaWarning
from felb.tables.propose import (
    infer,
    limit_disclosure,
    make_schema,
    merge_summaries,
    read_proposal,
    summarize,
    write_proposal,
)
from felb.tables.schema import Roles


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(7)
    n = 400
    return pd.DataFrame(
        {
            "person_id": np.arange(n),
            "sex": rng.choice(["F", "M", None], n, p=[0.5, 0.4, 0.1]),
            "age": rng.integers(18, 95, n),
            "bmi": rng.normal(25, 4, n).round(1),
            "smokes": rng.integers(0, 2, n).astype(bool),
            "job": rng.choice([f"job {i:02}" for i in range(12)], n, p=[0.3, 0.3, 0.2, *[0.2 / 9] * 9]),
            "rare": ["usual"] * (n - 3) + ["secret"] * 3,
            "born": ["2000-01-01"] * n,
            "note": [f"text {i}" for i in range(n)],
            "nothing": [None] * n,
        }
    )


def test_a_proposal_covers_types_frequencies_and_missing_values(people):
    schema, skipped = infer(people, max_categories=4, missing="category", leave_out=("rare",))
    assert schema.roles == Roles("person_id")
    assert set(skipped) == {"born", "note", "nothing"}
    names = schema.names
    assert names[:3] == ("sex: F", "sex: M", "sex: missing")
    assert "smokes" in names
    assert "job: other" in names
    assert len([name for name in names if name.startswith("age")]) == 4
    matrix = read(people, schema=schema).matrix
    of = {name: matrix.toarray()[:, i] for i, name in enumerate(names)}
    assert (of["sex: F"] | of["sex: M"] | of["sex: missing"]).all()
    for column in ("age", "bmi"):  # the bins part the records, about evenly
        bins = np.array([cells for name, cells in of.items() if name.startswith(column)])
        assert (bins.sum(axis=0) == 1).all()
        assert bins.sum(axis=1).min() > 60


def test_the_most_frequent_features_are_kept(people):
    schema, _ = infer(people, max_features=5, leave_out=("note",))
    assert len(schema.features) == 5
    with pytest.warns(SchemaWarning, match="left out"):  # what was dropped is no error
        read(people, schema=schema)
    with pytest.raises(InputError, match="min_count=500"):
        infer(people[["sex", "job"]], min_count=500)


def test_codes_of_events_are_proposed_whole_or_by_prefix(tmp_path):
    path = write_csv_table(tmp_path / "events.csv", ("person_id", "code", "date"), EVENTS)
    schema, _ = infer(path, min_count=1)
    assert schema.roles == Roles("person_id", "code", time="date")
    assert schema.names == ("E11", "I21.0", "I21.4", "J45", "Z99")
    by_chapter, _ = infer(path, min_count=2, prefix_length=1)
    assert [feature.prefixes for feature in by_chapter.features] == [("E",), ("I",)]
    assert infer(path, min_count=2)[0].names == ("E11",)  # a repeated event counts once


def test_long_tables_with_values_are_proposed_by_column(people, tmp_path):
    facts = people[["person_id", "sex", "age"]].melt("person_id", var_name="item", value_name="value").dropna()
    facts.astype(str).to_csv(tmp_path / "facts.csv", index=False)
    schema, _ = infer(tmp_path / "facts.csv")
    wide, _ = infer(people[["person_id", "sex", "age"]])
    assert set(schema.names) == set(wide.names)


def test_sites_tell_no_small_or_exact_counts_and_agree_on_one_schema(people, tmp_path):
    sites = [people.iloc[:150], people.iloc[150:280], people.iloc[280:]]
    for number, site in enumerate(sites):
        told = limit_disclosure(summarize(site), min_count=10)
        write_proposal(told, tmp_path / f"{number}.json", prefixes=False)
        text = (tmp_path / f"{number}.json").read_text()
        assert "secret" not in text
        assert "text " not in text
        raw = json.loads(text)["summary"]
        counts = [raw["records"], *(c for column in raw["columns"].values() for c in column["counts"].values())]
        assert all(count % 5 == 0 and count >= 10 for count in counts)
    proposals = [read_proposal(tmp_path / f"{number}.json").summary for number in range(3)]
    schema = make_schema(merge_summaries(proposals), missing="zero")
    assert schema.digest == make_schema(merge_summaries(proposals), missing="zero").digest
    assert {"sex: F", "sex: M", "smokes", "rare: usual"} <= set(schema.names)
    assert "secret" not in "".join(schema.names)
    for site in sites[:2]:
        assert read(site, schema=schema).matrix.columns == schema.names


def test_what_cannot_be_proposed_or_merged_is_refused(people, tmp_path):
    with pytest.raises(InputError, match="10 records"):
        limit_disclosure(summarize(people.iloc[:5]))
    with pytest.raises(InputError, match="would disclose"):
        limit_disclosure(summarize(people), min_count=1)
    numbers, words = summarize(people[["age"]]), summarize(people[["sex"]].rename(columns={"sex": "age"}))
    with pytest.raises(InputError, match="'age'"):
        merge_summaries([numbers, words])
    with pytest.raises(InputError, match="different columns"):
        merge_summaries([numbers, summarize(people)])
    (tmp_path / "p.json").write_text('{"format": "felb-schema-proposal-1"}')
    with pytest.raises(InputError, match=r"p\.json is damaged"):
        read_proposal(tmp_path / "p.json")
    write_proposal(numbers, tmp_path / "q.json", prefixes=False)
    (tmp_path / "q.json").write_text((tmp_path / "q.json").read_text().replace('"known": 400', '"known": -1'))
    with pytest.raises(InputError, match=r"damaged.*known"):
        read_proposal(tmp_path / "q.json")


@pytest.mark.parametrize(
    "change",
    [
        {"columns": {"age": {"counts": {}, "edges": [1e999], "known": 3}}},
        {"columns": {"age": {"counts": {}, "edges": [10**400], "known": 3}}},
        {"records": -1},
        {"labels": {"x": 3}},
        {"roles": {"record": 3}},
        {"codes": []},
    ],
)
def test_a_damaged_proposal_is_refused(change, people, tmp_path):
    path = tmp_path / "p.json"
    write_proposal(summarize(people), path, prefixes=False)
    raw = json.loads(path.read_text())
    path.write_text(json.dumps({**raw, "summary": {**raw["summary"], **change}}))
    with pytest.raises(InputError, match=r"p\.json"):
        read_proposal(path)
    path.write_text("[" * 100_000)
    with pytest.raises(InputError, match="damaged"):
        read_proposal(path)
