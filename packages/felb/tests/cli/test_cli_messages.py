"""What the command line says about mistakes, and that it names the option or the command that helps."""

from __future__ import annotations

import csv

import pytest

from felb.privacy import Privacy
from felb.runs.result import join_names


@pytest.mark.parametrize(("given", "meant"), [(["fitt"], "fit"), (["schema", "infr"], "infer")])
def test_a_command_with_a_typing_error_is_suggested(felb, given, meant):
    done = felb(*given)
    assert done.code == 2
    assert done.err.count("Did you mean") == 1
    assert f"{meant!r}" in done.err


def test_an_existing_schema_is_replaced_by_an_option_of_the_command(felb, in_folder):
    (in_folder / "raw.csv").write_text("sex\n" + "F\nM\n" * 20)
    assert felb("schema", "infer", "raw.csv", "-o", "raw.toml").code == 0
    done = felb("schema", "infer", "raw.csv", "-o", "raw.toml")
    assert done.code == 1
    assert "--force" in done.err
    assert "force=True" not in done.err


def test_parameters_that_the_error_lists_are_accepted(felb, in_folder):
    done = felb("simulate", "zoo", "-p", "foo=1", "-o", "out")
    listed = done.err.partition("it has ")[2].strip().split(", ")
    assert {"effort", "objective"} <= set(listed)
    for name in listed:
        assert "belongs to the run" not in felb("simulate", "zoo", "-p", f"{name}=[]", "-o", "out").err


def test_more_components_than_columns_are_noted(felb, table):
    done = felb("simulate", table, "--method", "asso+vote", "-k", 99, "-o", "out")
    assert done.code == 0
    assert "at most 12 components can be of use" in done.err
    done = felb("choose-k", table, "-k", "13", "--folds", 1, "--resamples", 0)
    assert done.code == 0
    assert "at most 12 components can be of use" in done.err


def test_options_are_offered_where_they_have_an_effect(felb):
    assert "--noise" not in felb("fit", "--help").out
    assert "--noise" in felb("simulate", "--help").out
    assert "no privacy" not in felb("privacy", "plan", "--help").out
    assert Privacy(1.0).noise == "client"


def test_names_of_features_can_be_told_apart_in_tables(felb, in_folder):
    (in_folder / "t.csv").write_text('"a; b",c,d\n' + "1,1,0\n0,0,1\n" * 10)
    assert felb("fit", "t.csv", "--method", "grecond", "-k", 2, "-o", "out").code == 0
    with (in_folder / "out" / "components.csv").open(newline="") as file:
        assert {row["features"] for row in csv.DictReader(file)} == {'"a; b"; c', "d"}
    assert felb("show", "out", "--table", "long.csv").code == 0
    with (in_folder / "long.csv").open(newline="") as file:
        assert {(row["component"], row["feature"]) for row in csv.DictReader(file)} == {
            ("0", "a; b"),
            ("0", "c"),
            ("1", "d"),
        }
    again = felb("show", "out", "--table", "long.csv")
    assert again.code == 1
    assert "--force" in again.err
    assert join_names(['say "x"', "y"]) == '"say ""x"""; y'


def test_a_changed_result_is_shown_on_request_and_says_so(felb, in_folder):
    assert felb("fit", "zoo", "--method", "grecond", "-k", 3, "-o", "out").code == 0
    path = in_folder / "out" / "components.csv"
    path.write_text(path.read_text().replace("milk", "silk"))
    for verb in (["show", "out"], ["score", "out", "zoo"], ["interpret", "out"], ["report", "out", "--force"]):
        done = felb(*verb)
        assert done.code == 1
        assert "components.csv is not the file" in done.err
        done = felb(*verb, "--unverified", "--json")
        assert done.code == 0, done.err
        assert "warning: unverified" in done.err
        assert done.json["unverified"]
    assert "unverified" in felb("show", "out", "--unverified").out
    assert "unverified" in (in_folder / "out" / "report.html").read_text(encoding="utf-8")


def test_names_of_records_are_kept_with_their_assignments(felb, in_folder):
    rows = [f"p{i},{i % 2},{(i + 1) % 2},{'ns'[i % 2]}" for i in range(20)]
    (in_folder / "t.csv").write_text("\n".join(["patient,a,b,site", *rows]) + "\n")
    how = ("--method", "grecond+or", "-k", 2, "--client-column", "site", "--record-column", "patient")
    assert felb("simulate", "t.csv", *how, "-o", "out").code == 0
    with (in_folder / "out" / "assignments" / "n.csv").open(newline="") as file:
        assert [row["record"] for row in csv.DictReader(file)] == [f"p{i}" for i in range(0, 20, 2)]
    how = ("--method", "grecond", "-k", 2, "--client-column", "site", "--record-column", "patient")
    assert felb("fit", "t.csv", *how, "-o", "alone").code == 0
    assert "p19" in (in_folder / "alone" / "assignments" / "centralized.csv").read_text()
    assert felb("score", "alone", "t.csv", "--client-column", "site", "--record-column", "patient").code == 0
    assert felb("interpret", "alone", "--json").code == 0
