import gzip
import os
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.datasets import files as files_module
from felb.datasets import text as text_module
from felb.datasets.files import Table, read
from felb.errors import InputError, MissingExtraError
from felb.linalg import BinaryMatrix

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


KINDS = [".csv", ".tsv", ".dat", ".fimi", ".mtx", ".npz", ".npy", ".parquet", ".h5ad", ".felb"]
KINDS += [".csv.gz", ".tsv.gz", ".dat.gz", ".fimi.gz", ".mtx.gz"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threshold", [None, 0.5])
def test_round_trip(kind, threshold, tmp_path):
    path, named = write_as(kind, tmp_path)
    for given_path in (path, str(path)):
        table = read(given_path, binarize_threshold=threshold)
        assert isinstance(table, Table)
        assert table.clients is None
        np.testing.assert_array_equal(table.matrix.toarray(), DENSE)
        if named:
            assert table.matrix.columns == NAMES


@pytest.mark.parametrize("kind", KINDS)
def test_suffix_in_capitals(kind, tmp_path):
    path, _ = write_as(kind, tmp_path)
    loud = path.rename(tmp_path / f"data{kind.upper()}")
    np.testing.assert_array_equal(read(loud).matrix.toarray(), DENSE)


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_an_input_error_that_names_the_file(kind, tmp_path):
    path, _ = write_as(kind, tmp_path)
    content = path.read_bytes()
    broken = tmp_path / f"broken{kind}"
    cuts = [0, 1, 6, 20, len(content) // 3, len(content) // 2, len(content) - 9, len(content) - 2]
    if kind in (".csv", ".tsv", ".dat", ".fimi"):
        cuts = [0]  # fewer lines are a smaller file
    for part in cuts:
        broken.write_bytes(content[:part])
        with pytest.raises(InputError, match="broken"):
            read(broken)
    for garbage in (b"\0" * 500, b"\xff\xfe\x00" * 99, bytes(range(256)), b"PK\x03\x04" + b"x" * 99):
        broken.write_bytes(garbage)
        with pytest.raises(InputError, match="broken"):
            read(broken)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (".parquet", ".h5ad")])
def test_flipped_bytes_never_escape(kind, tmp_path):
    path, _ = write_as(kind, tmp_path)
    content = path.read_bytes()
    rng = np.random.default_rng(11)
    broken = tmp_path / f"broken{kind}"
    for position in rng.integers(len(content), size=12):
        changed = bytearray(content)
        changed[position] ^= int(rng.integers(1, 256))
        broken.write_bytes(changed)
        try:
            read(broken)
        except InputError as error:
            assert "broken" in str(error)  # noqa: PT017  # the file may also still be readable


@pytest.mark.parametrize("kind", KINDS)
def test_empty_missing_and_folder(kind, tmp_path):
    path = tmp_path / f"x{kind}"
    with pytest.raises(InputError, match=r"x\.[a-z0-9.]+: cannot be read: No such file or directory; check the path"):
        read(path)
    path.touch()
    with pytest.raises(InputError, match=r"x.*: the file is empty"):
        read(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"x.*: is a folder; name a file in it"):
        read(path)


def test_forbidden_file(tmp_path, monkeypatch):
    path, _ = write_as(".csv", tmp_path)

    def forbidden(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", forbidden)
    with pytest.raises(InputError, match=r"data\.csv: cannot be read: Permission denied"):
        read(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything")
def test_forbidden_file_for_real(tmp_path):
    path, _ = write_as(".npz", tmp_path)
    path.chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        read(path)


@pytest.mark.parametrize(
    "name", ["data.xlsx", "data", "data.gz", "data.npz.gz", "data.csv.bz2", ".csv", "data.parquet.gz"]
)
def test_unknown_suffix(name, tmp_path):
    write(tmp_path / name, "1,0\n")
    with pytest.raises(InputError, match=r"unknown file type '.*'; felb reads \.csv, \.tsv, .*\.felb, .*\.csv\.gz"):
        read(tmp_path / name)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith((".csv", ".tsv", ".parquet", ".h5ad"))])
def test_client_column_where_there_is_none(kind, tmp_path):
    path, _ = write_as(kind, tmp_path)
    with pytest.raises(InputError, match=r"data.*: client_column= works for \.csv, \.tsv, \.parquet, \.h5ad"):
        read(path, client_column="site")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith((".csv", ".tsv"))])
