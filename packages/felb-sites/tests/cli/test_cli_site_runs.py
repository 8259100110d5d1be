"""What a site's person sees and decides: runs that wait, what they would take, limits that are removed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from felb.cli import main
from felb.cli.output import print_status
from felb.errors import InputError
from felb.records import try_lock
from felb.secure_sum.protocol import Roster, member_of, new_signing_key
from felb_sites.approvals import Approvals, plan_digest
from felb_sites.deployed import DeployedRun, participation
from felb_sites.plan_summary import in_words, leaving
from felb_sites.provisioning import Site
from felb_sites.run_plan import Plan
from felb_sites.site_processes import RUNNING
from felb_sites.site_roster import write_roster
from felb_sites.supervisor import listens
from felb_sites.vault import Event
from felb_sites.vault_process import line_of, notify
from felb_sites.vault_words import SITE

EXACT = Plan("cardio", "bmf", 4, 17, {"effort": "fast"})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = tmp_path / "site"
    made.mkdir()
    invitation = {"federation": "f", "host": "localhost", "port": 1, "fingerprint": "SHA256:00"}
    (made / SITE).write_text(json.dumps({"name": "hospital-a", "invitation": invitation}))
    monkeypatch.setattr(Site, "admitted", True)
    Approvals(Site.open(made).state).propose(EXACT, approved=False)
    return made


@pytest.fixture
def felb(capsys):
    def call(*arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert ended.value.code == code, err
        return out if code == 0 else err

    return call


def test_a_run_is_shown_in_words_and_approved_by_its_digest(felb, folder):
    assert "cardio" in felb("site", "pending", folder)
    shown = felb("site", "show", folder, "cardio")
    assert "without noise" in shown
    assert "not protected" in shown
    assert plan_digest(EXACT)[:32] in shown
    assert "digest" in felb("site", "approve", folder, "cardio", "0" * 16, code=1)
    assert (
        json.loads(felb("site", "approve", folder, "cardio", plan_digest(EXACT)[:32], "--json"))["status"] == "approved"
    )
    assert "no run waits" in felb("site", "pending", folder)
    assert json.loads(felb("site", "deny", folder, "cardio", "--json"))["status"] == "denied"
    assert json.loads(felb("site", "show", folder, "cardio", "--json"))["status"] == "denied"


def test_a_roster_is_shown_compared_and_confirmed_by_its_digest(felb, folder):
    rosters = Site.open(folder).rosters
    assert "no roster was proposed" in felb("site", "roster", "show", folder)
    others = tuple(member_of(name, new_signing_key()) for name in ("hospital-b", "hospital-c"))
    roster = Roster((rosters.own, *others))
    masked = replace(EXACT, run_id="masked", sites=3, roster=roster.digest)
    Approvals(Site.open(folder).state).propose(masked, approved=False)
    rosters.propose(write_roster(roster))
    shown = felb("site", "show", folder, "masked")
    assert "masked, roster not confirmed here" in shown
    assert f"felb site roster show {folder}" in shown
    assert "no site's own" in " ".join(shown.split())
    shown = felb("site", "roster", "show", folder)
    assert "waits for confirmation" in shown
    assert "hospital-b  new" in shown
    assert "hospital-a  this site" in shown
    assert roster.digest in shown
    assert "digest" in felb("site", "roster", "confirm", folder, "0" * 16, code=1)
    told = json.loads(felb("site", "roster", "confirm", folder, roster.digest[:32], "--json"))
    assert told == {"confirmed": roster.digest, "sites": "hospital-a, hospital-b, hospital-c"}
    (confirmed,) = json.loads(felb("site", "roster", "show", folder, "--json"))["confirmed"]
    assert [line["state"] for line in confirmed["sites"]] == ["this site", "as confirmed before", "as confirmed before"]
    assert json.loads(felb("site", "show", folder, "masked", "--json"))["sums"] == "masked, roster confirmed here"
    assert "in the clear" in felb("site", "show", folder, "cardio")
    assert "not masked" in in_words(EXACT)


def test_what_would_leave_a_private_run_has_its_noise_and_cost():
    pytest.importorskip("dp_accounting")
    plan = Plan("p", "bmf", 3, 30, {}, {"epsilon": 1.0, "delta": 1e-5}, 600, 3)
    rows = leaving(plan)
    assert [row.what for row in rows] == list(plan.algorithm().privacy.shares)
    assert all("epsilon" in row.cost and row.noise == "discrete Gaussian" for row in rows)
    assert "epsilon" in in_words(plan).lower()


def test_every_task_of_an_exact_run_is_explained_with_what_it_tells():
    plan = Plan("r", "felb", 4, 17)
    found = {row.what: row for row in leaving(plan)}
    assert found.keys() == plan.algorithm().tasks.keys()
    assert found["local_factor"].size == "V 4 x 17, curvature 4, loss 1"
    assert found["assign"].times == "once, at the end"
    assert {row.noise for row in found.values()} == {"none"}


def test_a_limit_is_set_and_removed_and_words_of_approval_too(felb, folder, tmp_path):
    np.savetxt(tmp_path / "d.csv", np.ones((3, 2), int), fmt="%d", delimiter=",", header="a,b", comments="")
    start = ("site", "start", folder, "--data", tmp_path / "d.csv", "--check", "--json")
    felb(*start, "--max-epsilon", 2, "--auto-approve", "private", "--notify", "logger felb")
    config = Site.open(folder).config()
    assert (config.policy.max_epsilon, config.policy.auto_approve, config.notify) == (2.0, ("private",), "logger felb")
    felb(*start, "--max-epsilon", "none", "--auto-approve", "none")
    policy = Site.open(folder).config().policy
    assert (policy.max_epsilon, policy.auto_approve, policy.require_privacy) == (None, (), True)
    felb(*start, "--total-epsilon", 4)
    assert "contradict" not in felb(*start, "--min-rows", 3)
    assert "--max-epsilon none" in felb(*start, "--allow-exact", code=1)
    felb(*start, "--allow-exact", "--total-epsilon", "none")
    assert Site.open(folder).config().policy.require_privacy is False


def test_a_second_start_of_a_site_says_that_it_runs_already(felb, folder, tmp_path):
    np.savetxt(tmp_path / "d.csv", np.ones((3, 2), int), fmt="%d", delimiter=",")
    with try_lock(folder / RUNNING):
        assert "hospital-a runs already" in felb("site", "start", folder, "--data", tmp_path / "d.csv", code=1)


def test_the_first_column_that_differs_is_named_at_the_site(felb, folder, tmp_path):
    np.savetxt(tmp_path / "d.csv", np.ones((3, 2), int), fmt="%d", delimiter=",", header="a,b", comments="")
    start = ("site", "start", folder, "--data", tmp_path / "d.csv")
    for names, said in (("a\nc\n", "column 2 is 'b' in the data and 'c'"), ("a\n", "2 columns"), ("a\nb\n", None)):
        (tmp_path / "columns.txt").write_text(names)
        told = felb(*start, "--check", "--columns", tmp_path / "columns.txt", code=0 if said is None else 1)
        assert said is None or said in told
    assert "goes with --check" in felb(*start, "--columns", tmp_path / "columns.txt", code=1)


def test_a_site_is_left_out_by_name_and_a_stranger_is_refused(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('id = "r"\ncomponents = 2\nfeatures = 9\nsites = ["a", "b", "c"]\n')
    assert DeployedRun.read(path, without=("b",)).sites == ("a", "c")
    with pytest.raises(InputError, match="this site"):
        DeployedRun.read(path, without=("d",))
    rows = [{"round": 0}, {"round": 1, "missing": ["a"]}, {"round": 2, "missing": ["a"]}]
    assert participation(DeployedRun.read(path), rows)["missed_rounds"] == {"a": 2}


def test_the_status_of_a_federation_fits_a_plain_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    runs = [
        {
            "run": "cardio-2025-01", "state": "failed", "round": 3, "sites": ["hospital-a", "hospital-b"],
            "reasons": {"hospital-c": "the run waits for approval at the site: `felb site pending`, then approve it"},
            "message": "the run was not begun, and no privacy budget was spent. " * 3, "changed": "2026-11-16T12:00:00",
        }
    ]  # fmt: skip
    print_status({"federation": "f", "server": "localhost:8002", "reachable": False, "sites": [], "runs": runs})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "not reachable" in "\n".join(lines)
    assert not listens("localhost", 1)


def test_events_are_lines_with_the_run_and_a_hook_gets_them_as_json(tmp_path):
    event = Event("ended", "cardio", "the assignment is kept here", 12)
    assert "run cardio ended after round 12" in line_of(event)
    notify(f"tee {tmp_path / 'told'}", event)
    assert json.loads((tmp_path / "told").read_text())["kind"] == "ended"
    notify("/no/such/program", event)
