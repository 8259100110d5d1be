"""``felb apply``: components of new records with their names, aligned columns, and drift."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import scipy.sparse as sp
from cli_files import leftovers

import felb as library
from felb.data import planted
from felb.runs.result import Result, read_assignment

DATA = planted(120, 10, 3, noise=0.03, heights=(0.3, 0.4), widths=(0.25, 0.4), seed=5).A.toarray().astype(int)
FIT, NEW = DATA[:80], DATA[80:]
NAMES = [f"f{j}" for j in range(10)]
PEOPLE = [f"person {i}" for i in range(len(NEW))]


def write(path, rows, names, **texts):
    """Write a table; `texts` are columns of text before the others."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*texts, *names])
        writer.writerows([*(texts[name][i] for name in texts), *row] for i, row in enumerate(rows))


@pytest.fixture
def model(in_folder, felb):
    """A result in the folder `run`, and new records in files."""
    write(in_folder / "fit.csv", FIT, NAMES)
    write(in_folder / "new.csv", NEW, NAMES)
    order = [3, 1, 2, 0, *range(4, 9)]
    texts = {"person": PEOPLE, "note": ["text"] * len(NEW)}
    write(in_folder / "other.csv", NEW[:, order], [NAMES[j] for j in order], **texts)
    assert felb("fit", "fit.csv", "-k", 3, "-o", "run").code == 0
    return library.load("run")


def test_the_records_of_the_fit_get_the_bits_of_the_fit(felb, model, in_folder):
    found = felb("apply", "run", "fit.csv", "-o", "U.npz", "--json")
    assert found.code == 0
    np.testing.assert_array_equal(sp.load_npz("U.npz").toarray(), read_assignment("run", "centralized"))
    assert found.json["drift"]["wrong"]["z"] == 0
    assert found.json["scores"] == pytest.approx(Result.read("run").scores)
    assert not any(entry["changed"] for entry in found.json["drift"]["features"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz", ".h5ad"])
def test_every_format_has_names_and_components(felb, model, in_folder, suffix):
    asked = ("apply", "run", "other.csv", "-o", f"U{suffix}", "--align", "name", "--record-column", "person")
    assert felb(*asked).code == 0
    rows = library.BinaryMatrix.of(NEW, columns=NAMES).toarray()[:, :9]
    U = model.transform(library.BinaryMatrix.of(rows, columns=NAMES[:9]), align="name")
    names, values = read_back(in_folder / f"U{suffix}")
    assert names == PEOPLE
    np.testing.assert_array_equal(values, U)
    assert felb(*asked).code == 1
    assert felb(*asked, "--force").code == 0


def read_back(path):
    """Read an assignment with the library of its format."""
    if path.suffix == ".csv":
        with path.open() as file:
            header, *rows = csv.reader(file)
        assert header == ["record", "component 0", "component 1", "component 2"]
        return [row[0] for row in rows], np.array([row[1:] for row in rows]).astype(int).astype(bool)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        return table["record"].to_pylist(), np.column_stack([column.to_numpy() for column in table.columns[1:]])
    if path.suffix == ".npz":
        return np.load(path)["records"].tolist(), sp.load_npz(path).toarray()
    import anndata

    data = anndata.read_h5ad(path)
    return data.obs_names.tolist(), data.X.toarray().astype(bool)


def test_columns_are_counted_and_told(felb, model):
    told = felb("apply", "run", "other.csv", "-o", "U.csv", "--align", "name", "--record-column", "person")
    assert "unknown: 1 (f9)" in told.out
    assert "ignored: 1 (note)" in told.out
    assert "another order" in told.out
    again = felb("apply", "run", "other.csv", "-o", "U.csv", "--force", "--align", "name", "--json").json
    assert again["alignment"] == {"missing": ["f9"], "new": ["person", "note"], "reordered": True}
    wrong = again["drift"]["features"][9]["wrong"]
    assert (wrong["new"], wrong["z"]) == (None, 0)


def test_other_columns_are_refused_without_alignment(felb, model, in_folder):
    write(in_folder / "reversed.csv", NEW[:, ::-1], NAMES[::-1])
    found = felb("apply", "run", "reversed.csv", "-o", "U.csv")
    assert (found.code, "same order" in found.err) == (1, True)
    write(in_folder / "strange.csv", NEW, [f"g{j}" for j in range(10)])
    found = felb("apply", "run", "strange.csv", "-o", "U.csv", "--align", "name")
    assert (found.code, "none of the 10 columns" in found.err) == (1, True)
    assert "Traceback" not in found.err
    assert not (in_folder / "U.csv").exists()


def test_drift_needs_counts_or_a_reference(felb, model, in_folder):
    Result.read("run").save("run.felbmodel")
    before = leftovers(in_folder)
    found = felb("apply", "run.felbmodel", "new.csv", "-o", "U.txt")
    assert (found.code, ".txt" in found.err, leftovers(in_folder)) == (1, True, before)
    for drift in ("drift.csv", "drift.txt", "run/result.json"):  # none is known, no such file type, it exists
        found = felb("apply", "run.felbmodel", "new.csv", "-o", "U.csv", "--drift", drift)
        assert found.code in (1, 2)
        assert leftovers(in_folder) == before
    found = felb("apply", "run.felbmodel", "new.csv", "-o", "U.csv")
    assert (found.code, "--reference" in found.out) == (0, True)
    asked = ("apply", "run.felbmodel", "new.csv", "-o", "U.csv", "--force", "--reference", "fit.csv")
    assert felb(*asked, "--drift", "drift.json").code == 0
    assert felb("apply", "run", "new.csv", "-o", "U.csv", "--force", "--drift", "drift.csv").code == 0
    by_reference = json.loads((in_folder / "drift.json").read_text())
    with (in_folder / "drift.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (10 + 3)
    kept = {row["name"]: float(row["z"]) for row in rows if (row["of"], row["share"]) == ("feature", "wrong")}
    assert kept == {entry["name"]: entry["wrong"]["z"] for entry in by_reference["features"]}


def test_the_schema_of_the_result_reads_raw_records(felb, in_folder):
    write(in_folder / "raw.csv", [[row[0] + row[1], row[2]] for row in FIT], ["visits", "smokes"])
    assert felb("schema", "infer", "raw.csv", "-o", "schema.toml", "--min-count", 1).code == 0
    assert felb("fit", "raw.csv", "--schema", "schema.toml", "-k", 2, "-o", "run").code == 0
    found = felb("apply", "run", "raw.csv", "-o", "U.csv", "--json")
    assert found.code == 0
    with (in_folder / "U.csv").open() as file:
        _, *rows = csv.reader(file)
    U = np.array([row[1:] for row in rows]).astype(int)
    np.testing.assert_array_equal(U, read_assignment("run", "centralized"))


def test_pages_and_tables_of_model_files(felb, model, in_folder):
    Result.read("run").save("run.felbmodel")
    assert "f1" in felb("show", "run.felbmodel").out
    assert felb("report", "run.felbmodel").code == 0
    assert (in_folder / "run.html").is_file()
    assert felb("score", "run.felbmodel", "new.csv").code == 0
