"""HDF5, MATLAB and MatrixMarket files are read by another process first: what ends it, or never ends, is refused."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.data import Limits, convert, read, readers
from felb.errors import InputError

REPRODUCERS = Path(__file__).parent.parent / "fuzz" / "reproducers"
CELLS = np.random.default_rng(5).random((40, 9)) < 0.3


# -- the process -----------------------------------------------------------------------------------------------


@pytest.fixture
def isolated():
    made = readers.IsolatedReader()
    yield made
    made.close()


@pytest.fixture
def sound(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "sound.h5ad", "w") as file:
        file["texts"] = ["one", "two"]
        file["numbers"] = [[1.0, 2.0]]
        file["numbers"].attrs["unit"] = "mm"
    return tmp_path / "sound.h5ad"


def test_a_file_that_kills_the_reader_is_refused_and_the_next_one_read(isolated, sound):
    isolated.read(sound, "hdf5")
    first = isolated._process
    with pytest.raises(InputError, match="signal"):
        isolated.read(REPRODUCERS / "h5ad~signal.h5ad", "hdf5")
    assert first.poll() is not None
    isolated.read(sound, "hdf5")
    assert isolated._process is not first


def test_one_process_serves_all_files(isolated, sound, tmp_path):
    isolated.read(sound, "hdf5")
    first = isolated._process
    (tmp_path / "text\n.h5ad").write_text("no HDF5")
    for damaged in (tmp_path / "text\n.h5ad", REPRODUCERS / "h5ad~memory.h5ad"):
        with pytest.raises(InputError, match=damaged.name):
            isolated.read(damaged, "hdf5")
    isolated.read(sound, "hdf5")
    assert isolated._process is first


@pytest.mark.parametrize("program", ["import time; time.sleep(60)", "raise SystemExit(3)"])
def test_a_reader_that_hangs_or_ends_is_not_waited_for(isolated, sound, program, tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(readers, "PROGRAM", tmp_path / "program.py")
    monkeypatch.setattr(readers, "PATIENCE", 0.5)
    with pytest.raises(InputError, match=sound.name):
        isolated.read(sound, "hdf5")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of processor time is Linux's")
def test_a_file_that_has_no_end_costs_a_few_seconds_of_a_processor():
    request = json.dumps({"path": str(REPRODUCERS / "h5ad~endless.h5ad"), "format": "hdf5"})
    ended = subprocess.run(
        [sys.executable, "-I", readers.PROGRAM], input=f"{request}\n", capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGXCPU, "")


# -- MATLAB ----------------------------------------------------------------------------------------------------


def saved(path, values, **options):
    scipy.io.savemat(path, values, **options)
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [bool, np.int16, np.float32, np.float64])
def test_dense_and_sparse_matrices_of_matlab(tmp_path, dtype, packed):
    dense = saved(tmp_path / "a.mat", {"X": CELLS.astype(dtype)}, do_compression=packed)
    np.testing.assert_array_equal(read(dense).matrix.toarray(), CELLS)
    if dtype in (bool, np.float64):
        sparse = saved(tmp_path / "b.mat", {"X": sp.csc_array(CELLS.astype(dtype))}, do_compression=packed)
        np.testing.assert_array_equal(read(sparse).matrix.toarray(), CELLS)


def test_the_only_matrix_is_taken_whatever_stands_beside_it(tmp_path):
    beside = {
        "names": ["a", "b"],
        "cells": np.array([1, "x"], dtype=object),
        "s": {"a": 1},
        "y": np.arange(40),
        "k": 3.0,
    }
    path = saved(tmp_path / "a.mat", {**beside, "X": CELLS})
    np.testing.assert_array_equal(read(path).matrix.toarray(), CELLS)


def test_several_matrices_or_none_are_refused_by_name(tmp_path):
    with pytest.raises(InputError, match=r"X \(40x9\), Y \(9x40\)"):
        read(saved(tmp_path / "a.mat", {"X": CELLS, "Y": CELLS.T}))
    with pytest.raises(InputError, match="no matrix"):
        read(saved(tmp_path / "b.mat", {"name": "text", "v": np.arange(4)}))


def test_thresholds_missing_cells_and_names(tmp_path):
    values = np.where(CELLS, 2.5, 0.5)
    path = saved(tmp_path / "a.mat", {"X": values})
    with pytest.raises(InputError, match=r"row 0, column 0 holds 0\.5"):
        read(path)
    np.testing.assert_array_equal(read(path, binarize_threshold=1).matrix.toarray(), CELLS)
    values = CELLS.astype(float)
    values[3, 2] = np.nan
    path = saved(tmp_path / "b.mat", {"X": values})
    (tmp_path / "b.columns.txt").write_text("\n".join("abcdefghi"))
    matrix = read(path, missing="unknown").matrix
    assert matrix.unknown.nnz == 1
    assert matrix.columns == tuple("abcdefghi")
    assert convert(path, tmp_path / "b.felb", missing="unknown").matrix == matrix


def test_matlab_files_that_are_not_read_say_what_to_do(tmp_path):
    for name, content in {"a": b"MATLAB 7.3 MAT-file" + b" " * 600, "b": b"\x89HDF\r\n" + b"\0" * 600}.items():
        (tmp_path / f"{name}.mat").write_bytes(content)
        with pytest.raises(InputError, match=r"7\.3"):
            read(tmp_path / f"{name}.mat")
    with pytest.raises(InputError, match="Complex"):
        read(saved(tmp_path / "d.mat", {"X": CELLS + 1j}))


def test_a_small_matlab_file_may_not_unpack_to_much(tmp_path):
    path = saved(tmp_path / "bomb.mat", {"X": np.zeros((20_000, 10_000), np.uint8)}, do_compression=True)
    with pytest.raises(InputError, match="unpacks to 200000000 bytes"):
        read(path)
    with pytest.raises(InputError, match="announces 40 rows"):
        read(saved(tmp_path / "a.mat", {"X": CELLS}), limits=Limits(max_rows=10))


def test_a_matlab_file_that_ends_early_is_refused(tmp_path):
    path = saved(tmp_path / "a.mat", {"X": CELLS})
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InputError, match=r"a\.mat: the file is damaged"):
        read(path)


# -- MatrixMarket ----------------------------------------------------------------------------------------------

COORDINATE = "%%MatrixMarket matrix coordinate integer general\n"
PATTERN = "%%MatrixMarket matrix coordinate pattern general\n"
ARRAY = "%%MatrixMarket matrix array real general\n"


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 7), st.integers(1, 7), st.integers(0, 99), st.sampled_from(["coo", "dense", "pattern", "symmetric"])
)
def test_reads_what_scipy_writes(tmp_path_factory, n, m, seed, form):
    folder = tmp_path_factory.mktemp("mtx")
    dense = (np.random.default_rng(seed).random((n, m)) < 0.4).astype(np.uint8)
    if form == "symmetric":
        dense = dense[: min(n, m), : min(n, m)] | dense[: min(n, m), : min(n, m)].T
    field = "pattern" if form == "pattern" else None
    scipy.io.mmwrite(folder / "m.mtx", dense if form == "array" else sp.coo_array(dense), field=field)
    (folder / "m.mtx.gz").write_bytes(gzip.compress((folder / "m.mtx").read_bytes()))
    for name in ("m.mtx", "m.mtx.gz"):
        np.testing.assert_array_equal(read(folder / name).matrix.toarray(), dense)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (COORDINATE + "2 3 2\r\n1 3 1\r\n2 1 1", [[0, 0, 1], [1, 0, 0]]),
        (COORDINATE + "% a comment\n\n%\n2 3 2\n\n 1\t3 1 \n\n2 1 0\n\n", [[0, 0, 1], [0, 0, 0]]),
        (PATTERN + "2 2 3\n2 2\n1 1\n2 2\n", [[1, 0], [0, 1]]),
        (PATTERN.replace("general", "symmetric") + "2 2 2\n1 1\n2 1\n", [[1, 1], [1, 0]]),
        (ARRAY + "2 3\n1\n1\n0\n0\n0\n1\n", [[1, 0, 0], [1, 0, 1]]),
    ],
)
def test_spellings_of_matrixmarket(content, expected, tmp_path):
    (tmp_path / "m.mtx").write_bytes(content.encode())
    assert read(tmp_path / "m.mtx").matrix.toarray().astype(int).tolist() == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 2 3\n", "Line 1: Not a Matrix Market file"),
        (COORDINATE, "Line 2"),
        (COORDINATE + "2 x 1\n", "damaged"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", "Complex"),
        (COORDINATE + "2 2 2\n1 1 1\n", "Expected another 1 lines"),
        (COORDINATE + "2 2 1\n1 1 1\n2 2 1\n", "Line 4"),
        (COORDINATE + "2 2 2\n1 1 1\n2 2\n", "Line 4"),
        (COORDINATE + "2 2 1\n1 x 1\n", "Line 3"),
        (COORDINATE + "2 2 1\n1 1_0 1\n", "Line 3"),
        (COORDINATE + "2 2 1\n3 1 1\n", "Line 3: Row index out of bounds"),
        (COORDINATE + "2 2 2\n1 1 1\n2 1 5\n", r"row 1, column 0 holds 5; .*binarize_threshold"),
        (ARRAY + "2 2\n0\n0\n0\n-1\n", r"row 1, column 1 holds -1\.0"),
        (ARRAY + "2 2\n0\n0\nnan\n1\n", r"row 0, column 1 is missing"),
        (PATTERN + "0 5 0\n", "holds no data: 0 rows and 5 columns"),
        (PATTERN + f"5 {2**31} 0\n", "announces 2147483648 columns, and at most 1000000"),
        (PATTERN + f"{10**17} 5 0\n", "announces 100000000000000000 rows, and at most 10000000"),
        (PATTERN + f"5 5 {10**12}\n1 1\n", "unpacks to 8000000000000 bytes"),
    ],
)
def test_matrixmarket_files_that_are_refused(content, message, tmp_path):
    path = tmp_path / "m.mtx"
    path.write_bytes(content.encode())
    with pytest.raises(InputError, match=message) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")


def test_thresholds_of_matrixmarket(tmp_path):
    values = np.array([[0, 3, 0.5], [1, 0, -2]])
    scipy.io.mmwrite(tmp_path / "s.mtx", sp.coo_array(values))
    scipy.io.mmwrite(tmp_path / "d.mtx", values)
    for name in ("s.mtx", "d.mtx"):
        matrix = read(tmp_path / name, binarize_threshold=0.5).matrix
        np.testing.assert_array_equal(matrix.toarray(), values > 0.5)
    np.testing.assert_array_equal(read(tmp_path / "d.mtx", binarize_threshold=-1).matrix.toarray(), values > -1)
    with pytest.raises(InputError, match="binarize_threshold=-1"):
        read(tmp_path / "s.mtx", binarize_threshold=-1)
    (tmp_path / "p.mtx").write_text(PATTERN + "1 1 1\n1 1\n")
    assert read(tmp_path / "p.mtx", binarize_threshold=0).matrix.nnz == 1
    with pytest.raises(InputError, match="binarize_threshold=1"):
        read(tmp_path / "p.mtx", binarize_threshold=1)


def test_a_large_sparse_matrix_is_not_densified(tmp_path):
    size = 10**6
    (tmp_path / "big.mtx").write_text(PATTERN + f"{size} {size} 2\n1 {size}\n{size} 1\n")
    matrix = read(tmp_path / "big.mtx").matrix
    assert matrix.shape == (size, size)
    assert matrix.indices.tolist() == [size - 1, 0]
