"""`felb interpret`: lift, labels, sets, rules and tables."""

from __future__ import annotations

import csv

import pytest

import felb as library


@pytest.fixture
def zoo(felb, in_folder):
    assert felb("fit", "zoo", "--method", "grecond", "-k", 3, "-o", "out").code == 0
    matrix = library.data.load("zoo")
    milk = matrix.toarray()[:, matrix.columns.index("milk")]
    labels = ["kind", *("mammal" if m else "other" for m in milk)]
    (in_folder / "kinds.txt").write_text("\n".join(labels) + "\n")


@pytest.mark.usefixtures("zoo")
def test_features_come_by_lift_and_labels_with_them(felb, in_folder):
    done = felb("interpret", "out", "--labels", "kinds.txt", "--json")
    assert done.code == 0, done.err
    components = done.json["components"]
    assert sorted(entry["component"] for entry in components) == [0, 1, 2]
    for entry in components:
        lifts = [feature["lift"] for feature in entry["features"]]
        assert lifts == sorted(lifts, reverse=True)
        assert {label["label"] for label in entry["labels"]} == {"mammal", "other"}
    with_milk = next(e for e in components if any(f["feature"] == "milk" for f in e["features"]))
    best = with_milk["labels"][0]
    assert best["label"] == "mammal"
    assert best["log2_odds"] > 0
    assert best["q"] < 0.05
    assert "mammal (" in felb("interpret", "out", "--labels", "kinds.txt").out


@pytest.mark.usefixtures("zoo")
def test_sets_rules_and_the_table_are_written(felb, in_folder):
    done = felb("interpret", "out", "--sets", "sets.gmt", "--rules", "rules.csv", "--table", "table.csv")
    assert done.code == 0, done.err
    sets = [line.split("\t") for line in (in_folder / "sets.gmt").read_text().splitlines()]
    stored = library.Result.read("out")
    by_name = {name: set(features) for name, _, *features in sets}
    assert by_name == {f"component-{c.number}": set(c.features) for c in stored.described()}
    with (in_folder / "rules.csv").open(newline="") as file:
        rules = list(csv.DictReader(file))
    assert rules[0]["rule"].startswith("if ")
    # GreConD has no false positives: who has the antecedent and the component has the consequent.
    assert all(0 < float(rule["confidence"]) <= 1 for rule in rules)
    with (in_folder / "table.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == stored.components.sum()


@pytest.mark.usefixtures("zoo")
def test_the_report_shows_labels(felb, in_folder):
    done = felb("report", "out", "--labels", "kinds.txt", "-o", "page.html")
    assert done.code == 0, done.err
    page = (in_folder / "page.html").read_text(encoding="utf-8")
    assert "Enriched labels at a false discovery rate of 5%" in page


@pytest.mark.usefixtures("zoo")
def test_refusals_say_what_to_do(felb, in_folder):
    (in_folder / "short.txt").write_text("a\nb\n")
    short = felb("interpret", "out", "--labels", "short.txt")
    assert short.code == 1
    assert "2 labels for 101 records" in short.err
    assert felb("interpret", "out", "--labels", "nothing").code == 1
    assert felb("interpret", "out", "--sets", "sets.txt").code == 1
    assert not (in_folder / "sets.txt").exists()


def _labels_of(done):
    assert done.code == 0, done.err
    return {label["label"] for entry in done.json["components"] for label in entry["labels"]}


@pytest.mark.parametrize(("column", "labels"), [("word", {"a", "b"}), ("flag", {"0", "1"}), ("f1", {"0", "1"})])
def test_a_column_of_the_data_gives_labels(felb, table, in_folder, column, labels):
    assert felb("fit", "table.csv", "--method", "grecond", "-k", 2, "-o", "out").code == 0
    lines = table.read_text().splitlines()
    added = [f"{line},{'ab'[i % 2]},{i % 2}" for i, line in enumerate(lines[1:])]
    (in_folder / "more.csv").write_text("\n".join([f"{lines[0]},word,flag", *added]) + "\n")
    assert _labels_of(felb("interpret", "out", "--data", "more.csv", "--labels", column, "--json")) == labels
    assert felb("report", "out", "--data", "more.csv", "--labels", column).code == 0
    unknown = felb("interpret", "out", "--labels", "word")
    assert unknown.code == 1
    assert "'word' is not a column" in unknown.err


@pytest.mark.parametrize("column", ["kind", "sex"])
def test_a_column_of_a_table_under_a_schema_gives_labels(felb, in_folder, column):
    rows = [f"{'FM'[i % 2]},{'yn'[i % 3 > 0]},{'FM'[i % 2]}" for i in range(60)]
    (in_folder / "raw.csv").write_text("\n".join(["sex,smokes,kind", *rows]) + "\n")
    assert felb("schema", "infer", "raw.csv", "-o", "raw.toml", "--leave-out", "kind").code == 0
    done = felb("fit", "raw.csv", "--schema", "raw.toml", "--method", "grecond", "-k", 2, "-o", "out")
    assert done.code == 0, done.err
    assert _labels_of(felb("interpret", "out", "--labels", column, "--json")) == {"F", "M"}
    unknown = felb("interpret", "out", "--labels", "sort")
    assert unknown.code == 1
    assert "'sort'" in unknown.err
