"""Text: CSV, TSV and lists of items."""

import numpy as np
import pytest
from data_files import DENSE, NAMES, SITES, frame, separated, write, write_as
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.data import BinaryMatrix, readers
from felb.data.files import read
from felb.errors import InputError

# -- CSV and TSV -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 3, 7])
@pytest.mark.parametrize(("suffix", "cells"), [(".csv", 1), (".tsv", 20), (".csv.gz", 1 << 22)])
def test_client_column(suffix, position, cells, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "BLOCK_CELLS", cells)
    rows = [[*NAMES[:position], "site", *NAMES[position:]]]
    rows += [[*row[:position], site, *row[position:]] for row, site in zip(DENSE.tolist(), SITES, strict=True)]
    path = write(tmp_path / f"t{suffix}", separated(rows, "\t" if suffix == ".tsv" else ","))
    table = read(path, client_column="site")
    assert table.clients == SITES
    assert table.matrix.columns == NAMES
    np.testing.assert_array_equal(table.matrix.toarray(), DENSE)


def test_unknown_client_column(tmp_path):
    path, _ = write_as(".csv", tmp_path)
    with pytest.raises(InputError, match=r"data\.csv: client_column='hospital'.* 'gene 0', 'gene 1'"):
        read(path, client_column="hospital")
    wide = write(tmp_path / "w.csv", separated([[f"c{i}" for i in range(500)], [0] * 500]))
    with pytest.raises(InputError, match=r"'c9' and 490 more$"):
        read(wide, client_column="hospital")


def test_client_column_needs_names_and_labels(tmp_path):
    with pytest.raises(InputError, match="no header"):
        read(write(tmp_path / "a.csv", "0,1\n1,0\n"), client_column="site")
    with pytest.raises(InputError, match=r"line 3 .*'site'"):
        read(write(tmp_path / "b.csv", "a,site\n0,x\n1, \n"), client_column="site")
    with pytest.raises(InputError, match="client column"):
        read(write(tmp_path / "c.csv", "site\nx\n"), client_column="site")


