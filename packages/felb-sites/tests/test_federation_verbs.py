"""A consortium as people set it up: with the command line, sending files to each other."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
import scipy.sparse as sp

from federation_parts import SHARDS, ZOO
from felb.cli import main
from felb.engines.local import run
from felb_sites.flare import environment
from felb_sites.local_federation import free_port
from felb_sites.provisioning import Coordinator, Site
from felb_sites.run_plan import Plan

pytestmark = pytest.mark.federation


@pytest.fixture
def felb(capsys):
    def call(*arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert ended.value.code == code, err
        return json.loads(out) if code == 0 else err

    return call


def test_from_an_invitation_to_a_result(felb, tmp_path):
    pytest.importorskip("nvflare")
    fed, processes = tmp_path / "fed", []
    made = felb("federation", "init", fed, "--name", "zoos", "--host", "localhost", "--port", free_port(), "--json")
    for name, shard in SHARDS.items():
        site, data = tmp_path / name, tmp_path / f"{name}.npz"
        sp.save_npz(data, shard.to_scipy(bool))
        shutil.copy(made["invitation"], tmp_path / f"{name}.json")
        invitation = ("--invitation", tmp_path / f"{name}.json", "--fingerprint", made["fingerprint"])
        sent = felb("site", "join", site, *invitation, "--name", name, "--json")
        told = ("--name", name, "--key-fingerprint", sent["key fingerprint"])
        out = tmp_path / f"{name}.signed.zip"
        back = felb("federation", "approve", fed, sent["send"], *told, "-o", out, "--json")["approval"]
        settings = ("--data", data, "--min-rows", 30, "--allow-exact", "--disclosure", "none")
        checked = felb("site", "start", site, "--approval", back, *settings, "--check", "--json")
        assert (checked["rows"], checked["columns"]) == (len(shard), 17)
        assert Site.open(site).config().policy.min_rows == 30
    (tmp_path / "run.toml").write_text(
        'id = "first"\nmethod = "felb-mu"\ncomponents = 4\nfeatures = 17\nsites = ["site-1", "site-2", "site-3"]\n'
        "[parameters]\nmax_iter = 6\n[terms]\nquorum = 3\n"
    )
    assert felb("status", fed, "--json")["reachable"] is False
    try:
        for command in (Coordinator.open(fed).command(), *(Site.open(tmp_path / name).command() for name in SHARDS)):
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            processes.append(subprocess.Popen(command, env=environment(), **quiet))
        told = felb("run", fed, "--config", tmp_path / "run.toml", "-o", tmp_path / "out", code=1)
        for name in SHARDS:
            assert f"{name}: the run waits for approval at the site" in told
            waiting = felb("site", "pending", tmp_path / name, "--json")
            assert [line["run"] for line in waiting] == ["first"]
            shown = felb("site", "show", tmp_path / name, "first", "--json")
            assert "local_factor" in [line["what"] for line in shown["leaves"]]
            approved = felb("site", "approve", tmp_path / name, "first", shown["digest"][:32], "--json")
            assert approved["status"] == "approved"
            (proposed,) = felb("site", "roster", "show", tmp_path / name, "--json")["proposed"]
            assert proposed["digest"] == shown["roster"]
            assert shown["sums"] == "masked, roster not confirmed here"
        told = felb("run", fed, "--config", tmp_path / "run.toml", "-o", tmp_path / "out", code=1)
        assert "site-2: the roster waits for confirmation at the site" in told
        digest = felb("federation", "roster", fed, "--json")["digest"]
        for name in SHARDS:
            assert felb("site", "roster", "confirm", tmp_path / name, digest[:32], "--json")["confirmed"] == digest
        found = felb("run", fed, "--config", tmp_path / "run.toml", "-o", tmp_path / "out", "--json")
        seen = felb("status", fed, "--json")
        assert (seen["sites"], seen["runs"][0]["state"]) == (sorted(SHARDS), "finished")
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    expected = run(Plan("first", "felb-mu", 4, 17, {"max_iter": 6}).algorithm(), SHARDS, seed=0)
    assert found["scores"] == expected.outcome.counts.scores()
    np.testing.assert_array_equal(
        sp.load_npz(tmp_path / "out" / "components.npz").toarray(), expected.outcome.components
    )
    assert found["provenance"]["data"]["rows"] == len(ZOO)
    assert found["provenance"]["parameters"]["secure"] is True, "the default of three sites"
    assert len(felb("site", "log", tmp_path / "site-1", "--json")) == 3 + 2 + 3 * 6 + 2  # start, rounds, assignment
    assert "exists" in felb("run", fed, "--config", tmp_path / "run.toml", "-o", tmp_path / "out", code=1)
