"""The supervisor against a server that does everything wrong, as told by a script."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from felb.errors import FederationError
from felb_sites import supervisor
from felb_sites.coordinator_session import Unreachable
from felb_sites.flare_job import write_job
from felb_sites.hardening import CONTROLLER, EXECUTOR, lock_server, lock_site
from felb_sites.run_plan import Plan
from felb_sites.run_record import RunRecord, Status
from felb_sites.supervisor import Patience, overview, supervise
from felb_sites.terms import Terms

PLAN = Plan("r1", "felb-mu", 3, 17)
PATIENCE = Patience(server=1, sites=0.2, start=0.5, restarts=2)


class Clock:
    """Time passes only by sleeping."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Script:
    """Plays the server: each job that is submitted does the next thing of a list."""

    def __init__(self, coordinator, steps, present=(("a", "b", "c"),)):
        self.record = RunRecord(coordinator.runs, "r1")
        self.steps, self.present, self.submitted, self.aborted = list(steps), list(present), [], []

    def __call__(self, coordinator):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait(self, seconds):
        pass

    def sites(self):
        return list(self.present.pop(0) if len(self.present) > 1 else self.present[0])

    def submit(self, plan, terms, *, sites, wanted, roster):
        assert (roster is None) == (plan.roster is None)
        job = f"job-{len(self.submitted)}"
        self.submitted.append(tuple(sites))
        step = self.steps.pop(0)
        if step is not None:
            self.record.report(Status(**{"job": job, "sites": tuple(sites), **step}))
        return job

    def ended(self, job):
        raise Unreachable("gone")

    def abort(self, job):
        self.aborted.append(job)


@pytest.fixture
def coordinator(tmp_path):
    invitation = SimpleNamespace(federation="f", host="h", port=1)
    (tmp_path / "runs").mkdir()
    return SimpleNamespace(runs=tmp_path / "runs", invitation=invitation, roster=lambda sites: tuple(sites))


@pytest.fixture
def play(coordinator, monkeypatch):
    monkeypatch.setattr(supervisor, "ASK_EVERY", 0.0)
    monkeypatch.setattr(supervisor, "time", Clock())

    def start(*steps, present=(("a", "b", "c"),), sites=("a", "b", "c"), plan=PLAN):
        script = Script(coordinator, steps, present)
        monkeypatch.setattr(supervisor, "Line", script)
        script.told = []
        supervise(coordinator, plan, Terms(quorum=2), sites=sites, patience=PATIENCE, on_event=script.told.append)
        return script

    return start


def test_jobs_follow_each_other_until_the_run_is_finished(play):
    script = play(
        {"state": "paused", "round": 25}, {"state": "paused", "round": 50}, {"state": "finished", "round": 60}
    )
    assert script.submitted == [("a", "b", "c")] * 3
    assert script.told == []


def test_a_finished_run_is_not_played_again(play):
    play({"state": "finished", "round": 60})
    assert play().submitted == []


def test_a_job_whose_process_is_gone_or_that_never_began_is_sent_again(play):
    script = play({"state": "running", "round": 3}, None, {"state": "finished", "round": 60})
    assert len(script.submitted) == 3
    assert script.aborted == ["job-0", "job-1"]
    assert "broke off" in script.told[0]


def test_sites_that_were_away_are_tried_again_and_refusals_are_not(play):
    away = {"state": "failed", "message": "b did not answer", "round": 2}
    script = play(away, {"state": "finished", "round": 60})
    assert script.told == ["b did not answer"]


def test_a_refusal_ends_the_run_at_once(play):
    with pytest.raises(FederationError, match="does not run"):
        play({"state": "failed", "message": "b: this site does not run 'felb'", "hopeless": True})


def test_a_run_that_does_not_move_is_given_up_with_its_last_word(play):
    stuck = {"state": "failed", "message": "disk full", "round": 2}
    with pytest.raises(FederationError, match=r"round 2 .*3 attempts.*disk full"):
        play(*[stuck] * 9)


def test_it_waits_for_absent_sites_then_goes_on_with_a_quorum(play, coordinator):
    record = RunRecord(coordinator.runs, "r1")
    record.begin(PLAN)
    record.report(Status("paused", round=3))
    present = [("a",), ("a", "b")]
    script = play({"state": "finished", "round": 9}, present=present)
    assert script.submitted == [("a", "b")]
    assert any("waiting" in line for line in script.told)
    assert any("without c" in line for line in script.told)


