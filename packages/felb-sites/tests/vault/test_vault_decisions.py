"""Whether a site takes part: what can be refused is refused before a person is asked, who decides for good."""

from __future__ import annotations

import json
import threading
from dataclasses import replace

import pytest
from loopback import Loopback
from vault_parts import UNDECIDED, K, M, exact_plan, make_loopback, make_shards, notes, private_plan, said_refusals

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb_sites import SHORT, messages
from felb_sites.keys.identity import Identity
from felb_sites.run_plan import Plan, fingerprint, plan_digest
from felb_sites.vault import vault as vault_module
from felb_sites.vault.operator import Verbs
from felb_sites.vault.session import Session

FIRST = messages.RoundSums()
PLAN = exact_plan()


@pytest.fixture
def loop(tmp_path):
    return make_loopback(tmp_path, **UNDECIDED)


def answers(loop, run="r1", name="site-1", number=0):
    """Ask for the first round and return what comes."""
    loop.read(name)
    loop.vaults[name].deliver([loop.seal("sums", run, number, FIRST, round=number)])
    return [(header.kind, message) for header, message in loop.read(name)]


# -- a person decides ------------------------------------------------------------------------------------------------


def test_a_run_waits_for_a_person_and_nothing_is_answered_before(loop):
    said = loop.propose(PLAN)["site-1"]
    assert (said.status, said.code, said.plan, said.members) == (
        "waiting", "pending", plan_digest(PLAN), loop.members.digest,
    )  # fmt: skip
    ((kind, refusal),) = answers(loop)
    assert (kind, refusal.code) == ("refusal", "pending")
    assert loop.lines("site-1") == []
    assert [row["run"] for row in Verbs(loop.vaults["site-1"]).pending()] == ["r1"]


def test_approval_by_the_digest_that_was_shown_lets_the_run_begin(loop):
    loop.propose(PLAN)
    vault = loop.vaults["site-1"]
    shown = Verbs(vault).show("r1")
    vault.approve("r1", shown["digest"][:SHORT].upper(), by="ada")
    assert loop.last("site-1", "consent").status == "approved"
    assert [kind for kind, _ in answers(loop)] == ["response"]
    row = vault.store.run("r1")
    assert (row["status"], row["by"]) == ("approved", "ada")


@pytest.mark.parametrize("digest", ["", "0" * SHORT, plan_digest(PLAN)[: SHORT - 1], plan_digest(PLAN) + "0"])
def test_a_digest_that_is_short_or_wrong_approves_nothing(loop, digest):
    loop.propose(PLAN)
    with pytest.raises(InputError, match="digest"):
        loop.vaults["site-1"].approve("r1", digest, by="ada")
    assert [message.code for _, message in answers(loop)] == ["pending"]


def test_a_run_that_nobody_has_proposed_cannot_be_decided(loop):
    for run in ("r7", "../r1", "a'; drop table runs"):
        with pytest.raises(InputError, match="no run"):
            loop.vaults["site-1"].approve(run, "0" * 64, by="ada")
        with pytest.raises(InputError, match="no run"):
            loop.vaults["site-1"].deny(run, by="ada")


def test_a_denial_is_for_good_whatever_is_proposed_under_the_name(loop):
    loop.propose(PLAN)
    vault = loop.vaults["site-1"]
    vault.deny("r1", by="ada")
    assert loop.last("site-1", "refusal").code == "denied"
    with pytest.raises(InputError, match="for good"):
        vault.approve("r1", plan_digest(PLAN), by="bob")
    assert loop.propose(PLAN, number=1)["site-1"].code == "denied"
    assert loop.propose(replace(PLAN, seed=5), number=2)["site-1"].code == "denied"
    loop.restart()
    assert loop.propose(PLAN, number=3)["site-1"].code == "denied"
    assert [message.code for _, message in answers(loop)] == ["denied"]


def test_a_withdrawal_in_the_middle_of_a_run_is_told_and_nothing_is_answered_any_more(loop):
    loop.propose(PLAN)
    vault = loop.vaults["site-1"]
    vault.approve("r1", plan_digest(PLAN), by="ada")
    data = loop.seal("sums", "r1", 0, FIRST)
    vault.deliver([data])
    lines = loop.lines("site-1")
    loop.read("site-1")
    vault.deny("r1", by="ada")
    assert [message.code for message in said_refusals(loop)] == ["denied"]
    assert [message.code for _, message in answers(loop, number=1)] == ["denied"]
    assert loop.lines("site-1") == lines


def test_a_denial_while_the_answer_is_computed_keeps_it_here(loop, monkeypatch):
    loop.propose(PLAN)
    vault, compute = loop.vaults["site-1"], Session.compute
    vault.approve("r1", plan_digest(PLAN), by="ada")

    def denied_meanwhile(session):
        compute(session)
        thread = threading.Thread(target=vault.deny, args=("r1",), kwargs={"by": "ada"})
        thread.start()
        thread.join()

    monkeypatch.setattr(Session, "compute", denied_meanwhile)
    found = answers(loop)
    assert {kind for kind, _ in found} == {"refusal"}
    assert {message.code for _, message in found} == {"denied"}
    assert loop.lines("site-1") == []