def test_header_where_there_is_none(kind, tmp_path):
    path, _ = write_as(kind, tmp_path)
    with pytest.raises(InputError, match=r"header= works for \.csv, \.tsv"):
        read(path, header=True)


@pytest.mark.parametrize("threshold", [np.nan, "x"])
def test_bad_threshold(threshold, tmp_path):
    path, _ = write_as(".csv", tmp_path)
    with pytest.raises(InputError, match="not a finite number"):
        read(path, binarize_threshold=threshold)


@pytest.mark.parametrize("kind", [".dat", ".felb", ".mtx"])
def test_threshold_that_makes_no_sense(kind, tmp_path):
    path, _ = write_as(kind, tmp_path)
    with pytest.raises(InputError, match="binarize_threshold=-1"):
        read(path, binarize_threshold=-1)


# -- CSV and TSV -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
@pytest.mark.parametrize("position", [0, 3, 7])
@pytest.mark.parametrize("cells", [1, 20, 1 << 22])
def test_client_column(suffix, position, cells, tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "BLOCK_CELLS", cells)
    rows = [[*NAMES[:position], "site", *NAMES[position:]]]
    rows += [[*row[:position], site, *row[position:]] for row, site in zip(DENSE.tolist(), SITES, strict=True)]
    path = write(tmp_path / f"t{suffix}", separated(rows, "\t" if suffix == ".tsv" else ","))
    table = read(path, client_column="site")
    assert table.clients == SITES
    assert table.matrix.columns == NAMES
    np.testing.assert_array_equal(table.matrix.toarray(), DENSE)


def test_unknown_client_column(tmp_path):
    path, _ = write_as(".csv", tmp_path)
    with pytest.raises(InputError, match=r"data\.csv: there is no column 'hospital' .*; there are 'gene 0', 'gene 1'"):
        read(path, client_column="hospital")
    wide = write(tmp_path / "w.csv", separated([[f"c{i}" for i in range(500)], [0] * 500]))
    with pytest.raises(InputError, match=r"'c9' and 490 more$"):
        read(wide, client_column="hospital")


def test_client_column_needs_names_and_labels(tmp_path):
    with pytest.raises(InputError, match="needs column names, but the file has no header line"):
        read(write(tmp_path / "a.csv", "0,1\n1,0\n"), client_column="site")
    with pytest.raises(InputError, match="line 3 has no client in column 'site'; fill it"):
        read(write(tmp_path / "b.csv", "a,site\n0,x\n1, \n"), client_column="site")
    with pytest.raises(InputError, match="no columns besides the client column"):
        read(write(tmp_path / "c.csv", "site\nx\n"), client_column="site")


@pytest.mark.parametrize(
    ("content", "columns", "expected"),
    [
        ("0,1\n1,0\n", None, [[0, 1], [1, 0]]),
        ("0,1\n1,0", None, [[0, 1], [1, 0]]),
        ("a,b\n1,0\n", ("a", "b"), [[1, 0]]),
        ("a,1\n1,0\n", ("a", "1"), [[1, 0]]),
        (",1\n1,0\n", ("", "1"), [[1, 0]]),
        ("1.0,0.0\n1e0,-0\n", None, [[1, 0], [1, 0]]),
        (" 1 , 0\n1,0 \n", None, [[1, 0], [1, 0]]),
        ("True,False\nTRUE,false\n", None, [[1, 0], [1, 0]]),
        ("a\n1\n0\n", ("a",), [[1], [0]]),
        ("1\n", None, [[1]]),
        ("a,b\r\n1,0\r\n0,1\r\n", ("a", "b"), [[1, 0], [0, 1]]),
        ("a,b\r1,0\r0,1", ("a", "b"), [[1, 0], [0, 1]]),
        ("\ufeffa,b\n1,0\n", ("a", "b"), [[1, 0]]),
        ("\ufeff1,0\n", None, [[1, 0]]),
        ('"a, or b","c ""d"""\n"1",0\n', ("a, or b", 'c "d"'), [[1, 0]]),
        ('"two\nlines",b\n1,0\n', ("two\nlines", "b"), [[1, 0]]),
        ("a , b\n1,0\n\n\n  \n", ("a", "b"), [[1, 0]]),
        ("größe,名\n1,0\n", ("größe", "名"), [[1, 0]]),
    ],
)
def test_csv_spellings(content, columns, expected, tmp_path):
    for suffix in (".csv", ".csv.gz"):
        matrix = read(write(tmp_path / f"s{suffix}", content)).matrix
        assert matrix.columns == columns
        assert matrix.toarray().astype(int).tolist() == expected


