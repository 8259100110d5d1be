"""Arrays of NumPy and SciPy, Parquet and AnnData."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from data_files import DENSE, NAMES, SITES, anndata_of, frame, write

from felb.data import BinaryMatrix, readers
from felb.data.files import read
from felb.errors import InputError

# -- NumPy and SciPy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("compressed", [True, False])
def test_npz_formats(kind, compressed, tmp_path):
    for make in (f"{kind}_array", f"{kind}_matrix"):
        sp.save_npz(tmp_path / "s.npz", getattr(sp, make)(DENSE), compressed=compressed)
        matrix = read(tmp_path / "s.npz").matrix
        np.testing.assert_array_equal(matrix.toarray(), DENSE)
        assert matrix.columns is None


def test_npz_is_not_densified(tmp_path):
    size = 10**6
    big = sp.coo_array((np.ones(2, np.int8), ([0, size - 1], [size - 1, 0])), shape=(size, size))
    sp.save_npz(tmp_path / "big.npz", big)
    matrix = read(tmp_path / "big.npz").matrix
    assert matrix.shape == (size, size)
    assert matrix.indices.tolist() == [size - 1, 0]


def test_names_beside_an_npz(tmp_path):
    sp.save_npz(tmp_path / "v1.2.npz", sp.csr_array(DENSE))
    beside = tmp_path / "v1.2.columns.txt"
    for text in ("\n".join(NAMES), "\n".join(NAMES) + "\n", "\r\n".join(NAMES) + "\r\n", "\ufeff" + "\n".join(NAMES)):
        beside.write_bytes(text.encode())
        assert read(tmp_path / "v1.2.npz").matrix.columns == NAMES
    write(beside, "one\ntwo\n")
    assert read(tmp_path / "v1.2.npz").matrix.columns is None
    write(beside, "same\n" * 7)
    with pytest.raises(InputError, match=r"v1\.2\.npz: .*v1\.2\.columns\.txt: .*'same'"):
        read(tmp_path / "v1.2.npz")
    write(beside, b"\xff\n" * 7)
    with pytest.raises(InputError, match=r"v1\.2\.columns\.txt: "):
        read(tmp_path / "v1.2.npz")


def test_npz_values_are_checked(tmp_path):
    sp.save_npz(tmp_path / "c.npz", sp.csr_array(DENSE * 3))
    write(tmp_path / "c.columns.txt", "\n".join(NAMES))
    with pytest.raises(InputError, match=r"c\.npz: row 0, column 0 \('gene 0'\) holds 3; .* binarize_threshold"):
        read(tmp_path / "c.npz")
    np.testing.assert_array_equal(read(tmp_path / "c.npz", binarize_threshold=2).matrix.toarray(), DENSE)


def test_npz_of_dense_arrays(tmp_path):
    np.savez(tmp_path / "d.npz", X=DENSE, y=DENSE)
    with pytest.raises(InputError, match=r"d\.npz: .*X, y.*save_npz"):
        read(tmp_path / "d.npz")


@pytest.mark.parametrize(
    "lie", [{"indices": np.full(2, 99)}, {"indptr": np.array([0, 7, 2])}, {"format": np.array(b"no")}]
)
def test_npz_that_lies(lie, tmp_path):
    honest = {
        "format": np.array(b"csc"),
        "shape": np.array([2, 2]),
        "data": np.ones(2),
        "indices": np.array([0, 1]),
        "indptr": np.array([0, 1, 2]),
    }
    np.savez(tmp_path / "lie.npz", **honest)
    assert read(tmp_path / "lie.npz").matrix == BinaryMatrix.of(np.eye(2))
    np.savez(tmp_path / "lie.npz", **{**honest, **lie})
    with pytest.raises(InputError, match=r"lie\.npz: .*damaged"):
        read(tmp_path / "lie.npz")
    del honest["indptr"]
    np.savez(tmp_path / "lie.npz", **honest)
    with pytest.raises(InputError, match=r"lie\.npz: .*damaged"):
        read(tmp_path / "lie.npz")


class Explosive:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_nothing_is_unpickled(tmp_path):
    bomb = np.array([[Explosive()]], dtype=object)
    np.save(tmp_path / "a.npy", bomb, allow_pickle=True)
    with pytest.raises(InputError, match=r"a\.npy: .*pickled"):
        read(tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", format=bomb, data=bomb)
    with pytest.raises(InputError, match=r"b\.npz: .*pickled"):
        read(tmp_path / "b.npz")
    for name in ("c.npy", "c.npz", "c.felb", "c.parquet", "c.h5ad"):
        (tmp_path / name).write_bytes(pickle.dumps(Explosive()))
        with pytest.raises(InputError, match="c"):
            read(tmp_path / name)


def test_npy_shapes_and_values(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.asfortranarray(DENSE.astype(bool)))
    np.testing.assert_array_equal(read(path).matrix.toarray(), DENSE)
    np.save(path, DENSE[0])
    with pytest.raises(InputError, match=r"a\.npy: .*2D .* 1D"):
        read(path)
    np.save(path, np.zeros((0, 5)))
    with pytest.raises(InputError, match=r"a\.npy: .*0 rows and 5 columns"):
        read(path)
    np.save(path, np.array([[0, 1], [np.nan, 0]]))
    with pytest.raises(InputError, match=r"a\.npy: row 1, column 0 is missing"):
        read(path)
    np.save(path, np.array([["0", "x"]]))
    with pytest.raises(InputError, match=r"a\.npy: row 0, column 1 holds 'x'"):
        read(path)
    with path.open("wb") as file:
        np.savez(file, DENSE)
    with pytest.raises(InputError, match=r"a\.npy: "):
        read(path)


# -- Parquet ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32", "Int64", "boolean", "category"])
@pytest.mark.parametrize("cells", [1, 50, 1 << 22])
def test_parquet_types(dtype, cells, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(readers, "BATCH_CELLS", cells)
    frame(dtype).to_parquet(tmp_path / "p.parquet", row_group_size=11)
    matrix = read(tmp_path / "p.parquet").matrix
    np.testing.assert_array_equal(matrix.toarray(), DENSE)
    assert matrix.columns == NAMES


def test_parquet_clients_and_row_labels(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "p.parquet"
    data = frame().assign(site=SITES, year=2020)
    data.index = pd.Index([f"patient{i}" for i in range(30)], name="id")
    data[[*NAMES, "site"]].to_parquet(path)
    table = read(path, client_column="site")
    assert table.clients == SITES
    assert table.matrix.columns == NAMES  # row labels are no feature
    np.testing.assert_array_equal(table.matrix.toarray(), DENSE)
    data[[*NAMES, "year"]].to_parquet(path, index=False)
    assert read(path, client_column="year").clients == ("2020",) * 30
    with pytest.raises(InputError, match=r"p\.parquet: client_column='site'.* 'gene 0'"):
        read(path, client_column="site")
    frame().assign(site=[None, *SITES[1:]]).to_parquet(path)
    with pytest.raises(InputError, match=r"p\.parquet: row 0 has no client"):
        read(path, client_column="site")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([0, 1, 2, 0], r"row 2, column 1 \('b'\) holds 2; .*binarize_threshold"),
        ([0, 1, None, 0], r"row 2, column 1 \('b'\) is missing"),
        ([True, None, False, True], r"row 1, column 1 \('b'\) is missing"),
        (["0", "1", "0", "yes"], r"row 3, column 1 \('b'\) holds 'yes', which is not a number"),
        ([[0], [1], [0], [1]], r"column 'b' holds lists or tables"),
    ],
)
@pytest.mark.parametrize("cells", [1, 1 << 22])
def test_parquet_values(column, message, cells, tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(readers, "BATCH_CELLS", cells)
    pq.write_table(pa.table({"a": [0, 0, 0, 0], "b": column}), tmp_path / "v.parquet")
    with pytest.raises(InputError, match=rf"v\.parquet: {message}"):
        read(tmp_path / "v.parquet")


def test_parquet_without_rows_or_features(tmp_path):
    pytest.importorskip("pyarrow")
    frame().iloc[:0].to_parquet(tmp_path / "n.parquet")
    with pytest.raises(InputError, match=r"n\.parquet: .*0 rows and 7 columns"):
        read(tmp_path / "n.parquet")
    pd.DataFrame({"site": SITES}).to_parquet(tmp_path / "s.parquet")
    with pytest.raises(InputError, match="30 rows and 0 columns"):
        read(tmp_path / "s.parquet", client_column="site")


# -- AnnData ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("labels", [SITES, pd.Categorical(SITES), [7] * 30])
def test_h5ad(kind, labels, tmp_path):
    path = tmp_path / "a.h5ad"
    anndata_of(kind(DENSE.astype(np.float32) * 4), donor=labels).write_h5ad(path)
    table = read(path, client_column="donor", binarize_threshold=0)
    np.testing.assert_array_equal(table.matrix.toarray(), DENSE)
    assert table.matrix.columns == NAMES
    assert table.clients == tuple(str(label) for label in labels)
    with pytest.raises(InputError, match=r"a\.h5ad: row 0, column 0 \('gene 0'\) holds 4\.0; .* binarize_threshold"):
        read(path)
    path.unlink()  # nothing keeps it open


def test_h5ad_clients_refused(tmp_path):
    path = tmp_path / "a.h5ad"
    values = sp.csr_matrix(DENSE.astype(np.float32))
    anndata_of(values, donor=SITES).write_h5ad(path)
    with pytest.raises(InputError, match=r"a\.h5ad: client_column='site'.* 'donor'$"):
        read(path, client_column="site")
    anndata_of(values).write_h5ad(path)
    with pytest.raises(InputError, match=r"the columns are none$"):
        read(path, client_column="site")
    anndata_of(values, donor=pd.Categorical(["a", None] * 15)).write_h5ad(path)
    with pytest.raises(InputError, match="row 1 has no client"):
        read(path, client_column="donor")


def test_h5_file_that_is_no_anndata(tmp_path):
    pytest.importorskip("anndata")
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        file["Y"] = DENSE
    with pytest.raises(InputError, match=r"x\.h5ad: "):
        read(tmp_path / "x.h5ad")
