"""The list of messages that a site and a server take, checked against the FLARE that is installed."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace

import pytest

from felb.errors import FederationError
from felb_sites import topics
from felb_sites.topics import Cell, Sender

pytest.importorskip("nvflare")

JOB = "01807b6a-0000-4000-8000-0123456789ab"
REFUSED_SITE_COMMANDS = {
    "train.start", "train.abort_task", "train.delete_run", "train.shutdown", "train.restart", "train.set_job_id",
    "scheduler.allocate_resource", "train.get_scopes", "train.configure_job_log", "sys.info", "sys.shell",
    "resource_manager.report_resources", "sys.report_env", "sys.report_version", "sys.configure_site_log",
    "info.show_stats", "info.show_errors", "info.reset_errors", "comp_caller.call", "control.do_command",
}  # fmt: skip
REFUSED_JOB_COMMANDS = {"abort_task", "show_stats", "show_errors", "reset_errors", "configure_job_log"}
KNOWN_CHANNELS = {
    "admin", "aux_communication", "task", "server_command", "server_parent_listener", "client_command",
    "client_sub_worker_command", "multi_process_executor", "simulator_runner", "return_only", "edge_request",
    "hci_channel", "cellnet.channel",
}  # fmt: skip
KNOWN_AUX = {
    "__end_run__", "__abort_task__", "__do_task__", "__aux_command__", "__sync_runner__", "__job_heartbeat__",
    "__task_check__", "__app_metrics__", "__msg_root_deleted__", "__stop_cellnet__",
}  # fmt: skip
NET_TOPICS = (
    "peers", "cells", "route", "start_route", "stop", "stop_cell", "url_use", "conns", "speed", "echo", "stress",
    "change_root", "bulk_test", "bulk_item", "msg_stats", "list_pools", "show_pool", "comm_config", "config_vars",
    "process_info", "heartbeat",
)  # fmt: skip


def words(kind):
    return {value for name, value in vars(kind).items() if not name.startswith("_") and isinstance(value, str)}


def test_every_command_of_the_installed_flare_was_decided_about():
    from nvflare.apis.fl_constant import ReservedTopic
    from nvflare.fuel.f3.cellnet import net_agent
    from nvflare.fuel.f3.cellnet.defs import CellChannel
    from nvflare.private import defs
    from nvflare.private.fed.client.admin_commands import AdminCommands
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    version = importlib.metadata.version("nvflare")
    advice = f"FLARE {version} has topics that were not read; decide about them in topics.py and here"
    kinds = (defs.TrainingTopic, defs.SysCommandTopic, defs.InfoCollectorTopic, defs.ComponentCallerTopic)
    there = set().union(*(words(kind) for kind in (*kinds, defs.ControlCommandTopic)))
    there |= {topic for processor in ClientRequestProcessors.request_processors for topic in processor.get_topics()}
    assert there <= topics.SITE_COMMANDS | REFUSED_SITE_COMMANDS, advice
    commands = {command.get_command_name() for command in AdminCommands.commands}
    assert commands <= topics.JOB_COMMANDS | REFUSED_JOB_COMMANDS, advice
    assert words(CellChannel) <= KNOWN_CHANNELS, advice
    assert words(ReservedTopic) <= KNOWN_AUX, advice
    net = {value for name, value in vars(net_agent).items() if name.startswith("_TOPIC_")}
    assert net == set(NET_TOPICS), advice
    assert version.startswith(topics.FLARE_VERSION), advice
    assert not topics.SITE_COMMANDS & REFUSED_SITE_COMMANDS


@pytest.mark.parametrize("own", ["hospital-a", f"hospital-a.{JOB}", "server", f"server.{JOB}"])
def test_no_cell_takes_commands_about_the_network_or_whole_bundles(own):
    for sender in Sender:
        for topic in NET_TOPICS:
            assert not topics.takes(own, sender, "_net_manager", topic)
            assert not topics.takes_stream(own, sender, "_net_manager", topic)
        assert not topics.takes(own, sender, "cellnet.channel", "bulk")
        assert not topics.takes(own, sender, topics.STREAM, topics.STREAM_DATA), "asked of what is within"
        assert not topics.takes_stream(own, sender, None, None)
        assert not topics.takes_stream(own, sender, "a channel of tomorrow", "x")
        assert not topics.takes(own, sender, "credential_manager", "key_exchange")


def test_the_server_may_bring_and_end_jobs_at_a_site_and_nothing_else():
    site, job = "hospital-a", f"hospital-a.{JOB}"
    assert topics.takes(site, Sender.SERVER, "admin", "admin")
    for channel in sorted(KNOWN_CHANNELS - {"admin", "cellnet.channel"}):
        assert not topics.takes(site, Sender.SERVER, channel, "anything")
    for command in sorted(topics.JOB_COMMANDS | REFUSED_JOB_COMMANDS):
        assert not topics.takes(job, Sender.SERVER, "client_command", command), "only the site's own main process"
        assert topics.takes(job, Sender.OWN, "client_command", command) == (command in topics.JOB_COMMANDS)
    assert not topics.takes(job, Sender.SERVER, "aux_communication", "__do_task__")


@pytest.mark.parametrize(
    ("own", "neighbour", "origin", "certificate", "sender"),
    [
        ("server", "hospital-a", "hospital-a", "hospital-a", Sender.SITE),
        ("server", f"hospital-a.{JOB}", f"hospital-a.{JOB}", "hospital-a", Sender.SITE),
        ("server", "hospital-a", "hospital-b", "hospital-a", None),
        ("server", "hospital-b", "hospital-b", "hospital-a", None),
        ("server", "hospital-a", "server", "hospital-a", None),
        ("server", "server", "server", "hospital-a", None),
        ("server", f"server.{JOB}", f"server.{JOB}", None, Sender.OWN),
        ("server", "hospital-a", "hospital-a", None, None),
        ("server", "_admin_1", "_admin_1", "coordinator@federation.local", Sender.COORDINATOR),
        ("server", "_admin_1", "_admin_1", "hospital-a", None),
        (f"server.{JOB}", "server", f"hospital-a.{JOB}", None, Sender.SITE),
        (f"server.{JOB}", "hospital-a", "hospital-a", None, None),
        ("hospital-a", "server", "server", None, Sender.SERVER),
        ("hospital-a", "server", "hospital-b", None, None),
        ("hospital-a", "server", "hospital-a.job", None, None),
        ("hospital-a", "hospital-b", "hospital-b", None, None),
        ("hospital-a", f"hospital-a.{JOB}", f"hospital-a.{JOB}", None, Sender.OWN),
        (f"hospital-a.{JOB}", "server", f"server.{JOB}", None, Sender.SERVER),
        (f"hospital-a.{JOB}", "hospital-a", "hospital-a", None, Sender.OWN),
    ],
)
def test_a_sender_is_who_its_connection_shows(own, neighbour, origin, certificate, sender):
    assert topics.sender_of(own, neighbour=neighbour, origin=origin, certificate=certificate) is sender


def test_a_server_passes_nothing_from_one_site_to_another():
    for sender in (Sender.SITE, Sender.COORDINATOR):
        assert not topics.forwards("server", sender, "hospital-b")
        assert not topics.forwards("server", sender, f"hospital-b.{JOB}")
        assert topics.forwards("server", sender, f"server.{JOB}")
    assert topics.forwards("server", Sender.OWN, f"hospital-b.{JOB}")
    assert topics.forwards("hospital-a", Sender.SERVER, f"hospital-a.{JOB}")
    assert not topics.forwards("hospital-a", Sender.SERVER, "hospital-b")
    assert not topics.forwards("hospital-a", Sender.OWN, "hospital-b")
    assert not topics.forwards(f"hospital-a.{JOB}", Sender.SERVER, "hospital-a")


def test_jobs_are_named_by_flare_and_not_like_folders_of_a_site():
    assert topics.is_job_id(JOB)
    assert not any(map(topics.is_job_id, ("local", "startup", "../x", f"{JOB}/..", "", None, 7)))
    assert [topics.cell_of(path) for path in ("server", f"server.{JOB}", "a", f"a.{JOB}")] == list(Cell)


# -- the guard before FLARE's dispatch -------------------------------------------------------------------------------


PLAYED = """
import json, logging, sys
from types import SimpleNamespace
from felb_sites import topic_guard
topic_guard.install()
topic_guard.install()  # once is enough
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
from nvflare.fuel.f3.message import Message as Cellular
from nvflare.private.admin_defs import Message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.fuel.utils.wfconf import _EnvUpdater
import os