def test_a_denial_while_a_proposal_is_judged_stays(loop, monkeypatch):
    loop.propose(PLAN)
    vault, judge = loop.vaults["site-1"], vault_module.Vault.judge
    vault.approve("r1", plan_digest(PLAN), by="ada")
    once = [lambda: vault.store.update_run("r1", status="denied")]

    def denied_meanwhile(self, row):
        found = judge(self, row)
        while once:
            once.pop()()
        return found

    monkeypatch.setattr(vault_module.Vault, "judge", denied_meanwhile)
    assert vault.reconsider("r1").status == "denied"
    assert vault.store.run("r1")["status"] == "denied"


def test_another_plan_of_a_name_replaces_one_that_nobody_has_decided_and_no_other(loop):
    other = replace(PLAN, seed=5)
    loop.propose(PLAN)
    assert loop.propose(other, number=1)["site-1"].plan == plan_digest(other)
    with pytest.raises(InputError, match="digest"):
        loop.vaults["site-1"].approve("r1", plan_digest(PLAN), by="ada")
    loop.vaults["site-1"].approve("r1", plan_digest(other), by="ada")
    assert loop.propose(PLAN, number=2)["site-1"].code == "known"
    assert loop.propose(other, number=3)["site-1"].status == "approved"


def test_a_plan_of_another_run_than_its_envelope_is_refused(loop):
    proposal = messages.Proposal(PLAN.to_json(), tuple(sorted(loop.shards)), loop.members.digest)
    loop.deliver(loop.seal("proposal", "r5", 0, proposal))
    assert [message.code for message in said_refusals(loop)] == ["plan"]
    assert loop.vaults["site-1"].store.run("r5") is None


def test_policies_may_approve_by_themselves(tmp_path):
    loop = make_loopback(tmp_path, auto_approve=("private",), exact_after_private=True)
    assert loop.propose(private_plan())["site-1"].status == "approved"
    assert loop.propose(PLAN)["site-1"].status == "waiting"
    assert loop.vaults["site-1"].store.run("p1")["by"] == "policy"
    loop.configs["site-1"] = replace(
        loop.configs["site-1"], policy=replace(loop.configs["site-1"].policy, auto_approve=("felb-mu",))
    )
    assert loop.propose(PLAN, number=1)["site-1"].status == "approved", "settings are read anew"


def test_so_many_runs_wait_and_not_more(loop, monkeypatch):
    monkeypatch.setattr(vault_module, "MOST_PENDING", 3)
    said = [loop.propose(exact_plan(f"r{i}"))["site-1"] for i in range(5)]
    assert [message.code for message in said] == ["pending"] * 3 + ["full"] * 2
    vault = loop.vaults["site-1"]
    vault.deny("r0", by="ada")
    assert loop.propose(exact_plan("r4"), number=1)["site-1"].code == "pending"


def test_a_coordinator_that_proposes_for_ever_does_not_fill_the_disk(loop, monkeypatch):
    monkeypatch.setattr(vault_module, "MOST_RUNS", 2)
    for i in range(20):
        proposal = messages.Proposal({"run_id": "x"}, ("site-1",), loop.members.digest)
        loop.deliver(loop.seal("proposal", f"r{i}", 0, proposal), to=["site-1"])
    store = loop.vaults["site-1"].store
    assert store.row("select count(*) as n from heard")["n"] == 8
    assert store.row("select count(*) as n from outbox where run<>''")["n"] == 8


def test_every_reply_to_a_proposal_has_a_number_of_its_own(loop):
    loop.propose(PLAN)
    vault = loop.vaults["site-1"]
    vault.approve("r1", plan_digest(PLAN), by="ada")
    vault.deny("r1", by="ada")
    numbers = [row["number"] for row in vault.store.rows("select number from outbox where run='r1' order by seq")]
    assert numbers == [0, 1, 2]


# -- refused before a person is asked --------------------------------------------------------------------------------


def test_too_few_rows_for_the_disclosure_rules_are_refused_with_the_number_that_is_missing(tmp_path):
    loop = make_loopback(tmp_path, disclosure={"max_parameters": 0.2}, **UNDECIDED)
    said = loop.propose(PLAN)["site-1"]
    assert (said.code, said.needs) == ("disclosure", M * K * 5)
    assert any("needs 100 rows, this site has 30" in note for note in notes(loop))


def test_how_many_rows_a_site_has_does_not_leave(tmp_path):
    said = []
    for n in (60, 90):
        shards = make_shards(n)
        loop = Loopback(tmp_path / str(n), shards, min_rows=50, **UNDECIDED)
        said.append(loop.propose(PLAN)["site-1"])
    assert said[0] == said[1] == messages.Refusal("rows", 50)


POLICIES = {
    "privacy": {"require_privacy": True},
    "method": {"allowed_methods": ("bmf",)},
    "sites": {"disclosure": {"min_sites": 4}},
    "secure": {"require_secure": True},
}


