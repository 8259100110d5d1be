"""Raw tables of three sites in different forms, and the schema that they agree on."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pandas as pd

from felb.data import Feature, Schema
from felb.tables.schema import Handling, Roles

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
OTHER = replace(SCHEMA, features=(*SCHEMA.features[:-1], replace(SCHEMA.features[-1], values=("paper", "tv"))))
"""The same names by another rule."""


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


def write_sites(folder):
    """One site has its columns in another order and one more, one a long table, one a database without boats."""
    tables = {"north": people(1, ["rent", "boat"]), "south": people(2, ["rent", "boat"]), "west": people(3, ["rent"])}
    north = tables["north"].sample(frac=1, random_state=0).assign(extra="x")
    north[["news", "extra", "age", "person", "home"]].to_csv(folder / "north.csv", index=False)
    long = tables["south"].astype(str).melt("person", var_name="item", value_name="value")
    pd.concat([long, long]).to_parquet(folder / "south.parquet")
    with duckdb.connect(str(folder / "west.duckdb")) as file:
        file.register("rows", tables["west"])
        file.execute("CREATE TABLE survey AS SELECT * FROM rows ORDER BY random()")
    data = {
        "north": str(folder / "north.csv"),
        "south": str(folder / "south.parquet"),
        "west": f"duckdb://{folder / 'west.duckdb'}?table=survey",
    }
    return tables, data
