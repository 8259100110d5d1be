"""A coordinator, or whoever has the socket, against approvals, names, budgets, the console and the disk of a site."""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from vault_alone import OPEN, VaultAlone
from waiting import PATIENCE

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb.federated import gate as responses
from felb.federated.loop import Execution
from felb.federated.protocol import Sums
from felb_sites import SHORT, refusals, vault_process
from felb_sites import approvals as approvals_module
from felb_sites.approvals import Approvals, plan_digest
from felb_sites.messages import vault_message, write_request
from felb_sites.refusals import note_refusal, read_refusals
from felb_sites.run_plan import Plan
from felb_sites.site_budget import Spent
from felb_sites.site_logs import read_outbound, verify_outbound
from felb_sites.site_policy import TOTAL_EPSILON, Policy, Refusal
from felb_sites.vault import OK, Event
from felb_sites.vault_process import Console, line_of

ROWS = BinaryMatrix.of(np.random.default_rng(3).random((60, 12)) < 0.3)
EXACT = Plan("exact", "bmf", 3, 12, {"effort": "fast"}, sites=3)
PRIVATE = Plan("private", "bmf", 3, 12, {"effort": "fast"}, {"epsilon": 1.0, "delta": 1e-5}, 90, 3)


def site_with(folder, **policy):
    return VaultAlone(folder, ROWS, **policy)


# -- approvals -------------------------------------------------------------------------------------------------------


def test_a_run_cannot_be_named_like_a_folder_of_the_site(tmp_path):
    site = site_with(tmp_path, **OPEN)
    for name in ("approvals", "attempts", "rosters"):
        assert site.ready(replace(EXACT, run_id=name)) == OK
    assert {approval.run for approval in Approvals(site.state).all()} == {"approvals", "attempts", "rosters"}
    with pytest.raises(InputError, match="letters, digits"):
        replace(EXACT, run_id=approvals_module.FOLDER)
    site.vault.close()


def test_a_digest_is_too_long_for_two_plans_to_share_the_part_that_is_compared(tmp_path, monkeypatch):
    site = site_with(tmp_path, require_privacy=False, disclosure="none")
    assert site.ready(EXACT) == "pending"
    digest = plan_digest(EXACT)
    assert SHORT * 4 >= 128, "bits: a collision takes 2^64 tries"
    with pytest.raises(InputError, match="digest"):
        Approvals(site.state).approve("exact", digest[: SHORT - 1])
    # The attack, with the 4 bits that a test can search: a plan is shown, and another of the same beginning approved.
    monkeypatch.setattr(approvals_module, "SHORT", 1)
    others = (replace(EXACT, seed=seed) for seed in range(1, 1000))
    twin = next(other for other in others if plan_digest(other)[0] == digest[0])
    assert site.ready(twin) == "pending"
    Approvals(site.state).approve("exact", digest[0])
    assert site.ready(twin) == OK
    site.vault.close()


def test_what_was_denied_stays_denied_whatever_is_proposed_under_its_name(tmp_path):
    site = site_with(tmp_path, require_privacy=False, disclosure="none", auto_approve=("felb-mu",))
    run = Plan("run", "felb-mu", 3, 12, {"max_iter": 2}, sites=3)
    assert site.ready(run) == OK
    Approvals(site.state).deny("run")
    assert site.ready(run) == "denied"
    for other in (replace(run, method="bmf", parameters={"effort": "fast"}), replace(run, seed=1)):
        assert site.ready(other) == "denied"
    assert site.ready(run) == "denied", "another plan in between does not open it again"
    site.vault.close()


def test_a_decision_and_a_proposal_at_the_same_time_come_one_after_the_other(tmp_path, monkeypatch):
    state = Approvals(tmp_path)
    state.propose(EXACT, approved=False)
    reached, go_on, write = threading.Event(), threading.Event(), Approvals._write

    def slowly(self, approval):
        if threading.current_thread() is proposing:
            reached.set()
            assert go_on.wait(PATIENCE)
        write(self, approval)

    monkeypatch.setattr(Approvals, "_write", slowly)
    proposing = threading.Thread(target=lambda: state.propose(EXACT, approved=True))
    denying = threading.Thread(target=lambda: state.deny("exact"))
    proposing.start()
    assert reached.wait(PATIENCE)
    denying.start()
    denying.join(0.2)
    assert denying.is_alive(), "it waits, and so comes last"
    go_on.set()
    proposing.join()
    denying.join()
    assert state.find("exact").status == "denied"