@pytest.mark.parametrize("code", POLICIES)
def test_what_a_policy_does_not_allow_is_refused_before_a_person_is_asked(tmp_path, code):
    loop = make_loopback(tmp_path, **POLICIES[code], **UNDECIDED)
    assert loop.propose(PLAN)["site-1"].code == code
    assert [message.code for _, message in answers(loop)] == ["pending"], "and a round of it is not answered"
    loop.vaults["site-1"].approve("r1", plan_digest(PLAN), by="ada")
    assert loop.last("site-1", "refusal").code == code, "a person does not approve against the policy"
    assert {kind for kind, _ in answers(loop)} == {"refusal"}


PRIVATE = {
    "epsilon": ({"max_epsilon": 0.5}, {}),
    "delta": ({"max_delta": 1e-7}, {}),
    "privacy": ({"mechanisms": ("hybrid",)}, {}),
}


@pytest.mark.parametrize("code", PRIVATE)
def test_a_guarantee_that_is_less_than_the_policy_asks_for_is_refused(tmp_path, code):
    policy, terms = PRIVATE[code]
    loop = make_loopback(tmp_path, **policy)
    assert loop.propose(private_plan(**terms))["site-1"].code == code


def test_an_exact_run_of_too_few_sites_is_refused_before_its_first_round(tmp_path):
    loop = make_loopback(tmp_path, disclosure={"min_sites": 3, "max_parameters": 1.0, "min_support": 1})
    two = exact_plan("r2", sites=2)
    said = loop.propose(two, sites=("site-1", "site-2"))["site-1"]
    assert (said.code, said.needs) == ("sites", 3)
    said = loop.propose(exact_plan("r3", sites=None))["site-1"]
    assert said.code == "sites", "a plan that does not say how many"
    said = loop.propose(exact_plan("r4"), sites=("site-1", "site-2"))["site-1"]
    assert said.code == "plan", "it says three and names two"
    assert loop.propose(PLAN)["site-1"].status == "approved"


def named(rows):
    return BinaryMatrix.of(rows.to_scipy(bool), columns=tuple("abcdefghij"))


def test_other_columns_are_refused(tmp_path):
    shards = {name: named(rows) for name, rows in make_shards().items()}
    loop = Loopback(tmp_path, shards)
    assert loop.propose(exact_plan("r1", columns=fingerprint(tuple("abcdefghij"))))["site-1"].status == "approved"
    assert loop.propose(exact_plan("r2", columns=fingerprint(tuple("jbcdefghia"))))["site-1"].code == "columns"
    assert loop.propose(Plan("r3", "felb-mu", K, M + 1, {"max_iter": 3}, sites=3))["site-1"].code == "columns"


def test_another_member_list_or_a_site_that_is_no_member_is_refused(loop):
    sites = tuple(sorted(loop.shards))
    for run, named, members in (
        ("r1", sites, "0" * 64),
        ("r2", (*sites[:2], "site-9"), loop.members.digest),
        ("r3", ("site-2", "site-3", "site-3"), loop.members.digest),
        ("r4", ("site-1", "site-2", "site-2"), loop.members.digest),
    ):
        proposal = messages.Proposal(exact_plan(run).to_json(), named, members)
        loop.deliver(loop.seal("proposal", run, 0, proposal), to=["site-1"])
        assert [message.code for message in said_refusals(loop)] == ["members"], run


def test_a_masked_run_waits_until_keys_were_confirmed(tmp_path):
    loop = make_loopback(tmp_path)
    loop.keys["site-3"] = Identity.create()
    loop.members = loop.sign_members(2)
    loop.deliver(loop.members.data, to=["site-1"])
    plan = loop.masked(PLAN)
    proposal = messages.Proposal(plan.to_json(), tuple(sorted(loop.shards)), loop.members.digest)
    loop.deliver(loop.seal("proposal", "r1", 0, proposal), to=["site-1"])
    said = loop.last("site-1", "consent")
    assert (said.status, said.code) == ("waiting", "roster")
    verbs = Verbs(loop.vaults["site-1"])
    assert [site["state"] for site in verbs.roster()["sites"]] == ["this site", "confirmed", "KEY CHANGED"]
    with pytest.raises(InputError, match="digest"):
        verbs.confirm("0" * 64, "ada")
    assert verbs.confirm(verbs.roster()["digest"], "ada")["confirmed"] == ["site-3"]
    assert loop.last("site-1", "consent").status == "approved"


# -- what is told ----------------------------------------------------------------------------------------------------


def test_notes_hold_nothing_of_the_data(tmp_path):
    loop = make_loopback(tmp_path)
    vault = tmp_path / "site-1" / "vault"
    snapshot = vault / json.loads((vault / "snapshot.json").read_text())["file"]
    snapshot.write_bytes(b"name,diagnosis\nJane Doe,1\n")
    loop.restart("site-1")
    assert loop.propose(PLAN)["site-1"] == messages.Refusal("data")
    told = json.dumps([notes(loop), [event.text for event in loop.events], Verbs(loop.vaults["site-1"]).status()])
    assert "Jane" not in told
    assert "diagnosis" not in told
    snapshot.unlink()
    loop.restart("site-1")
    assert loop.propose(PLAN, number=1)["site-1"].code == "data"
