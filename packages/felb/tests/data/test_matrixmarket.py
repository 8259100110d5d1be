import gzip

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.data import text as text_module
from felb.data.files import read
from felb.errors import InputError

COORDINATE = "%%MatrixMarket matrix coordinate integer general\n"
PATTERN = "%%MatrixMarket matrix coordinate pattern general\n"
ARRAY = "%%MatrixMarket matrix array real general\n"


@settings(max_examples=60, deadline=None)
@given(
    dense=hnp.arrays(
        np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=7), elements=st.integers(0, 1)
    ),
    form=st.sampled_from(["sparse", "dense", "pattern", "symmetric"]),
    block=st.sampled_from([1, 10, 1 << 22]),
    packed=st.booleans(),
)
def test_reads_what_scipy_writes(tmp_path_factory, dense, form, block, packed):
    folder = tmp_path_factory.mktemp("mtx")
    if form == "symmetric":
        side = min(dense.shape)
        dense = dense[:side, :side] | dense[:side, :side].T
    data = dense if form == "dense" else sp.coo_array(dense)
    field = "pattern" if form == "pattern" else None
    scipy.io.mmwrite(folder / "m.mtx", data, field=field, comment="first\nsecond")
    path = folder / "m.mtx"
    if packed:
        path = folder / "m.mtx.gz"
        path.write_bytes(gzip.compress((folder / "m.mtx").read_bytes()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "BLOCK_BYTES", block)
        np.testing.assert_array_equal(read(path).matrix.toarray(), dense)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (COORDINATE + "2 3 2\n1 3 1\n2 1 1\n", [[0, 0, 1], [1, 0, 0]]),
        (COORDINATE + "2 3 2\r\n1 3 1\r\n2 1 1", [[0, 0, 1], [1, 0, 0]]),
        (COORDINATE + "% a comment\n\n%\n2 3 2\n\n 1\t3 1 \n\n2 1 0\n\n", [[0, 0, 1], [0, 0, 0]]),
        (COORDINATE.upper().replace("MATRIXMARKET", "MatrixMarket") + "1 1 1\n1 1 1.0e0\n", [[1]]),
        (COORDINATE + "1 2 0\n", [[0, 0]]),
        (PATTERN + "2 2 3\n2 2\n1 1\n2 2\n", [[1, 0], [0, 1]]),
        (PATTERN.replace("general", "symmetric") + "2 2 2\n1 1\n2 1\n", [[1, 1], [1, 0]]),
        (ARRAY + "2 2\n1\n0\n0.0\n1.0\n", [[1, 0], [0, 1]]),
        (ARRAY + "2 3\n1\n1\n0\n0\n0\n1\n", [[1, 0, 0], [1, 0, 1]]),
        (ARRAY.replace("general", "symmetric") + "3 3\n0\n1\n0\n1\n0\n1\n", [[0, 1, 0], [1, 1, 0], [0, 0, 1]]),
    ],
)
@pytest.mark.parametrize("block", [1, 7, 1 << 22])
def test_spellings(content, expected, block, tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "BLOCK_BYTES", block)
    (tmp_path / "m.mtx").write_bytes(content.encode())
    matrix = read(tmp_path / "m.mtx").matrix
    assert matrix.toarray().astype(int).tolist() == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 2 3\n", "line 1 is not the banner"),
        ("%%MatrixMarket\n", "line 1 is not the banner"),
        ("%%MatrixMarket vector coordinate real general\n", "line 1 is not the banner"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", "line 1 announces complex values"),
        ("%%MatrixMarket matrix array pattern general\n1 1\n", "line 1 announces pattern values"),
        ("%%MatrixMarket matrix coordinate real hermitian\n1 1 1\n1 1 1\n", "line 1 announces a hermitian matrix"),
        ("%%MatrixMarket matrix coordinate real skew-symmetric\n1 1 0\n", "announces a skew-symmetric matrix"),
        (COORDINATE, "line 2 .*rows, columns and entries"),
        (COORDINATE + "%\n2 2\n", "line 3 .*rows, columns and entries"),
        (COORDINATE + "2 -2 1\n", "line 2 does not give"),
        (COORDINATE + "2 x 1\n", "line 2 does not give"),
        (COORDINATE + "1" * 30 + " 2 1\n", "line 2 does not give"),
        (ARRAY + "2 2 4\n", "line 2 .*rows and columns"),
        (PATTERN.replace("general", "symmetric") + "2 3 0\n", "2 rows and 3 columns for a symmetric matrix"),
        (COORDINATE + "2 2 2\n1 1 1\n", "incomplete: 1 entries instead of 2"),
        (ARRAY + "2 2\n1\n0\n1\n", "incomplete: 3 entries instead of 4"),
        (COORDINATE + "2 2 1\n1 1 1\n2 2 1\n", "line 4 .*1 entries"),
        (COORDINATE + "2 2 2\n1 1 1\n2 2\n", "line 4 holds '2 2'; expected row, column and value"),
        (PATTERN + "2 2 2\n1 1\n\n2 2 1\n", "line 5 holds '2 2 1'; expected row and column"),
        (ARRAY + "2 1\n1 0\n", "line 3 holds '1 0'; expected a value"),
        (COORDINATE + "2 2 1\n1 x 1\n", "line 3 holds '1 x 1'"),
        (COORDINATE + "2 2 1\n1 1 yes\n", "line 3 holds '1 1 yes'"),
        (COORDINATE + "2 2 1\n1 1_0 1\n", "line 3 holds '1 1_0 1'"),
        (COORDINATE + "2 2 1\n1.0 1 1\n", "line 3 holds '1.0 1 1'"),
        (COORDINATE + f"2 2 1\n1 {10**30} 1\n", "line 3 holds '1 1000"),
        (COORDINATE + "2 2 1\n3 1 1\n", "line 3 .*row 3 and column 1.*2 x 2"),
        (COORDINATE + "2 2 2\n1 1 1\n1 0 1\n", "line 4 names row 1 and column 0"),
        (COORDINATE + "2 2 2\n1 1 1\n2 1 5\n", r"row 1 \(line 4\), column 0 holds 5\.0; .*binarize_threshold"),
        (COORDINATE + "2 2 1\n2 1 nan\n", r"row 1 \(line 3\), column 0 is missing"),
        (ARRAY + "2 2\n0\n0\n0\n-1\n", r"row 1 \(line 6\), column 1 holds -1\.0"),
        (PATTERN + "0 5 0\n", "holds no data: 0 rows and 5 columns"),
        (PATTERN + f"5 {2**31} 0\n", "announces 2147483648 columns, and at most 1000000"),
        (PATTERN + f"{10**17} 5 0\n", "announces 100000000000000000 rows, and at most 10000000"),
    ],
)
@pytest.mark.parametrize("block", [1, 1 << 22])
def test_refused(content, message, block, tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "BLOCK_BYTES", block)
    path = tmp_path / "m.mtx"
    path.write_bytes(content.encode())
    with pytest.raises(InputError, match=message) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")


