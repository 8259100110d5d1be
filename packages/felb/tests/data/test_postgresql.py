"""PostgreSQL as a source, against a server that is started for the test."""

from __future__ import annotations

import threading
import traceback

import pytest
from postgres_server import PASSWORD, postgres_server
from raw_tables import EVENT_SCHEMA, EVENTS, SURVEY, SURVEY_SCHEMA, write_csv_table

from felb.data import read
from felb.errors import InputError


@pytest.fixture(scope="module")
def server():
    with postgres_server() as started:
        started.execute(
            'CREATE TABLE "dia""gno;ses" (person_id bigint, code text, date date)',
            "CREATE TABLE survey (id integer, sex text, age numeric(6,2), bmi double precision, insured boolean)",
            "CREATE SEQUENCE counter",
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO reader",
            "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO reader",
        )
        started.copy('"dia""gno;ses"', EVENTS)
        started.copy("survey", [(r[0], r[1], r[2], r[3], None if r[4] is None else r[4] == "true") for r in SURVEY])
        yield started


@pytest.fixture
def password(monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


@pytest.mark.usefixtures("password")
def test_events_and_surveys_read_as_from_files(server, tmp_path):
    events = write_csv_table(tmp_path / "events.csv", ("person_id", "code", "date"), EVENTS)
    found = read(server.url(table='dia"gno;ses'), schema=EVENT_SCHEMA)
    assert found == read(events, schema=EVENT_SCHEMA)
    survey = write_csv_table(tmp_path / "survey.csv", ("id", "sex", "age", "bmi", "insured"), SURVEY)
    expected = read(survey, schema=SURVEY_SCHEMA)
    assert read(server.url(table="survey"), schema=SURVEY_SCHEMA) == expected
    query = "SELECT * FROM survey WHERE sex LIKE '%' OR sex IS NULL ORDER BY random();"
    assert read(server.url(query=query), schema=SURVEY_SCHEMA) == expected
    assert expected.matrix.nnz > 0
    assert expected.matrix.unknown is not None


def test_the_password_may_be_in_a_file_that_only_its_owner_reads(server, tmp_path, monkeypatch):
    monkeypatch.delenv("PGPASSWORD", raising=False)
    file = tmp_path / "pass"
    file.write_text(f"127.0.0.1:{server.port}:*:reader:{PASSWORD}\n")
    monkeypatch.setenv("PGPASSFILE", str(file))
    file.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        read(server.url(table="survey"), schema=SURVEY_SCHEMA)
    file.chmod(0o600)
    assert len(read(server.url(table="survey"), schema=SURVEY_SCHEMA).matrix) == len(SURVEY)


def test_a_wrong_password_is_told_and_not_repeated(server, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "wr0ng-w0rd")
    with pytest.raises(InputError, match=r"authentication") as refused:
        read(server.url(table="survey"), schema=SURVEY_SCHEMA)
    assert "wr0ng-w0rd" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.usefixtures("password")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "nothing"}, 'relation "nothing" does not exist'),
        ({"table": "survey; DROP TABLE survey"}, "does not exist"),
        ({"query": "DELETE FROM survey"}, "begins with DELETE"),
        ({"query": "SELECT id, nextval('counter') AS sex FROM survey"}, "read-only transaction"),
        ({"query": "WITH gone AS (DELETE FROM survey RETURNING *) SELECT * FROM gone"}, "the session is read-only"),
        ({"query": "SELECT 1; DELETE FROM survey"}, "the session is read-only"),
        ({"query": "SELECT * FROM survey WHERE false"}, "holds no records"),
        ({"query": "SELECT NULL::int AS id, sex, age, bmi, insured FROM survey"}, "'id' names no record"),
        ({"query": "SELECT id, sex, age FROM survey"}, "has no column 'bmi'; it has id, sex, age"),
        (
            {"query": "SELECT id, sex, age, bmi, 'maybe' AS insured FROM survey WHERE id = 2"},
            "record '2': column 'insured' holds 'maybe'",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(server, options, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        read(server.url(**options), schema=SURVEY_SCHEMA)
    assert len(read(server.url(table="survey"), schema=SURVEY_SCHEMA).matrix) == len(SURVEY)


@pytest.mark.usefixtures("password")
def test_a_connection_lost_in_the_middle_is_an_error(server):
    columns = "g AS id, 'F' AS sex, 30 AS age, 20 AS bmi, true AS insured, pg_sleep(0.01)"
    cutting_off = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%'"

    def cut():
        while not done.wait(0.2):
            server.execute(cutting_off)

    done = threading.Event()
    cutting = threading.Thread(target=cut)
    cutting.start()
    try:
        with pytest.raises(InputError, match=r"lost.*nothing was written"):
            read(server.url(query=f"SELECT {columns} FROM generate_series(1, 100000) g"), schema=SURVEY_SCHEMA)
    finally:
        done.set()
        cutting.join()
