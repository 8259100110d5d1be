"""The same small matrix in every format that can be read."""

import gzip

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

from felb.data import BinaryMatrix

DENSE = (np.random.default_rng(3).random((30, 7)) < 0.4).astype(np.uint8)
DENSE[4] = 0
DENSE[0, :] = DENSE[-1, :] = 1  # every column has a one, so that item lists know all of them
NAMES = tuple(f"gene {i}" for i in range(7))
SITES = tuple(f"site{i % 3}" for i in range(30))


def write(path, content):
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def separated(rows, mark=",", end="\n"):
    return "".join(mark.join(str(cell) for cell in row) + end for row in rows)


def frame(dtype="int64"):
    return pd.DataFrame(DENSE, columns=list(NAMES)).astype(dtype)


def anndata_of(values, **obs):
    anndata = pytest.importorskip("anndata")
    cells = pd.DataFrame(obs, index=[f"cell{i}" for i in range(values.shape[0])])
    return anndata.AnnData(values, obs=cells, var=pd.DataFrame(index=list(NAMES[: values.shape[1]])))


def write_as(kind, folder):
    """Write DENSE in a format; return the path and whether the file knows the column names."""
    path = folder / f"data{kind}"
    if kind.startswith((".csv", ".tsv")):
        return write(path, separated([NAMES, *DENSE], "," if kind.startswith(".csv") else "\t")), True
    if kind.startswith((".dat", ".fimi")):
        return write(path, separated([np.flatnonzero(row) for row in DENSE], " ")), False
    if kind.startswith(".mtx"):
        scipy.io.mmwrite(folder / "plain.mtx", sp.coo_array(DENSE))
        return write(path, (folder / "plain.mtx").read_bytes()), False
    if kind == ".npz":
        sp.save_npz(path, sp.csr_array(DENSE))
        write(folder / "data.columns.txt", "\n".join(NAMES) + "\n")
        return path, True
    if kind == ".mat":
        scipy.io.savemat(path, {"X": DENSE})
        write(folder / "data.columns.txt", "\n".join(NAMES) + "\n")
        return path, True
    if kind == ".npy":
        np.save(path, DENSE)
        return path, False
    if kind == ".parquet":
        pytest.importorskip("pyarrow")
        frame().to_parquet(path)
        return path, True
    if kind == ".h5ad":
        anndata_of(sp.csr_matrix(DENSE.astype(np.float32))).write_h5ad(path)
        return path, True
    BinaryMatrix.of(DENSE, columns=NAMES).save(path)
    return path, True


KINDS = [".csv", ".tsv", ".dat", ".fimi", ".mtx", ".npz", ".npy", ".mat", ".parquet", ".h5ad", ".felb"]
KINDS += [".csv.gz", ".dat.gz", ".mtx.gz"]
