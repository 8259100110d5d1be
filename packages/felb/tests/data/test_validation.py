"""What would make a compiled kernel read outside of its arrays is refused at the edge, whatever brings it."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.data import BinaryMatrix, read
from felb.data.binary import CHUNK, check_disjoint, is_canonical
from felb.errors import InputError

DENSE = np.random.default_rng(3).random((9, 6)) < 0.4


def broken(kind, **parts):
    """Return a SciPy matrix whose arrays were replaced behind its back."""
    matrix = sp.csr_array(DENSE.astype(np.int8)).asformat(kind)
    for name, value in parts.items():
        setattr(matrix, name, np.asarray(value))
    return matrix


CASES = {
    "csc with a short indptr": broken("csc", indptr=[0, 1, 2]),
    "csr with a short indptr": broken("csr", indptr=[0, 1, 2]),
    "csr with a long indptr": broken("csr", indptr=np.arange(30)),
    "csr with a falling indptr": broken("csr", indptr=[0, 5, 3, 5, 6, 6, 6, 6, 6, 6]),
    "csr with indptr beyond the data": broken("csr", indptr=[0, 1, 1, 1, 1, 1, 1, 1, 1, 10**6]),
    "csr with a negative indptr": broken("csr", indptr=[-4, 1, 1, 1, 1, 1, 1, 1, 1, 2]),
    "csr with indptr of floats": broken("csr", indptr=np.linspace(0, 3, 10)),
    "csr with a column outside": broken("csr", indices=np.full(sp.csr_array(DENSE).nnz, 6)),
    "csr with a negative column": broken("csr", indices=np.full(sp.csr_array(DENSE).nnz, -1)),
    "csc with a row outside": broken("csc", indices=np.full(sp.csr_array(DENSE).nnz, 9)),
    "csr with too little data": broken("csr", data=np.ones(2, np.int8)),
    "coo with a row outside": broken("coo", row=np.full(sp.csr_array(DENSE).nnz, 10**9)),
    "coo with a column outside": broken("coo", col=np.full(sp.csr_array(DENSE).nnz, -3)),
    "bsr with a short indptr": broken("bsr", indptr=[0, 1]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_damaged_matrix_of_scipy_is_refused(case):
    with pytest.raises(InputError, match="damaged"):
        BinaryMatrix.of(CASES[case])


def test_order_is_looked_at_not_believed():
    matrix = sp.csr_array((np.ones(3, np.int8), [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    matrix.has_canonical_format = True
    assert BinaryMatrix.of(matrix) == BinaryMatrix.of([[1, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize(
    ("part", "value"),
    [("indptr", [0, 1, 2]), ("indices", [99] * 20), ("indptr", [0, 3, 1, 5, 5, 5, 5, 5, 5, 5])],
)
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_a_damaged_h5ad_is_refused(kind, part, value, tmp_path):
    anndata, h5py = pytest.importorskip("anndata"), pytest.importorskip("h5py")
    path = tmp_path / "d.h5ad"
    anndata.AnnData(sp.csr_matrix(DENSE.astype(np.float32)).asformat(kind)).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        del file["X"][part]
        file["X"][part] = np.asarray(value)
    with pytest.raises(InputError, match=r"d\.h5ad: "):
        read(path)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_every_format_of_an_npz_file_is_read(kind, tmp_path):
    sp.save_npz(tmp_path / "m.npz", sp.csr_matrix(DENSE.astype(np.int8)).asformat(kind))
    np.testing.assert_array_equal(read(tmp_path / "m.npz").matrix.toarray(), DENSE)


@pytest.mark.parametrize(
    ("kind", "part", "value"),
    [
        ("csr", "indptr", [0, 1, 2]),
        ("csr", "indices", [77] * 25),
        ("csc", "indptr", [0, 1, 2]),
        ("csc", "indices", [-1] * 25),
        ("coo", "row", [9] * 25),
        ("bsr", "indptr", [0, 500]),
        ("csr", "shape", [9]),
        ("csr", "shape", [9, -6]),
        ("coo", "shape", [10**9, 10**9]),
        ("csr", "format", b"xyz"),
    ],
)
def test_a_damaged_npz_is_refused(kind, part, value, tmp_path):
    sp.save_npz(tmp_path / "m.npz", sp.csr_matrix(DENSE.astype(np.int8)).asformat(kind))
    with np.load(tmp_path / "m.npz") as arrays:
        held = {name: arrays[name] for name in arrays.files}
    np.savez(tmp_path / "m.npz", **{**held, part: np.asarray(value)})
    with pytest.raises(InputError, match=r"m\.npz: "):
        read(tmp_path / "m.npz")


@given(cells=hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7)), data=st.data())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_changed_column_is_found_or_gives_a_valid_matrix(cells, data):
    """The slow twin: rows as Python sets."""
    matrix = BinaryMatrix.of(cells)
    indices = matrix.indices.astype(np.int64)
    for _ in range(2):
        if indices.size:
            indices[data.draw(st.integers(0, indices.size - 1))] = data.draw(st.integers(-1, cells.shape[1]))
    rows = [list(map(int, indices[a:b])) for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)]
    valid = all(row == sorted(set(row)) and all(0 <= c < cells.shape[1] for c in row) for row in rows)
    assert is_canonical(matrix.indptr, indices) == all(row == sorted(set(row)) for row in rows)
    try:
        BinaryMatrix(matrix.indptr, indices, cells.shape[1])
    except InputError:
        assert not valid
    else:
        assert valid


def test_order_is_checked_across_chunks():
    indptr, indices = np.array([0, CHUNK + 2]), np.arange(CHUNK + 2)
    BinaryMatrix(indptr, indices, CHUNK + 2)
    indices[CHUNK], indices[CHUNK - 1] = indices[CHUNK - 1], indices[CHUNK]
    with pytest.raises(InputError, match=rf"column {CHUNK - 1} .*{CHUNK}"):
        BinaryMatrix(indptr, indices, CHUNK + 2)


@given(cells=hnp.arrays(np.int8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.integers(0, 3)))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_cells_that_are_ones_and_unknown_are_counted(cells):
    a, b = BinaryMatrix.of(cells & 1), BinaryMatrix.of(cells >> 1)
    common = int((cells == 3).sum())
    if not common:
        check_disjoint(a, b)
        return
    with pytest.raises(InputError, match=rf"{common} cells .*unknown"):
        check_disjoint(a, b)
