"""A FLARE job: two files that name the classes of felb and their arguments; no code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from felb_sites.hardening import CONTROLLER, EXECUTOR
from felb_sites.messages import TASK
from felb_sites.site_roster import write_roster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from felb.secure_sum.protocol import Roster
    from felb_sites.run_plan import Plan
    from felb_sites.terms import Terms

TASK_REQUEST_INTERVAL = 0.1
"""Seconds between two looks of a site for work; FLARE's own 2 s would be most of a round."""
HEARTBEAT_TIMEOUT = 600


def write_job(
    folder: Path,
    plan: Plan,
    terms: Terms,
    *,
    sites: Sequence[str] | None = None,
    wanted: Sequence[str] = (),
    roster: Roster | None = None,
) -> Path:
    """Write a job folder; `sites` limits it to some of those connected, `wanted` are those whose absence counts."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    targets = ["@ALL"] if sites is None else ["server", *sites]
    _write(
        folder / "meta.json",
        {
            "name": f"felb-{plan.run_id}",
            "resource_spec": {},
            "min_clients": terms.quorum,
            "deploy_map": {"app": targets},
        },
    )
    shared = {"format_version": 2, "task_data_filters": [], "task_result_filters": [], "components": []}
    arguments: dict[str, Any] = {"plan": plan.to_json(), "terms": terms.to_json(), "wanted": list(wanted)}
    if roster is not None:
        arguments["roster"] = write_roster(roster).decode()
    workflow = {"id": "felb", "path": CONTROLLER, "args": arguments}
    _write(
        config / "config_fed_server.json",
        {
            **shared,
            "server": {"heart_beat_timeout": HEARTBEAT_TIMEOUT, "task_request_interval": TASK_REQUEST_INTERVAL},
            "workflows": [workflow],
        },
    )
    executor = {"path": EXECUTOR, "args": {"plan": plan.to_json()}}
    _write(config / "config_fed_client.json", {**shared, "executors": [{"tasks": [TASK], "executor": executor}]})
    return folder


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
