"""A coordinator that has turned against its sites, a site that has turned against the others, and strangers."""

from __future__ import annotations

import json
import os
import socket
import ssl
import time

import numpy as np
import pytest

from federation_parts import SITES, plan, play
from felb.errors import FederationError, InputError
from felb_sites.coordinator_session import Line
from felb_sites.flare_job import write_job
from felb_sites.local_federation import SERVER
from felb_sites.provisioning import Coordinator, Site
from felb_sites.run_record import RunRecord
from felb_sites.terms import Terms

pytestmark = pytest.mark.federation

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
TERMS = Terms(quorum=3, round_timeout=20, grace=1)
EVIL = """
import os, pathlib
pathlib.Path({marker!r}).write_text("was here")
from nvflare.apis.executor import Executor
class Evil(Executor):
    def execute(self, *a): pass
"""


def submit(federation, folder, run_id, change):
    """Send a job that was tampered with; return how it ended, for FLARE and for the run."""
    made = plan(run_id)
    record = RunRecord(federation.coordinator.runs, run_id)
    record.begin(made)
    job = write_job(folder / "job", made, TERMS)
    path = job / "app" / "config" / "config_fed_client.json"
    config = json.loads(path.read_text())
    change(job, config["executors"][0]["executor"])
    path.write_text(json.dumps(config))
    with Line(federation.coordinator) as line:
        try:
            name = line.submit_folder(str(job))
        except FederationError as error:
            return str(error), record.status()
        end = time.monotonic() + 60
        while (ended := line.ended(name)) is None and time.monotonic() < end:
            time.sleep(0.3)
            if record.status().state == "failed":
                break
        if ended is None:
            line.abort(name)
    return ended, record.status()


def logs(federation):
    return "".join((federation.folder / name / "courier.log").read_text(errors="replace") for name in SITES)


def test_a_job_with_code_is_refused_by_the_sites(federation, tmp_path):
    marker = tmp_path / "marker"

    def change(job, executor):
        (job / "app" / "custom").mkdir()
        (job / "app" / "custom" / "evil.py").write_text(EVIL.format(marker=str(marker)))
        executor["path"] = "evil.Evil"

    ended, status = submit(federation, tmp_path, "code", change)
    assert ended != "FINISHED:COMPLETED"
    assert status.round == 0
    assert not marker.exists()
    server = (federation.folder / "server.log").read_text(errors="replace")
    assert all(f"{name}: NVFLARE_ERROR: BYOC not permitted" in server for name in SITES)


@pytest.mark.parametrize("path", ["nvflare.app_common.np.np_trainer.NPTrainer", "felb_sites.site_session.SiteSession"])
def test_a_class_that_is_not_the_executor_is_refused_by_the_sites(federation, tmp_path, path):
    def change(job, executor):
        executor.update(path=path, args={})

    _, status = submit(federation, tmp_path, f"class-{path.rsplit('.')[-1]}", change)
    assert status.round == 0
    assert f"Component '{path}'" in logs(federation)
    assert "is not in allow_list" in logs(federation)


@pytest.mark.parametrize(
    ("run_id", "change"),
    [
        ("path-parameter", lambda executor: executor["args"]["plan"]["parameters"].update(setting="/etc/passwd")),
        ("path-plan", lambda executor: executor["args"]["plan"].update(data="/etc/passwd")),
        ("path-argument", lambda executor: executor["args"].update(data="/etc/passwd")),
        ("run-outside", lambda executor: executor["args"]["plan"].update(run_id="../../outside")),
    ],
)
def test_a_path_among_the_arguments_is_refused_by_the_sites(federation, tmp_path, run_id, change):
    _, status = submit(federation, tmp_path, run_id, lambda job, executor: change(executor))
    assert (status.state, status.round, status.hopeless) == ("failed", 0, True)
    assert set(status.reasons) == set(SITES)
    assert not list(federation.folder.rglob("outside"))


def test_a_method_that_the_sites_do_not_allow_is_refused_at_once(federation, tmp_path):
    with pytest.raises(FederationError, match=r"site-1: .*method"):
        play(federation, tmp_path / "out", plan("not-allowed", method="felb"))


SPOILED = """
import os
import numpy as np
from felb_sites import site_session
honest = site_session.SiteSession.answer
def answer(self, broadcast, sums=()):
    values = dict(honest(self, broadcast, sums))
    kind = {"3": "nan", "4": "shape", "5": "huge"}.get(str(broadcast.round))
    if kind == "nan":
        values["V"] = values["V"] * np.nan
    if kind == "shape":
        values["V"] = values["V"].T
    if kind == "huge":
        values["V"] = np.ones((4, 10_000_000), np.float32)
    return values
site_session.SiteSession.answer = answer
"""


