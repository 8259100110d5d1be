"""Labels of records from a file, a column, and the annotations of cells."""

from pathlib import Path

import numpy as np
import pytest

import felb
from felb.data.files import read_labels


def test_lines_with_and_without_a_heading(tmp_path):
    path = tmp_path / "kinds.txt"
    path.write_text("cat\n\ndog\n")
    assert read_labels(str(path), "", 3).tolist() == ["cat", None, "dog"]
    assert read_labels(str(path), "", 2).tolist() == [None, "dog"]
    with pytest.raises(felb.InputError, match="3 labels for 7 records"):
        read_labels(str(path), "", 7)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(felb.InputError, match="UTF-8"):
        read_labels(str(path), "", 1)


def test_a_column_of_labels_is_a_feature_only_if_it_is_asked_for(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b,kind\n1,0,1\n0,1,\n")
    table = felb.data.read(path, label_column="kind")
    assert table.labels == ("1", None)
    assert table.matrix.columns == ("a", "b")
    table = felb.data.read(path, label_column="a", columns={"a", "b"})
    assert table.labels == ("1", "0")
    assert table.matrix.columns == ("a", "b")
    with pytest.raises(felb.InputError, match="label_column='sort' is not a column"):
        felb.data.read(path, label_column="sort")


def test_clients_names_and_labels_are_read_together(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"id": ["x", "y"], "a": [1, 0], "site": ["n", "s"], "kind": ["cat", None]})
    frame.to_csv(tmp_path / "table.csv", index=False)
    frame.to_parquet(tmp_path / "table.parquet")
    for name in ("table.csv", "table.parquet"):
        table = felb.data.read(tmp_path / name, client_column="site", record_column="id", label_column="kind")
        assert (table.clients, table.rows, table.labels) == (("n", "s"), ("x", "y"), ("cat", None))
        assert table.matrix.columns == ("a",)
    frame["id"] = ["x", None]
    frame.to_csv(tmp_path / "table.csv", index=False)
    with pytest.raises(felb.InputError, match="line 3 has no name"):
        felb.data.read(tmp_path / "table.csv", record_column="id", label_column="kind", client_column="site")


def test_annotations_of_cells(tmp_path):
    anndata = pytest.importorskip("anndata")
    import pandas as pd

    cells = anndata.AnnData(np.eye(3, dtype="float32"), obs=pd.DataFrame(index=list("abc")))
    cells.obs["cell_type"] = pd.Categorical(["glia", None, "neuron"])
    cells.write_h5ad(tmp_path / "cells.h5ad")
    assert read_labels("obs:cell_type", str(tmp_path / "cells.h5ad"), 3).tolist() == ["glia", None, "neuron"]
    with pytest.raises(felb.InputError, match="cell_type"):
        read_labels("obs:type", str(tmp_path / "cells.h5ad"), 3)
    with pytest.raises(felb.InputError, match=r"no \.h5ad file"):
        read_labels("obs:type", "cells.csv", 3)


@pytest.mark.parametrize("kind", ["signal", "memory"])
def test_annotations_of_a_damaged_file_are_refused(kind):
    pytest.importorskip("anndata")
    damaged = Path(__file__).parent.parent / "fuzz" / "reproducers" / f"h5ad~{kind}.h5ad"
    with pytest.raises(felb.InputError, match=f"h5ad~{kind}"):
        read_labels("obs:kind", str(damaged), 3)
