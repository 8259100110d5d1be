"""Files of every format: what they have in common, and how they are refused."""

import os
import sys

import numpy as np
import pytest
from data_files import DENSE, KINDS, NAMES, write, write_as

from felb.data import BinaryMatrix
from felb.data.files import Table, read
from felb.errors import InputError, MissingExtraError


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
    if kind == ".mat":
        cuts = cuts[:-1]  # its last bytes only fill a word
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
    with pytest.raises(InputError, match=r"x\.[a-z0-9.]+: .*No such file or directory"):
        read(path)
    path.touch()
    with pytest.raises(InputError, match=r"x.*empty"):
        read(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"x.*: is a folder"):
        read(path)


def test_forbidden_file(tmp_path, monkeypatch):
    path, _ = write_as(".csv", tmp_path)

    def forbidden(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", forbidden)
    with pytest.raises(InputError, match=r"data\.csv: .*Permission denied"):
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
    with pytest.raises(InputError, match=r"'.*'; .*\.csv, \.tsv, .*\.felb, .*\.csv\.gz"):
        read(tmp_path / name)


@pytest.mark.parametrize("kind", [".dat.gz", ".npz", ".mat", ".felb"])
def test_client_column_where_there_is_none(kind, tmp_path):
    path, _ = write_as(kind, tmp_path)
    with pytest.raises(InputError, match=r"data.*: client_column .*\.csv, \.tsv, \.parquet, \.h5ad"):
        read(path, client_column="site")


@pytest.mark.parametrize("kind", [".dat", ".npy", ".parquet", ".h5ad"])
def test_header_where_there_is_none(kind, tmp_path):
    path, _ = write_as(kind, tmp_path)
    with pytest.raises(InputError, match=r"header .*\.csv, \.tsv"):
        read(path, header=True)


@pytest.mark.parametrize("threshold", [np.nan, "x"])
def test_bad_threshold(threshold, tmp_path):
    path, _ = write_as(".csv", tmp_path)
    with pytest.raises(InputError, match="finite"):
        read(path, binarize_threshold=threshold)


@pytest.mark.parametrize("kind", [".dat", ".felb", ".mtx"])
def test_threshold_that_makes_no_sense(kind, tmp_path):
    path, _ = write_as(kind, tmp_path)
    with pytest.raises(InputError, match="binarize_threshold=-1"):
        read(path, binarize_threshold=-1)


def test_felb_is_mapped(tmp_path):
    path, _ = write_as(".felb", tmp_path)
    assert not read(path).matrix.indices.flags.writeable
    BinaryMatrix.of(np.zeros((0, 3))).save(path)
    with pytest.raises(InputError, match=r"data\.felb: .*0 rows and 3 columns"):
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
    with pytest.raises(MissingExtraError, match=rf"{kind} .* pip install 'felb\[{extra}\]'"):
        read(path)


def test_table_is_frozen(tmp_path):
    path, _ = write_as(".csv", tmp_path)
    table = read(path)
    with pytest.raises(AttributeError):
        table.matrix = None
