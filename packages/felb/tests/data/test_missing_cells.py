"""Missing cells of files: an error that says what to do, or unknown, or zero; never a guess."""

import gzip

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.data import BinaryMatrix, coercion, convert, read, readers
from felb.data.files import read_data
from felb.errors import InputError

NAMES = ["a", "b", "c"]
CELLS = np.array([[1, 2, 0], [0, 1, 1], [2, 2, 2], [1, 0, 2], [0, 0, 0]])  # 2 is missing
SEEN, HIDDEN = CELLS == 1, CELLS == 2
PARTLY = BinaryMatrix.of(SEEN, columns=NAMES).with_unknown(HIDDEN)
VALUES = np.where(HIDDEN, np.nan, SEEN)
FRAME = pd.DataFrame(VALUES, columns=NAMES)


def csv_text(word="NA", delimiter=",", *, header=True):
    lines = [delimiter.join(["0", "1", word][cell] for cell in row) for row in CELLS]
    return "\n".join([delimiter.join(NAMES), *lines] if header else lines) + "\n"


def write_as(kind, folder):
    path = folder / f"d.{kind}"
    if kind == "csv":
        path.write_text(csv_text())
    elif kind == "tsv.gz":
        path.write_bytes(gzip.compress(csv_text("", "\t").encode()))
    elif kind == "npy":
        np.save(path, VALUES.astype(np.float32))
    elif kind == "parquet":
        FRAME.astype({"a": "Int64", "b": "boolean"}).to_parquet(path)
    elif kind == "h5ad":
        anndata = pytest.importorskip("anndata")
        anndata.AnnData(VALUES, var=pd.DataFrame(index=NAMES)).write_h5ad(path)
    return path


KINDS = ["csv", "tsv.gz", "npy", "parquet", "h5ad"]


