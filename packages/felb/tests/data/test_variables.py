"""Variables of AnnData under a schema: the matrix is that of the same numbers in a data frame."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from felb.data import Feature, Schema, read
from felb.errors import InputError
from felb.tables.schema import Handling, Roles

anndata = pytest.importorskip("anndata")

NUMBERS = [0.0, 0.0, 0.0, 1.0, 2.0, 2.5, -3.0, 70.0]
RULES = [
    ((Feature(name="a", column="{}", lower=0, lower_open=True),), None),
    ((Feature(name="a", column="{}", upper=1), Feature(name="b", column="{}", lower=1, upper=2, upper_closed=True)),
     None),
    ((Feature(name="a", column="{}", values=("0",)), Feature(name="b", column="{}", values=("2", "2.5"))),
     Handling("zero", "ignore")),
    ((Feature(name="a", column="{}", values=("2",)), Feature(name="b", column="{}", other=True)),
     Handling("unknown", "other", ("1", "70"))),
    ((Feature(name="a", column="{}", values=("0",)), Feature(name="b", column="{}", lower=-5)),
     Handling("unknown", "ignore")),
    ((Feature(name="a", column="{}", any=True), Feature(name="b", column="{}", missing=True)),
     Handling("category", "ignore")),
]  # fmt: skip


def schema_of(names, seed=0):
    rng, features, columns = np.random.default_rng(seed), [], {}
    for name in names:
        rules, handling = RULES[rng.integers(len(RULES))]
        settings = [rule.to_json() | {"name": f"{name} {rule.name}", "column": name} for rule in rules]
        features += [Feature(**rule) for rule in settings]
        columns[name] = handling or Handling("zero", "ignore")
    return Schema(tuple(features), Roles("obs_names"), columns)


def expression(n, m, seed=0, missing=0.05):
    rng = np.random.default_rng(seed)
    values = rng.choice(NUMBERS, (n, m))
    values[rng.random((n, m)) < missing] = np.nan
    order = rng.permutation(n)
    return pd.DataFrame(values, index=[f"cell{i}" for i in order], columns=[f"g{j}" for j in range(m)])


@pytest.mark.filterwarnings("ignore::felb.errors.SchemaWarning")
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_any_rule_gives_the_matrix_of_the_same_frame(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("felb.tables.sources.BLOCK_CELLS", 40 * 7)  # several blocks
    table = expression(30, 40)
    anndata.AnnData(kind(table.to_numpy()), obs=table[[]], var=pd.DataFrame(index=table.columns)).write_h5ad(
        tmp_path / "x.h5ad"
    )
    schema = schema_of(table.columns[::-1])
    found = read(tmp_path / "x.h5ad", schema=schema)
    expected = read(table.reset_index(names="obs_names"), schema=schema)
    assert found.matrix == expected.matrix
    assert found.rows == expected.rows
    assert found.applied.missing == expected.applied.missing
    assert found.applied.left_out == expected.applied.left_out


def test_thousands_of_variables_have_a_schema(tmp_path):
    values = sp.random(200, 5000, 0.05, format="csr", random_state=1)
    names = pd.DataFrame(index=[f"g{j}" for j in range(5000)])
    obs = pd.DataFrame({"sex": ["F", "M"] * 100}, index=[f"c{i:03}" for i in range(200)])
    anndata.AnnData(values, obs=obs, var=names).write_h5ad(tmp_path / "x.h5ad")
    features = [Feature(name=f"{name} on", column=name, lower=0.5) for name in names.index]
    schema = Schema(
        (Feature(name="sex: F", column="sex", values=("F",)), *features),
        columns={"sex": Handling("error", "error", ("M",))},
    )
    matrix = read(tmp_path / "x.h5ad", schema=schema).matrix
    np.testing.assert_array_equal(matrix.toarray()[:, 1:], values.toarray() >= 0.5)
    np.testing.assert_array_equal(matrix.toarray()[:, 0], obs["sex"] == "F")


def test_variables_can_be_codes_of_zeros_and_ones(tmp_path):
    values = np.random.default_rng(0).integers(0, 2, (20, 6)).astype(float)
    var = pd.DataFrame(index=["A1", "A2", "B1", "B2", "C1", "C2"])
    obs = pd.DataFrame(index=[f"c{i:02}" for i in range(20)])
    anndata.AnnData(values, obs=obs, var=var).write_h5ad(tmp_path / "x.h5ad")
    features = (Feature(name="A", prefixes=("A",)), Feature(name="C1", codes=("C1",)))
    schema = Schema(features, Roles("obs_names", "code"))
    found = read(tmp_path / "x.h5ad", schema=schema).matrix.toarray()
    np.testing.assert_array_equal(found, np.c_[values[:, :2].any(axis=1), values[:, 4] > 0])
    values[7, 1] = 3
    anndata.AnnData(values, obs=obs, var=var).write_h5ad(tmp_path / "y.h5ad")
    with pytest.raises(InputError, match=r"'c07'.*'A2'"):
        read(tmp_path / "y.h5ad", schema=schema)


@pytest.mark.parametrize(
    ("handling", "wrong"), [(Handling("error", "ignore"), np.nan), (Handling("zero", "error", ("0",)), 2.0)]
)
def test_what_the_schema_does_not_allow_is_named_with_its_observation(handling, wrong, tmp_path):
    values = sp.lil_matrix((20, 3))
    values[11, 1] = wrong
    var, obs = pd.DataFrame(index=list("abc")), pd.DataFrame(index=[f"c{i:02}" for i in range(20)])
    anndata.AnnData(values.tocsr(), obs=obs, var=var).write_h5ad(tmp_path / "x.h5ad")
    schema = Schema((Feature(name="b", column="b", values=("1",)),), Roles("obs_names"), {"b": handling})
    with pytest.raises(InputError, match=r"'c11'.*'b'"):
        read(tmp_path / "x.h5ad", schema=schema)
