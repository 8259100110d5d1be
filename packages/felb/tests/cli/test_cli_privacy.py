"""`felb privacy`, and the options by which fit and simulate agree on it."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from cli_files import leftovers, read_log

from felb.federated.algorithms import private
from felb.federated.algorithms.private import Candidates
from felb.privacy.accounting import _composed_epsilon
from felb.privacy.mechanisms import _sampler

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

PRIVATE = ("-k", 3, "--clients", 3, "--epsilon", 2)
THETA = ("--privacy", "theta=1", "--privacy", "rounds=3")
PLAN = ("privacy", "plan", "-n", 400, "-m", 12, "--clients", 3, "--epsilon", 1)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    """Let the server find its candidates at once."""

    def found(released, n_components, *, factorize, seed):
        V = np.zeros((2, n_components, released.M.shape[0]), dtype=bool)
        V[0, :, :3] = V[1, :, 1:4] = True
        return Candidates(V, 2.0)

    monkeypatch.setattr(private, "find_candidates", found)


@pytest.fixture
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def run(felb, table):
    assert felb("simulate", table, "-o", "run", *PRIVATE).code == 0
    return "run"


# -- simulate, fit, show -----------------------------------------------------------------------------------------------


def test_a_private_simulation_states_its_promise_and_no_scores(felb, table, in_folder):
    done = felb("simulate", table, "-o", "run", *PRIVATE)
    assert done.code == 0
    for shown in (done.out, felb("show", "run").out):
        words = " ".join(shown.split())
        assert "(epsilon, delta) = (2, 1e-05) in total per record" in words
        assert "felb score run DATA" in words
        for exact in ("rmsd", "support", " ones"):
            assert exact not in shown
    found = felb("show", "run", "--json").json
    assert found["scores"] == {}
    assert found["privacy"]["epsilon"] == 2
    assert found["provenance"]["parameters"]["privacy"]["mechanism"] == "cooccurrence"
    scored = felb("score", "run", table, "--json").json
    assert 0 <= scored["scores"]["f1"] <= 1
    assert leftovers(in_folder) == ["run", "table.csv"]


def test_terms_without_an_option_of_their_own(felb, table):
    terms = ("--noise", "distributed", "--neighbours", "replace", "--delta", "1e-6")
    done = felb(
        "simulate",
        table,
        "-o",
        "run",
        *PRIVATE,
        *terms,
        "--privacy",
        "row_bound=4",
        "--privacy",
        "colluders=1",
        "--secure",
        "--json",
    )
    assert done.code == 0
    guaranteed = done.json["privacy"]
    told = {name: guaranteed[name] for name in ("noise", "neighbours", "delta", "row_bound", "colluders", "unit")}
    assert told == {
        "noise": "distributed", "neighbours": "replace", "delta": 1e-6, "row_bound": 4, "colluders": 1,
        "unit": "record",
    }  # fmt: skip
    assert "1 of 2 shares" in read_log_of("run", "client-01")[0]["mechanism"]


def read_log_of(run, client):
    from pathlib import Path

    return read_log(Path(run) / "outbound" / f"{client}.jsonl")


def test_a_private_fit_may_be_published(felb, table):
    done = felb("fit", table, "-o", "out", "-k", 3, "--epsilon", 2, "--json")
    assert done.code == 0
    assert done.json["scores"] == {}
    assert done.json["provenance"]["data"]["fingerprint"] is None
    assert done.json["privacy"]["clients"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--epsilon", 0), 2, "--epsilon"),
        (("--epsilon", -1), 2, "--epsilon"),
        (("--delta", 1e-6), 1, "needs epsilon"),
        (("--epsilon", 1, "--delta", 0.5), 1, "below 1/60"),
        (("--epsilon", "nan"), 1, "epsilon must be positive"),
        (("--epsilon", 1, "--method", "asso"), 1, "is for centralized data"),
        (("--epsilon", 1, "--mechanism", "magic"), 2, "magic"),
        (("--epsilon", 1, "--privacy", "row_bound"), 2, "NAME=VALUE"),
        (("--epsilon", 1, "--privacy", "rows=3"), 1, "has no 'rows'"),
        (("--epsilon", 1, "--privacy", "colluders=1"), 1, "--noise"),
        (("--epsilon", 1, "--sample", 0.5), 1, "participation"),
        (("--epsilon", 1, "-k", "mdl"), 1, "give a number"),
    ],
)
def test_agreements_that_cannot_be_kept_are_refused(felb, table, in_folder, arguments, code, said):
    done = felb("simulate", table, "-o", "out", "--clients", 3, *arguments)
    assert done.code == code
    assert said in done.err
    assert done.out == ""
    assert "Traceback" not in done.err
    assert leftovers(in_folder) == ["table.csv"]


@pytest.mark.parametrize("package", ["opendp.measurements", "dp_accounting.pld"])
def test_a_missing_package_is_named_by_its_extra(felb, table, in_folder, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    _sampler.cache_clear()
    _composed_epsilon.cache_clear()
    done = felb("simulate", table, "-o", "out", *PRIVATE)
    assert done.code == 1
    assert "pip install 'felb[privacy]'" in done.err
    assert leftovers(in_folder) == ["table.csv"]


# -- log ---------------------------------------------------------------------------------------------------------------


def test_the_log_of_a_private_run(felb, run, wide_terminal):
    shown = felb("privacy", "log", run)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0] == "client-01 and 2 others, each"
    assert lines[1].split() == ["rounds", "what", "shape", "bytes", "mechanism", "cost", "total"]
    assert [line.split()[:2] for line in lines[2:5]] == [["0", "sizes"], ["1", "cooccurrence"], ["2", "choice"]]
    assert all("discrete gaussian" in line and " μ " in line and " ε " in line for line in lines[2:5])
    assert "9 arrays" in lines[-1]
    assert "each has spent at most (epsilon, delta) = (2, 1e-05)" in lines[-1]


def test_the_log_of_one_client_and_of_one_file_as_json(felb, run):
    one = felb("privacy", "log", run, "--client", "client-02", "--json").json
    assert one == felb("privacy", "log", "run/outbound/client-02.jsonl", "--json").json
    assert [(part["client"], part["what"], part["rounds"]) for part in one] == [
        ("client-02", "sizes", [0, 0]),
        ("client-02", "cooccurrence", [1, 1]),
        ("client-02", "choice", [2, 2]),
    ]
    lines = read_log_of(run, "client-02")
    assert [part["bytes"] for part in one] == [line["bytes"] for line in lines]
    assert [part["cost"]["mu"] for part in one] == pytest.approx([line["cost"]["loss"] for line in lines])
    assert one[-1]["total"] == lines[-1]["total"]
    assert len(felb("privacy", "log", run, "--json").json) == 9


def test_the_log_of_a_run_without_noise(felb, table, wide_terminal):
    felb("simulate", table, "-o", "plain", "-k", 3, "--clients", 3, "--method", "felb-mu", "--rounds", 5)
    shown = felb("privacy", "log", "plain")
    assert shown.code == 0
    assert "0-2" in shown.out  # the sketches of the start
    assert "4-8" in shown.out
    assert "none protected by noise, so there is no privacy total" in shown.out


def test_the_log_of_a_site_is_shown_by_another_command(felb, in_folder, run):
    (in_folder / "site").mkdir()
    (in_folder / "site" / "site.json").write_text("{}", encoding="utf-8")
    shown = felb("privacy", "log", "site")
    assert shown.code == 1
    assert "felb site log" in shown.err


def test_the_log_of_a_run_under_way(felb, in_folder, run):
    (in_folder / run).rename(in_folder / "other.unfinished")
    assert "cooccurrence" in felb("privacy", "log", "other").out.replace("\n", "")


def test_centralized_data_has_no_log(felb, table):
    felb("fit", table, "-o", "out", "-k", 2, "--method", "asso")
    shown = felb("privacy", "log", "out")
    assert shown.code == 0
    assert "no outbound log" in shown.out
    assert felb("privacy", "log", "out", "--json").json == []


@pytest.mark.parametrize("width", [80, 120])
def test_the_log_fits_the_terminal(felb, run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = felb("privacy", "log", run).out.splitlines()
    assert max(map(len, shown[:-1])) <= width  # the sentence at the end is left to the terminal to fold


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "there is no nowhere"),
        ((".",), "holds no outbound log"),
        (("table.csv",), "is no outbound log"),
        (("run", "--client", "client-9"), "it has client-01, client-02, client-03"),
    ],
)
def test_logs_that_are_not_there(felb, run, arguments, said):
    shown = felb("privacy", "log", *arguments)
    assert shown.code == 1
    assert said in shown.err
    assert shown.out == ""


# -- statement ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_the_statement_of_a_run(felb, run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = felb("privacy", "statement", run)
    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= width
    stored = felb("privacy", "statement", run, "--json").json["privacy"]
    assert shown.out.split() == stored["text"].split()
    for subject in (
        "Protected unit",
        "Compared data",
        "Guarantee",
        "Trust needed",
        "Bounds",
        "Rounds",
        "What stays local",
    ):
        assert subject in shown.out
    assert stored["mu"] > 0


def test_without_an_agreement_it_is_said_that_nothing_is_promised(felb, table, wide_terminal):
    felb("simulate", table, "-o", "plain", "-k", 3, "--clients", 3, "--method", "felb-mu", "--rounds", 5)
    shown = felb("privacy", "statement", "plain")
    assert shown.code == 0
    assert "nothing is guaranteed" in shown.out
    assert "loss" in shown.out
    assert felb("privacy", "statement", "plain", "--json").json["privacy"] is None


def test_a_statement_needs_a_result(felb, in_folder):
    shown = felb("privacy", "statement", "nowhere")
    assert shown.code == 1
    assert "there is no folder 'nowhere'" in shown.err


# -- plan --------------------------------------------------------------------------------------------------------------


def test_a_plan_shows_the_noise_of_every_release(felb, in_folder, wide_terminal):
    shown = felb(*PLAN, "--ones-per-record", 3)
    assert (shown.code, shown.err) == (0, "")
    assert "(epsilon, delta) = (1, 1e-05)" in shown.out
    rows = [line.split() for line in shown.out.splitlines()[1:]]
    assert [row[0] for row in rows if row] == ["release", "sizes", "cooccurrence", "choice"]
    assert leftovers(in_folder) == []


def test_the_noise_of_a_plan_is_that_of_the_closed_form(felb, in_folder):
    found = felb(*PLAN, "--ones-per-record", 3, "--json").json
    sizes, pairs, choice = found["releases"]
    bound = math.sqrt(3 * 4 / 2 + 1)
    assert pairs["sigma_client"] == pytest.approx(bound / (found["mu"] * math.sqrt(pairs["share"])))
    assert pairs["sigma_sum"] == pytest.approx(math.sqrt(3) * pairs["sigma_client"])
    assert sizes["sigma_client"] == pytest.approx(1 / (found["mu"] * math.sqrt(sizes["share"])))
    assert choice["sigma_sum"] is None
    fixed = felb(*PLAN, "--privacy", "row_bound=3", "--json").json["releases"]
    assert [row["release"] for row in fixed] == ["cooccurrence", "choice"]
    rounds = felb(*PLAN, "--mechanism", "statistics", "--privacy", "rounds=16", "--json").json
    [statistics] = [row for row in rounds["releases"] if row["release"] == "statistics"]
    assert statistics["rounds"] == 16
    assert statistics["mu"] == pytest.approx(rounds["mu"] * math.sqrt(statistics["share"]) / 4)
    assert statistics["sigma_client"] == pytest.approx(math.sqrt(26) / statistics["mu"])
    wide = felb("privacy", "plan", "-n", 20000, "-m", 5000, "--epsilon", 1, "--json").json["releases"]
    assert [row["release"] for row in wide] == ["sizes", "columns", "cooccurrence", "choice"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--epsilon", 0), 2, "--epsilon"),
        (("--epsilon", "inf"), 1, "epsilon must be positive and finite"),
        (("--delta", 0.01), 1, "below 1/400"),
        (("-n", 0), 2, "--records"),
        (("--mechanism", "paper"), 2, "--mechanism"),
    ],
)
def test_plans_that_cannot_be_made_are_refused(felb, in_folder, arguments, code, said):
    shown = felb(*PLAN, *arguments)
    assert shown.code == code
    assert said in shown.err
    assert shown.out == ""


def test_a_plan_needs_an_epsilon(felb, in_folder):
    shown = felb("privacy", "plan", "-n", 400, "-m", 12)
    assert shown.code == 2
    assert "Give --epsilon" in shown.err
