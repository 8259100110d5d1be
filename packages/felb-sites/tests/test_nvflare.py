"""A run whose envelopes travel by a FLARE job, in the simulator of FLARE."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run as simulate
from felb_sites.coordinator.local import LocalFederation
from felb_sites.coordinator.run import run_deployed
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.run_plan import Plan
from felb_sites.terms import Terms
from felb_sites.vault.operator import Operator

pytestmark = [
    pytest.mark.federation,
    pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason="felb-sites[nvflare] is not installed"),
]
SITES = ("site-1", "site-2", "site-3")
PACKAGE = "felb_sites.nvflare."


@pytest.fixture
def local(tmp_path):
    shards = split(planted(1_200, 12, 3, noise=0.1, seed=1).A, np.array(SITES)[partition.even(1_200, 3)])[0]
    policy = {"auto_approve": ["all"], "require_privacy": False}
    with LocalFederation(tmp_path / "f", shards, policy=policy) as made:
        made.shards = shards
        for site in SITES:
            made.kill(f"courier:{site}")
        made.kill("relay")  # which forgets who was connected
        made.start("relay")
        yield made


def start_flare(local, folder, *, one_user):
    """Start the simulator with a job as it is made for a real server, which ends soon after the relay."""
    job, workspace, invitation = folder / "job", folder / "workspace", folder / "invitation.json"
    local.federation.invitation.write(invitation)
    subprocess.run([sys.executable, "-m", f"{PACKAGE}controller", invitation, job], check=True)
    config = job / "app" / "config" / "config_fed_server.json"
    content = json.loads(config.read_text())
    content["workflows"][0]["args"]["patience"] = 10.0
    config.write_text(json.dumps(content))
    (workspace / "local").mkdir(parents=True)
    at_site = {"courier": str(local.folder / "{client}" / "courier"), "one_user": one_user}
    (workspace / "local" / "felb.json").write_text(json.dumps(at_site))
    allowed = {"format_version": 2, "class_list_enforcement_mode": "enforce", "class_allow_list": [PACKAGE]}
    (workspace / "local" / "resources.json").write_text(json.dumps(allowed))
    command = ["-m", "nvflare.cli", "simulator", job, "-w", workspace, "-c", ",".join(SITES), "-t", "3"]
    with (folder / "flare.log").open("wb") as log:
        # Processes of the simulator outlive the one that is started here, unless all are ended together.
        return subprocess.Popen(
            [sys.executable, *command], stdout=log, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True
        )


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "masked"])
def test_a_run_by_a_flare_job_ends_with_the_components_of_its_simulation(local, tmp_path, secure):
    flare = start_flare(local, tmp_path, one_user=True)
    try:
        local.wait_until_connected()
        plan = Plan("by-flare", "bmf", 3, 12, {"effort": "fast"})
        run = DeployedRun(plan, Terms(quorum=3), SITES, None, secure=secure)
        result = run_deployed(local.federation, run, tmp_path / "out", patience=60)
        simulated = simulate(plan.algorithm(), local.shards, seed=0)
        np.testing.assert_array_equal(result.outcome.components, simulated.outcome.components)
        told = Operator(local.sites["site-1"].vault).log("by-flare")
        assert all(line.get("masked", False) == secure for line in told)
        local.kill("relay")
        assert flare.wait(300) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(flare.pid, signal.SIGKILL)
        flare.wait()