def test_proposals_without_end_do_not_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(approvals_module, "MOST_RUNS", 3)
    site = site_with(tmp_path, **OPEN)
    assert [site.ready(replace(EXACT, run_id=f"r{i}")) for i in range(5)] == [OK] * 3 + ["full"] * 2
    assert not (site.state / "r3").exists()
    assert site.ready(replace(EXACT, run_id="r1")) == OK, "those that are known go on"
    site.vault.close()


def test_a_policy_that_a_person_changes_holds_for_a_run_that_is_being_answered(tmp_path):
    site = site_with(tmp_path, **OPEN)
    assert site.ready(EXACT) == OK
    assert site.ask(EXACT) == OK
    for stricter, word in (({"min_rows": 5000}, "rows"), ({"disclosure": "strict"}, "disclosure")):
        site.config = replace(site.config, policy=Policy(**{**OPEN, **stricter}))
        assert site.ready(EXACT) == word
    site.config = replace(site.config, policy=Policy(**OPEN))
    assert site.ask(EXACT) == OK
    site.vault.close()


# -- budgets ---------------------------------------------------------------------------------------------------------


def test_runs_that_nobody_looks_at_have_a_budget_also_if_none_was_set(tmp_path):
    many = replace(PRIVATE, privacy={"epsilon": 4.0, "delta": 1e-9})
    spent = Spent(tmp_path)
    policy = Policy(auto_approve=("private",))
    for number in range(3):
        plan = replace(many, run_id=f"r{number}")
        limits = dict(zip(("limit", "delta_limit"), policy.total_limits(plan), strict=True))
        if number < 2:
            spent.reserve(plan.run_id, plan.algorithm().privacy, **limits)
        else:
            with pytest.raises(Refusal, match="budget"):
                spent.reserve(plan.run_id, plan.algorithm().privacy, **limits)
    assert Policy().total_limits(many)[0] is None, "a person has looked at each"
    assert Policy(auto_approve=("bmf",), total_epsilon=50.0).total_limits(many)[0] == 50.0
    assert TOTAL_EPSILON == 10.0


def test_a_budget_is_not_spent_once_for_each_neighbour_relation(tmp_path):
    pytest.importorskip("opendp")
    site = site_with(tmp_path, auto_approve=("private",), total_epsilon=1.0)
    replaced = replace(PRIVATE, run_id="other", privacy={**PRIVATE.privacy, "neighbours": "replace"})
    assert site.ready(PRIVATE) == OK
    assert site.ask(PRIVATE) == OK
    assert site.ready(replaced) == "privacy"
    assert Policy(neighbours="replace").check_privacy(replaced.algorithm().privacy) is None
    site.vault.close()


def test_an_exact_run_that_began_before_a_private_one_does_not_go_on_after_it(tmp_path):
    pytest.importorskip("opendp")
    site = site_with(tmp_path, **OPEN)
    assert site.ready(EXACT) == OK
    assert site.ask(PRIVATE) == OK
    assert site.ask(EXACT) == "privacy"
    assert {line["run"] for line in read_outbound(site.state)} == {"private"}
    site.vault.close()


# -- sums that were never told ---------------------------------------------------------------------------------------


def test_sums_of_other_names_or_shapes_are_neither_played_nor_kept(tmp_path):
    site = site_with(tmp_path, **OPEN)
    plan = Plan("sums", "felb-mu", 3, 12, {"max_iter": 3}, sites=3)
    assert site.ready(plan) == OK
    request = Execution(plan.algorithm(), seed=0).request
    junk = np.zeros(1 << 20, np.float64)
    good = site.vault._sessions["sums"].answer(request)
    for values in ({**good, "junk": junk}, dict.fromkeys(good, junk), {}):
        told = [Sums(values, 3, number=0)]
        message = vault_message(write_request(request, told), plan.to_json())
        assert site.vault.handle(*message).code == "request"
    kept = sum(path.stat().st_size for path in (site.state / "sums" / "replay").rglob("*") if path.is_file())
    assert kept < 1 << 16
    site.vault.close()


