"""``felb compare`` and ``felb cite``."""

import csv
import sys

import pytest

from felb.federated.algorithms.registry import METHODS
from felb.sklearn.methods import read_publications

SMALL = ("--methods", "bmf,asso+vote,own_method:First", "-k", "3,2", "--clients", 3, "--seeds", 1)


@pytest.fixture
def own(in_folder, monkeypatch):
    (in_folder / "own_method.py").write_text(
        "class First:\n"
        "    def __init__(self, n_components):\n"
        "        self.n_components = n_components\n"
        "    def fit(self, X):\n"
        "        self.components_ = X[: self.n_components]\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("own_method", None)


def test_tables_of_every_kind_and_a_page_are_left(felb, own, in_folder):
    done = felb("compare", "zoo", *SMALL, "-o", "cmp")
    assert (done.code, done.err) == (0, "")
    assert "own_method:First" in done.out
    with (in_folder / "cmp" / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["method"], row["components"]) for row in rows} == {
        (method, k) for method in ("bmf", "asso+vote", "own_method:First") for k in ("2", "3")
    }
    best = max((float(row["mean"]), row["method"]) for row in rows if row["score"] == "f1" and row["components"] == "3")
    assert f"**{best[0]:.3f}**" in (in_folder / "cmp" / "table.md").read_text()
    assert rf"\textbf{{{best[0]:.3f}}}" in (in_folder / "cmp" / "table.tex").read_text()
    assert "<strong>" in (in_folder / "cmp" / "comparison.html").read_text()
    again = felb("compare", "zoo", *SMALL, "-o", "cmp", "--json").json
    assert {cell["status"] for cell in again["cells"]} == {"done"}
    assert len(again["cells"]) == 6


def test_parameters_of_one_method_and_of_all(felb, in_folder):
    words = (
        "compare",
        "zoo",
        "--methods",
        "asso,asso+vote",
        "-k",
        3,
        "--seeds",
        1,
        "--clients",
        2,
        "-o",
        "cmp",
        "--json",
    )
    plain = felb(*words).json["cells"]
    one = felb(*words, "-p", "asso+vote:tau=0.1").json["cells"]
    both = felb(*words, "-p", "tau=0.1").json["cells"]
    assert one[0] == plain[0]
    assert one[1]["f1"] != plain[1]["f1"]
    assert both[1] == one[1]
    assert both[0]["f1"] != plain[0]["f1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("missing.csv", "-o", "cmp"), "there is no file"),
        (("zoo", "-o", "cmp", "--methods", "nothing"), "unknown method"),
        (("zoo", "-o", "cmp", "-k", "five"), "no list of numbers"),
        (("zoo", "-o", "cmp", "-k", "0"), "no list of numbers"),
        (("zoo", "-o", "cmp", "-k", "3", "-p", "asso:tau=1"), "not compared"),
        (("zoo", "-o", "cmp", "--methods", "no.such:Method"), "cannot be imported"),
    ],
)
def test_wrong_input_leaves_nothing(felb, in_folder, words, said):
    done = felb("compare", *words)
    assert done.code in (1, 2)
    assert said in done.err
    assert not (in_folder / "cmp").exists()


def test_a_path_is_no_method_of_other_commands(felb, own):
    for command in ("fit", "simulate"):
        done = felb(command, "zoo", "-o", "out", "--method", "own_method:First")
        assert done.code == 1
        assert "unknown method" in done.err
    assert "own_method" not in sys.modules


def test_a_cell_that_fails_is_told_and_the_others_are_there(felb, own, in_folder):
    (in_folder / "own_method.py").write_text(
        "class First:\n    def fit(self, X):\n        raise ValueError('no luck')\n"
    )
    done = felb("compare", "zoo", "--methods", "grecond,own_method:First", "-k", 3, "--seeds", 1, "-o", "cmp")
    assert done.code == 0
    assert "failed" in done.out
    assert "n_components" in done.out
    assert "1 of 2 runs have no scores" in (in_folder / "cmp" / "table.tex").read_text()


def test_every_method_has_references_that_are_there(felb):
    known = read_publications()
    assert all(method.publications and set(method.publications) <= set(known) for method in METHODS.values())
    for key, entry in known.items():
        assert entry.startswith("@")
        assert entry.count("{") == entry.count("}"), key
    assert felb("cite", "asso+vote").out.count("@") == 2
    assert felb("cite").out.count("\n@") == len(known) - 1
    assert "dalleiger2025federated" in felb("cite", "felb", "--json").json
    refused = felb("cite", "nothing")
    assert refused.code == 1
    assert "unknown method" in refused.err
