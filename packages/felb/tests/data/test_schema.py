"""Schemas as files: what they say, what they refuse, and how they compare."""

from __future__ import annotations

import pytest
from raw_tables import EVENT_SCHEMA, SURVEY_SCHEMA

from felb.data import Feature, Schema
from felb.errors import InputError
from felb.tables.schema import Handling, Roles, conflicts, find_differences, format_schema, grouped

COMPACT = """
title = "survey"
[table]
record = "id"
item = "code"
time = "date"
[codes]
unlisted = "ignore"
[columns.sex]
missing = "category"
[mapping]
file = "groups.csv"
code = "atc"
group = "drug"
[[feature]]
column = "sex"
categories = ["F", "M"]
[[feature]]
name = "sex: missing"
column = "sex"
missing = true
[[feature]]
column = "age"
edges = [40, 60.5]
names = ["young", "middle", "old"]
[[feature]]
column = "bmi"
edges = [25]
[[feature]]
name = "statins in 2024"
group = "statin"
code = "X9"
since = 2024-01-01
before = 2025-01-01
[[feature]]
name = "heart"
prefix = ["I20", "I21"]
"""


@pytest.fixture
def compact(tmp_path):
    (tmp_path / "groups.csv").write_text("atc,drug\nC10AA05,statin\nC10AA01,statin\nA10,other\n")
    (tmp_path / "schema.toml").write_text(COMPACT)
    return tmp_path / "schema.toml"


def test_shorthands_and_mappings_are_expanded_when_the_file_is_read(compact):
    schema = Schema.read(compact)
    assert schema.names[:6] == ("sex: F", "sex: M", "sex: missing", "young", "middle", "old")
    assert schema.names[6:] == ("bmi below 25", "bmi 25+", "statins in 2024", "heart")
    statins = schema.features[8]
    assert statins.codes == ("X9", "C10AA01", "C10AA05")
    assert (statins.since, statins.before) == ("2024-01-01", "2025-01-01")
    assert (schema.features[4].lower, schema.features[4].upper) == (40, 60.5)
    assert schema.of_code("I21.4") == (9,)
    assert schema.of_code("I2") == ()


def test_the_digest_covers_what_decides_the_matrix_and_nothing_else(compact):
    before = Schema.read(compact)
    compact.write_text(COMPACT.replace('title = "survey"', 'title = "another"'))
    assert Schema.read(compact).digest == before.digest
    (compact.parent / "groups.csv").write_text("atc,drug\nC10AA05,statin\n")
    assert Schema.read(compact).digest != before.digest


@pytest.mark.parametrize("schema", [EVENT_SCHEMA, SURVEY_SCHEMA])
def test_a_written_schema_reads_back_to_the_same_digest(schema, tmp_path):
    schema.write(tmp_path / "s.toml")
    assert Schema.read(tmp_path / "s.toml").digest == schema.digest
    with pytest.raises(InputError, match="exists"):
        schema.write(tmp_path / "s.toml")


