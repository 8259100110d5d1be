"""The same raw data gives the same matrix, wherever it comes from; what is wrong is named with its place."""

from __future__ import annotations

import gzip
import os
import random
import sqlite3

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest
from raw_tables import (
    EVENT_ROWS,
    EVENT_SCHEMA,
    EVENTS,
    SURVEY,
    SURVEY_ROWS,
    SURVEY_SCHEMA,
    write_csv_table,
)

from felb.data import BinaryMatrix, Feature, Schema, convert, read
from felb.errors import InputError, SchemaWarning
from felb.tables.propose import infer
from felb.tables.schema import Handling, Roles
from felb.tables.sources import read_header_names

SURVEY_NAMES, EVENT_NAMES = ("id", "sex", "age", "bmi", "insured"), ("person_id", "code", "date")


def melted(rows):
    return [(row[0], name, value) for row in rows for name, value in zip(SURVEY_NAMES[1:], row[1:], strict=True)]


def expected_survey():
    cells = list(SURVEY_ROWS.values())
    ones = BinaryMatrix.of(np.array([[cell == "1" for cell in row] for row in cells]), columns=SURVEY_SCHEMA.names)
    return ones.with_unknown(np.array([[cell == "?" for cell in row] for row in cells]))


def wide_csv(folder):
    return write_csv_table(folder / "survey.csv", SURVEY_NAMES, SURVEY)