def test_header_can_be_told(tmp_path):
    numbers = write(tmp_path / "n.csv", "0,1\n1,0\n")
    assert read(numbers, header=True).matrix.columns == ("0", "1")
    assert read(numbers, header=True).matrix.shape == (1, 2)
    assert read(numbers, header=False).matrix.shape == (2, 2)
    with pytest.raises(InputError, match=r"row 0 \(line 1\), column 1 holds 2; .*; pass header=True if"):
        read(write(tmp_path / "m.csv", "0,2\n1,0\n"))
    with pytest.raises(InputError, match=r"row 0 \(line 1\), column 0 holds 'a', which is not a number"):
        read(write(tmp_path / "h.csv", "a,b\n1,0\n"), header=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n\n", "the file is empty; it needs one line per record"),
        ("\ufeff", "the file is empty"),
        ("a,b\n", "holds no rows, only column names"),
        ("a,b\n\n", "holds no rows, only column names"),
        ("a,b\n1,0\n1\n", "line 3 has 1 cells, but 2 were expected"),
        ("a,b\n1,0\n1,0,1\n", "line 3 has 3 cells, but 2 were expected"),
        ("a,b\r\n1,0\r\n1\r\n", "line 3 has 1 cells"),
        ('"a\n\n",b\n1,0\n1\n', "line 5 has 1 cells"),
        ("a,b\n1,0\n\n1,1\n", "line 3 is empty, but more lines follow"),
        ("a,b\n1,0\n0,0.5\n", r"row 1 \(line 3\), column 1 \('b'\) holds 0\.5; pass binarize_threshold="),
        ("a,b\n1,0\n0,2\n", r"row 1 \(line 3\), column 1 \('b'\) holds 2; pass"),
        ("a,b\n1,0\n-1,0\n", r"row 1 \(line 3\), column 0 \('a'\) holds -1; pass"),
        ('"a\nx",b\n1,0\n0,inf\n', r"row 1 \(line 4\), column 1 \('b'\) holds inf; pass"),
        ("1,0\n0,0.5\n", r"row 1 \(line 2\), column 1 holds 0\.5; pass"),
        ("a,b\n1,\n", r"row 0 \(line 2\), column 1 \('b'\) is missing .*drop or fill it"),
        ("1,NaN\n", r"row 0 \(line 1\), column 1 is missing"),
        ("1,NA\n", r"row 0 \(line 1\), column 1 is missing"),
        ("a,b\n1,?\n", r"column 1 \('b'\) is missing"),
        ("a,b\n1,x\n", r"row 0 \(line 2\), column 1 \('b'\) holds 'x', which is not a number"),
        ("a,b\n1,1_0\n", r"holds '1_0', which is not a number"),
        ("a;b\n1;0\n", r"holds '1;0', which is not a number; .*; \.csv files are separated by commas"),
        ("a,a\n1,0\n", "line 1, taken as column names: column name 'a' occurs more than once.*header=False"),
        ('a,b\n1,"0\n', "line 2 cannot be split into cells"),
        ('a,b\n"1"x,0\n', "line 2 cannot be split into cells"),
        (f"a,b\n1,{'x' * 200_000}\n", "line 2 cannot be split into cells .*field larger"),
        (f"a,b\n1,{'x' * 2000}\n", r"holds 'x{60}\.\.\.'"),
        (b"a,\xff\n1,0\n", "not UTF-8 text .*save it in the encoding UTF-8"),
        ("a,b\n1,0\n".encode("utf-16"), "not UTF-8 text"),
    ],
)
def test_csv_refused(content, message, tmp_path):
    for suffix in (".csv", ".csv.gz"):
        path = write(tmp_path / f"bad{suffix}", content)
        with pytest.raises(InputError, match=message) as error:
            read(path)
        assert str(error.value).startswith(f"{path}: ")


