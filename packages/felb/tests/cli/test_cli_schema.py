"""felb schema, and schemas in the other verbs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from results import reseal


@pytest.fixture
def survey(in_folder):
    rng = np.random.default_rng(2)
    rows = ["person_id,region,sex,age,smokes"]
    for i in range(120):
        old = rng.random() < 0.5
        age = rng.integers(60, 90) if old else rng.integers(20, 40)
        rows.append(f"{i},{'nsw'[i % 3]},{rng.choice(['F', 'M'])},{age},{'yes' if old else 'no'}")
    (in_folder / "survey.csv").write_text("\n".join(rows) + "\n")
    return in_folder / "survey.csv"


@pytest.fixture
def schema(felb, survey):
    made = felb("schema", "infer", survey, "-o", "s.toml", "--leave-out", "region", "--bins", 2)
    assert made.code == 0, made.err
    return "s.toml"


def test_from_a_raw_table_to_components_by_name(felb, survey, schema):
    checked = felb("schema", "check", schema, survey, "--json").json
    assert (checked["records"], checked["empty features"]) == (120, [])
    shown = felb("schema", "show", schema)
    assert "digest" in shown.out
    assert "sex: F" in shown.out
    fitted = felb("simulate", survey, "--schema", schema, "--client-column", "region", "-k", 2, "-o", "out")
    assert fitted.code == 0, fitted.err
    assert "smokes: yes" in fitted.out
    assert checked["digest"] in fitted.out
    stored = json.loads(Path("out/result.json").read_text())
    assert stored["schema"] == checked["digest"]
    assert felb("score", "out", survey).code == 0
    assert felb("report", "out").code == 0
    assert "smokes: yes" in Path("out/report.html").read_text()
    assert felb("convert", survey, "t.felb", "--schema", schema).code == 0
    assert (
        felb("score", "out", "t.felb", "--json").json["scores"] == felb("score", "out", survey, "--json").json["scores"]
    )


def test_scoring_says_what_is_new(felb, survey, schema):
    felb("fit", survey, "--schema", schema, "-k", 2, "-o", "out")
    survey.write_text(survey.read_text() + "900,n,X,50,yes\n")
    refused = felb("score", "out", survey)
    assert refused.code == 1
    assert "line 122, record '900': column 'sex' holds 'X', which the schema does not list" in refused.err
    text = Path(schema).read_text()
    Path(schema).write_text(text.replace('[columns."sex"]\nmissing = "unknown"\nunlisted = "error"',
                                         '[columns."sex"]\nmissing = "unknown"\nunlisted = "ignore"'))  # fmt: skip
    felb("fit", survey, "--schema", schema, "-k", 2, "-o", "lenient")
    scored = felb("score", "lenient", survey)
    assert scored.code == 0
    assert "warning: 1 values of 'sex' are not listed by the schema and left out: 'X' (1)" in scored.err


def test_a_schema_that_changed_is_told_by_its_differences(felb, schema):
    Path("t.toml").write_text(Path(schema).read_text().replace('is = "M"', 'is = ["M", "m"]'))
    changed = felb("schema", "diff", schema, "t.toml")
    assert changed.code == 1
    assert "feature 'sex: M' was: M, is: M or m" in changed.out
    same = felb("schema", "diff", schema, schema, "--json")
    assert (same.code, same.json["same"]) == (0, True)


def test_sites_propose_and_the_coordinator_merges(felb, survey):
    lines = survey.read_text().splitlines()
    for number, part in enumerate((lines[1:61], lines[61:])):
        Path(f"site{number}.csv").write_text("\n".join([lines[0], *part]) + "\n")
        assert felb("schema", "propose", f"site{number}.csv", "-o", f"p{number}.json").code == 0
    merged = felb("schema", "merge", "p0.json", "p1.json", "-o", "common.toml", "--missing", "zero", "--json")
    assert merged.code == 0, merged.err
    assert merged.json["sites"] == 2
    digests = {felb("schema", "check", "common.toml", f"site{i}.csv", "--json").json["digest"] for i in range(2)}
    assert digests == {merged.json["digest"]}


def test_refusals_leave_nothing_behind(felb, survey, schema):
    before = sorted(path.name for path in survey.parent.iterdir())
    for command in (
        ("fit", survey, "--schema", "absent.toml", "-k", 2, "-o", "out"),
        ("fit", "absent.csv", "--schema", schema, "-k", 2, "-o", "out"),
        ("fit", survey, "--schema", schema, "--missing", "zero", "-k", 2, "-o", "out"),
        ("fit", "zoo", "--schema", schema, "-k", 2, "-o", "out"),
        ("fit", "postgresql://me:s3cret@localhost/x?table=t", "--schema", schema, "-k", 2, "-o", "out"),
        ("convert", survey, "t.felb", "--schema", survey),
        ("schema", "infer", survey, "-o", schema),
    ):
        refused = felb(*command)
        assert refused.code == 1, command
        assert refused.err.startswith("error: ")
        assert "s3cret" not in refused.err + refused.out
    assert sorted(path.name for path in survey.parent.iterdir()) == before


def test_categories_that_exclude_each_other_are_warned_about(felb, in_folder):
    rows = ["id,sex,a"] + [f"{i},{'FM'[i % 2]},1" for i in range(40)]
    (in_folder / "x.csv").write_text("\n".join(rows) + "\n")
    felb("schema", "infer", "x.csv", "-o", "x.toml")
    assert felb("fit", "x.csv", "--schema", "x.toml", "-k", 1, "--method", "grecond", "-o", "out").code == 0
    sp.save_npz("out/components.npz", sp.csr_array(np.ones((1, 3), dtype=bool)))
    reseal(in_folder / "out")
    found = felb("show", "out")
    assert "sex: F | sex: M, a" in found.out
    assert "warning: component 0 holds 'sex: F' and 'sex: M', which exclude each other" in found.err
    assert felb("show", "out", "--json").json["conflicts"]
    assert felb("report", "out").code == 0
    assert "which exclude each other" in Path("out/report.html").read_text()


def test_a_table_of_events_is_told_by_its_repeated_keys(felb, in_folder):
    events = [f"{order},{'abc'[(order + i) % 3]}" for order in range(40) for i in range(2)]
    (in_folder / "orders.csv").write_text("\n".join(["order,item", *events]) + "\n")
    done = felb("schema", "infer", "orders.csv", "-o", "s.toml")
    assert done.code == 1
    for word in ("80 rows", "40 different values of 'order'", "--record", "--item", "--leave-out"):
        assert word in done.err
    done = felb("schema", "infer", "orders.csv", "-o", "s.toml", "--record", "order", "--item", "item", "--json")
    assert done.json["records"] == 40
    assert done.json["features"] == 3
    assert felb("schema", "infer", "orders.csv", "-o", "t.toml", "--leave-out", "order").code == 0


@pytest.mark.parametrize("heading", ["", "Unnamed: 0", "rownames"])
def test_row_names_of_pandas_and_r_name_records(felb, in_folder, heading):
    rows = [f"{i},{'FM'[i % 2]}" for i in range(40)]
    (in_folder / "people.csv").write_text("\n".join([f"{heading},sex", *rows]) + "\n")
    done = felb("schema", "infer", "people.csv", "-o", "s.toml", "--json")
    assert done.code == 0, done.err
    assert [feature["name"] for feature in done.json["rules"]["features"]] == ["sex: F", "sex: M"]
    assert felb("fit", "people.csv", "--schema", "s.toml", "-k", 1, "--method", "grecond", "-o", "out").code == 0


def test_the_word_none_is_counted_and_said(felb, in_folder):
    rows = [["beer", "wine", "None"][i % 3] for i in range(60)]
    (in_folder / "drinks.csv").write_text("\n".join(["drink", *rows]) + "\n")
    done = felb("schema", "infer", "drinks.csv", "-o", "s.toml")
    assert done.code == 0
    assert "20 records hold 'None' in 'drink'" in done.err


def test_semicolons_and_decimal_commas_are_detected(felb, in_folder):
    rows = [f"{'FM'[i % 2]};{i},5" for i in range(80)]
    (in_folder / "people.csv").write_text("\n".join(["sex;age", *rows]) + "\n")
    done = felb("schema", "infer", "people.csv", "-o", "s.toml", "--json")
    assert done.code == 0, done.err
    assert done.json["features"] == 6
    done = felb("fit", "people.csv", "--schema", "s.toml", "-k", 1, "--method", "grecond", "-o", "out", "--json")
    assert done.json["provenance"]["data"]["ones"] == 160