def test_a_run_does_not_begin_without_a_site_that_was_named(play):
    with pytest.raises(FederationError, match=r"c is not connected.*--without c"):
        play(present=[("a", "b")])


def test_without_a_quorum_it_says_who_is_there(play):
    with pytest.raises(FederationError, match=r"1 sites .*\(a\).* 2 "):
        play(present=[("a", "stranger")])


@pytest.mark.parametrize(("sites", "needs"), [("abc", "all 3 sites"), ("abcd", "3 of the 4 sites")])
def test_a_masked_run_goes_on_with_the_sites_that_its_sums_need_and_not_with_fewer(play, sites, needs):
    """Of three sites that is all of them, although the quorum of the terms is two."""
    plan, moving = replace(PLAN, roster="0" * 64, sites=len(sites)), {"state": "paused", "round": 2}
    with pytest.raises(FederationError, match=f"2 sites are connected .*needs {needs}"):
        play(moving, present=(tuple(sites), ("a", "b")), sites=tuple(sites), plan=plan)


def test_a_run_under_way_is_watched_not_sent_twice(play, coordinator, monkeypatch):
    record = RunRecord(coordinator.runs, "r1")
    record.begin(PLAN)
    record.report(Status("running", job="old", round=4))
    answers = iter([True, True])

    def held(record):
        if next(answers, False):
            return True
        record.report(Status("finished", job="old", round=9))
        return False

    monkeypatch.setattr(supervisor, "held", held)
    assert play().submitted == []


def test_an_overview_without_a_server(coordinator, monkeypatch):
    script = Script(coordinator, [])
    script.sites = lambda: (_ for _ in ()).throw(Unreachable("gone"))
    monkeypatch.setattr(supervisor, "Line", script)
    script.record.begin(PLAN)
    script.record.report(Status("running", job="j", round=4))
    seen = overview(coordinator)
    assert (seen["reachable"], seen["sites"]) == (False, [])
    assert [(run["run"], run["state"], run["round"]) for run in seen["runs"]] == [("r1", "interrupted", 4)]


def test_a_job_names_two_classes_and_holds_no_code(tmp_path):
    folder = write_job(tmp_path / "job", PLAN, Terms(), sites=["a"], wanted=["a", "b"])
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {"meta.json", "app/config/config_fed_server.json", "app/config/config_fed_client.json"}
    server, client = (
        json.loads((folder / f"app/config/config_fed_{k}.json").read_text()) for k in ("server", "client")
    )
    assert [workflow["path"] for workflow in server["workflows"]] == [CONTROLLER]
    assert [entry["executor"]["path"] for entry in client["executors"]] == [EXECUTOR]
    assert Plan.of(client["executors"][0]["executor"]["args"]["plan"]) == PLAN


def test_the_lock_down_lets_nobody_send_code_or_read_logs(tmp_path):
    local = tmp_path / "local"
    local.mkdir()
    parts = [{"id": name, "args": {}} for name in ("job_manager", "job_scheduler", "log_receiver", "site_log_streamer")]
    storage = {"args": {"storage": {"args": {"root_dir": "/tmp/x"}}}}
    default = {
        "class_allow_list": ["*"],
        "allow_log_streaming": True,
        "components": parts,
        "snapshot_persistor": storage,
    }
    (local / "resources.json.default").write_text(json.dumps(default))
    lock_site(tmp_path)
    resources = json.loads((local / "resources.json").read_text())
    assert (resources["class_allow_list"], resources["allow_log_streaming"]) == ([EXECUTOR], False)
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert "site_log_streamer" not in [part["id"] for part in resources["components"]]
    permissions = json.loads((local / "authorization.json").read_text())["permissions"]
    assert {role[right] for role in permissions.values() for right in ("byoc", "shell_commands", "operate")} == {"none"}
    lock_server(tmp_path, storage=tmp_path / "storage")
    text = (local / "resources.json").read_text()
    assert json.loads(text)["class_allow_list"] == [CONTROLLER]
    assert "/tmp/x" not in text
