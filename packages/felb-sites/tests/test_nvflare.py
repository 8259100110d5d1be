"""Runs whose envelopes travel by a FLARE job, in the simulator of FLARE."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run as simulate
from felb.errors import InputError
from felb.privacy.disclosure import Disclosure
from felb_sites.coordinator.local import LocalFederation
from felb_sites.coordinator.run import run_deployed
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.run_plan import Plan
from felb_sites.terms import Terms
from felb_sites.vault.operator import Operator

pytestmark = pytest.mark.skipif(importlib.util.find_spec("nvflare") is None, reason="felb-sites[nvflare] is missing")
SITES = ("site-1", "site-2", "site-3")
PACKAGE = "felb_sites.nvflare."


@pytest.fixture
def without_couriers(tmp_path):
    shards = split(planted(1_200, 12, 3, noise=0.1, seed=1).A, np.array(SITES)[partition.even(1_200, 3)])[0]
    policy = {"auto_approve": ["all"], "require_privacy": False}
    with LocalFederation(tmp_path / "f", shards, policy=policy) as made:
        made.shards = shards
        for site in SITES:
            made.kill(f"courier:{site}")
        made.kill("relay")  # one that is started again does not know who was connected
        made.start("relay")
        yield made


@contextlib.contextmanager
def simulated_flare(local, folder):
    """Run a job as it is made for a real server in the simulator; it ends soon after the relay."""
    job, workspace, invitation = folder / "job", folder / "workspace", folder / "invitation.json"
    local.federation.invitation.write(invitation)
    subprocess.run([sys.executable, "-m", f"{PACKAGE}controller", invitation, job], check=True)
    config = job / "app" / "config" / "config_fed_server.json"
    content = json.loads(config.read_text())
    content["workflows"][0]["args"]["patience"] = 10.0
    config.write_text(json.dumps(content))
    (workspace / "local").mkdir(parents=True)
    at_site = {"courier": str(local.folder / "{client}" / "courier"), "one_user": True}
    (workspace / "local" / "felb.json").write_text(json.dumps(at_site))
    allowed = {"format_version": 2, "class_list_enforcement_mode": "enforce", "class_allow_list": [PACKAGE]}
    (workspace / "local" / "resources.json").write_text(json.dumps(allowed))
    command = ["-m", "nvflare.cli", "simulator", job, "-w", workspace, "-c", ",".join(SITES), "-t", "3"]
    with (folder / "flare.log").open("wb") as log:
        flare = subprocess.Popen(
            [sys.executable, *command], stdout=log, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True
        )
    try:
        yield flare
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(flare.pid, signal.SIGKILL)
        flare.wait()


@pytest.mark.federation
def test_clear_and_masked_runs_by_a_flare_job_end_with_the_components_of_their_simulation(without_couriers, tmp_path):
    local = without_couriers
    with simulated_flare(local, tmp_path) as flare:
        local.wait_until_connected()
        for secure in (False, True):
            plan = Plan(f"by-flare-{secure}", "bmf", 3, 12, {"effort": "fast"})
            run = DeployedRun(plan, Terms(quorum=3), SITES, None, secure=secure)
            result = run_deployed(local.federation, run, tmp_path / plan.run_id, patience=60)
            simulated = simulate(plan.algorithm(), local.shards, seed=0, disclosure=Disclosure())
            np.testing.assert_array_equal(result.outcome.components, simulated.outcome.components)
            told = Operator(local.sites["site-1"].vault).log(plan.run_id)
            assert {line.get("masked", False) for line in told} == {secure}
        local.kill("relay")
        assert flare.wait(300) == 0


def test_a_flare_client_with_the_user_of_the_vault_does_not_carry(tmp_path):
    from felb_sites.nvflare.executor import find_courier

    settings = {"site": "a", "federation": "f", "url": "https://relay", "trust": "system", "certificate": ""}
    (tmp_path / "courier.json").write_text(json.dumps({**settings, "socket": "carrier.sock"}))
    at_site = tmp_path / "felb.json"
    at_site.write_text(json.dumps({"courier": str(tmp_path)}))
    with pytest.raises(InputError, match="does not run"):
        find_courier(at_site, client="a")
    with socket.socket(socket.AF_UNIX) as vault:
        vault.bind(str(tmp_path / "carrier.sock"))
    with pytest.raises(InputError, match="as the user of the vault"):
        find_courier(at_site, client="a")


@pytest.mark.parametrize(
    ("path", "token"),
    [
        ("/v1/members", ""),
        ("https://elsewhere/v1/envelope", ""),
        ("/v1/next?after=0&wait=1", ""),
        ("/v1/envelope", "a\r\nb: c"),
        (7, ""),
    ],
)
def test_a_controller_passes_on_nothing_but_what_couriers_ask(path, token):
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.shareable import Shareable

    from felb_sites.nvflare.controller import RelayController

    invitation = {"federation": "f", "url": "https://relay", "trust": "system", "certificate": ""}
    asked = Shareable()
    asked.update({"path": path, "token": token, "content": b""})
    answer = RelayController(invitation)._forward("", asked, None)
    assert answer.get_return_code() == ReturnCode.BAD_REQUEST_DATA