def test_threshold(tmp_path):
    values = np.array([[0, 3, 0.5], [1, 0, -2]])
    scipy.io.mmwrite(tmp_path / "s.mtx", sp.coo_array(values))
    scipy.io.mmwrite(tmp_path / "d.mtx", values)
    for name in ("s.mtx", "d.mtx"):
        for threshold in (0, 0.5, 1):
            matrix = read(tmp_path / name, binarize_threshold=threshold).matrix
            np.testing.assert_array_equal(matrix.toarray(), values > threshold)
    np.testing.assert_array_equal(read(tmp_path / "d.mtx", binarize_threshold=-1).matrix.toarray(), values > -1)
    with pytest.raises(InputError, match="binarize_threshold=-1"):
        read(tmp_path / "s.mtx", binarize_threshold=-1)
    (tmp_path / "p.mtx").write_text(PATTERN + "1 1 1\n1 1\n")
    assert read(tmp_path / "p.mtx", binarize_threshold=0).matrix.nnz == 1
    with pytest.raises(InputError, match="binarize_threshold=1"):
        read(tmp_path / "p.mtx", binarize_threshold=1)


def test_not_densified(tmp_path):
    size = 10**6
    (tmp_path / "big.mtx").write_text(PATTERN + f"{size} {size} 2\n1 {size}\n{size} 1\n")
    matrix = read(tmp_path / "big.mtx").matrix
    assert matrix.shape == (size, size)
    assert matrix.indices.tolist() == [size - 1, 0]
