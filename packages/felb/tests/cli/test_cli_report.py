"""``felb report``."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def result(felb, table, in_folder):
    assert felb("simulate", table, "--clients", 3, "-k", 3, "--method", "felb", "--rounds", 5, "-o", "run").code == 0
    return in_folder / "run"


def test_the_page_goes_into_the_folder_of_the_result(felb, result):
    shown = felb("report", "run")
    assert (shown.code, shown.err) == (0, "")
    page = (result / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "3 components of table.csv" in page
    assert "data:image/png" in page
    assert "report.html" in shown.out


def test_tables_and_figures_are_written_beside(felb, result, in_folder):
    shown = felb("report", result / "result.json", "-o", "p.html", "--png", "png", "--csv", "csv", "--json")
    assert shown.code == 0, shown.err
    told = shown.json
    assert told["bytes"] == (in_folder / "p.html").stat().st_size
    assert told["data"] == "table.csv"
    for path in (*told["png"], *told["csv"]):
        assert (in_folder / path).is_file()
    assert {"csv/components.csv", "csv/scores.csv", "csv/history.csv", "csv/overlap.csv"} <= set(told["csv"])


def test_without_the_data_a_note_says_what_is_missing(felb, result, table):
    table.unlink()
    shown = felb("report", "run")
    assert shown.code == 0
    assert "--data FILE" in shown.out
    assert "data:image/png" not in (result / "report.html").read_text(encoding="utf-8")


def test_data_elsewhere_is_given(felb, result, table, in_folder):
    table.rename(in_folder / "moved.csv")
    assert felb("report", "run", "--data", "moved.csv", "--json").json["data"] == "moved.csv"
    page = (result / "report.html").read_text(encoding="utf-8")
    assert "Computed on the data of the run, with the stored assignments" in page


def test_data_with_a_client_column_is_read_as_the_run_did(felb, hospitals, in_folder):
    assert felb(
        "simulate", hospitals, "--client-column", "hospital", "-k", 3, "--rounds", 3, "--method", "felb", "-o", "r"
    )
    assert felb("report", "r", "--json").json["data"] == "hospitals.csv"
    page = (in_folder / "r" / "report.html").read_text(encoding="utf-8")
    assert "with the stored assignments" in page
    assert "north" in page


def test_a_file_that_is_no_page_is_left_alone(felb, result, in_folder):
    (in_folder / "mine.html").write_text("mine")
    shown = felb("report", "run", "-o", "mine.html")
    assert (shown.code, shown.out) == (1, "")
    assert "--force" in shown.err
    assert (in_folder / "mine.html").read_text() == "mine"
    assert felb("report", "run", "-o", "mine.html", "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("nowhere",), "there is no folder 'nowhere'"), (("run", "--data", "gone.csv"), "there is no file 'gone.csv'")],
)
def test_what_is_not_there_is_named(felb, result, arguments, message):
    shown = felb("report", *arguments)
    assert (shown.code, shown.out) == (1, "")
    assert message in shown.err
    assert not (result / "report.html").exists()


def test_without_matplotlib_there_is_a_page_but_no_png(felb, result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert felb("report", "run").code == 0
    shown = felb("report", "run", "--png", "png")
    assert shown.code == 1
    assert "felb[report]" in shown.err
