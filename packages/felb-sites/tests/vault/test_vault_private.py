"""Private runs: a run is charged with all that it may cost, once, and what is charged is what a simulation charges."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from vault_parts import (
    NAMES,
    charges,
    exact_plan,
    make_loopback,
    make_shards,
    notes,
    outbox,
    plain_lines,
    private_plan,
    said_refusals,
    seed_noise,
)  # fmt: skip

from felb.engines.local import run
from felb.federated.loop import play
from felb_sites import messages
from felb_sites.vault.operator import Verbs
from felb_sites.vault.session import Session, planned_costs
from felb_sites.vault.vault import REFUSED_ROUND

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

FIRST = messages.RoundSums()


def first_round(loop, run_id="p1", name="site-1"):
    loop.read(name)
    loop.vaults[name].deliver([loop.seal("sums", run_id, 0, FIRST)])
    return [(header.kind, message) for header, message in loop.read(name)]


def begin(loop, plan, **options):
    said = loop.propose(plan, **options)["site-1"]
    return first_round(loop, plan.run_id) if isinstance(said, messages.Consent) else [("refusal", said)]


# -- a whole run -----------------------------------------------------------------------------------------------------


def test_a_private_run_charges_and_releases_what_its_simulation_does(tmp_path, monkeypatch):
    seed_noise(monkeypatch)
    loop, plan = make_loopback(tmp_path), private_plan()
    over_sites = loop.play(plan)
    left = {name: [] for name in NAMES}
    simulated = run(plan.algorithm(), make_shards(), seed=plan.seed, outbound=lambda name: left[name].append)
    np.testing.assert_array_equal(over_sites.outcome.components, simulated.outcome.components)
    assert [row["task"] for row in over_sites.history] == [row["task"] for row in simulated.history]
    for name in NAMES:
        expected = [json.loads(json.dumps({"run": "p1", **asdict(record)})) for record in left[name]]
        assert plain_lines(loop, name) == expected
        assert any(line["cost"] is not None for line in expected)
        assert charges(loop, name) == [("p1", 1.0, 1e-5, "record", "add_remove")]


def test_every_response_of_a_private_run_is_kept(tmp_path):
    loop = make_loopback(tmp_path)
    history = loop.play(private_plan()).history
    kept = loop.vaults["site-1"].store.rows("select round from responses order by round")
    assert [row["round"] for row in kept] == list(range(len(history)))


def test_a_repetition_is_neither_drawn_nor_charged_again(tmp_path):
    loop = make_loopback(tmp_path)
    ((_, first),) = begin(loop, private_plan())
    lines = plain_lines(loop)
    for restart in (False, True):
        if restart:
            loop.restart("site-1")
        assert first_round(loop)[-1] == ("response", first)
        assert plain_lines(loop) == lines
        assert len(charges(loop)) == 1


def test_noise_does_not_follow_from_the_seed_of_the_plan(tmp_path):
    said = [begin(make_loopback(tmp_path / str(i)), private_plan())[0][1].values for i in range(2)]
    assert said[0] != said[1]


# -- the budget of a site --------------------------------------------------------------------------------------------


def test_runs_are_refused_when_the_sum_of_epsilon_would_exceed_the_limit(tmp_path):
    loop = make_loopback(tmp_path, total_epsilon=2.0)
    assert [begin(loop, private_plan(f"p{i}"))[0][0] for i in range(2)] == ["response"] * 2
    ((_, refusal),) = begin(loop, private_plan("p3"))
    assert refusal == messages.Refusal("budget")
    assert [row[0] for row in charges(loop)] == ["p0", "p1"]


def test_runs_are_refused_when_the_sum_of_delta_would_exceed_the_limit(tmp_path):
    loop = make_loopback(tmp_path, total_delta=1.5e-5, total_epsilon=100.0)
    assert begin(loop, private_plan("p0"))[0][0] == "response"
    assert begin(loop, private_plan("p1"))[0][1].code == "budget"


def test_ten_tenths_are_one(tmp_path):
    loop = make_loopback(tmp_path, total_epsilon=0.3)
    assert [begin(loop, private_plan(f"p{i}", epsilon=0.1))[0][0] for i in range(3)] == ["response"] * 3


def test_runs_that_were_approved_together_do_not_exceed_the_limit_together(tmp_path):
    loop = make_loopback(tmp_path, total_epsilon=1.5)
    plans = [private_plan(f"p{i}") for i in range(2)]
    assert all(loop.propose(plan)["site-1"].status == "approved" for plan in plans)
    assert first_round(loop, "p0")[0][0] == "response"
    assert first_round(loop, "p1")[0][1].code == "budget"
    assert len(charges(loop)) == 1


def test_guarantees_of_different_kinds_are_not_added_up(tmp_path):
    loop = make_loopback(tmp_path)
    store = loop.vaults["site-1"].store
    store.write("insert into budget values('old', 9.9, 1e-6, 'record', 'replace', 0)")
    assert begin(loop, private_plan())[0][0] == "response"
    totals = Verbs(loop.vaults["site-1"]).budget()["totals"]
    assert sorted((total["neighbours"], total["epsilon"]) for total in totals) == [
        ("add_remove", 1.0),
        ("replace", 9.9),
    ]


def test_an_exact_run_after_a_private_one_is_refused_unless_the_site_says_otherwise(tmp_path):
    loop = make_loopback(tmp_path)
    assert loop.propose(exact_plan("early"))["site-1"].status == "approved"
    assert begin(loop, private_plan())[0][0] == "response"
    assert loop.propose(exact_plan())["site-1"] == messages.Refusal("privacy")
    assert first_round(loop, "early")[0][1].code == "privacy", "also one that was approved before"
    before = loop.configs["site-1"]
    loop.configs["site-1"] = replace(before, policy=replace(before.policy, exact_after_private=True))
    assert begin(loop, exact_plan(), number=1)[0][0] == "response"


def test_a_person_is_told_when_little_is_left(tmp_path):
    loop = make_loopback(tmp_path, total_epsilon=1.1)
    loop.play(private_plan())
    assert any(event.kind == "budget" and "epsilon 0.1 of 1.1" in event.text for event in loop.events)


class Stopped(Exception):
    """The coordinator stops here."""


def test_what_failures_have_cost_counts_and_more_than_the_epsilon_of_the_plan_is_not_to_be_had(tmp_path):
    loop, plan = make_loopback(tmp_path), private_plan()
    loop.propose(plan)
    transport, asked = loop.transport(plan), []

    def stop(request):
        asked.append(request)
        if request.round == 1:
            raise Stopped

    transport.before = stop
    with pytest.raises(Stopped):
        play(plan.algorithm(), transport, seed=plan.seed)
    costs = planned_costs(plan.algorithm().privacy, asked[-1].task)
    said = json.dumps({what: cost.to_json() for what, cost in costs.items()})
    loop.vaults["site-1"].store.write("insert into attempts values('p1', 1, 'another request', 1, 1, ?)", said)
    loop.restart("site-1")
    lines = loop.lines("site-1")
    data = transport.broadcast(asked[-1])
    loop.deliver(data, to=["site-1", "site-2"])
    (row,) = [row for row in outbox(loop) if row["kind"] == "refusal"]
    assert said_refusals(loop) == [messages.Refusal("failed")]
    assert said_refusals(loop, "site-2") == []
    assert row["number"] == REFUSED_ROUND + 1
    assert "what the run may cost is spent" in notes(loop)[-1]
    assert loop.lines("site-1") == lines


# -- failures --------------------------------------------------------------------------------------------------------


def failing(self, spec, work):
    raise ValueError("Jane Doe has 7 ones")


def test_a_task_that_raises_in_a_private_run_is_charged_and_gives_one_constant_refusal(tmp_path, monkeypatch):
    loop = make_loopback(tmp_path)
    loop.propose(private_plan())
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_do", failing)
        ((kind, refusal),) = first_round(loop)
    assert (kind, refusal) == ("refusal", messages.Refusal("failed"))
    assert charges(loop) == [("p1", 1.0, 1e-5, "record", "add_remove")]
    (attempt,) = loop.vaults["site-1"].store.rows("select failed, costs from attempts")
    assert attempt["failed"] == 1
    assert "gaussian" in attempt["costs"]
    assert all(b"Jane" not in row["body"] for row in outbox(loop))
    assert first_round(loop)[-1][1] == messages.Refusal("failed"), "a repetition fails at once"
    assert loop.lines("site-1") == []
    assert notes(loop)


def test_a_budget_is_charged_before_a_row_is_touched(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def die(self, spec, work):
        raise Killed

    loop = make_loopback(tmp_path)
    loop.propose(private_plan())
    with monkeypatch.context() as patch:
        patch.setattr(Session, "_do", die)
        with pytest.raises(Killed):
            loop.vaults["site-1"].deliver([loop.seal("sums", "p1", 0, FIRST)])
    loop.restart("site-1")
    assert len(charges(loop)) == 1
    assert first_round(loop)[-1][0] == "response"
    assert said_refusals(loop) == []
