"""Masked sums over real processes while a site is away: in each step of a sum, under distributed noise, at the end."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from loopback import Loopback
from seeded_noise import rounded_normal, seeded_noise

from federation_parts import PATIENCE, ZOO
from federation_parts import plan as plan_of
from felb.data import partition
from felb.data.partition import split
from felb.engines.local import run as run_local
from felb.secure_sum.site import SiteState
from felb_sites.deployed import DeployedRun, run_deployed
from felb_sites.local_federation import LocalFederation
from felb_sites.masked_session import STATE
from felb_sites.run_plan import Plan
from felb_sites.run_record import RunRecord
from felb_sites.site_budget import Spent
from felb_sites.site_logs import read_outbound
from felb_sites.terms import Terms

pytestmark = [pytest.mark.federation, pytest.mark.filterwarnings("ignore")]

SITES = ("site-1", "site-2", "site-3", "site-4")
SHARDS = split(ZOO, [SITES[i] for i in partition.even(101, 4)])[0]
HELPERS = Path(__file__).parent / "helpers"
LOST = "site-4"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Four sites whose vaults draw noise that can be repeated."""
    pytest.importorskip("nvflare")
    pytest.importorskip("opendp")
    policy = {"require_secure": True, "min_rows": 5}
    with pytest.MonkeyPatch.context() as patch:
        known = os.environ.get("PYTHONPATH")
        noise = Path(rounded_normal.__code__.co_filename).parent
        path = [str(HELPERS / "seeded_vault"), str(noise), *([known] if known else [])]
        patch.setenv("PYTHONPATH", os.pathsep.join(path))
        with LocalFederation(tmp_path_factory.mktemp("masked") / "f", SHARDS, policy=policy) as made:
            yield made


# What a vault has kept before each step. The two setups are those of this sum and of the next one, whose keys and
# shares travel along; a new job begins with trips of their own for these.
BEFORE = {
    "masked input": lambda used, new: used.unmasking is not None and new.shares is not None,
    "consistency": lambda used, new: used.context is not None and not used.survivors,
    "unmask": lambda used, new: bool(used.survivors) and used.unmasking is None,
    "shares": lambda used, new: used.context is None and new.shares is None,
}


class Freezer:
    """Stops the vault of a site when a sum has come to a step, and lets it go on when the others are further."""

    def __init__(self, federation, run):
        self.record = RunRecord(federation.coordinator.runs, run)
        self.path = federation.sites[LOST].state / run / STATE
        children = psutil.Process(federation.processes[LOST].pid).children()
        (self.vault,) = [child for child in children if any("vault_process" in word for word in child.cmdline())]
        self.frozen = {}

    def status(self):
        status = self.record.status()
        assert status.state != "finished", "the run was over before its trouble; play more rounds"
        return status

    def wait(self, what):
        end = time.monotonic() + 90
        while not what(self.status()):
            assert time.monotonic() < end, "the run does not get on"
            time.sleep(0.02)

    def at(self, step):
        """Stop at a step; look, while the vault stands still, whether it is there."""
        end = time.monotonic() + 90
        while True:
            assert time.monotonic() < end, f"{step} does not come"
            self.status()
            self.vault.suspend()
            setups = SiteState.from_bytes(self.path.read_bytes()).setups
            if len(setups) == 2 and BEFORE[step](*(setups[number] for number in sorted(setups))):
                break
            self.vault.resume()
            time.sleep(0.01)
        begun = self.status().round
        self.frozen[step] = begun
        self.wait(lambda status: status.round >= begun + 2)
        self.vault.resume()
        self.wait(lambda status: LOST in status.sites)

    def play(self):
        end = time.monotonic() + 120
        while not self.path.is_file():
            assert time.monotonic() < end, "the run does not begin"
            time.sleep(0.05)
        self.wait(lambda status: status.round >= 2)
        for step in ("unmask", "masked input", "consistency", "shares"):
            self.at(step)


