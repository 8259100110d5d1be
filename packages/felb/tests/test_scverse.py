"""AnnData by the conventions of scverse."""

import numpy as np
import pytest

import felb
from felb.data import planted

anndata = pytest.importorskip("anndata")

DATA = planted(200, 30, 3, noise=0.02, seed=0)


@pytest.fixture
def cells():
    values = DATA.A.toarray().astype("float32")
    made = anndata.AnnData(np.zeros_like(values), layers={"counts": 3 * values})
    made.var_names = [f"gene{i}" for i in range(30)]
    made.obs["site"] = ["north", "south"] * 100
    return made


def test_components_and_assignments_are_those_of_the_estimator_and_survive_a_file(cells, tmp_path):
    felb.scverse.bmf(cells, 3, layer="counts", client_key="site", n_resamples=2, effort="fast")
    model = felb.FederatedBMF(3, random_state=0, effort="fast")
    U = model.fit_transform(DATA.A)
    np.testing.assert_array_equal(cells.obsm["X_bmf"], U)
    np.testing.assert_array_equal(cells.varm["bmf"], model.components_.T)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    again = anndata.read_h5ad(tmp_path / "cells.h5ad")
    stored = again.uns["bmf"]
    assert stored["params"]["layer"] == "counts"
    assert stored["params"]["n_components"] == 3
    assert stored["scores"]["f1"] == pytest.approx(model.counts_.f1)
    np.testing.assert_array_equal(stored["supports"], U.sum(axis=0))
    np.testing.assert_array_equal(stored["stability"]["found"], [1.0, 1.0, 1.0])
    assert list(again.var_names) == [f"gene{i}" for i in range(30)]


def test_a_copy_leaves_the_object_alone_and_another_key_is_used(cells):
    other = felb.scverse.bmf(cells, 2, layer="counts", key="tiles", copy=True, effort="fast")
    assert "X_tiles" in other.obsm
    assert not cells.obsm.keys()
    assert not cells.uns.keys()


def test_wrong_input_is_named(cells):
    with pytest.raises(felb.InputError, match="counts"):
        felb.scverse.bmf(cells, 2, layer="raw")
    with pytest.raises(felb.InputError, match="site"):
        felb.scverse.bmf(cells, 2, client_key="hospital")
    with pytest.raises(felb.InputError, match="ndarray"):
        felb.scverse.bmf(np.eye(3))
    cells.var_names = ["same"] * 30
    with pytest.raises(felb.InputError, match="unique"):
        felb.scverse.bmf(cells, 2)


def test_scaled_values_are_noted(cells):
    cells.X = cells.layers["counts"] - cells.layers["counts"].mean(axis=0)
    with pytest.warns(UserWarning, match="have been scaled"):
        felb.scverse.bmf(cells, 2, effort="fast")


def test_raw_counts_are_used_on_request(cells):
    cells.X = cells.layers["counts"]
    cells.raw = cells
    few = cells[:, :20].copy()
    felb.scverse.bmf(few, 2, use_raw=True, effort="fast")
    assert few.raw.varm["bmf"].shape == (cells.n_vars, 2)
    assert few.uns["bmf"]["params"]["use_raw"]
    with pytest.raises(felb.InputError, match="use_raw"):
        felb.scverse.bmf(few, 2, use_raw=True, layer="counts")
    few.raw = None
    with pytest.raises(felb.InputError, match=r"adata\.raw is empty"):
        felb.scverse.bmf(few, 2, use_raw=True)


def test_components_are_columns_for_plots_by_name(cells, tmp_path):
    felb.scverse.bmf(cells, 3, layer="counts", effort="fast")
    felb.scverse.bmf(cells, 2, layer="counts", effort="fast")
    assert [name for name in cells.obs if name.startswith("bmf")] == ["bmf_0", "bmf_1"]
    assert ((cells.obs["bmf_1"] == "yes") == (cells.obsm["X_bmf"][:, 1] == 1)).all()
    genes = cells.uns["bmf"]["genes"]
    assert len(genes) == cells.varm["bmf"].sum()
    assert set(genes["gene"]) <= set(cells.var_names)
    cells.write_h5ad(tmp_path / "cells.h5ad")
