"""Sites with raw data of different forms play one run under one schema."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from loopback import Loopback

from felb.data import read
from felb.engines.local import run
from felb_sites.deployed import DeployedRun
from felb_sites.site_policy import Refusal
from raw_site_tables import OTHER, SCHEMA, write_sites


def test_sites_of_different_forms_play_one_run_under_one_schema(tmp_path):
    tables, data = write_sites(tmp_path)
    SCHEMA.write(tmp_path / "agreed.toml")
    settings = {
        "id": "r1",
        "components": 2,
        "method": "felb-mu",
        "parameters": {"max_iter": 8},
        "schema": "agreed.toml",
    }
    deployed = DeployedRun.of(settings, folder=tmp_path)
    shards = {name: read(table, schema=SCHEMA).matrix for name, table in tables.items()}
    assert shards["west"].column_sums()[2] == 0  # no boats there
    loop = Loopback(tmp_path / "federation", deployed.plan, shards)
    for name, config in loop.configs.items():
        loop.configs[name] = replace(config, data=data[name], schema=str(tmp_path / "agreed.toml"))
    loop.restart()
    local = run(deployed.plan.algorithm(), shards, seed=deployed.plan.seed)
    outcome = loop.finish()
    np.testing.assert_array_equal(outcome.components, local.outcome.components)
    assert outcome.counts == local.outcome.counts
    assert deployed.schema.digest == SCHEMA.digest

    OTHER.write(tmp_path / "other.toml")
    assert OTHER.names == SCHEMA.names
    again = Loopback(tmp_path / "federation", replace(deployed.plan, run_id="r2"), shards)
    for name, config in again.configs.items():
        file = "other.toml" if name == "west" else "agreed.toml"
        again.configs[name] = replace(config, data=data[name], schema=str(tmp_path / file))
    again.restart()
    assert again.ask_site("north", again.request)
    with pytest.raises(Refusal, match="of the plan"):
        again.ask_site("west", again.request)