def test_column_numbers_are_those_of_the_matrix(tmp_path):
    path = write(tmp_path / "c.csv", "site,a,b\nx,0,1\ny,0,7\n")
    with pytest.raises(InputError, match=r"row 1 \(line 3\), column 1 \('b'\) holds 7"):
        read(path, client_column="site")


def test_csv_threshold(tmp_path):
    values = np.random.default_rng(5).normal(size=(40, 6))
    path = write(tmp_path / "v.csv", separated(values.tolist()))
    for threshold in (-1.0, 0.0, 0.3):
        expected = values > threshold
        np.testing.assert_array_equal(read(path, binarize_threshold=threshold).matrix.toarray(), expected)
    with pytest.raises(InputError, match=r"row 0 \(line 2\), column 0 \('a'\) is missing"):
        read(write(tmp_path / "n.csv", "a\nnan\n"), binarize_threshold=0)


def test_the_memory_of_spellings_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "REMEMBERED_CELLS", 3)
    values = np.random.default_rng(5).random((20, 5))
    path = write(tmp_path / "v.csv", separated(values.tolist()))
    np.testing.assert_array_equal(read(path, binarize_threshold=0.5).matrix.toarray(), values > 0.5)


def test_csv_written_by_pandas(tmp_path):
    frame("bool").to_csv(tmp_path / "p.csv", index=False)
    np.testing.assert_array_equal(read(tmp_path / "p.csv").matrix.toarray(), DENSE)
    frame().to_csv(tmp_path / "i.csv")
    with pytest.raises(InputError, match=r"row 2 \(line 4\), column 0 \(''\) holds 2"):
        read(tmp_path / "i.csv")
    clients = read(tmp_path / "i.csv", client_column="").clients  # even the row labels may say who a row is from
    assert clients == tuple(str(i) for i in range(30))


label = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).map(str.strip).filter(bool)
word = label.filter(lambda text: text_module._is_name(text))


@settings(max_examples=60, deadline=None)
@given(
    dense=hnp.arrays(bool, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=6)),
    data=st.data(),
    end=st.sampled_from(["\n", "\r\n"]),
    suffix=st.sampled_from([".csv", ".tsv", ".csv.gz"]),
    bom=st.booleans(),
)
def test_csv_round_trip_of_anything(tmp_path_factory, dense, data, end, suffix, bom):
    n, m = dense.shape
    names = data.draw(st.lists(word, min_size=m + 1, max_size=m + 1, unique=True))
    clients = data.draw(st.lists(label, min_size=n, max_size=n))
    spelling = data.draw(st.sampled_from([("0", "1"), ("0.0", "1.0"), ("False", "True"), ('"0"', '"1"')]))
    quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names]
    rows = [quoted]
    for row, client in zip(dense, clients, strict=True):
        rows.append([f'"{client.replace(chr(34), chr(34) * 2)}"', *(spelling[int(cell)] for cell in row)])
    text = ("\ufeff" if bom else "") + separated(rows, "\t" if suffix == ".tsv" else ",", end)
    table = read(write(tmp_path_factory.mktemp("csv") / f"h{suffix}", text), client_column=names[0])
    np.testing.assert_array_equal(table.matrix.toarray(), dense)
    assert table.matrix.columns == tuple(names[1:])
    assert table.clients == tuple(clients)


