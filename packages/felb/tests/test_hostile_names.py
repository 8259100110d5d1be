"""Names that others chose: formulas in tables, escapes for terminals, views that read other files."""

import ast
import csv
import io
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import felb
from felb.cli import output
from felb.data import BinaryMatrix, read
from felb.errors import InputError
from felb.records import guard_cell, unguard_cell, write_csv
from felb.tables.sources import open_source

FORMULA = '=HYPERLINK("http://x","y")'
NAMES = [FORMULA, "+cmd", "-2+3", "@SUM(1)", "\tx", "'=quoted", "plain", "-5", "\x1b[31mred", "a\u202eb"]
SOURCES = Path(felb.__file__).parent


@given(st.text())
def test_a_guarded_cell_is_no_formula_and_reads_as_before(text):
    written = guard_cell(text)
    assert unguard_cell(written) == unguard_cell(guard_cell(text))
    if written != text:
        assert unguard_cell(written) == text
        assert written.startswith("'")
    elif text[:1] in "=+-@\t\r" and text:
        float(text)


def test_numbers_stay_as_they_are():
    file = io.StringIO()
    write_csv(file, [[-1, -0.5, "-0.5", "-x", None]], lineterminator="\n")
    assert file.getvalue() == "-1,-0.5,-0.5,'-x,\n"


def test_every_csv_file_is_written_by_the_one_function():
    for package in ("felb", "felb-sites", "felb-paper"):
        for path in (SOURCES.parents[2] / package / "src").rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            made = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in ("writer", "DictWriter")]
            own = [n for n in made if isinstance(n.value, ast.Name) and n.value.id == "csv"]
            assert len(own) == (path.name == "records.py"), path


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """A result over features with hostile names."""
    from felb import Job, fit

    folder = tmp_path_factory.mktemp("names")
    rows = np.random.default_rng(0).random((40, len(NAMES))) < 0.5
    rows[:20, 0] = rows[:20, 1] = True  # a component begins with the formula
    BinaryMatrix.of(rows, columns=NAMES).save(folder / "data.felb")
    fit(Job(str(folder / "data.felb"), "grecond", 4), folder / "out")
    return folder


def test_no_cell_of_a_result_s_tables_is_a_formula(result):
    from felb.report import gather
    from felb.report.exports import write_rules, write_tables

    inputs = gather(str(result / "out"), data=str(result / "data.felb"))
    write_tables(inputs, str(result / "tables"))
    write_rules(inputs, str(result / "rules.csv"))
    paths = [*result.rglob("*.csv")]
    assert len(paths) >= 4
    texts = [io.StringIO(path.read_bytes().decode(), newline="") for path in paths]
    cells = [cell for text in texts for row in csv.reader(text) for cell in row]
    assert any(cell.startswith("'=HYPERLINK") for cell in cells)
    for cell in cells:
        if cell[:1] in "=+-@\t\r" and cell:
            float(cell)


def test_names_that_were_guarded_are_read_without_the_guard(tmp_path):
    with (tmp_path / "t.csv").open("w", newline="") as file:
        write_csv(file, [[FORMULA, "@x", "'=quoted"], [1, 0, 1], [0, 1, 1]])
    assert "'=HYPERLINK" in (tmp_path / "t.csv").read_text()
    assert read(tmp_path / "t.csv").matrix.columns == (FORMULA, "@x", "'=quoted")
    with open_source(tmp_path / "t.csv") as source:
        assert list(source.columns) == [FORMULA, "@x", "'=quoted"]


def test_commands_print_nothing_that_a_terminal_obeys(result, felb):
    for command in (["show", str(result / "out")], ["score", str(result / "out"), str(result / "data.felb")]):
        said = felb(*command)
        text = said.output if hasattr(said, "output") else str(said)
        assert not {"\x1b", "\u202e", "\x07"} & set(text)


@pytest.mark.parametrize("text", ["\x1b]0;x\x07", "a\u202eb", "\u2066x\u2069", "\x9b31m", "a\rb", "\x00"])
def test_texts_and_cells_are_escaped_by_one_function(text, capsys):
    output.echo(text)
    output.echo(text, err=True)
    output.plain_console().print(text)
    output.print_rows([{"name": text, "last": text}])
    output.print_facts({"fact": text}, as_json=False)
    output.print_json({"fact": text})
    said = "".join(capsys.readouterr())
    assert "\ufffd" in said
    assert all(c.isprintable() or c == "\n" for c in said)


def test_commands_of_felb_print_by_the_escaping_functions_only():
    for path in (SOURCES / "cli").glob("*.py"):
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("echo", "secho")
            and isinstance(node.func.value, ast.Name)
        ]
        for call in calls:
            inner = call.args[0]
            assert isinstance(inner, ast.Call), path
            assert getattr(inner.func, "id", "") == "printable", path


@pytest.mark.parametrize("query", [None, "SELECT * FROM read_csv('{secret}')", "SELECT * FROM '{secret}'"])
def test_a_view_or_query_of_a_duckdb_file_reads_no_other_file(tmp_path, query):
    duckdb = pytest.importorskip("duckdb")
    secret, base = tmp_path / "secret.csv", tmp_path / "x.duckdb"
    secret.write_text("a,b\n1,0\n")
    with duckdb.connect(str(base)) as made:
        made.execute(f"CREATE VIEW v AS SELECT * FROM read_csv('{secret}')")
        made.execute("CREATE TABLE t AS SELECT 1 AS a, 0 AS b")
    with open_source(f"duckdb://{base}?table=t") as source:
        assert source.rows(f"SELECT count(*) FROM {source.relation}") == [(1,)]
    named = "table=v" if query is None else f"query={quote(query.format(secret=secret))}"
    with (
        pytest.raises(InputError, match=r"(?i)access|permission|disabled"),
        open_source(f"duckdb://{base}?{named}") as s,
    ):
        s.rows(f"SELECT * FROM {s.relation}")


def test_the_session_of_a_duckdb_file_cannot_be_unlocked(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    base = tmp_path / "x.duckdb"
    with duckdb.connect(str(base)) as made:
        made.execute("CREATE TABLE t AS SELECT range AS a FROM range(10)")
    with open_source(f"duckdb://{base}?table=t") as source:
        with pytest.raises(duckdb.Error):
            source.connection.execute("SET enable_external_access = true")
        with pytest.raises(duckdb.Error):
            source.connection.execute("ATTACH ':memory:' AS other; SELECT * FROM read_csv('/etc/passwd')")
