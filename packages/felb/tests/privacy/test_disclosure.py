"""Disclosure rules: presets, the gate, simulated runs, results and reports."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from declarations import outputs_of

from felb.cli import main
from felb.data.binary import BinaryMatrix
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.gate import Gate
from felb.federated.protocol import Request, Update
from felb.privacy.disclosure import NO_RULES, PRESETS, Disclosure
from felb.privacy.spec import Privacy
from felb.runs.execute import simulate
from felb.runs.job import Job
from felb.runs.result import Result
from felb.sklearn.methods import make_federated


def test_presets_are_what_their_systems_ask_for():
    assert {name: (rule.min_support, rule.round_to) for name, rule in PRESETS.items()} == {
        "strict": (10, 1),
        "datashield": (3, 1),
        "ohdsi": (5, 1),
        "cms": (11, 1),
        "opensafely": (8, 5),
        "none": (1, 1),
    }
    assert PRESETS["datashield"].max_parameters == 0.33
    assert Disclosure.of(None) == PRESETS["strict"] == Disclosure(10, 3, 0.33, 1), "unset is strict"
    assert Disclosure.of({"preset": "cms", "min_sites": 4}) == Disclosure(11, 4, None, 1)
    assert Disclosure.of(Disclosure.of("opensafely").to_json()) == PRESETS["opensafely"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("datasheild", "no preset 'datasheild'"),
        ("", "no preset"),
        ({"min_suport": 5}, "no rule 'min_suport'"),
        ({"preset": "csm"}, "no preset 'csm'"),
        ({"min_support": 0}, "min_support must be"),
        ({"min_support": -1}, "min_support must be"),
        ({"min_support": True}, "min_support must be"),
        ({"min_support": "10"}, "min_support must be"),
        ({"min_sites": 2.5}, "min_sites must be"),
        ({"round_to": 0}, "round_to must be"),
        ({"max_parameters": 0}, "max_parameters must be"),
        ({"max_parameters": float("nan")}, "max_parameters must be"),
        ({"max_parameters": float("inf")}, "max_parameters must be"),
        (7, "a preset or a table"),
    ],
)
def test_a_misspelt_rule_is_an_error(rule, said):
    with pytest.raises(InputError, match=said):
        Disclosure.of(rule)


def released(update, rules, **options):
    gate = Gate("a", lambda _: None, disclosure=rules, **options)
    made_of = {"supports": {"made_of": "counted"}, "V": {"made_of": "named", "axes": 1}, "counts": {"made_of": "all"}}
    declared = outputs_of(update, **made_of)
    return gate.release(update, Request("t"), declared, rng=np.random.default_rng(0)).values


def test_the_gate_hides_counts_and_components_of_few_records():
    supports, V = np.array([3, 10, 57, 0]), np.ones((4, 5), np.uint8)
    update = Update({"supports": supports, "V": V, "counts": np.array([1, 2])}, {}, {"V": supports}, n_records=100)
    strict = released(update, Disclosure())
    assert strict["supports"].tolist() == [0, 10, 57, 0]
    assert strict["V"].any(axis=1).tolist() == [False, True, True, False]
    assert strict["V"].dtype == V.dtype
    assert strict["counts"].tolist() == [1, 2], "sums over all records are not of one component"
    assert released(update, PRESETS["opensafely"])["supports"].tolist() == [0, 10, 55, 0]
    for rules in (None, NO_RULES):
        assert released(update, rules)["supports"].tolist() == supports.tolist()


def test_what_all_but_a_few_records_have_all_are_said_to_have():
    update = Update({"supports": np.array([9, 10, 12, 13, 22])}, n_records=22)
    assert released(update, Disclosure())["supports"].tolist() == [0, 10, 12, 22, 22]


def test_a_client_of_few_records_tells_nothing():
    update = Update({"supports": np.array([9, 3]), "counts": np.array([4, 5])}, n_records=9)
    assert not any(value.any() for value in released(update, Disclosure()).values())


def test_counts_of_many_candidates_are_hidden_one_by_one():
    counts = np.array([[3, 12], [11, 9]])
    update = Update({"supports": counts}, n_records=99)
    assert released(update, PRESETS["cms"])["supports"].tolist() == [[0, 12], [11, 0]]


def test_under_a_guarantee_noise_protects_and_no_rule_is_applied():
    from felb.federated.gate import Responses
    from felb.privacy.releases import row_size_histogram

    plan = Privacy(1.0).plan(n_records=100, n_clients=3, n_columns=5)
    part = row_size_histogram(BinaryMatrix.of(np.eye(5, dtype=bool)))
    gate = Gate.private("a", lambda _: None, plan=plan, responses=Responses(plan.accountant()))
    assert gate.disclosure is None
    update = Update.of_records(sizes=part)
    gate.release(update, Request("sizes"), outputs_of(update), rng=np.random.default_rng(0))


@pytest.mark.parametrize("method", ["asso+vote", "asso+aligned-vote"])
def test_a_component_of_few_records_does_not_leave_its_client(method):
    rare = np.zeros((60, 12), dtype=bool)
    rare[:56, :6] = True
    rare[56:, 6:] = True  # four records
    shards = {name: BinaryMatrix.of(rare) for name in "abc"}
    algorithm = make_federated(method, n_components=2).algorithm(12)
    open_, hidden = (
        run(algorithm, shards, disclosure=rule).outcome.components for rule in (None, PRESETS["datashield"])
    )
    np.testing.assert_array_equal(open_, hidden)
    assert open_[:, 6:].any()
    assert not run(algorithm, shards, disclosure=PRESETS["ohdsi"]).outcome.components[:, 6:].any()


@pytest.fixture
def simulated(tmp_path):
    """Zoo at three clients: one component of few records."""
    job = Job("zoo", "bmf", 8, clients=3, parameters={"effort": "fast"}, disclosure={"preset": "cms", "min_support": 6})
    return simulate(job, tmp_path / "out"), tmp_path / "out"


def test_a_component_below_the_rule_is_named_as_withheld_and_not_shown(simulated, capsys):
    result, out = simulated
    assert len(result.withheld) == 1, result.supports
    (gone,) = result.withheld
    assert all(support is None or support >= 6 for support in result.supports)
    assert not result.components[gone].any()
    assert {c.number for c in result.described()} == set(range(8)) - {gone}
    stored = json.loads((out / "result.json").read_text())
    assert (stored["withheld"], stored["supports"][gone]) == ([gone], None)
    assert stored["disclosure"]["min_support"] == 6
    assert set(stored["clients"].values()) == {None}
    assert (stored["provenance"]["data"]["fingerprint"], stored["provenance"]["data"]["ones"]) == (None, None)
    with (out / "components.csv").open() as file:
        rows = {int(row["component"]): row for row in csv.DictReader(file)}
    assert rows[gone]["features"].startswith("(withheld")
    assert Result.read(out).withheld == result.withheld
    with pytest.raises(SystemExit):
        main(["show", str(out)])
    shown = capsys.readouterr().out
    assert f"components {gone}: too few records" in " ".join(shown.split())


def test_the_report_names_what_is_withheld(simulated, tmp_path, capsys):
    result, out = simulated
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit) as ended:
        main(["report", str(out), "-o", str(page)])
    assert ended.value.code == 0, capsys.readouterr().err
    text = page.read_text()
    assert "Withheld by the disclosure rules" in text
    assert f"components {result.withheld[0]}." in text


@pytest.mark.parametrize(
    ("rule", "clients", "said"),
    [
        ("strict", 2, "at least 3 clients"),
        ("strict", 3, "take fewer components"),
        ("datashield", 3, "disclosure rules allow"),
    ],
)
def test_a_federation_too_small_for_the_rules_is_refused_before_anything_leaves(tmp_path, rule, clients, said):
    with pytest.raises(InputError, match=said):
        simulate(Job("zoo", "bmf", 4, clients=clients, disclosure=rule), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_rules_and_noise_are_one_or_the_other():
    with pytest.raises(InputError, match="not both"):
        Job("zoo", "bmf", 4, privacy={"epsilon": 1.0}, disclosure="cms")


def test_simulate_takes_the_name_of_a_preset_and_refuses_others(tmp_path, capsys):
    out = str(tmp_path / "out")
    start = ["simulate", "zoo", "-o", out, "--clients", "3", "--method", "asso+vote", "-k", "2"]
    with pytest.raises(SystemExit) as ended:
        main([*start, "--disclosure", "csm"])
    assert ended.value.code == 2
    with pytest.raises(SystemExit) as ended:
        main([*start, "--disclosure", "cms", "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["disclosure"]["min_support"] == 11
