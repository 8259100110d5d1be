import struct
import zlib

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from felb.data import Limits, convert, read
from felb.errors import InputError

CELLS = np.random.default_rng(5).random((40, 9)) < 0.3


def saved(path, values, **options):
    scipy.io.savemat(path, values, **options)
    return path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.int64, np.float32, np.float64])
def test_dense_matrices_are_read_as_scipy_reads_them(tmp_path, dtype, packed):
    path = saved(tmp_path / "a.mat", {"X": CELLS.astype(dtype)}, do_compression=packed)
    np.testing.assert_array_equal(read(path).matrix.toarray(), scipy.io.loadmat(path)["X"])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [bool, np.float64])
def test_sparse_matrices_are_read_as_scipy_reads_them(tmp_path, dtype, packed):
    path = saved(tmp_path / "a.mat", {"X": sp.csc_array(CELLS.astype(dtype))}, do_compression=packed)
    np.testing.assert_array_equal(read(path).matrix.toarray(), scipy.io.loadmat(path)["X"].toarray())


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(2, 30), st.integers(0, 99), st.booleans(), st.booleans())
def test_any_shape_comes_back(tmp_path_factory, n, m, seed, sparse, packed):
    cells = np.random.default_rng(seed).random((n, m)) < 0.4
    path = tmp_path_factory.mktemp("mat") / "a.mat"
    saved(path, {"data": sp.csc_array(cells.astype(float)) if sparse else cells}, do_compression=packed)
    np.testing.assert_array_equal(read(path).matrix.toarray(), cells)


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
    with pytest.raises(InputError, match=r"2\.5|0\.5"):
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


def test_other_versions_are_refused_with_what_to_do(tmp_path):
    for name, content in {"a": b"MATLAB 7.3 MAT-file" + b" " * 600, "b": b"\x89HDF\r\n" + b"\0" * 600}.items():
        (tmp_path / f"{name}.mat").write_bytes(content)
        with pytest.raises(InputError, match=r"7\.3"):
            read(tmp_path / f"{name}.mat")
    with pytest.raises(InputError, match="level 5"):
        read(saved(tmp_path / "c.mat", {"X": CELLS.astype(float)}, format="4"))
    with pytest.raises(InputError, match="complex"):
        read(saved(tmp_path / "d.mat", {"X": CELLS + 1j}))


def test_a_small_file_may_not_unpack_to_much(tmp_path):
    head = saved(tmp_path / "a.mat", {"X": CELLS}).read_bytes()[:128]
    packed = zlib.compress(b"\0" * (200 << 20), 9)
    path = tmp_path / "bomb.mat"
    path.write_bytes(head + struct.pack("<II", 15, len(packed)) + packed)
    with pytest.raises(InputError, match="unpacks to"):
        read(path)
    with pytest.raises(InputError, match="announces 40 rows"):
        read(tmp_path / "a.mat", limits=Limits(max_rows=10))


def test_an_element_that_announces_more_than_is_there_is_refused(tmp_path):
    content = saved(tmp_path / "a.mat", {"X": CELLS}).read_bytes()
    path = tmp_path / "short.mat"
    path.write_bytes(content[:132] + struct.pack("<I", 0xFFFFFFF0) + content[136:])
    with pytest.raises(InputError, match="ends early"):
        read(path)