def test_a_site_that_stands_still_in_any_step_repeats_no_round_and_the_history_names_it(federation, tmp_path):
    made = plan_of("steps", rounds=60)
    terms = Terms(quorum=3, grace=2.0, round_timeout=60.0, rounds_per_job=18)
    run = DeployedRun(made, terms, SITES, ZOO.columns, "none", secure=True)
    freezer = Freezer(federation, "steps")
    try:
        with ThreadPoolExecutor(1) as pool:
            disturbed = pool.submit(freezer.play)
            result = run_deployed(federation.coordinator, run, tmp_path / "r", patience=PATIENCE)
        disturbed.result()
    finally:
        os.kill(freezer.vault.pid, signal.SIGCONT)
    missing = [tuple(row.get("missing", ())) for row in result.history]
    assert set(missing) == {(), (LOST,)}
    for step, number in freezer.frozen.items():
        # Whoever is lost after its input was sent is in that sum, and missing in the next one.
        first = number + (step in ("consistency", "unmask"))
        assert (LOST,) in missing[first : first + 2], step
    assert missing[-1] == (), "it is back"
    asked = Counter(re.findall(r"run steps round (\d+) answered", (federation.folder / "site-1.log").read_text()))
    assert len(asked) == len(missing)
    assert max(asked.values()) <= 2, "at most one repetition of any round"
    expected = Loopback(tmp_path / "plain", made, SHARDS)
    for row in missing:
        expected.absent = dict.fromkeys(row, "")
        expected.round()
    np.testing.assert_array_equal(result.components, expected.outcome.components)
    assert result.scores == expected.outcome.counts.scores()


def test_a_site_that_is_away_at_the_end_gets_its_assignment_later_and_is_not_counted(federation, tmp_path):
    made = plan_of("late", rounds=12)
    terms = Terms(quorum=3, grace=3.0, round_timeout=60.0, rounds_per_job=99)
    run = DeployedRun(made, terms, SITES, ZOO.columns, "none", secure=True)
    kept = federation.sites[LOST].state / "late" / "assignment.npz"
    record, killed = RunRecord(federation.coordinator.runs, "late"), []

    def kill_once(status):
        if status.round >= 3 and not killed:
            killed.append(status.round)
            federation.kill(LOST)

    try:
        first = run_deployed(federation.coordinator, run, tmp_path / "r", patience=PATIENCE, on_status=kill_once)
        assert first.history[-1]["missing"] == [LOST]
        assert not kept.exists()
    finally:
        federation.start(LOST)
        federation.wait_for_sites()
    later = run_deployed(federation.coordinator, run, tmp_path / "l", late=True, patience=PATIENCE)
    assert kept.exists()
    np.testing.assert_array_equal(later.components, first.components)
    assert later.scores == first.scores
    assert list(later.history) == list(first.history), "the others have confirmed a sum without it"
    assert record.status().state == "finished"


def test_distributed_noise_over_four_sites_is_that_of_one_process_and_is_charged_when_an_input_is_masked(
    federation, tmp_path
):
    """The last run of this file: exact runs are refused after a private one."""
    privacy = {"epsilon": 2.0, "delta": 1e-5, "noise": "distributed", "colluders": 1}
    made = Plan("private", "bmf", 3, 17, {"effort": "fast"}, privacy, 101, 4, seed=5)
    terms = Terms(quorum=4, grace=3.0, round_timeout=60.0)
    told = []
    run = DeployedRun(made, terms, SITES, ZOO.columns, secure=True)
    result = run_deployed(federation.coordinator, run, tmp_path / "r", patience=PATIENCE, on_event=told.append)
    with seeded_noise():
        local = run_local(made.algorithm(), SHARDS, seed=made.seed, secure=True)
    np.testing.assert_array_equal(result.components, local.outcome.components)
    assert list(result.history) == list(local.history)
    assert told == ["sums are masked, and a masked sum needs all 4 sites"]
    assert result.privacy["epsilon"] == 2.0
    statement = result.privacy["text"]
    assert "not the server, but most clients" in statement
    assert "at most 1 of them collude" in statement
    for name in SITES:
        state = federation.sites[name].state
        lines = read_outbound(state, run_id="private")
        assert [line["what"] for line in lines] == ["sizes", "cooccurrence", "choice"]
        assert all("1 of 3 shares" in str(line) for line in lines)
        assert 1.99 < lines[-1]["total"]["epsilon"] <= 2.0
        assert Spent(state).total() == (2.0, 1e-5)
