"""Sites as processes read raw data of different forms by one schema; one with another schema is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from federation_parts import PATIENCE
from felb.cli import main
from felb.data import read
from felb.engines.local import run
from felb.errors import FederationError
from felb_sites.deployed import DeployedRun, run_deployed
from felb_sites.local_federation import LocalFederation
from felb_sites.reasons import REASONS
from felb_sites.refusals import read_refusals
from felb_sites.site_logs import read_outbound
from raw_site_tables import OTHER, SCHEMA, write_sites

pytestmark = pytest.mark.federation


def settings(run_id):
    return {
        "id": run_id,
        "components": 2,
        "method": "felb-mu",
        "parameters": {"max_iter": 6},
        "schema": "agreed.toml",
        "sites": ["north", "south", "west"],
        "terms": {"quorum": 3},
        "disclosure": "none",
    }


def test_sites_with_raw_data_join_under_one_schema_and_are_refused_under_another(tmp_path, capsys):
    """Columns in another order and one more, a long table, a database without one of the categories."""
    pytest.importorskip("nvflare")
    tables, data = write_sites(tmp_path)
    SCHEMA.write(tmp_path / "agreed.toml")
    OTHER.write(tmp_path / "other.toml")
    shards = {name: read(table, schema=SCHEMA).matrix for name, table in tables.items()}
    federation = LocalFederation(tmp_path / "f", shards)

    def set_up(name, schema):
        given = ("--data", data[name], "--schema", tmp_path / schema, "--check", "--json")
        with pytest.raises(SystemExit) as ended:
            main(["site", "start", str(federation.sites[name].folder), *map(str, given)])
        assert ended.value.code == 0
        checked = json.loads(capsys.readouterr().out)
        assert (checked["rows"], checked["columns"]) == (60, len(SCHEMA.names))

    for name in shards:
        set_up(name, "agreed.toml")
    with federation:
        first = DeployedRun.of(settings("first"), folder=tmp_path)
        result = run_deployed(federation.coordinator, first, tmp_path / "out", patience=PATIENCE)
        expected = run(first.plan.algorithm(), shards, seed=first.plan.seed)
        np.testing.assert_array_equal(result.components, expected.outcome.components)
        assert result.scores == expected.outcome.counts.scores()
        assert result.columns == SCHEMA.names

        set_up("west", "other.toml")
        federation.kill("west")
        federation.start("west")
        federation.wait_for_sites()
        second = DeployedRun.of(settings("second"), folder=tmp_path)
        with pytest.raises(FederationError) as refused:
            run_deployed(federation.coordinator, second, tmp_path / "again", patience=PATIENCE)
        assert f"west: {REASONS['columns']}" in str(refused.value)
        assert not (tmp_path / "again").exists()
        state = federation.sites["west"].state
        assert read_refusals(state, run_id="second")
        assert read_outbound(state, run_id="second") == []