def test_a_plan_of_another_size_than_the_data_is_refused_before_anything_of_its_size_is_made(tmp_path, monkeypatch):
    site = site_with(tmp_path, **OPEN)
    wide = Plan("wide", "felb-mu", 4, 5_000_000, {"max_iter": 2}, sites=3)
    monkeypatch.setattr("felb_sites.site_session.Replay", lambda *_, **__: pytest.fail("V of the plan was made"))
    assert site.ready(wide) == "columns"
    site.vault.close()


# -- the disk, the console, the hook ---------------------------------------------------------------------------------


def test_a_disk_that_is_full_once_costs_and_logs_nothing_twice(tmp_path, monkeypatch):
    pytest.importorskip("opendp")
    site = site_with(tmp_path, auto_approve=("all",))
    assert site.ready(PRIVATE) == OK
    with monkeypatch.context() as patch:

        def full(*_):
            raise OSError(errno.ENOSPC, "no space left on device")

        patch.setattr(responses, "write_entry", full)
        assert site.ask(PRIVATE) == "failed"
    assert site.ask(PRIVATE) == OK
    assert len(site.vault._sessions["private"]._client.gate.accountant.entries) == 1
    assert [line["what"] for line in read_outbound(site.state)] == ["sizes"]
    assert verify_outbound(site.state)["private"].lines == 1
    site.vault.close()


def test_a_name_or_a_reason_cannot_write_lines_or_commands_to_the_console(tmp_path):
    site = site_with(tmp_path, **OPEN)
    forged = "x\n2026-01-01 00:00:00  run good ended\x1b[2J"
    site.vault.handle({"verb": "ready", "plan": {**EXACT.to_json(), "run_id": forged}})
    site.vault.handle({"verb": "ready", "plan": {**EXACT.to_json(), "method": forged}})
    lines = [line_of(event) for event in site.events] + [line_of(Event("refused", "r", forged))]
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    site.vault.close()


def test_a_flood_of_refusals_starts_no_flood_of_lines_or_hooks(monkeypatch, capsys):
    called, go_on = [], threading.Event()

    def hook(command, event):
        called.append(event)
        assert go_on.wait(PATIENCE)

    monkeypatch.setattr(vault_process, "notify", hook)
    console = Console(SimpleNamespace(config=lambda: SimpleNamespace(notify="hook")))
    for number in range(5000):
        console(Event("refused", f"r{number}", "no"))
    assert len(capsys.readouterr().out.splitlines()) <= vault_process.MOST_LINES + 1
    waiting = console._waiting.qsize()
    assert waiting <= vault_process.MOST_REFUSALS_TOLD
    console(Event("pending", "good", "0" * SHORT))
    assert console._waiting.qsize() == waiting + 1, "a person is still told what needs a decision"
    for _ in range(100):
        console(Event("round", "good", "sizes", 0))
    assert capsys.readouterr().out.count("round 0 answered") == 1
    go_on.set()


@pytest.mark.parametrize("kind", ["pending", "roster"])
def test_one_run_proposed_in_ever_other_ways_does_not_call_a_person_without_end(monkeypatch, capsys, kind):
    called = []
    monkeypatch.setattr(vault_process, "notify", lambda _, event: called.append(event))
    console = Console(SimpleNamespace(config=lambda: SimpleNamespace(notify="hook")))
    for number in range(5000):
        console(Event(kind, "run", f"{number:032}"))
    assert len(capsys.readouterr().out.splitlines()) == vault_process.MOST_LINES + 1
    assert len(called) <= vault_process.MOST_LINES
    console(Event("budget", "run", "little is left"))
    assert "little is left" in capsys.readouterr().out


def test_refusals_after_a_flood_are_in_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(refusals, "MOST_BYTES", 2000)
    for number in range(200):
        note_refusal(tmp_path, {"run_id": f"r{number}"}, "x" * 50)
    note_refusal(tmp_path, {"run_id": "last"}, "the one that matters")
    assert [line["reason"] for line in read_refusals(tmp_path, run_id="last")] == ["the one that matters"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3 * 2000