def wide_tsv_gz(folder):
    plain = write_csv_table(folder / "survey.tsv", SURVEY_NAMES, SURVEY, "\t")
    (folder / "survey.tsv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    return folder / "survey.tsv.gz"


def other_order_and_an_extra_column(folder):
    rows = [(row[4], "x", *row[:4]) for row in reversed(SURVEY)]
    return write_csv_table(folder / "other.csv", ("insured", "extra", "id", "sex", "age", "bmi"), rows)


def frame():
    return pd.DataFrame(SURVEY, columns=list(SURVEY_NAMES)).assign(
        sex=lambda table: table["sex"].astype("category"),
        insured=lambda table: table["insured"].map({"true": True, "false": False}).astype("boolean"),
    )


def wide_parquet(folder):
    frame().to_parquet(folder / "survey.parquet")
    return folder / "survey.parquet"


def wide_arrow(folder):
    pa.feather.write_feather(pa.Table.from_pandas(frame()), folder / "survey.feather", compression="lz4")
    return folder / "survey.feather"


def long_csv(folder):
    rows = melted(SURVEY) * 2  # every line twice
    random.Random(3).shuffle(rows)
    return write_csv_table(folder / "long.csv", ("id", "item", "value"), rows)


def long_parquet(folder):
    rows = [(row[0], row[1], None if row[2] is None else str(row[2])) for row in melted(SURVEY)]
    random.Random(4).shuffle(rows)
    pd.DataFrame(rows, columns=["id", "item", "value"]).to_parquet(folder / "long.parquet")
    return folder / "long.parquet"


def sqlite_wide(folder):
    with sqlite3.connect(folder / "data.sqlite") as file:
        file.execute('CREATE TABLE "sur""vey" (id INTEGER, sex TEXT, age REAL, bmi REAL, insured TEXT)')
        file.executemany('INSERT INTO "sur""vey" VALUES (?, ?, ?, ?, ?)', SURVEY)
    file.close()
    return f"sqlite://{folder / 'data.sqlite'}?table=sur%22vey"


def duckdb_long(folder):
    with duckdb.connect(str(folder / "data.duckdb")) as file:
        file.execute("CREATE TABLE facts (id UBIGINT, item VARCHAR, value VARCHAR)")
        file.executemany("INSERT INTO facts VALUES (?, ?, ?)", melted(SURVEY))
    query = "SELECT%20*%20FROM%20facts%20ORDER%20BY%20random()"
    return f"duckdb://{folder / 'data.duckdb'}?query={query}"


def annotated(folder):
    import anndata

    table = frame().drop(columns=["insured"]).set_index(pd.Index(["3", "1", "20", "2"]))
    values = pd.DataFrame({"insured": [1.0, 0, 1, np.nan], "gene": [0.0, 1, 0, 1]}, index=table.index)
    anndata.AnnData(values, obs=table).write_h5ad(folder / "survey.h5ad")
    return folder / "survey.h5ad"


SOURCES = [wide_csv, wide_tsv_gz, other_order_and_an_extra_column, wide_parquet, wide_arrow, long_csv, long_parquet,
           sqlite_wide, duckdb_long]  # fmt: skip


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_a_survey_is_the_same_matrix_from_every_source(make, tmp_path):
    table = read(make(tmp_path), schema=SURVEY_SCHEMA)
    assert table.matrix == expected_survey()
    assert table.rows == tuple(SURVEY_ROWS)
    assert table.matrix.columns == SURVEY_SCHEMA.names
    assert table.applied.digest == SURVEY_SCHEMA.digest
    assert table.applied.missing == {"sex": 1, "age": 1, "bmi": 1, "insured": 1}
    assert set(table.applied.unlisted["sex"]) == {"D"}


def test_annotations_and_variables_of_anndata_are_columns(tmp_path):
    pytest.importorskip("anndata")
    # a number is not the text "true", and the variable holds numbers
    rules = [feature for feature in SURVEY_SCHEMA.features if feature.column != "insured"]
    handling = {name: how for name, how in SURVEY_SCHEMA.columns.items() if name != "insured"}
    schema = Schema(
        (*rules, Feature(name="insured", column="insured", lower=1)),
        Roles("obs_names"),
        {**handling, "insured": Handling("zero", "ignore")},
    )
    found = read(annotated(tmp_path), schema=schema)
    assert found.matrix == expected_survey()


@pytest.mark.parametrize("form", [lambda table: table, pl.from_pandas, lambda table: pl.from_pandas(table).lazy(),
                                  pa.Table.from_pandas])  # fmt: skip
def test_frames_are_sources_too(form):
    assert read(form(frame()), schema=SURVEY_SCHEMA).matrix == expected_survey()


def test_events_obey_prefixes_windows_and_repeat_without_effect(tmp_path):
    path = write_csv_table(tmp_path / "events.csv", EVENT_NAMES, EVENTS)
    table = read(path, schema=EVENT_SCHEMA)
    assert table.rows == tuple(EVENT_ROWS)
    assert table.matrix.toarray().astype(int).tolist() == [list(row) for row in EVENT_ROWS.values()]
    for seed in range(3):
        rows = EVENTS * 3
        random.Random(seed).shuffle(rows)
        shuffled = write_csv_table(tmp_path / "shuffled.csv", EVENT_NAMES, rows)
        assert read(shuffled, schema=EVENT_SCHEMA).matrix == table.matrix
    typed = pd.DataFrame(EVENTS, columns=list(EVENT_NAMES)).assign(date=lambda t: pd.to_datetime(t["date"]))
    typed.to_parquet(tmp_path / "events.parquet")
    assert read(tmp_path / "events.parquet", schema=EVENT_SCHEMA).matrix == table.matrix


def test_item_lists_keep_empty_records(tmp_path):
    (tmp_path / "baskets.dat").write_text("milk bread\n\nbread\tbread beer\nwine\n")
    schema = Schema(
        (Feature(name="bread", codes=("bread",)), Feature(name="b", prefixes=("b",)), Feature(name="rest", other=True)),
        Roles("basket", "product"),
        codes=Handling("zero", "other"),
    )
    table = read(tmp_path / "baskets.dat", schema=schema)
    assert table.matrix.toarray().astype(int).tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert table.rows == ("1", "2", "3", "4")


def test_codes_may_be_yes_and_no_columns_of_a_wide_table(tmp_path):
    path = write_csv_table(tmp_path / "wide.csv", ("person_id", "E11", "I21.0", "I21.4", "J45", "note"),
                           [(2, 1, "false", 1, 0, "x"), (10, 0, "TRUE", "", 0, "y")])  # fmt: skip
    rules = tuple(feature for feature in EVENT_SCHEMA.features if not feature.windowed)
    schema = Schema(rules, EVENT_SCHEMA.roles, codes=EVENT_SCHEMA.codes)
    assert read(path, schema=schema).matrix.toarray().astype(int).tolist() == [[1, 1, 0], [1, 0, 0]]
    with pytest.raises(InputError, match=r"'diabetes since 2024'.*'code'"):
        read(path, schema=EVENT_SCHEMA)
    write_csv_table(path, ("person_id", "E11"), [(2, 1), (10, 7)])
    with pytest.raises(InputError, match=r"line 3, record '10': column 'E11' holds '7'"):
        read(path, schema=schema)


def test_left_out_values_are_counted_and_told(tmp_path):
    path = write_csv_table(tmp_path / "events.csv", EVENT_NAMES, EVENTS)
    schema = Schema((Feature(name="E11", codes=("E11",)),), EVENT_SCHEMA.roles, codes=Handling("zero", "ignore"))
    with pytest.warns(SchemaWarning, match=r"4 .*'code'.*'I21.0' \(1\), 'I21.4' \(1\), 'J45' \(1\), …"):
        table = read(path, schema=schema)
    assert table.applied.left_out == {"code": 4}
    assert len(table.matrix) == 4  # a record without any listed code is still a record


def test_clients_of_records(tmp_path):
    rows = [(row[0], row[1], "north" if row[0] < 10 else "south") for row in EVENTS]
    path = write_csv_table(tmp_path / "events.csv", ("person_id", "code", "site"), rows)
    schema = Schema((Feature(name="any", any=True),), Roles("person_id", "code"))
    assert read(path, schema=schema, client_column="site").clients == ("north", "north", "south", "south")
    write_csv_table(path, ("person_id", "code", "site"), [*rows, (2, "E11", "south")])
    with pytest.raises(InputError, match=r"record '2'.*'site'"):
        read(path, schema=schema, client_column="site")
    write_csv_table(path, ("person_id", "code", "site"), [*rows, (5, "E11", None)])
    with pytest.raises(InputError, match="no client"):
        read(path, schema=schema, client_column="site")


def test_conversion_goes_in_blocks_and_gives_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("felb.tables.apply.CELLS_AT_A_TIME", 4)
    counts = []
    converted = convert(wide_csv(tmp_path), tmp_path / "out.felb", schema=SURVEY_SCHEMA, on_rows=counts.append)
    assert converted.matrix == expected_survey()
    assert len(counts) > 1


def test_a_category_that_never_occurs_is_an_empty_column(tmp_path):
    path = write_csv_table(tmp_path / "survey.csv", SURVEY_NAMES, SURVEY[:1])
    assert read(path, schema=SURVEY_SCHEMA).matrix.column_sums().tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 1]


