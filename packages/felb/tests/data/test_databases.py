"""Embedded databases and OMOP: read-only, nothing guessed, the same matrix as from files."""

from __future__ import annotations

import csv
import sqlite3
from urllib.parse import quote

import duckdb
import pytest
from raw_tables import EVENT_SCHEMA, EVENTS, write_csv_table

from felb import Job
from felb.data import Feature, Schema, read
from felb.errors import InputError
from felb.tables.propose import infer
from felb.tables.schema import Handling, Roles
from felb.tables.sources import parse_url, source_name

CONCEPTS = {
    "E11": (201826, "Type 2 diabetes mellitus"),
    "I21.0": (4296653, "Anterior infarction"),
    "I21.4": (312327, "Acute infarction"),
    "J45": (317009, "Asthma"),
    "Z99": (0, "No matching concept"),
}
ANCESTORS = [(4329847, 312327, 1), (4329847, 4296653, 2), (134057, 312327, 3), (312327, 312327, 0)]
PERSONS = [(2,), (4,), (10,), (33,), (99,)]
CDM = {
    "person": (("person_id",), PERSONS),
    "condition_occurrence": (
        ("person_id", "condition_concept_id", "condition_start_date"),
        [(person, CONCEPTS[code][0], date) for person, code, date in EVENTS],
    ),
    "drug_exposure": (("person_id", "drug_concept_id", "drug_exposure_start_date"), [(4, 1545958, "2024-05-05")]),
    "procedure_occurrence": (("person_id", "procedure_concept_id", "procedure_date"), []),
    "concept": (
        ("concept_id", "concept_name"),
        [*CONCEPTS.values(), (1545958, "atorvastatin"), (4329847, "Myocardial infarction")],
    ),
    "concept_ancestor": (("ancestor_concept_id", "descendant_concept_id", "min_levels_of_separation"), ANCESTORS),
}


def omop_sqlite(folder):
    with sqlite3.connect(folder / "cdm.db") as file:
        for table, (names, rows) in CDM.items():
            file.execute(f"CREATE TABLE {table} ({', '.join(names)})")
            file.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)
    file.close()
    return f"omop://{folder / 'cdm.db'}"


def omop_duckdb(folder):
    types = {True: "DATE", False: "BIGINT"}
    with duckdb.connect(str(folder / "omop.duckdb")) as file:
        file.execute("CREATE SCHEMA cdm")
        for table, (names, rows) in CDM.items():
            columns = ", ".join(
                f"{name} {'VARCHAR' if name == 'concept_name' else types[name.endswith('_date')]}" for name in names
            )
            file.execute(f"CREATE TABLE cdm.{table} ({columns})")
            if rows:
                file.executemany(f"INSERT INTO cdm.{table} VALUES ({', '.join('?' * len(names))})", rows)
    return f"omop+duckdb://{folder / 'omop.duckdb'}?schema=cdm"


def omop_folder(folder):
    for table, (names, rows) in CDM.items():
        tabs = table.startswith("concept")  # vocabularies are published so
        with (folder / f"{table.upper()}.csv").open("w", newline="") as file:
            csv.writer(file, delimiter="\t" if tabs else ",").writerows([names, *rows])
    return f"omop://{folder}"


OMOP_SCHEMA = Schema(
    (
        Feature(name="infarction", codes=("312327", "4296653")),
        Feature(name="diabetes", codes=("201826",)),
        Feature(name="diabetes since 2024", codes=("201826",), since="2024-01-01"),
        Feature(name="atorvastatin", codes=("1545958",)),
    ),
    Roles("person_id", "concept_id", time="date"),
    codes=Handling("zero", "ignore"),
)


