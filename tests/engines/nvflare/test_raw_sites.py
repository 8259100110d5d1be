"""Sites with raw data of different forms play one run under one schema."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pandas as pd
import pytest
from loopback import Loopback

from felb.data import Feature, Schema, read
from felb.data.schema import Handling, Roles
from felb.engines.local import run
from felb.engines.nvflare.site_policy import Refusal
from felb.runs.deployed import DeployedRun

SCHEMA = Schema(
    (
        *(Feature(name=f"home: {home}", column="home", values=(home,)) for home in ("own", "rent", "boat")),
        Feature(name="age below 40", column="age", upper=40),
        Feature(name="age 40-64", column="age", lower=40, upper=65),
        Feature(name="age 65+", column="age", lower=65),
        Feature(name="news", column="news", values=("paper",)),
    ),
    Roles("person", "item", "value"),
    {"news": Handling("zero", "error", ("phone",))},
)


def people(seed, homes):
    rng = np.random.default_rng(seed)
    n, old = 60, rng.random(60) < 0.5
    return pd.DataFrame(
        {
            "person": np.arange(n),
            "home": np.where(old, "own", rng.choice(homes, n)),
            "age": np.where(old, rng.integers(65, 90, n), rng.integers(18, 60, n)),
            "news": np.where(old, "paper", "phone"),
        }
    )


@pytest.fixture
def sites(tmp_path):
    """One site has its columns in another order and one more, one a long table, one a database without boats."""
    tables = {"north": people(1, ["rent", "boat"]), "south": people(2, ["rent", "boat"]), "west": people(3, ["rent"])}
    north = tables["north"].sample(frac=1, random_state=0).assign(extra="x")
    north[["news", "extra", "age", "person", "home"]].to_csv(tmp_path / "north.csv", index=False)
    long = tables["south"].astype(str).melt("person", var_name="item", value_name="value")
    pd.concat([long, long]).to_parquet(tmp_path / "south.parquet")
    with duckdb.connect(str(tmp_path / "west.duckdb")) as file:
        file.register("rows", tables["west"])
        file.execute("CREATE TABLE survey AS SELECT * FROM rows ORDER BY random()")
    data = {
        "north": str(tmp_path / "north.csv"),
        "south": str(tmp_path / "south.parquet"),
        "west": f"duckdb://{tmp_path / 'west.duckdb'}?table=survey",
    }
    return tables, data


def test_sites_of_different_forms_play_one_run_under_one_schema(sites, tmp_path):
    tables, data = sites
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

    other = replace(SCHEMA, features=(*SCHEMA.features[:-1], replace(SCHEMA.features[-1], values=("paper", "tv"))))
    other.write(tmp_path / "other.toml")
    assert other.names == SCHEMA.names
    again = Loopback(tmp_path / "federation", replace(deployed.plan, run_id="r2"), shards)
    for name, config in again.configs.items():
        file = "other.toml" if name == "west" else "agreed.toml"
        again.configs[name] = replace(config, data=data[name], schema=str(tmp_path / file))
    again.restart()
    assert again.ask_site("north", again.request)
    with pytest.raises(Refusal, match="not those of the plan"):
        again.ask_site("west", again.request)