# -- item lists ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "columns", "rows"),
    [
        ("1 2\n3\n", ("1", "2", "3"), [[1, 1, 0], [0, 0, 1]]),
        ("1 2\n3", ("1", "2", "3"), [[1, 1, 0], [0, 0, 1]]),
        ("10 9 10 9\n100\n", ("9", "10", "100"), [[1, 1, 0], [0, 0, 1]]),
        ("\n5\n\n", ("5",), [[0], [1], [0]]),
        ("5 \r\n\r\n 5\t6 \r\n", ("5", "6"), [[1, 0], [0, 0], [1, 1]]),
        ("\ufeff7\n", ("7",), [[1]]),
        ("-3 2\n", ("-3", "2"), [[1, 1]]),
        ("007 7\n", ("7",), [[1]]),
        ("9223372036854775807 0\n", ("0", "9223372036854775807"), [[1, 1]]),
        ("4", ("4",), [[1]]),
    ],
)
@pytest.mark.parametrize("block", [1, 4, 1 << 22])
def test_items(content, columns, rows, block, tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "BLOCK_BYTES", block)
    matrix = read(write(tmp_path / "t.dat", content)).matrix
    assert matrix.columns == columns
    assert matrix.toarray().astype(int).tolist() == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n\n", "holds no items"),
        ("1 2\n3 x\n", "line 2 holds 'x'; items must be integers separated by blanks"),
        ("1\n\n2.5\n", r"line 3 holds '2\.5'"),
        ("1,2\n", "line 1 holds '1,2'"),
        ("1\n1_0\n", "line 2 holds '1_0'"),
        ("1\n2 1-2\n", "line 2 holds '1-2'"),
        ("1\n-\n", "line 2 holds '-'"),
        ("1\n99999999999999999999\n", "line 2 holds '99999999999999999999'"),
        (b"1\n\xff\n", "line 2 holds"),
        (b"1\n2\x003\n", "line 2 holds"),
        ("1\n" + "9" * 5000 + "\n", "line 2 holds '9{60}'"),
    ],
)
@pytest.mark.parametrize("block", [2, 1 << 22])
def test_items_refused(content, message, block, tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "BLOCK_BYTES", block)
    with pytest.raises(InputError, match=rf"t\.fimi: .*{message}"):
        read(write(tmp_path / "t.fimi", content))


@settings(max_examples=60, deadline=None)
@given(
    transactions=st.lists(st.lists(st.integers(0, 10**6), max_size=6), min_size=1, max_size=12).filter(any),
    blank=st.sampled_from([" ", "\t", "  "]),
    end=st.sampled_from(["\n", "\r\n", " \n"]),
    block=st.sampled_from([1, 5, 1 << 22]),
    suffix=st.sampled_from([".dat", ".fimi.gz"]),
)
def test_items_round_trip(tmp_path_factory, transactions, blank, end, block, suffix):
    path = write(tmp_path_factory.mktemp("fimi") / f"h{suffix}", separated(transactions, blank, end))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "BLOCK_BYTES", block)
        assert read(path).matrix == BinaryMatrix.from_transactions(transactions)


def test_sparse_items_are_not_densified(tmp_path):
    path = write(tmp_path / "wide.dat", "".join(f"{i} {10**12 + i}\n" for i in range(70_000)))
    matrix = read(path).matrix
    assert matrix.shape == (70_000, 140_000)
    assert matrix.nnz == 140_000
    assert matrix.columns[-1] == str(10**12 + 69_999)


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
    with pytest.raises(InputError, match=r"v1\.2\.npz: column names in v1\.2\.columns\.txt: .*'same' occurs more"):
        read(tmp_path / "v1.2.npz")
    write(beside, b"\xff\n" * 7)
    with pytest.raises(InputError, match=r"column names in v1\.2\.columns\.txt: .*mend that file"):
        read(tmp_path / "v1.2.npz")


def test_npz_values_are_checked(tmp_path):
    sp.save_npz(tmp_path / "c.npz", sp.csr_array(DENSE * 3))
    write(tmp_path / "c.columns.txt", "\n".join(NAMES))
    with pytest.raises(InputError, match=r"c\.npz: row 0, column 0 \('gene 0'\) holds 3; pass binarize_threshold="):
        read(tmp_path / "c.npz")
    np.testing.assert_array_equal(read(tmp_path / "c.npz", binarize_threshold=2).matrix.toarray(), DENSE)