def changed(**changes):
    return [tuple(changes.get(name, value) for name, value in zip(SURVEY_NAMES, SURVEY[0], strict=True))]


STRICT = Schema(
    tuple(feature for feature in SURVEY_SCHEMA.features if not feature.missing and not feature.other),
    SURVEY_SCHEMA.roles,
    {"bmi": Handling("error", "error"), "insured": Handling("zero", "error", ("false",))},
)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (changed(sex="X"), r"survey.csv: line 2, record '3': column 'sex' holds 'X'"),
        (changed(age="abc"), r"line 2, record '3': column 'age' holds 'abc'"),
        (changed(id=""), r"line 2: .*'id'"),
        (changed(sex="NA"), r"record '3' has no value of 'sex'"),
        (changed(bmi=3), r"column 'bmi' holds '3'"),
        (changed() + changed(), r"line 2: record '3'"),
        ([], "holds no records"),
        ([(1, "F", 30, 25, "true", "extra")], "line 2|Line: 2"),
    ],
)
def test_bad_values_are_named_with_their_place(rows, message, tmp_path):
    path = write_csv_table(tmp_path / "survey.csv", SURVEY_NAMES, rows)
    with pytest.raises(InputError, match=message):
        convert(path, tmp_path / "out.felb", schema=STRICT)
    assert [file.name for file in tmp_path.iterdir()] == ["survey.csv"]


def test_bad_tables_are_named(tmp_path):
    path = write_csv_table(tmp_path / "survey.csv", ("id", "sex", "bmi"), [(1, "F", 3)])
    with pytest.raises(InputError, match=r"'age'.*id, sex, bmi"):
        read(path, schema=SURVEY_SCHEMA)
    write_csv_table(path, ("id", "sex", "sex"), [(1, "F", 3)])
    with pytest.raises(InputError, match=r"line 1: .*'sex'"):
        read(path, schema=SURVEY_SCHEMA)
    events = write_csv_table(tmp_path / "events.csv", EVENT_NAMES, [(1, "E11", "2024-01-01"), (2, "E11", 63864)])
    with pytest.raises(InputError, match=r"line 3, record '2': column 'date' holds '63864'"):
        read(events, schema=EVENT_SCHEMA)
    write_csv_table(events, ("person_id", "code"), [(1, "E11")])
    with pytest.raises(InputError, match="has no column 'date'"):
        read(events, schema=EVENT_SCHEMA)
    unlisted = Schema((Feature(name="E11", codes=("E11",)),), EVENT_SCHEMA.roles)
    write_csv_table(events, EVENT_NAMES, EVENTS)
    with pytest.raises(InputError, match=r"line 2, record '10': column 'code' holds .*'I21.0'"):
        read(events, schema=unlisted)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InputError, match="empty"):
        read(tmp_path / "empty.csv", schema=SURVEY_SCHEMA)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read(tmp_path / "absent.csv", schema=SURVEY_SCHEMA)
    with pytest.raises(InputError, match="applied"):
        read(tmp_path / "x.mtx", schema=SURVEY_SCHEMA)
    with pytest.raises(InputError, match=r"schema .*values"):
        read(path, schema=SURVEY_SCHEMA, missing="zero")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 this is none")
    with pytest.raises(InputError, match=r"broken\.parquet: "):
        read(tmp_path / "broken.parquet", schema=SURVEY_SCHEMA)