class Agent:
    processors = {}
agent = Agent()
for processor in ClientRequestProcessors.request_processors:
    FedAdminAgent.register_processor(agent, processor)
deploy = Message(topic="train.deploy", body=b"")
deploy.set_header("job_id", "local")
os.environ["PASSWORD_OF_THE_DATABASE"] = "swordfish"

class Cell:
    my_info = SimpleNamespace(fqcn="hospital-a")
    class req_reg:
        find = staticmethod(lambda channel, topic: calls.append((channel, topic)))
    decrypt_payload = staticmethod(lambda message: None)
    log_error = staticmethod(lambda *_, **__: None)
    logger = logging.getLogger()
calls = []
def ask(channel, topic, neighbour="server", **headers):
    message = Cellular({Key.CHANNEL: channel, Key.TOPIC: topic, Key.ORIGIN: "server", Key.DESTINATION: "hospital-a",
                        Key.MSG_TYPE: "req", **headers}, b"")
    guard = topic_guard.CellGuard("hospital-a")
    if not guard.passes(SimpleNamespace(name=neighbour), None, message):
        return "dropped"
    reply = CoreCell._process_request(Cell, "server", message)
    return "taken" if calls and calls.pop() else reply.get_header(Key.RETURN_CODE)
print(json.dumps({
    "topics": sorted(agent.processors),
    "commands": sorted(command.get_command_name() for command in AdminCommands.commands),
    "folder": agent.processors["train.deploy"].process(deploy, None).body,
    "environment": _EnvUpdater({"own": 1}).substitute("{$PASSWORD_OF_THE_DATABASE}"),
    "admin": ask("admin", "admin"),
    "stop": ask("_net_manager", "stop_cell"),
    "stream": ask("sm__STREAM", "sm__DATA", **{"sm__ch": "_net_manager", "sm__tp": "stop"}),
    "other": ask("admin", "admin", neighbour="hospital-b"),
    "relay": ask("admin", "admin", **{Key.DESTINATION: "hospital-b"}),
}))
"""


def test_the_guard_stands_before_flares_dispatch(tmp_path):
    import json
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", PLAYED], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert set(seen["topics"]) == topics.SITE_COMMANDS
    assert set(seen["commands"]) == topics.JOB_COMMANDS
    assert "refused" in str(seen["folder"]), "a job named like the folder of the policies"
    assert seen["environment"] is None, "h3: a variable of the environment in the settings of a job"
    answers = {name: seen[name] for name in ("admin", "stop", "stream", "other", "relay")}
    assert answers == {
        "admin": "taken",
        "stop": "invalid_request",
        "stream": "invalid_request",
        "other": "dropped",
        "relay": "dropped",
    }


def test_a_flare_that_dispatches_in_another_way_is_not_run():
    from felb_sites.topic_guard import check_hooks

    with pytest.raises(FederationError, match=r"install nvflare 2\.9"):
        check_hooks(SimpleNamespace(_process_received_msg=lambda self, frame: None))


def test_jobs_are_started_with_the_guard():
    from felb_sites.launchers import guarded_command

    command = guarded_command("/usr/bin/python -u -m nvflare.private.fed.app.client.worker_process -m /kit -n 'a b'")
    words = command.split()
    assert words[2:5] == ["-m", "felb_sites.guarded", "nvflare.private.fed.app.client.worker_process"]
    assert "'a b'" in command


def test_the_processes_of_flare_do_not_get_the_environment_of_who_starts_them(monkeypatch):
    from felb_sites.flare import environment

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    assert "AWS_SECRET_ACCESS_KEY" not in environment()
    assert "PATH" in environment()
