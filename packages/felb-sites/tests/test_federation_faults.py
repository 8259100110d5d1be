"""Real processes over mutual TLS: the same result as in one process, whatever dies in between."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import time

import numpy as np
import pytest
import scipy.sparse as sp

from federation_parts import SHARDS, SITES, plan, play
from felb.engines.local import run
from felb.runs.result import Result
from felb_sites.local_federation import SERVER
from felb_sites.site_logs import read_outbound
from felb_sites.supervisor import overview

pytestmark = pytest.mark.federation


def assert_same(result, made):
    expected = run(made.algorithm(), SHARDS, seed=made.seed)
    np.testing.assert_array_equal(result.components, expected.outcome.components)
    assert result.scores == expected.outcome.counts.scores()
    assert [row.get("loss") for row in result.history] == [row.get("loss") for row in expected.history]
    return expected


def test_same_result_as_in_one_process_and_nothing_private_at_the_coordinator(federation, tmp_path):
    made = plan("plain")
    result, told = play(federation, tmp_path / "out", made)
    expected = assert_same(result, made)
    assert told == []
    assert Result.read(tmp_path / "out").clients == dict.fromkeys(SITES)
    for name in SITES:
        kept = sp.load_npz(federation.sites[name].state / "plain" / "assignment.npz").toarray()
        np.testing.assert_array_equal(kept, expected.assignments[name])
        lines = read_outbound(federation.sites[name].state, run_id="plain")
        # Three sketches, two norms; V, curvature and loss in every round; at the end counts and supports.
        assert len(lines) == 3 + 2 + 3 * (len(result.history) - 5) + 2
    everything = list(federation.coordinator.folder.rglob("*")) + list((tmp_path / "out").rglob("*"))
    assert not [path for path in everything if path.is_file() and "assignment" in path.name]
    seen = overview(federation.coordinator)
    assert (seen["reachable"], seen["sites"]) == (True, list(SITES))
    assert [(r["run"], r["state"]) for r in seen["runs"] if r["run"] == "plain"] == [("plain", "finished")]


@pytest.mark.parametrize(("method", "parameters"), [("asso+vote", {"tau": 0.8}), ("bmf", {"effort": "fast"})])
def test_other_methods_have_the_same_result_too(federation, tmp_path, method, parameters):
    made = plan(method.replace("+", "-"), method=method, **parameters)
    result, told = play(federation, tmp_path / "out", made, rounds_per_job=200)
    expected = assert_same(result, made)
    assert told == []
    assert [row["task"] for row in result.history] == [row["task"] for row in expected.history]
    for name in SITES:
        kept = sp.load_npz(federation.sites[name].state / made.run_id / "assignment.npz").toarray()
        np.testing.assert_array_equal(kept, expected.assignments[name])


def test_a_private_key_is_only_at_its_site_and_only_for_its_owner(federation):
    for name, site in federation.sites.items():
        key = site.kit / "startup" / "client.key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        secret = key.read_bytes()
        others = [p for p in federation.folder.rglob("*") if p.is_file() and not p.is_relative_to(site.folder)]
        assert not [p for p in others if secret in p.read_bytes()], f"the key of {name} is elsewhere"
        policy = json.loads((site.kit / "local" / "authorization.json").read_text())["permissions"]
        assert {role["byoc"] for role in policy.values()} == {"none"}


def test_a_worker_that_is_killed(federation, tmp_path):
    def kill():
        for process in federation.workers("site-2"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    made = plan("worker", rounds=40)
    result, told = play(federation, tmp_path / "out", made, trouble=kill)
    assert_same(result, made)
    assert any("broke off" in line for line in told)


def test_a_vault_that_is_killed_is_started_again_and_nothing_is_logged_twice(federation, tmp_path):
    def kill():
        import psutil

        for child in psutil.Process(federation.processes["site-2"].pid).children():
            if any("vault_process" in word for word in child.cmdline()):
                child.kill()

    made = plan("vault", rounds=30)
    result, _ = play(federation, tmp_path / "out", made, trouble=kill)
    assert_same(result, made)
    lines = read_outbound(federation.sites["site-2"].state, run_id="vault")
    assert len(lines) == len({(line["round"], line["what"]) for line in lines})


def test_a_site_that_is_killed_comes_back_with_the_next_job(federation, tmp_path):
    def kill():
        federation.kill("site-3")
        time.sleep(1)
        federation.start("site-3")

    result, _ = play(federation, tmp_path / "out", plan("daemon"), trouble=kill, quorum=2, rounds_per_job=8)
    clients = [row["clients"] for row in result.history]
    assert clients[:3] == [3, 3, 3]
    assert clients[-1] == 3, "back for its assignment"
    assert 2 in clients
    assert all(row.get("missing", ["site-3"]) == ["site-3"] for row in result.history)
    assert [row["clients"] for row in result.history if "missing" in row] == [2] * clients.count(2)
    assert (federation.sites["site-3"].state / "daemon" / "assignment.npz").is_file()


def test_a_server_that_is_killed(federation, tmp_path):
    def kill():
        federation.kill(SERVER)
        time.sleep(1)
        federation.start(SERVER)

    made = plan("server", rounds=40)
    result, told = play(federation, tmp_path / "out", made, trouble=kill)
    assert_same(result, made)
    assert told


def test_a_round_damaged_by_a_crash_is_asked_again(federation, tmp_path):
    def kill():
        federation.kill(SERVER)
        path = max((federation.coordinator.runs / "damaged" / "journal").glob("round-*"))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        federation.start(SERVER)

    made = plan("damaged", rounds=40)
    result, _ = play(federation, tmp_path / "out", made, trouble=kill)
    assert_same(result, made)


def test_a_straggler_is_left_out_after_the_grace_period_and_not_counted_twice(federation, tmp_path):
    def slow():
        stopped = federation.workers("site-1")
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        time.sleep(6)
        for process in stopped:
            os.kill(process, signal.SIGCONT)

    result, _ = play(
        federation, tmp_path / "out", plan("straggler", rounds=20), trouble=slow, at=6, quorum=2, grace=2.0
    )
    clients = [row["clients"] for row in result.history]
    assert set(clients) == {2, 3}
    assert clients[-1] == 3
    assert {name for row in result.history for name in row.get("missing", ())} == {"site-1"}
    lines = read_outbound(federation.sites["site-1"].state, run_id="straggler")
    assert len(lines) == len({(line["round"], line["what"]) for line in lines})


def test_a_site_that_is_away_at_the_end_gets_its_assignment_later(federation, tmp_path):
    made = plan("late", rounds=30)
    last = federation.sites["site-3"].state / "late" / "assignment.npz"
    try:
        result, _ = play(
            federation, tmp_path / "out", made, trouble=lambda: federation.kill("site-3"), quorum=2, rounds_per_job=99
        )
        assert result.history[-1]["missing"] == ["site-3"]
        assert not last.exists()
    finally:
        federation.start("site-3")
        federation.wait_for_sites()
    result, _ = play(federation, tmp_path / "later", made, late=True, quorum=2, rounds_per_job=99)
    assert "missing" not in result.history[-1]
    assert last.exists()