def test_names_with_quotes_are_names(tmp_path):
    name = 'a"; DROP TABLE felb_raw; --'
    path = write_csv_table(tmp_path / "odd.csv", ("id", name), [(1, "it's"), (2, 'say "x"')])
    rules = (Feature(name="a", column=name, values=("it's",)), Feature(name="b", column=name, values=('say "x"',)))
    assert read(path, schema=Schema(rules, Roles("id"))).matrix.toarray().tolist() == [[True, False], [False, True]]


def slow_twin(rows, schema):
    """The rules of a survey, record by record, as one would say them."""
    made = []
    for row in sorted(rows, key=lambda row: row[0]):
        record = dict(zip(SURVEY_NAMES, row, strict=True))
        cells = []
        for rule in schema.features:
            value = record[rule.column]
            listed = [v for other in schema.features if other.column == rule.column for v in other.values]
            if value is None:
                cells.append("1" if rule.missing else "?" if schema.handling(rule.column).missing == "unknown" else "0")
            elif rule.numeric:
                inside = (
                    rule.lower is None or value > rule.lower or (value == rule.lower and not rule.lower_open)
                ) and (rule.upper is None or value < rule.upper or (value == rule.upper and rule.upper_closed))
                cells.append("01"[inside])
            elif rule.other:
                cells.append("01"[value not in listed])
            else:
                cells.append("01"[value in rule.values])
        made.append("".join(cells))
    return made


def test_random_surveys_agree_with_the_rules_read_literally(tmp_path):
    rng = np.random.default_rng(5)

    def sometimes(value):
        return value if rng.random() < 0.9 else None

    rows = [
        (
            i,
            [None, "F", "M", "D", "x y"][rng.integers(5)],
            sometimes(int(rng.integers(0, 100))),
            sometimes(round(float(rng.normal(24.5, 3)), 1)),
            ["true", "false", None][rng.integers(3)],
        )
        for i in rng.permutation(300)
    ]
    expected = slow_twin(rows, SURVEY_SCHEMA)
    found = read(write_csv_table(tmp_path / "wide.csv", SURVEY_NAMES, rows), schema=SURVEY_SCHEMA).matrix
    assert ["".join("01"[int(one)] for one in row) for row in found.toarray()] == [
        row.replace("?", "0") for row in expected
    ]
    assert ["".join("0?"[int(one)] for one in row) for row in found.unknown.toarray()] == [
        row.replace("1", "0") for row in expected
    ]
    long = write_csv_table(tmp_path / "long.csv", ("id", "item", "value"), melted(rows))
    assert read(long, schema=SURVEY_SCHEMA).matrix == found


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".arrow", ".dat", ".h5ad"])
def test_only_regular_files_are_sources(suffix, tmp_path):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"device{suffix}").symlink_to("/dev/zero")
    (tmp_path / f"folder{suffix}").mkdir()
    for name, message in (("pipe", "a pipe or a device"), ("device", "a pipe or a device"), ("folder", "a folder")):
        with pytest.raises(InputError, match=message):
            infer(str(tmp_path / f"{name}{suffix}"))


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb", "omop"])
def test_only_regular_files_are_databases(scheme, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(InputError):
            infer(f"{scheme}://{tmp_path / name}?table=t")


def test_a_small_packed_table_does_not_fill_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("felb.data.readers.ALWAYS_BYTES", 1 << 16)
    with gzip.open(tmp_path / "rows.csv.gz", "wb") as file:
        file.write(b"a,b\n" + b"1,x\n" * (1 << 18))
    with pytest.raises(InputError, match="unpacks to more than"):
        infer(str(tmp_path / "rows.csv.gz"))
    (tmp_path / "cut.csv.gz").write_bytes((tmp_path / "rows.csv.gz").read_bytes()[:-20])
    with pytest.raises(InputError, match=r"unpacks to more than|damaged"):
        infer(str(tmp_path / "cut.csv.gz"))
    (tmp_path / "line.csv").write_bytes(b"a" * ((1 << 24) + 1))
    with pytest.raises(InputError, match="a line has more than"):
        infer(str(tmp_path / "line.csv"))


def test_the_names_of_very_many_columns_are_read_in_one_pass(tmp_path):
    names = [f"c{i}" for i in range(100_000)]
    (tmp_path / "wide.csv").write_text(",".join(names))
    assert read_header_names(tmp_path / "wide.csv", ",") == names
    (tmp_path / "wide.csv").write_text(",".join([*names, "c7"]))
    with pytest.raises(InputError, match="'c7' occurs more than once"):
        read_header_names(tmp_path / "wide.csv", ",")
