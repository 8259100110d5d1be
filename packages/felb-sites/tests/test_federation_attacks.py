"""Attacks of an audit, played over real processes: a site or a server whose own code was replaced asks for files."""

from __future__ import annotations

import json
import os
import time

import pytest

from federation_parts import plan, play
from felb_sites.local_federation import SERVER

pytestmark = pytest.mark.federation

HOSTILE = """
import json, os, pathlib, sys, threading, time
def attack(folder):
    while "nvflare.private.admin_defs" not in sys.modules:
        time.sleep(0.2)
    time.sleep(2)
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell
    from nvflare.fuel.f3.cellnet.utils import new_cell_message
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
    from nvflare.private.admin_defs import Message
    asked = folder / "ask.json"
    while True:
        time.sleep(0.2)
        cells = [cell for name, cell in CoreCell.ALL_CELLS.items() if "." not in name]
        if not asked.exists() or not cells:
            continue
        answers = []
        for line in json.loads(asked.read_text()):
            request = Message(topic=line["topic"], body=line["body"])
            for name, value in line.get("headers", {}).items():
                request.set_header(name, value)
            headers = {Key.ORIGIN: line["origin"]} if line.get("origin") else {}
            reply = cells[0].send_request(line["channel"], line["outer"], line["target"],
                                          new_cell_message(headers, request), timeout=4.0)
            payload = getattr(reply.payload, "body", reply.payload)
            answers.append([str(reply.get_header(Key.RETURN_CODE)), str(payload)])
        partial = folder / "told.partial"
        partial.write_text(json.dumps(answers))
        partial.rename(folder / "told.json")
        asked.unlink()
if "nvflare.private.fed.app" in " ".join(sys.argv) or "guarded" in " ".join(sys.orig_argv):
    from felb_sites import topic_guard
    topic_guard.install = lambda: None  # who attacks does not guard itself
    threading.Thread(target=attack, args=(pathlib.Path(__file__).parent,), daemon=True).start()
"""


def attacked(federation, folder, attacker, requests):
    """Replace the code of `attacker`, let it ask, and return what it was told for each request."""
    (folder / "sitecustomize.py").write_text(HOSTILE)
    federation.kill(attacker)
    federation.start(attacker, env={"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
    try:
        federation.wait_for_sites(seconds=120)
        (folder / "ask.partial").write_text(json.dumps(requests))
        (folder / "ask.partial").rename(folder / "ask.json")
        end = time.monotonic() + 30 + 5 * len(requests)
        while not (folder / "told.json").exists():
            assert time.monotonic() < end, "the attacker did not get to ask"
            time.sleep(0.2)
        return json.loads((folder / "told.json").read_text())
    finally:
        federation.kill(attacker)
        federation.start(attacker)
        federation.wait_for_sites(seconds=120)


def commands(federation, victim):
    """Return the requests of the audit: files, keys, policies, the environment, deletion, restart, the network."""
    site = federation.sites[victim]
    admin = {"target": victim, "channel": "admin", "outer": "admin"}
    return [
        {**admin, "topic": "sys.shell", "body": f"cat {site.folder}/kit/local/resources.json"},
        {**admin, "topic": "sys.shell", "body": f"cat {site.folder}/kit/startup/client.key"},
        {**admin, "topic": "sys.shell", "body": f"cat {site.folder}/vault/felb.json"},
        {**admin, "topic": "sys.shell", "body": f"cat {site.folder}/data.npz"},
        {**admin, "topic": "sys.shell", "body": f"ls {site.folder}"},
        {**admin, "topic": "sys.report_env", "body": ""},
        {**admin, "topic": "sys.info", "body": ""},
        {**admin, "topic": "info.show_errors", "body": "", "headers": {"job_id": "x"}},
        {**admin, "topic": "train.delete_run", "body": "", "headers": {"job_id": "local"}},
        {**admin, "topic": "train.deploy", "body": "", "headers": {"job_id": "local", "app_name": "app"}},
        {**admin, "topic": "train.restart", "body": ""},
        {**admin, "topic": "train.shutdown", "body": ""},
        {"target": victim, "channel": "_net_manager", "outer": "stop_cell", "topic": "x", "body": ""},
        {"target": victim, "channel": "_net_manager", "outer": "config_vars", "topic": "x", "body": ""},
        {"target": victim, "channel": "_net_manager", "outer": "change_root", "topic": "x", "body": "x"},
        {"target": victim, "channel": "client_command", "outer": "show_errors", "topic": "x", "body": ""},
        {"target": victim, "channel": "aux_communication", "outer": "__aux_command__", "topic": "x", "body": ""},
    ]


def assert_nothing_told(told):
    for code, text in told:
        refused = code != "ok" or "refused" in text or "invalid_request" in text
        assert refused, (code, text[:200])
        assert "PRIVATE KEY" not in text
        assert "class_allow_list" not in text


def test_a_site_gets_nothing_of_another_site_through_an_honest_server(federation, tmp_path):
    requests = commands(federation, "site-1")
    forged = [{**requests[0], "origin": "server"}]
    told = attacked(federation, tmp_path, "site-2", requests + forged)
    assert len(told) == len(requests) + 1
    assert_nothing_told(told)
    assert (federation.sites["site-1"].kit / "local" / "resources.json").is_file()
    result, _ = play(federation, tmp_path / "out", plan("after-c1", rounds=4))
    assert {row["clients"] for row in result.history} == {3}


def test_a_hostile_server_gets_nothing_of_a_site(federation, tmp_path):
    requests = commands(federation, "site-1")
    assert_nothing_told(attacked(federation, tmp_path, SERVER, requests))
    assert (federation.sites["site-1"].kit / "local" / "resources.json").is_file()
    assert federation.processes["site-1"].poll() is None, "it was not stopped"
