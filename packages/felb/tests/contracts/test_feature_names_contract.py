"""Feature names in every container that has them: kept by `fit` of every estimator, compared by its `transform`.

A new container is one line in the list, and so is a new way to change its columns. Every container is given to one
federated and one centralized estimator, and every estimator gets one container.
"""

import anndata
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from test_estimator_contract import ESTIMATORS

import felb
from felb.data import BinaryMatrix, planted
from felb.sklearn.base import FederatedEstimator

CELLS = planted(24, 6, 2, noise=0.02, seed=3).A.toarray()
NAMES = ["fever", "cough", "rash", "pain", "chill", "ache"]


def cells(values, names):
    """Return AnnData in memory."""
    observed = pd.DataFrame(index=[f"cell {i}" for i in range(len(values))])
    return anndata.AnnData(np.asarray(values, dtype=np.float32), obs=observed, var=pd.DataFrame(index=list(names)))


def on_disk(values, names, folder):
    """Return AnnData whose X is still in its file."""
    path = folder / f"{len(list(folder.iterdir()))}.h5ad"
    data = cells(values, names)
    data.X = sp.csr_matrix(data.X)
    data.write_h5ad(path)
    return anndata.read_h5ad(path, backed="r")


CONTAINERS = {
    "BinaryMatrix": lambda x, names, _: BinaryMatrix.of(x, columns=names),
    "pandas": lambda x, names, _: pd.DataFrame(x.astype(int), columns=names),
    "pandas, nullable": lambda x, names, _: pd.DataFrame(x, columns=names).astype("boolean"),
    "polars": lambda x, names, _: pl.DataFrame(x.astype(int), schema=list(names)),
    "polars, lazy": lambda x, names, _: pl.LazyFrame(x.astype(int), schema=list(names)),
    "arrow": lambda x, names, _: pa.table({name: x[:, i] for i, name in enumerate(names)}),
    "arrow, batch": lambda x, names, _: pa.RecordBatch.from_pydict({n: x[:, i] for i, n in enumerate(names)}),
    "AnnData": lambda x, names, _: cells(x, names),
    "AnnData, view": lambda x, names, _: cells(np.vstack([x, x]), names)[: len(x)],
    "AnnData, backed": on_disk,
    "AnnData, view of backed": lambda x, names, folder: on_disk(np.vstack([x, x]), names, folder)[: len(x)],
}
CHANGES = {
    "reordered": (lambda x, names: (x[:, ::-1], names[::-1]), "same order"),
    "renamed": (lambda x, names: (x, ["Fever", *names[1:]]), r"unseen at fit time:\n- Fever\n(.|\n)*missing:\n- fever"),
    "missing": (lambda x, names: (x[:, 1:], names[1:]), r"missing:\n- fever"),
    "extra": (lambda x, names: (np.hstack([x, x[:, :1]]), [*names, "more"]), r"unseen at fit time:\n- more"),
}
pytestmark = pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")


@pytest.fixture(params=ESTIMATORS.values(), ids=ESTIMATORS.keys())
def model(request):
    """Return an estimator."""
    return request.param(n_components=2, max_iter=5, random_state=0)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS.keys())
@pytest.mark.parametrize("name", ["FedNMF", "Asso"])
def test_names_of_every_container_are_kept_and_compared(name, container, tmp_path):
    assert_names_are_kept_and_compared(
        ESTIMATORS[name](n_components=2, max_iter=5, random_state=0), container, tmp_path
    )


def test_names_are_kept_and_compared_by_every_estimator(model, tmp_path):
    assert_names_are_kept_and_compared(model, CONTAINERS["pandas"], tmp_path)