def test_spoiled_answers_are_rejected_by_name_and_the_others_go_on(federation, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SPOILED)
    federation.kill("site-2")
    federation.start("site-2", env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
    try:
        federation.wait_for_sites()
        result, _ = play(federation, tmp_path / "out", plan("spoiled"), quorum=2)
        missing = {row["round"]: row["missing"] for row in result.history if "missing" in row}
        assert missing == {number: ["site-2"] for number in (3, 4, 5)}
        assert np.isfinite(result.history["loss"]).all()
    finally:
        federation.kill("site-2")
        federation.start("site-2")
        federation.wait_for_sites()


def greeting(federation, context=None):
    """Return what the server says to a caller who speaks its protocol; nothing if it hangs up."""
    address = ("localhost", federation.coordinator.invitation.port)
    try:
        line = socket.create_connection(address, timeout=5)
        if context is not None:
            line = context.wrap_socket(line, server_hostname="localhost")
        with line:
            line.settimeout(3)
            line.sendall(PREFACE)
            return line.recv(9)
    except (OSError, ssl.SSLError):
        return b""


def tls(federation, kit=None):
    context = ssl.create_default_context(cafile=federation.sites["site-1"].kit / "startup" / "rootCA.pem")
    context.set_alpn_protocols(["h2"])
    if kit is not None:
        context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    return context


def approved(coordinator, site, request):
    out = site.folder.parent / f"{site.name}.signed.zip"
    return coordinator.approve(request, out, name=site.name, key_fingerprint=site.key_fingerprint())


def test_only_holders_of_a_certificate_of_this_federation_are_heard(federation, tmp_path):
    other = Coordinator.found(tmp_path / "other", name="demo", host="localhost", port=1)
    stranger, request = Site.join(tmp_path / "stranger", other.invitation, name="site-1")
    stranger.admit(approved(other, stranger, request))
    is_settings_frame = greeting(federation, tls(federation, federation.sites["site-1"].kit))[3:4] == b"\x04"
    assert is_settings_frame, "a site of this federation is answered"
    assert greeting(federation) == b"", "plain TCP"
    assert greeting(federation, tls(federation))[3:4] != b"\x04", "no certificate"
    assert greeting(federation, tls(federation, stranger.kit))[3:4] != b"\x04", "certificate of another authority"


def test_an_approval_of_another_authority_is_not_taken(federation, tmp_path):
    other = Coordinator.found(tmp_path / "other", name="demo", host="localhost", port=1)
    site, request = Site.join(tmp_path / "site", federation.coordinator.invitation, name="site-9")
    with pytest.raises(InputError, match="does not fit"):
        site.admit(approved(other, site, request))
    assert not site.admitted


def test_a_renewed_approval_keeps_policy_and_settings(federation, tmp_path):
    coordinator = federation.coordinator
    site, request = Site.join(tmp_path / "site", coordinator.invitation, name="site-9")
    site.admit(approved(coordinator, site, request))
    site.configure(data="data.csv", policy={"min_rows": 77})
    before = (site.kit / "startup" / "client.crt").read_bytes()
    site.admit(approved(coordinator, site, request))
    assert (site.kit / "startup" / "client.crt").read_bytes() != before
    assert (site.config().policy.min_rows, site.config().data) == (77, "data.csv")
    assert json.loads((site.kit / "local" / "resources.json").read_text())["allow_log_streaming"] is False


def test_a_revoked_site_is_not_heard_until_it_is_readmitted_without_a_restart(federation):
    def sites_become(line, wanted):
        end = time.monotonic() + 120
        while set(line.sites()) != wanted:
            assert time.monotonic() < end, line.sites()
            time.sleep(0.2)

    server = federation.processes[SERVER].pid
    log = federation.folder / "server.log"
    asked = log.read_text(errors="replace").count("revoked site or key was refused")
    revoked = {"keys": (federation.sites["site-3"].key_fingerprint(),)}
    federation.coordinator.revoke(**revoked)
    try:
        with Line(federation.coordinator) as line:
            line.wait(90)
            sites_become(line, {"site-1", "site-2"})
            federation.kill("site-3")
            federation.start("site-3")
            end = time.monotonic() + 120
            while log.read_text(errors="replace").count("revoked site or key was refused") == asked:
                assert time.monotonic() < end, "it did not ask"
                time.sleep(0.5)
            assert set(line.sites()) == {"site-1", "site-2"}
            federation.coordinator.revoke(names=("site-2",))
            sites_become(line, {"site-1"})
    finally:
        federation.coordinator.readmit(**revoked, names=("site-2",) if federation.coordinator.revocations.names else ())
        for name in ("site-2", "site-3"):
            federation.kill(name)
            federation.start(name)
        federation.wait_for_sites(seconds=120)
    assert federation.processes[SERVER].pid == server
