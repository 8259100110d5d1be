"""The commands of a site, with its vault not running."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from watched_imports import HEAVY, run_watched

from felb_sites.coordinator.folder import Federation
from felb_sites.site_folder import Site


@pytest.fixture
def federation(tmp_path):
    return Federation.create(tmp_path / "f", name="trial", host="localhost", port=1)


@pytest.fixture
def site(federation, tmp_path):
    made, _ = Site.join(tmp_path / "Haus Süd", federation.invitation, name="south")
    np.savetxt(made.folder / "data.csv", np.ones((30, 2), int), fmt="%d", delimiter=",")
    made.configure(data=str(made.folder / "data.csv"))
    return made


def test_join_compares_the_fingerprint(felb, federation, tmp_path):
    invitation = federation.folder / "invitation.json"
    words = ("site", "join", tmp_path / "site", "--invitation", invitation, "--name", "north", "--fingerprint")
    wrong = felb(*words, "SHA256:" + "BB" * 32)
    assert wrong.code == 1
    assert "fingerprint does not match" in wrong.err
    assert not (tmp_path / "site").exists()
    shown = felb(*words, federation.invitation.fingerprint)
    assert shown.code == 0
    assert Site.open(tmp_path / "site").fingerprint in shown.out.replace(" ", "").replace("\n", "")


def test_an_invitation_changed_on_its_way_is_noticed(felb, federation, tmp_path):
    said = json.loads((federation.folder / "invitation.json").read_text())
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps({**said, "url": "https://elsewhere:1"}))
    words = ("--invitation", changed, "--name", "north", "--fingerprint", federation.invitation.fingerprint)
    shown = felb("site", "join", tmp_path / "site", *words)
    assert shown.code == 1
    assert "was changed" in shown.err


def test_conditions_are_remembered(felb, site):
    limits = ("--max-epsilon", 1, "--max-delta", 1e-6, "--total-epsilon", 4, "--mechanism", "cooccurrence")
    felb("site", "start", site.folder, *limits, "--noise", "client", "--check", "--one-user")
    policy = site.config().policy
    assert (policy.max_epsilon, policy.max_delta, policy.total_epsilon) == (1.0, 1e-6, 4.0)
    assert (policy.mechanisms, policy.noise, policy.unit) == (("cooccurrence",), "client", None)
    felb("site", "start", site.folder, "--max-epsilon", "none", "--check", "--one-user")
    assert site.config().policy.max_epsilon is None
    shown = felb("site", "start", site.folder, "--allow-exact", "--check", "--one-user")
    assert shown.code == 1
    assert "--allow-exact takes runs" in shown.err


def test_check_tells_all_problems_at_once(felb, site, tmp_path):
    shown = felb("site", "start", site.folder, "--check", "--one-user", "--json")
    assert shown.code == 1
    found = shown.json
    assert (found["rows"], found["columns"], found["ok"]) == (30, 2, False)
    [problem] = found["problems"]
    assert "https://localhost:1 does not answer" in problem
    shown = felb("site", "start", site.folder, "--check", "--courier-user", "nobody-has-this-name", "--json").json
    assert len(shown["problems"]) == 2
    columns = tmp_path / "columns.txt"
    columns.write_text("a\nb\n")
    shown = felb("site", "start", site.folder, "--check", "--one-user", "--columns", columns, "--json").json
    assert any("no column names" in problem for problem in shown["problems"])
    assert "goes with --check" in felb("site", "start", site.folder, "--columns", columns).err
    missing = felb("site", "start", site.folder, "--data", tmp_path / "none.csv", "--one-user")
    assert "none.csv does not exist" in missing.err
    assert site.config().data.endswith("data.csv"), "a wrong setting is not stored"


def test_a_site_s_person_can_ask_without_a_running_vault(felb, site):
    for verb, said in (
        ("pending", "no run waits"),
        ("log", "nothing has left"),
        ("verify-log", "nothing has left"),
        ("budget", "in all"),
        ("status", "south"),
    ):
        shown = felb("site", verb, site.folder)
        assert shown.code == 0, shown.err
        assert said in shown.out, verb
        assert max(map(len, shown.out.splitlines())) <= 80, verb
        assert felb("site", verb, site.folder, "--json").code == 0
    assert "nothing was refused" in felb("site", "log", site.folder, "--refused").out
    shown = felb("site", "roster", "show", site.folder)
    assert "no member list" in shown.out
    assert felb("site", "roster", "confirm", site.folder, "0" * 64).code == 1
    for verb in ("show", "deny"):
        assert felb("site", verb, site.folder, "unknown").code == 1
    assert felb("site", "approve", site.folder, "unknown", "0" * 64).code == 1
    assert felb("site", "health", site.folder).code == 1


def test_a_snapshot_is_taken(felb, site):
    shown = felb("site", "refresh", site.folder, "--json")
    assert shown.code == 0, shown.err
    assert (shown.json["rows"], shown.json["columns"]) == (30, 2)


def test_backup_and_restore(felb, site, tmp_path):
    shown = felb("site", "backup", site.folder, tmp_path / "copy")
    assert shown.code == 0, shown.err
    assert "exists" in felb("site", "backup", site.folder, tmp_path / "copy").err
    assert "--yes" in felb("site", "restore", site.folder, tmp_path / "copy").err
    assert felb("site", "restore", site.folder, tmp_path / "copy", "--yes").code == 0
    assert "does not exist" in felb("site", "restore", site.folder, tmp_path / "none", "--yes").err
    assert "--yes" in felb("site", "leave", site.folder).err
    assert felb("site", "leave", site.folder, "--yes").code == 0
    assert felb("site", "purge", site.folder, "unknown", "--yes").code == 1


LONG_RUN, LONG_SITE = "r" * 64, "s" * 40


def stand(connection, *, member=True):
    run = {"run": LONG_RUN, "status": "waiting", "state": "proposed", "round": -1, "method": "bmf", "rehearsal": True}
    return {
        "site": LONG_SITE, "fingerprint": "", "connection": connection, "since": 0, "member": member, "members": 4,
        "one_user": True, "epoch": 0, "log": {"lines": 3, "hash": "0" * 64},
        "runs": [{**run, "reason": f"nobody here has confirmed the keys of {LONG_SITE}, {LONG_SITE}"}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("connection", "member", "said"),
    [
        ("connected", True, "this site is on it"),
        ("not-member", True, "was revoked, or its keys were replaced"),
        ("connected", False, "NOT on it"),
        ("unreachable", True, "cannot be reached"),
        ("certificate", True, "is a proxy in between?"),
        ("a word of another version", True, "not connected"),
    ],
)
def test_a_site_says_how_it_stands_in_eighty_columns(felb, site, monkeypatch, connection, member, said):
    asked = SimpleNamespace(status=lambda: stand(connection, member=member))
    monkeypatch.setattr("felb_sites.cli.site._operator", lambda folder: asked)
    shown = felb("site", "status", site.folder)
    assert shown.code == 0, shown.err
    assert said in " ".join(shown.out.split())
    assert "not begun" in shown.out
    assert "rehearsal" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.parametrize("verb", ["start", "log", "pending", "health", "rotate", "refresh", "leave"])
def test_a_folder_that_is_none_is_said_so(felb, tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    shown = felb("site", verb, "nowhere")
    assert (shown.code, shown.out) == (1, "")
    assert "nowhere" in shown.err


@pytest.mark.parametrize("command", [["site", "log", "missing"], ["site", "budget", "missing"]], ids=" ".join)
def test_an_input_error_is_told_without_heavy_imports(command, tmp_path):
    [(code, told, found)] = run_watched([command], HEAVY, tmp_path).values()
    assert (code, found) == (1, [])
    assert told.startswith("error: ")