@pytest.fixture(params=[False, True], ids=["one block", "many blocks"])
def blocks(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(readers, "BLOCK_CELLS", 2 * 3)
        monkeypatch.setattr(readers, "BATCH_CELLS", 2 * 3)
        monkeypatch.setattr(coercion, "DENSE_BLOCK_CELLS", 2 * 3)


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_an_error_that_names_the_cell_and_the_way_out(kind, tmp_path, blocks):
    path = write_as(kind, tmp_path)
    for options in ({}, {"missing": "error"}, {"binarize_threshold": 0.5}):
        with pytest.raises(InputError, match=r"(row|line) \d.*, column \d.* is missing .*'unknown'.*'zero'"):
            read(path, **options)
    with pytest.raises(InputError, match="is missing"):
        convert(path, tmp_path / "t.felb")
    assert not (tmp_path / "t.felb").exists()


@pytest.mark.parametrize("threshold", [None, 0.5, -1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_they_become_unknown_or_zero_and_converting_is_reading(kind, threshold, tmp_path, blocks):
    path = write_as(kind, tmp_path)
    names = None if kind == "npy" else NAMES
    ones = SEEN if threshold != -1.0 else ~HIDDEN
    zeros = BinaryMatrix.of(ones, columns=names)
    unknown = zeros.with_unknown(HIDDEN)
    options = {"binarize_threshold": threshold}
    assert read(path, missing="unknown", **options).matrix == unknown
    assert read(path, missing="zero", **options).matrix == zeros
    assert convert(path, tmp_path / "t.felb", missing="unknown", **options).matrix == unknown
    assert read(tmp_path / "t.felb").matrix == unknown  # said once, it is said
    assert read(tmp_path / "t.felb", missing="zero").matrix == zeros
    assert convert(tmp_path / "t.felb", tmp_path / "again.felb").matrix == unknown
    assert (tmp_path / "t.felb").read_bytes() == (tmp_path / "again.felb").read_bytes()


@pytest.mark.parametrize("word", ["", "  ", "NA", "n/a", "NaN", "nan", "?", "null", "None"])
def test_the_words_of_text(word, tmp_path):
    (tmp_path / "d.csv").write_text(csv_text(word))
    assert read(tmp_path / "d.csv", missing="unknown").matrix == PARTLY


@pytest.mark.parametrize("word", ["x", "2", "-", "unknown", "0.5"])
def test_other_words_stay_errors(word, tmp_path):
    (tmp_path / "d.csv").write_text(csv_text(word))
    for missing in ("unknown", "zero"):
        with pytest.raises(InputError, match=r"line 2, column 2 \('b'\) holds"):
            read(tmp_path / "d.csv", missing=missing)


def test_clients_must_be_known(tmp_path):
    (tmp_path / "d.csv").write_text("site,a\nnorth,1\n,0\n")
    with pytest.raises(InputError, match="line 3 has no client"):
        read(tmp_path / "d.csv", client_column="site", missing="unknown")


def test_a_first_line_that_could_be_names_or_a_record_is_asked_about(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("1,,0\n0,1,1\n")
    with pytest.raises(InputError, match=r"line 1 .* header"):
        read(path, missing="unknown")
    record = read(path, missing="unknown", header=False).matrix
    assert record == BinaryMatrix.of([[1, 0, 0], [0, 1, 1]]).with_unknown([[0, 1, 0], [0, 0, 0]])
    assert read(path, missing="unknown", header=True).matrix.columns == ("1", "", "0")
    path.write_text("NA,1,0\n0,1,1\n")
    assert read(path, missing="unknown").matrix.shape == (2, 3)


@pytest.mark.parametrize("kind", ["npz", "mtx", "dat"])
def test_sparse_files_have_none(kind, tmp_path):
    path = tmp_path / f"d.{kind}"
    if kind == "npz":
        sp.save_npz(path, sp.csr_array(np.where(HIDDEN, np.nan, SEEN)))
    elif kind == "mtx":
        path.write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n2 1 nan\n")
    else:
        path.write_text("1 2\n2\n")
    with pytest.raises(InputError, match=rf"missing .*\.csv, .*\.{kind}"):
        read(path, missing="unknown")
    if kind != "dat":
        with pytest.raises(InputError, match=r"is missing \([^']*$"):
            read(path)


def test_a_word_that_is_not_known(tmp_path):
    with pytest.raises(InputError, match=r"missing .*'drop'"):
        read(write_as("csv", tmp_path), missing="drop")


# -- cells that another file marks ------------------------------------------------------------------------------------


def write_marks(kind, cells, folder):
    path = folder / f"marks.{kind}"
    if kind == "npz":
        sp.save_npz(path, sp.csr_array(cells.astype(np.int8)))
    elif kind == "npy":
        np.save(path, cells)
    elif kind == "csv":
        pd.DataFrame(cells.astype(int), columns=NAMES).to_csv(path, index=False)
    elif kind == "mtx":
        rows, columns = np.nonzero(cells)
        entries = [f"{i + 1} {j + 1}" for i, j in zip(rows, columns, strict=True)]
        sizes = f"{cells.shape[0]} {cells.shape[1]} {len(entries)}"
        path.write_text("\n".join(["%%MatrixMarket matrix coordinate pattern general", sizes, *entries]) + "\n")
    else:
        BinaryMatrix.of(cells).save(path)
    return path


@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "mtx", "felb"])
def test_a_file_of_marks_says_the_same(kind, tmp_path, blocks):
    path = tmp_path / "seen.csv"
    pd.DataFrame(SEEN.astype(int), columns=NAMES).to_csv(path, index=False)
    marks = write_marks(kind, HIDDEN, tmp_path)
    assert read(path, unknown=marks).matrix == PARTLY
    assert convert(path, tmp_path / "t.felb", unknown=str(marks)).matrix == PARTLY


@given(st.data())
@settings(deadline=None, max_examples=25, derandomize=True)
def test_marks_add_to_missing_cells(tmp_path_factory, data):
    cells = data.draw(hnp.arrays(np.uint8, st.tuples(st.integers(1, 6), st.integers(2, 4)), elements=st.integers(0, 3)))
    folder = tmp_path_factory.mktemp("m")
    lines = [",".join(f"c{j}" for j in range(cells.shape[1]))]
    lines += [",".join(["0", "1", "NA", "0"][cell] for cell in row) for row in cells]
    (folder / "d.csv").write_text("\n".join(lines) + "\n")
    marks = write_marks("npy", cells == 3, folder)
    found = read(folder / "d.csv", missing="unknown", unknown=marks).matrix
    assert found == BinaryMatrix.of(cells == 1, columns=found.columns).with_unknown(cells >= 2)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (HIDDEN[:, :2], "2 columns, .*3"),
        (HIDDEN[:4], "4 rows, .*5"),
        (np.vstack([HIDDEN, HIDDEN[:1]]), "6 rows, .*5"),
        (np.ones((5, 3)), "cells .*unknown .*ones"),
        (np.full((5, 3), 7), r"marks\.npy: row 0, column 0 holds 7"),
    ],
)
def test_marks_that_do_not_fit(cells, message, tmp_path, blocks):
    path = tmp_path / "seen.npy"
    np.save(path, SEEN)
    np.save(tmp_path / "marks.npy", cells)
    with pytest.raises(InputError, match=message):
        read(path, unknown=tmp_path / "marks.npy")
    with pytest.raises(InputError, match=message):
        convert(path, tmp_path / "t.felb", unknown=tmp_path / "marks.npy")
    assert not (tmp_path / "t.felb").exists()


def test_marks_of_other_columns_are_refused(tmp_path):
    FRAME.fillna(0).astype(int).to_csv(tmp_path / "d.csv", index=False)
    pd.DataFrame(HIDDEN.astype(int), columns=NAMES[::-1]).to_csv(tmp_path / "marks.csv", index=False)
    with pytest.raises(InputError, match=r"marks\.csv .*column names"):
        read(tmp_path / "d.csv", unknown=tmp_path / "marks.csv")
    with pytest.raises(InputError, match=r"nothing\.npz: cannot be read"):
        read(tmp_path / "d.csv", unknown=tmp_path / "nothing.npz")


def test_shipped_data_with_marks(tmp_path):
    zoo = read_data("zoo").matrix
    cells = ~zoo.toarray() & (np.random.default_rng(0).random(zoo.shape) < 0.3)
    np.save(tmp_path / "marks.npy", cells)
    assert read_data("zoo", unknown=str(tmp_path / "marks.npy")).matrix == zoo.with_unknown(cells)
    np.save(tmp_path / "marks.npy", cells[:100])
    with pytest.raises(InputError, match=r"100 rows.* 101"):
        read_data("zoo", unknown=str(tmp_path / "marks.npy"))
