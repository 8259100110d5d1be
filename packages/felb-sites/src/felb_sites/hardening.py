"""Hardening of FLARE: no code from jobs, no class but that of felb, no log streaming, no shell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from felb.records import replacing

if TYPE_CHECKING:
    from pathlib import Path

CONTROLLER = "felb_sites.controller.RunController"
EXECUTOR = "felb_sites.executor.SiteExecutor"
GUARD = "felb_sites.revocation_guard.RevocationGuard"
LAUNCHER = "process_launcher"
SITE_LAUNCHER = "felb_sites.launchers.SiteLauncher"
SERVER_LAUNCHER = "felb_sites.launchers.ServerLauncher"
NOTHING = {
    "submit_job": "none",
    "clone_job": "none",
    "manage_job": "none",
    "download_job": "none",
    "view": "none",
    "operate": "none",
    "shell_commands": "none",
    "byoc": "none",
    "server-predeployed-flwr": "none",
}
COORDINATOR = {**NOTHING, "submit_job": "any", "manage_job": "any", "view": "any"}
"""The coordinator's person may send plans, stop them and look at their state; everybody else nothing."""
AT_SERVER = {"project_admin": NOTHING, "org_admin": NOTHING, "lead": COORDINATOR, "member": NOTHING}
AT_SITE = {**AT_SERVER, "lead": {**COORDINATOR, "view": "none"}}
"""At a site there is nothing to look at either: its errors may speak of its data."""


def lock_site(kit: Path) -> None:
    """Write the policies of a site."""
    local = kit / "local"
    write_json(local / "authorization.json", {"format_version": "1.0", "permissions": AT_SITE})
    resources = _default_resources(local)
    resources |= {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR],
        "allow_log_streaming": False,
        "components": _parts(resources, without="site_log_streamer", launcher=SITE_LAUNCHER),
    }
    write_json(local / "resources.json", resources)


def lock_server(kit: Path, *, storage: Path) -> None:
    """Write the policies of a coordinator's server; its jobs are kept under `storage` instead of a temporary folder."""
    local = kit / "local"
    write_json(local / "authorization.json", {"format_version": "1.0", "permissions": AT_SERVER})
    resources = _default_resources(local)
    resources |= {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER],
        "components": _parts(resources, without="log_receiver", launcher=SERVER_LAUNCHER),
    }
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(storage / "snapshots")
    for part in resources["components"]:
        if part["id"] == "job_manager":
            part["args"]["uri_root"] = str(storage / "jobs")
        if part["id"] == "job_scheduler":
            # A run plays one job after the other; the second place is for one that a crash left behind as "running".
            part["args"] |= {"max_jobs": 4, "min_schedule_interval": 1.0, "max_schedule_interval": 10.0}
    guard = {"id": "revocation_guard", "path": GUARD, "args": {"folder": str(kit)}}
    resources["components"] = [*resources["components"], guard]
    write_json(local / "resources.json", resources)


def listen_on_loopback(kit: Path, port: int) -> None:
    """Let a server listen on this machine alone; FLARE knows that and all interfaces, but no single one."""
    path = kit / "startup" / "fed_server.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for server in config["servers"]:
        server["service"]["target"] = f"127.0.0.1:{port}"
    write_json(path, config)


def write_json(path: Path, data: Any) -> None:
    """Write plain data to a file that appears complete or not at all."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _parts(resources: dict[str, Any], *, without: str, launcher: str) -> list[dict[str, Any]]:
    """Return FLARE's components but one; the one that starts jobs is felb's, which guards them."""
    parts = [dict(part) for part in resources["components"] if part["id"] != without]
    for part in parts:
        if part["id"] == LAUNCHER:
            part["path"] = launcher
    return parts


def _default_resources(local: Path) -> dict[str, Any]:
    return dict(json.loads((local / "resources.json.default").read_text(encoding="utf-8")))
