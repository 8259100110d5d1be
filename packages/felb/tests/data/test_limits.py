"""Small files that ask for much: refused by a limit that can be raised, before room is made for it."""

import gzip
import os
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from felb.data import Limits, convert, read
from felb.errors import InputError

MANY = 10**9


def mtx(folder):
    path = folder / "m.mtx"
    path.write_text(f"%%MatrixMarket matrix coordinate pattern general\n{MANY} 5 1\n1 1\n")
    return path


def npy_without_columns(folder):
    np.save(folder / "m.npy", np.zeros((MANY, 0), np.int8))
    return folder / "m.npy"


def npz_coo(folder):
    sp.save_npz(folder / "m.npz", sp.coo_array(([1], ([5], [3])), shape=(MANY, 9)))
    return folder / "m.npz"


def one_line(folder):
    path = folder / "m.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(40):
            file.write(b"0," * (1 << 19))
    return path


def newlines(folder):
    path = folder / "m.csv.gz"
    path.write_bytes(gzip.compress(b"1,0\n" + b"\n" * (1 << 20), 1))
    return path


def item_lists_without_items(folder):
    path = folder / "m.dat.gz"
    path.write_bytes(gzip.compress(b"1\n" + b"\n" * (11 << 20), 1))
    return path


def npz_of_zeros(folder):
    path = folder / "m.npz"
    sp.save_npz(path, sp.csr_array(np.eye(3, dtype=np.int8)))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("padding.npy", "w") as file:
        for _ in range(150):
            file.write(bytes(1 << 20))
    return path


def parquet_of_one_word(folder):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(11_000_000, np.int8)), pa.array(["x" * 100_000]))
    pq.write_table(pa.table({"a": column}), folder / "m.parquet")
    return folder / "m.parquet"


def h5ad_with_unwritten_x(folder):
    anndata, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
    path = folder / "m.h5ad"
    anndata.AnnData(np.zeros((2, 3), np.float32)).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        attributes = dict(file["X"].attrs)
        del file["X"]
        file.create_dataset("X", shape=(100_000, 100_000), dtype="f4", chunks=(100, 100)).attrs.update(attributes)
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (mtx, r"announces 1000000000 rows, .* limits=Limits\(max_rows=1000000000\)"),
        (npy_without_columns, "announces 1000000000 rows"),
        (npz_coo, "announces 1000000000 rows"),
        (one_line, "16777216 bytes"),
        (newlines, "line 2 and 100000 lines"),
        (item_lists_without_items, "rows, and at most"),
        (npz_of_zeros, r"unpacks to \d+ bytes or more, .* limits=Limits\(max_expansion="),
        (parquet_of_one_word, "announces 11000000 rows"),
        (h5ad_with_unwritten_x, "unpacks to 40000000"),
    ],
)
def test_a_small_file_that_asks_for_much_is_refused(make, message, tmp_path):
    path = make(tmp_path)
    assert path.stat().st_size < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=message):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 500 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(InputError):
        convert(path, tmp_path / "target.felb")
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name}


def test_a_long_text_in_every_row_is_held_once(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    site = pa.DictionaryArray.from_arrays(pa.array(np.zeros(300_000, np.int8)), pa.array(["x" * 100_000]))
    pq.write_table(pa.table({"site": site, "a": np.zeros(300_000, np.int8)}), tmp_path / "m.parquet")
    table = read(tmp_path / "m.parquet", client_column="site")
    assert len(set(map(id, table.clients))) == 1
    assert table.matrix.shape == (300_000, 1)


def test_limits_can_be_raised_and_lowered(tmp_path):
    path = tmp_path / "m.mtx"
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n10000001 5 1\n1 1\n")
    with pytest.raises(InputError, match="10000001 rows"):
        read(path)
    assert read(path, limits=Limits(max_rows=10_000_001)).matrix.shape == (10_000_001, 5)
    with pytest.raises(InputError, match="5 columns, and at most 4"):
        read(path, limits=Limits(max_rows=10_000_001, max_columns=4))


@pytest.mark.parametrize(
    "name", ["pipe.csv", "pipe.npz", "pipe.npy", "pipe.mat", "pipe.mtx", "pipe.dat", "pipe.h5ad", "pipe.felb"]
)
def test_a_pipe_is_refused_and_not_waited_for(name, tmp_path):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match="regular file"):
        read(tmp_path / name)


def test_a_link_to_a_device_is_refused(tmp_path):
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="regular file"):
        read(tmp_path / "zero.csv")


@pytest.mark.parametrize("wrong", [{"max_rows": 0}, {"max_line": True}, {"max_expansion": "9"}, {"max_columns": -1}])
def test_a_limit_is_a_positive_number(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Limits(**wrong)
