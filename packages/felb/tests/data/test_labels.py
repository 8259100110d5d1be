"""Labels of records from a file, a column, and the annotations of cells."""

from pathlib import Path

import numpy as np
import pytest

import felb
from felb.data.files import read_labels


def test_lines_with_and_without_a_heading(tmp_path):
    path = tmp_path / "kinds.txt"
    path.write_text("cat\n\ndog\n")
    assert read_labels(str(path), None, 3).tolist() == ["cat", None, "dog"]
    assert read_labels(str(path), None, 2).tolist() == [None, "dog"]
    with pytest.raises(felb.InputError, match="3 labels for 7 records"):
        read_labels(str(path), None, 7)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(felb.InputError, match="UTF-8"):
        read_labels(str(path), None, 1)


def test_a_column_that_is_no_feature(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,b,kind\n1,0,cat\n0,1,dog\n")
    assert read_labels("kind", str(path), 2).tolist() == ["cat", "dog"]
    with pytest.raises(felb.InputError, match="sort"):
        read_labels("sort", str(path), 2)
    with pytest.raises(felb.InputError, match="data file"):
        read_labels("sort", None, 2)


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