def assert_names_are_kept_and_compared(model, container, tmp_path):
    model.fit(container(CELLS, NAMES, tmp_path))
    assert model.feature_names_in_.tolist() == NAMES
    U = model.transform(container(CELLS, NAMES, tmp_path))
    plain = BinaryMatrix.of(CELLS, columns=NAMES)
    np.testing.assert_array_equal(U, model.transform(plain))
    assert model.score(container(CELLS, NAMES, tmp_path)) == model.score(plain)
    for change, message in CHANGES.values():
        changed = container(*change(CELLS, NAMES), tmp_path)
        for use in (model.transform, model.score):
            with pytest.raises(felb.InputError, match=message):
                use(changed)
    for name in ("reordered", "extra"):
        aligned = container(*CHANGES[name][0](CELLS, NAMES), tmp_path)
        np.testing.assert_array_equal(model.transform(aligned, align="name"), U)


@pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_lists_of_clients(container, tmp_path):
    """Lists are taken by the federated estimators; they share the code, so that one stands for all."""
    if container is CONTAINERS["polars, lazy"]:
        pytest.skip("a lazy frame has no shape, by which a list of clients is told from a list of rows")
    north, south = CELLS[:10], CELLS[10:]
    model = felb.FedNMF(2, max_iter=5, random_state=0)
    model.fit([container(north, NAMES, tmp_path), container(south, NAMES, tmp_path)])
    assert model.feature_names_in_.tolist() == NAMES
    U = model.transform([container(north, NAMES, tmp_path), container(south, NAMES, tmp_path)])
    np.testing.assert_array_equal(U, model.transform(container(CELLS, NAMES, tmp_path)))
    for change, message in CHANGES.values():
        changed = container(*change(south, NAMES), tmp_path)
        with pytest.raises(felb.InputError, match=message):
            model.transform([container(north, NAMES, tmp_path), changed])
        with pytest.raises(felb.InputError, match=r"order|features"):
            felb.FedNMF(2, max_iter=5).fit([container(north, NAMES, tmp_path), changed])


def test_every_federated_estimator_takes_names_from_a_list(model):
    if not isinstance(model, FederatedEstimator):
        pytest.skip("for centralized data")
    parts = [cells(CELLS[:10], NAMES), cells(CELLS[10:], NAMES)]
    assert model.fit(parts).feature_names_in_.tolist() == NAMES
    with pytest.raises(felb.InputError, match="same order"):
        model.transform([part[:, ::-1] for part in parts])


def test_missing_columns_are_unknown_cells(model):
    """A column that is missing says nothing: both of its values would have been possible."""
    model.fit(pd.DataFrame(CELLS, columns=NAMES))
    frame = pd.DataFrame(CELLS, columns=NAMES).drop(columns="rash")
    rows, found = model.new_rows(frame, align="name")
    assert (found.missing, found.new, found.reordered) == (("rash",), (), False)
    np.testing.assert_array_equal(rows.unknown.toarray(), np.tile(np.array(NAMES) == "rash", (24, 1)))
    np.testing.assert_array_equal(rows.toarray(), CELLS & (np.array(NAMES) != "rash"))
    assert model.transform(frame, align="name").shape == (24, 2)


def test_text_in_new_columns_is_never_read(model):
    frame = pd.DataFrame(CELLS.astype(int), columns=NAMES)
    U = model.fit(frame).transform(frame)
    told = frame.assign(comment="none")[["comment", *NAMES[::-1]]]
    np.testing.assert_array_equal(model.transform(told, align="name"), U)
    assert model.new_rows(told, align="name")[1] == felb.data.coercion.Alignment((), ("comment",), True)


def test_alignment_needs_names(model):
    with pytest.raises(felb.InputError, match="feature names"):
        model.fit(CELLS).transform(pd.DataFrame(CELLS, columns=NAMES), align="name")
    model.fit(pd.DataFrame(CELLS, columns=NAMES))
    with pytest.raises(felb.InputError, match="column names"):
        model.transform(CELLS, align="name")
    with pytest.raises(felb.InputError, match="1 columns"):
        model.transform(pd.DataFrame({"other": [0, 1]}), align="name")
    with pytest.raises(felb.InputError, match="align"):
        model.transform(CELLS, align="position")