def test_npz_of_dense_arrays(tmp_path):
    np.savez(tmp_path / "d.npz", X=DENSE, y=DENSE)
    with pytest.raises(InputError, match=r"d\.npz: the file holds X, y, but no SciPy sparse matrix; .*save_npz"):
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
    with pytest.raises(InputError, match=r"a\.npy: the file holds pickled objects, which felb does not load"):
        read(tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", format=bomb, data=bomb)
    with pytest.raises(InputError, match=r"b\.npz: the file holds pickled objects"):
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
    with pytest.raises(InputError, match=r"a\.npy: expected 2D data .* got 1D"):
        read(path)
    np.save(path, np.zeros((0, 5)))
    with pytest.raises(InputError, match=r"a\.npy: the file holds no data: 0 rows and 5 columns"):
        read(path)
    np.save(path, np.array([[0, 1], [np.nan, 0]]))
    with pytest.raises(InputError, match=r"a\.npy: row 1, column 0 is missing"):
        read(path)
    np.save(path, np.array([["0", "x"]]))
    with pytest.raises(InputError, match=r"a\.npy: row 0, column 1 holds 'x', which is not a number"):
        read(path)
    with path.open("wb") as file:
        np.savez(file, DENSE)
    with pytest.raises(InputError, match=r"a\.npy: the file is no NumPy array"):
        read(path)


# -- Parquet ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32", "Int64", "boolean", "category"])
@pytest.mark.parametrize("cells", [1, 50, 1 << 22])
def test_parquet_types(dtype, cells, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(files_module, "BATCH_CELLS", cells)
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
    with pytest.raises(InputError, match=r"p\.parquet: there is no column 'site' .* there are 'gene 0'"):
        read(path, client_column="site")
    frame().assign(site=[None, *SITES[1:]]).to_parquet(path)
    with pytest.raises(InputError, match=r"p\.parquet: row 0 has no client"):
        read(path, client_column="site")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([0, 1, 2, 0], r"row 2, column 1 \('b'\) holds 2; pass binarize_threshold="),
        ([0, 1, None, 0], r"row 2, column 1 \('b'\) is missing"),
        ([True, None, False, True], r"row 1, column 1 \('b'\) is missing"),
        (["0", "1", "0", "yes"], r"row 3, column 1 \('b'\) holds 'yes', which is not a number"),
        ([[0], [1], [0], [1]], r"row 0, column 1 \('b'\) holds .*, which is not a number"),
    ],
)
@pytest.mark.parametrize("cells", [1, 1 << 22])
def test_parquet_values(column, message, cells, tmp_path, monkeypatch):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(files_module, "BATCH_CELLS", cells)
    pq.write_table(pa.table({"a": [0, 0, 0, 0], "b": column}), tmp_path / "v.parquet")
    with pytest.raises(InputError, match=rf"v\.parquet: {message}"):
        read(tmp_path / "v.parquet")


def test_parquet_without_rows_or_features(tmp_path):
    pytest.importorskip("pyarrow")
    frame().iloc[:0].to_parquet(tmp_path / "n.parquet")
    with pytest.raises(InputError, match=r"n\.parquet: the file holds no data: 0 rows and 7 columns"):
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
    with pytest.raises(InputError, match=r"a\.h5ad: row 0, column 0 \('gene 0'\) holds 4\.0; pass binarize_threshold="):
        read(path)
    path.unlink()  # nothing keeps it open


def test_h5ad_clients_refused(tmp_path):
    path = tmp_path / "a.h5ad"
    values = sp.csr_matrix(DENSE.astype(np.float32))
    anndata_of(values, donor=SITES).write_h5ad(path)
    with pytest.raises(InputError, match=r"a\.h5ad: there is no column 'site' .* there are 'donor'$"):
        read(path, client_column="site")
    anndata_of(values).write_h5ad(path)
    with pytest.raises(InputError, match=r"there are none$"):
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


# -- felb, and what is not installed ---------------------------------------------------------------------------


def test_felb_is_mapped(tmp_path):
    path, _ = write_as(".felb", tmp_path)
    assert not read(path).matrix.indices.flags.writeable
    BinaryMatrix.of(np.zeros((0, 3))).save(path)
    with pytest.raises(InputError, match=r"data\.felb: the file holds no data: 0 rows and 3 columns"):
        read(path)
    path.write_bytes(b"something else")
    with pytest.raises(InputError) as error:
        read(path)
    assert str(error.value) == f"{path} is not a felb matrix; write one with BinaryMatrix.save()"


@pytest.mark.parametrize(
    ("kind", "package", "extra"), [(".parquet", "pyarrow", "parquet"), (".h5ad", "anndata", "anndata")]
)
def test_missing_package_names_the_extra(kind, package, extra, tmp_path, monkeypatch):
    path, _ = write_as(kind, tmp_path)
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"reading {kind} files needs .* pip install 'felb\[{extra}\]'"):
        read(path)


def test_table_is_frozen(tmp_path):
    path, _ = write_as(".csv", tmp_path)
    table = read(path)
    with pytest.raises(AttributeError):
        table.matrix = None