@pytest.mark.filterwarnings("ignore::felb.errors.SchemaWarning")
@pytest.mark.parametrize("make", [omop_sqlite, omop_duckdb, omop_folder], ids=lambda make: make.__name__)
def test_omop_gives_persons_by_concepts(make, tmp_path):
    url = make(tmp_path)
    table = read(url, schema=OMOP_SCHEMA)
    assert table.rows == ("2", "4", "10", "33", "99")  # also who has no event
    rows = [[1, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert table.matrix.toarray().astype(int).tolist() == rows
    joined = "&" if "?" in url else "?"
    only = read(f"{url}{joined}domains=condition", schema=OMOP_SCHEMA)
    assert only.matrix.column_sums().tolist() == [2, 2, 1, 0]
    ancestor = Schema((Feature(name="MI", codes=("4329847",)),), OMOP_SCHEMA.roles, codes=Handling("zero", "ignore"))
    assert read(f"{url}{joined}ancestors=all", schema=ancestor).matrix.column_sums().tolist() == [2]
    assert read(f"{url}{joined}ancestors=1", schema=ancestor).matrix.column_sums().tolist() == [1]
    inferred, _ = infer(url, min_count=1)
    assert "201826 Type 2 diabetes mellitus" in inferred.names
    assert not any(name.startswith("0 ") for name in inferred.names)


def test_omop_conditions_are_those_of_a_file(tmp_path):
    rows = [(person, CONCEPTS[code][0], date) for person, code, date in EVENTS if CONCEPTS[code][0]]
    path = write_csv_table(tmp_path / "events.csv", ("person_id", "concept_id", "date"), rows)
    schema = Schema(OMOP_SCHEMA.features[:3], OMOP_SCHEMA.roles, codes=Handling("zero", "ignore"))
    with pytest.warns(UserWarning, match="not listed"):
        expected = read(path, schema=schema)
    with pytest.warns(UserWarning, match="not listed"):
        found = read(omop_sqlite(tmp_path), schema=schema)
    persons = [name in expected.rows for name in found.rows]
    assert found.matrix.take([i for i, there in enumerate(persons) if there]) == expected.matrix


@pytest.fixture
def files(tmp_path):
    with duckdb.connect(str(tmp_path / "d.duckdb")) as file:
        file.execute("CREATE TABLE events (person_id BIGINT, code VARCHAR, date DATE)")
        file.executemany("INSERT INTO events VALUES (?, ?, ?)", EVENTS)
    with sqlite3.connect(tmp_path / "s.sqlite") as file:
        file.execute("CREATE TABLE events (person_id INTEGER, code TEXT, date TEXT)")
        file.executemany("INSERT INTO events VALUES (?, ?, ?)", EVENTS)
        file.execute("CREATE TABLE odd (person_id INTEGER, code BLOB, date TEXT)")
        file.execute("INSERT INTO odd VALUES (1, x'00ff', '2024-01-01')")
    file.close()
    return {"duckdb": f"duckdb://{tmp_path / 'd.duckdb'}", "sqlite": f"sqlite://{tmp_path / 's.sqlite'}"}


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_tables_and_queries_give_the_same(files, kind, tmp_path):
    expected = read(write_csv_table(tmp_path / "e.csv", ("person_id", "code", "date"), EVENTS), schema=EVENT_SCHEMA)
    assert read(f"{files[kind]}?table=events", schema=EVENT_SCHEMA) == expected
    (tmp_path / "q.sql").write_text("SELECT * FROM events ORDER BY random();\n")
    assert read(f"{files[kind]}?query=@{tmp_path / 'q.sql'}", schema=EVENT_SCHEMA) == expected


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("table=nothing", "nothing"),
        ("table=events%22%3B%20DROP%20TABLE%20events%3B--", "events"),
        ("query=DELETE FROM events", "begins with DELETE"),
        ("query=SELECT 1); DELETE FROM events; --", "cannot be read|read-only|one statement that reads"),
        (
            "query=WITH x AS (DELETE FROM events RETURNING *) SELECT * FROM x",
            "cannot be read|read-only|one statement that reads",
        ),
        ("query=SELECT * FROM events WHERE false", "holds no records"),
        ("query=SELECT NULL AS person_id, code, date FROM events", "'person_id' names no record"),
        ("", "must say what to read"),
        ("table=events&user=x", "unknown option 'user'"),
    ],
)
def test_what_cannot_be_read_is_refused_and_nothing_is_changed(files, kind, options, message):
    with pytest.raises(InputError, match=message):
        read(f"{files[kind]}?{quote(options, safe='=&%@')}", schema=EVENT_SCHEMA)
    assert len(read(f"{files[kind]}?table=events", schema=EVENT_SCHEMA).matrix) == 4


def test_other_urls_are_refused(files, tmp_path):
    with pytest.raises(InputError, match="binary data"):
        read(f"{files['sqlite']}?table=odd", schema=EVENT_SCHEMA)
    with pytest.raises(InputError, match="give the schema"):
        read(f"{files['sqlite']}?table=events")
    with pytest.raises(InputError, match="no file"):
        read(f"sqlite://{tmp_path}/absent.db?table=x", schema=EVENT_SCHEMA)
    with pytest.raises(InputError, match=r"oracle://"):
        read("oracle://x/y?table=z", schema=EVENT_SCHEMA)
    with pytest.raises(InputError, match="no domain 'weather'"):
        read(f"{omop_sqlite(tmp_path)}?domains=weather", schema=EVENT_SCHEMA)


@pytest.mark.parametrize("url", ["postgresql://me:s3cret@db/x?table=t", "postgresql://db/x?table=t&password=s3cret"])
def test_a_password_in_a_url_is_refused_and_not_repeated(url):
    for use in (parse_url, lambda url: Job(url, "bmf", 3), lambda url: read(url, schema=EVENT_SCHEMA)):
        with pytest.raises(InputError, match="PGPASSWORD") as refused:
            use(url)
        assert "s3cret" not in str(refused.value)


def test_results_name_neither_user_nor_host():
    assert source_name("postgresql://me@db.hospital.example:5432/clinic?table=events") == "postgresql:clinic (events)"
    assert source_name("/data/x.csv") == "x.csv"
