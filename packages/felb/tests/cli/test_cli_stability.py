"""`felb stability` and `felb choose-k`: tables, JSON, files, and refusals."""

from __future__ import annotations

import pytest

from felb.analysis.refits import Stability


@pytest.fixture
def zoo(felb, in_folder):
    done = felb("simulate", "zoo", "--clients", 3, "-k", 3, "-p", "effort=fast", "-o", "out")
    assert done.code == 0, done.err


@pytest.mark.usefixtures("zoo")
def test_stability_is_printed_stored_and_shown_in_the_report(felb, in_folder):
    done = felb("stability", "out", "--resamples", 3)
    assert done.code == 0, done.err
    assert done.out.split()[:7] == ["component", "match", "low", "high", "chance", "found", "features"]
    stored = Stability.read("out/stability.json")
    assert stored.match.shape == (3, 3)
    again = felb("stability", "out", "--resamples", 3, "--json").json
    assert again["components"] == stored.to_json()["components"]
    assert felb("report", "out", "-o", "page.html", "--csv", "tables").code == 0
    page = (in_folder / "page.html").read_text(encoding="utf-8")
    assert "share of 3 refits on resampled records" in page
    assert "found" in (in_folder / "tables" / "components.csv").read_text().splitlines()[0]


@pytest.mark.usefixtures("zoo")
def test_what_cannot_be_refitted_is_refused_without_a_traceback(felb, in_folder, table):
    wrong = felb("stability", "out", "--data", table)
    assert wrong.code == 1
    assert "columns" in wrong.err
    assert not (in_folder / "out" / "stability.json").exists()
    assert felb("stability", "nothing").code == 1
    assert felb("fit", "zoo", "-k", 2, "--epsilon", 5, "-p", "effort=fast", "-o", "private").code == 0
    private = felb("stability", "private", "--data", "zoo")
    assert private.code == 1
    assert "budget" in private.err


def test_choose_k_prints_the_curves_and_clients_do_not_change_them(felb, in_folder):
    options = ("zoo", "-k", "2-3", "--folds", 2, "--resamples", 0)
    done = felb("choose-k", *options, "--figure", "choice.png")
    assert done.code == 0, done.err
    assert "chosen by held-out cells: " in done.out
    assert (in_folder / "choice.png").read_bytes().startswith(b"\x89PNG")
    alone, shared = (felb("choose-k", *options, *more, "--json").json for more in ((), ("--clients", 4)))
    assert alone == shared
    assert [row["n_components"] for row in alone["scores"]] == [2, 3]


def test_choose_k_refuses_what_is_no_number(felb, in_folder):
    assert felb("choose-k", "zoo", "-k", "few").code == 2
    done = felb("choose-k", "zoo", "-k", "2", "--folds", 20)
    assert done.code == 1
    assert "fewer folds" in done.err


@pytest.mark.parametrize("figure", ["choice.pdf", "missing/choice.png"])
def test_choose_k_refuses_a_figure_that_cannot_be_written_before_it_computes(felb, in_folder, figure, monkeypatch):
    monkeypatch.setattr("felb.analysis.rank_choice.choose_k", lambda *_, **__: pytest.fail("it has computed"))
    done = felb("choose-k", "zoo", "-k", "2-3", "--figure", figure)
    assert done.code == 1
    assert "choice" in done.err or "folder" in done.err
    assert not list(in_folder.iterdir())