def test_odd_names_survive_the_file(tmp_path):
    odd = Schema((Feature(name='a "quoted" \\ \x7f ü', column='c"]\n', values=("\t", "'", "é")),))
    odd.write(tmp_path / "s.toml")
    assert Schema.read(tmp_path / "s.toml").features == odd.features


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('prefix = ["I20", "I21"]', 'prefix = ["I20"]\nany = true'), "needs exactly one rule"),
        (('name = "heart"', 'name = "old"'), r"features 6 and 10 are both called 'old'"),
        (("edges = [25]", "edges = [25, 24]"), "ascending"),
        (("edges = [25]", 'edges = ["x"]'), "'x' is not a number"),
        (('group = "statin"', 'group = "nothing"'), "no group 'nothing'"),
        (('missing = "category"', 'missing = "zero"'), "one feature with missing = true"),
        (('missing = "category"', 'missing = "maybe"'), "'maybe' is not known"),
        (("[columns.sex]", "[columns.sx]"), "no feature is about the column 'sx'"),
        (('time = "date"', ""), "names no time column"),
        (('item = "code"', ""), "names no item column"),
        (("since = 2024-01-01", "since = 2026-01-01"), "no event is since"),
        (("since = 2024-01-01", 'since = "soon"'), "'soon' is no date"),
        (('name = "heart"', 'nam = "heart"'), "unknown key 'nam'"),
        (("[table]", "[tabel]"), "unknown key 'tabel'"),
        (('file = "groups.csv"', 'file = "none.csv"'), "cannot be read"),
        (('title = "survey"', "title = "), "is no TOML file"),
        (('title = "survey"', 'digest = "0000"'), "it was edited"),
        (('names = ["young", "middle", "old"]', 'names = ["young"]'), "1 names for 3 features"),
    ],
)
def test_mistakes_are_named(compact, change, message):
    assert change[0] in COMPACT
    compact.write_text(COMPACT.replace(*change, 1) if change[0] != 'name = "heart"' else COMPACT.replace(*change))
    with pytest.raises(InputError, match=message) as refused:
        Schema.read(compact)
    assert "schema.toml" in str(refused.value)


def test_rules_that_say_nothing_are_refused():
    with pytest.raises(InputError, match="between"):
        Feature(name="x", column="age", lower=5, upper=5)
    assert Feature(name="x", column="age", lower=5, upper=5, upper_closed=True).rule() == "from 5 up to 5"
    with pytest.raises(InputError, match="no finite number"):
        Feature(name="x", column="age", lower=float("inf"))
    with pytest.raises(InputError, match="column"):
        Feature(name="x", values=("a",))
    with pytest.raises(InputError, match="empty code"):
        Feature(name="x", prefixes=("",))
    with pytest.raises(InputError, match="feature"):
        Schema(())
    with pytest.raises(InputError, match="different columns"):
        Roles("a", "a")


def test_differences_are_named():
    a = Schema((Feature(name="x", column="c", values=("1",)), Feature(name="y", column="c", values=("2",))))
    b = Schema(
        (Feature(name="y", column="c", values=("3",)), Feature(name="x", column="c", values=("1",)),
         Feature(name="z", column="d", lower=1)),
        columns={"c": Handling("zero", "ignore")},
    )  # fmt: skip
    found = "\n".join(find_differences(a, b))
    for part in ("'z' was added", "'y' was: 2, is: 3", "another order", "column 'c': missing was 'error', is 'zero'"):
        assert part in found
    assert find_differences(a, a) == []
    assert "'z' was removed" in "\n".join(find_differences(b, a))


def test_categories_of_one_column_are_shown_together_and_exclude_each_other():
    import numpy as np

    m = len(SURVEY_SCHEMA.features)
    components = np.zeros((3, m), dtype=bool)
    components[0, [0, 1, 8]] = True  # F and M
    components[1, [5, 6]] = True  # 40-59 and 60+
    components[2, [0, 5, 7, 8]] = True
    found = conflicts(SURVEY_SCHEMA, components)
    assert found == [
        "component 0 holds 'sex: F' and 'sex: M', which exclude each other",
        "component 1 holds 'age 40-59' and 'age 60+', which exclude each other",
    ]
    nested = Schema((Feature(name="40+", column="age", lower=40), Feature(name="60+", column="age", lower=60)))
    assert conflicts(nested, np.ones((1, 2), dtype=bool)) == []
    touching = Schema(
        (Feature(name="a", column="x", upper=4, upper_closed=True), Feature(name="b", column="x", lower=4))
    )
    assert conflicts(touching, np.ones((1, 2), dtype=bool)) == []
    assert grouped(SURVEY_SCHEMA, ["sex: F", "age 40-59", "sex: M"]) == ["sex: F | sex: M", "age 40-59"]


def test_the_text_is_for_people():
    text = format_schema(SURVEY_SCHEMA)
    assert '[[feature]]\nname = "age 40-59"\ncolumn = "age"\nfrom = 40\nbelow = 60\n' in text