@pytest.mark.parametrize(
    ("content", "columns", "expected"),
    [
        ("0,1\n1,0\n", None, [[0, 1], [1, 0]]),
        ("0,1\n1,0", None, [[0, 1], [1, 0]]),
        ("a,b\n1,0\n", ("a", "b"), [[1, 0]]),
        ("a,1\n1,0\n", ("a", "1"), [[1, 0]]),
        (",1\n1,0\n", ("1",), [[0]]),
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
    with pytest.raises(InputError, match=r"line 1, column 2 holds 2; .* header"):
        read(write(tmp_path / "m.csv", "0,2\n1,0\n"))
    with pytest.raises(InputError, match=r"line 1, column 1 holds 'a'"):
        read(write(tmp_path / "h.csv", "a,b\n1,0\n"), header=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n\n", "empty"),
        ("\ufeff", "the file is empty"),
        ("a,b\n", "no rows"),
        ("a,b\n\n", "no rows"),
        ("a,b\n1,0\n1\n", "line 3 has 1 cells.* 2 "),
        ("a,b\n1,0\n1,0,1\n", "line 3 has 3 cells.* 2 "),
        ("a,b\r\n1,0\r\n1\r\n", "line 3 has 1 cells"),
        ('"a\n\n",b\n1,0\n1\n', "line 5 has 1 cells"),
        ("a,b\n1,0\n\n1,1\n", "line 3 is empty"),
        ("a,b\n1,0\n0,0.5\n", r"line 3, column 2 \('b'\) holds 0\.5; .*binarize_threshold"),
        ("a,b\n1,0\n0,2\n", r"line 3, column 2 \('b'\) holds 2; .*binarize_threshold"),
        ("a,b\n1,0\n-1,0\n", r"line 3, column 1 \('a'\) holds -1; .*binarize_threshold"),
        ('"a\nx",b\n1,0\n0,inf\n', r"line 4, column 2 \('b'\) is infinite"),
        ("1,0\n0,0.5\n", r"line 2, column 2 holds 0\.5; .*binarize_threshold"),
        ("a,b\n1,\n", r"line 2, column 2 \('b'\) is missing"),
        ("1,NaN\n", r"line 1, column 2 is missing"),
        ("1,NA\n", r"line 1, column 2 is missing"),
        ("a,b\n1,?\n", r"column 2 \('b'\) is missing"),
        ("a,b\n1,x\n", r"line 2, column 2 \('b'\) holds 'x'"),
        ("a,b\n1,1_0\n", r"holds '1_0'"),
        ("a,a\n1,0\n", "line 1.* column name 'a' occurs more than once.*header"),
        ('a,b\n1,"0\n', "line 2 cannot be split into cells"),
        ('a,b\n"1"x,0\n', "line 2 cannot be split into cells"),
        (f"a,b\n1,{'x' * 200_000}\n", "line 2 cannot be split into cells .*field larger"),
        (f"a,b\n1,{'x' * 2000}\n", r"holds 'x{60}\.\.\.'"),
        (b"a,\xff\n1,0\n", "UTF-8"),
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
    with pytest.raises(InputError, match=r"line 3, column 2 \('b'\) holds 7"):
        read(path, client_column="site")


def test_csv_threshold(tmp_path):
    values = np.random.default_rng(5).normal(size=(40, 6))
    path = write(tmp_path / "v.csv", separated(values.tolist()))
    for threshold in (-1.0, 0.0, 0.3):
        expected = values > threshold
        np.testing.assert_array_equal(read(path, binarize_threshold=threshold).matrix.toarray(), expected)
    with pytest.raises(InputError, match=r"line 2, column 1 \('a'\) is missing"):
        read(write(tmp_path / "n.csv", "a\nnan\n"), binarize_threshold=0)


def test_the_memory_of_spellings_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "REMEMBERED_CELLS", 3)
    values = np.random.default_rng(5).random((20, 5))
    path = write(tmp_path / "v.csv", separated(values.tolist()))
    np.testing.assert_array_equal(read(path, binarize_threshold=0.5).matrix.toarray(), values > 0.5)


def test_csv_written_by_pandas(tmp_path):
    frame("bool").to_csv(tmp_path / "p.csv", index=False)
    np.testing.assert_array_equal(read(tmp_path / "p.csv").matrix.toarray(), DENSE)
    frame().to_csv(tmp_path / "i.csv")
    assert read(tmp_path / "i.csv").rows == tuple(str(i) for i in range(len(DENSE)))
    np.testing.assert_array_equal(read(tmp_path / "i.csv").matrix.toarray(), DENSE)
    clients = read(tmp_path / "i.csv", client_column="").clients  # even the row labels may say who a row is from
    assert clients == tuple(str(i) for i in range(30))


label = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).map(str.strip).filter(bool)
word = label.filter(lambda text: readers._is_name(text))


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
@pytest.mark.parametrize("block", [4, 1 << 22])
def test_items(content, columns, rows, block, tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "BLOCK_BYTES", block)
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
    monkeypatch.setattr(readers, "BLOCK_BYTES", block)
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
        patch.setattr(readers, "BLOCK_BYTES", block)
        assert read(path).matrix == BinaryMatrix.from_transactions(transactions)


def test_sparse_items_are_not_densified(tmp_path):
    path = write(tmp_path / "wide.dat", "".join(f"{i} {10**12 + i}\n" for i in range(70_000)))
    matrix = read(path).matrix
    assert matrix.shape == (70_000, 140_000)
    assert matrix.nnz == 140_000
    assert matrix.columns[-1] == str(10**12 + 69_999)


@pytest.mark.parametrize("word", ["inf", "-Infinity", "1e999"])
def test_an_infinite_cell_is_refused_with_a_threshold_too(word, tmp_path):
    (tmp_path / "a.csv").write_text(f"1,0\n{word},1\n")
    for threshold in (None, 0.5):
        with pytest.raises(InputError, match=r"line 2, column 1 is infinite"):
            read(tmp_path / "a.csv", binarize_threshold=threshold)


def test_separators_of_other_programs_are_detected(tmp_path):
    for mark in (";", "\t", "|"):
        path = write(tmp_path / "other.csv", mark.join("ab") + "\n" + mark.join("10") + "\n")
        assert read(path).matrix.toarray().tolist() == [[True, False]]


def test_a_first_column_without_a_name_names_the_rows(tmp_path):
    table = read(write(tmp_path / "pandas.csv", ",a,b\nx,1,0\ny,0,1\n"))
    assert table.rows == ("x", "y")
    assert table.matrix.columns == ("a", "b")
