"""One federation of real processes for all tests that need one."""

from __future__ import annotations

import json

import pytest

from federation_parts import METHODS_PLAYED, SHARDS
from felb_sites.hardening import COORDINATOR
from felb_sites.local_federation import LocalFederation


@pytest.fixture(scope="session")
def federation(tmp_path_factory):
    """Three locked-down sites, and a coordinator that has turned: its server lets everything through.

    What the intruders below meet is the sites' own defence.
    """
    pytest.importorskip("nvflare")
    policy = {"allowed_methods": list(METHODS_PLAYED), "min_rows": 15}  # a refit has half of 33 or 34
    made = LocalFederation(tmp_path_factory.mktemp("federation") / "f", SHARDS, policy=policy)
    local = made.coordinator.server / "local"
    everything = dict.fromkeys(COORDINATOR, "any")
    permissions = {"format_version": "1.0", "permissions": {"lead": everything, "project_admin": everything}}
    (local / "authorization.json").write_text(json.dumps(permissions))
    resources = json.loads((local / "resources.json").read_text())
    (local / "resources.json").write_text(json.dumps({**resources, "class_allow_list": ["*"]}))
    with made:
        yield made
