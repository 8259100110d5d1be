"""A converted file holds what reading it gives, is written without ever being held, or is not there at all."""

import gzip
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from data_files import DENSE, KINDS, NAMES, SITES, anndata_of, separated, write, write_as
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import felb
from felb.data import BinaryMatrix, coercion, convert, partition, planted, read, readers
from felb.data.partition import split
from felb.errors import InputError


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that the little files of the tests have many."""
    monkeypatch.setattr(readers, "BLOCK_CELLS", 3 * 7)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 40)
    monkeypatch.setattr(readers, "BATCH_CELLS", 4 * 7)
    monkeypatch.setattr(coercion, "SPARSE_BLOCK_ENTRIES", 11)
    monkeypatch.setattr(coercion, "DENSE_BLOCK_CELLS", 2 * 7)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


# -- converted == read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", ["one block", "many blocks"])
def test_converting_is_reading(kind, blocks, tmp_path, request):
    source, _ = write_as(kind, tmp_path)
    expected = read(source).matrix
    if blocks == "many blocks":
        request.getfixturevalue("small_blocks")
    assert read(source).matrix == expected
    rows = []
    table = convert(source, tmp_path / "t.felb", on_rows=rows.append)
    assert table.matrix == expected
    assert table.clients is None
    assert table.matrix.fingerprint() == expected.fingerprint()
    assert rows == sorted(rows)
    assert rows[-1] == 30
    np.testing.assert_array_equal(read(tmp_path / "t.felb").matrix.toarray(), DENSE)
    expected.save(tmp_path / "saved.felb")
    assert (tmp_path / "t.felb").read_bytes() == (tmp_path / "saved.felb").read_bytes()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", [".csv", ".tsv.gz", ".parquet", ".h5ad"])
def test_clients_come_with_the_converted_rows(kind, tmp_path):
    path = tmp_path / f"data{kind}"
    if kind == ".parquet":
        pytest.importorskip("pyarrow")
        pd.DataFrame(DENSE, columns=list(NAMES)).assign(site=SITES).to_parquet(path)
    elif kind == ".h5ad":
        anndata_of(sp.csr_matrix(DENSE.astype(np.float32)), site=list(SITES)).write_h5ad(path)
    else:
        rows = [[*row, site] for row, site in zip(DENSE, SITES, strict=True)]
        write(path, separated([[*NAMES, "site"], *rows], "," if kind == ".csv" else "\t"))
    table = convert(path, tmp_path / "t.felb", client_column="site")
    assert table == replace(read(path, client_column="site"), rows=None)  # a .felb file holds no names of rows
    assert table.clients == SITES
    assert table.matrix.columns == NAMES


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=40, deadline=None)
@given(
    cells=hnp.arrays(np.int8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.integers(0, 2)),
    form=st.sampled_from(["csr", "csc", "coo", "bsr", "dia"]),
    packed=st.booleans(),
)
def test_any_sparse_matrix(cells, form, packed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    sp.save_npz(folder / "a.npz", sp.csr_array(cells).asformat(form), compressed=packed)
    converted = convert(folder / "a.npz", folder / "a.felb", binarize_threshold=1).matrix
    np.testing.assert_array_equal(converted.toarray(), cells > 1)
    assert converted == read(folder / "a.npz", binarize_threshold=1).matrix


@pytest.mark.usefixtures("small_blocks")
def test_rows_of_csr_may_be_unsorted_and_repeat_entries(tmp_path):
    matrix = sp.csr_array((np.array([1, 1, 2, -1, 1]), [3, 0, 2, 2, 1], [0, 2, 2, 4, 5]), shape=(4, 5))
    sp.save_npz(tmp_path / "a.npz", matrix)
    np.testing.assert_array_equal(convert(tmp_path / "a.npz", tmp_path / "a.felb").matrix.toarray(), matrix.toarray())


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=30, deadline=None)
@given(entries=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 6)), min_size=1, max_size=60), twin=st.booleans())
def test_matrix_market_in_any_order(entries, twin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("any")
    side = 20 if twin else 6
    lines = [
        f"%%MatrixMarket matrix coordinate pattern {'symmetric' if twin else 'general'}",
        f"20 {side} {len(entries)}",
    ]
    write(folder / "a.mtx", "\n".join([*lines, *(f"{i} {j}" for i, j in entries)]) + "\n")
    cells = np.zeros((20, side), bool)
    for i, j in entries:
        cells[i - 1, j - 1] = True
    converted = convert(folder / "a.mtx", folder / "a.felb").matrix
    np.testing.assert_array_equal(converted.toarray(), cells | cells.T if twin else cells)
    assert converted == read(folder / "a.mtx").matrix


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_annotated_data_in_any_form(form, tmp_path):
    anndata_of(form(DENSE.astype(np.float32))).write_h5ad(tmp_path / "a.h5ad")
    converted = convert(tmp_path / "a.h5ad", tmp_path / "a.felb").matrix
    np.testing.assert_array_equal(converted.toarray(), DENSE)
    assert converted.columns == NAMES


# -- complete or not at all ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keep", [0.97, 0.4])
@pytest.mark.usefixtures("small_blocks")
def test_a_truncated_source_leaves_nothing(kind, keep, tmp_path):
    source, _ = write_as(kind, tmp_path)
    content = source.read_bytes()
    if kind in (".dat", ".fimi", ".csv", ".tsv"):  # cut at the end of a line, they are whole
        content += b"1 2 x\n"
    else:
        content = content[: int(keep * len(content))]
    source.write_bytes(content)
    before = names_in(tmp_path)
    with pytest.raises(InputError, match=source.name.replace(".", r"\.")):
        convert(source, tmp_path / "t.felb")
    assert names_in(tmp_path) == before


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", [".csv", ".npz", ".npy", ".mtx", ".parquet", ".h5ad"])
def test_a_bad_cell_far_down_is_named_as_in_reading(kind, tmp_path):
    cells = DENSE.astype(float)
    cells[23, 4] = 0.5
    path = tmp_path / f"a{kind}"
    if kind == ".csv":
        write(path, separated([NAMES, *cells]))
    elif kind == ".npz":
        sp.save_npz(path, sp.csr_array(cells))
    elif kind == ".npy":
        np.save(path, cells)
    elif kind == ".mtx":
        entries = "".join(f"{i + 1} {j + 1} {cells[i, j]}\n" for i, j in np.argwhere(cells))
        write(path, f"%%MatrixMarket matrix coordinate real general\n30 7 {np.count_nonzero(cells)}\n{entries}")
    elif kind == ".h5ad":
        anndata_of(sp.csr_matrix(cells)).write_h5ad(path)
    else:
        pytest.importorskip("pyarrow")
        pd.DataFrame(cells, columns=list(NAMES)).to_parquet(path)
    place = r"line 25, column 5.*0\.5" if kind == ".csv" else r"row 23.*column 4.*0\.5"
    with pytest.raises(InputError, match=place) as reading:
        read(path)
    with pytest.raises(InputError, match=place) as converting:
        convert(path, tmp_path / "t.felb")
    assert str(reading.value) == str(converting.value)
    assert names_in(tmp_path) == [path.name]


def test_an_existing_target_is_kept_unless_forced(tmp_path):
    source, _ = write_as(".csv", tmp_path)
    target = write(tmp_path / "t.felb", "precious")
    with pytest.raises(InputError, match=r"t\.felb exists.* force"):
        convert(source, target)
    assert target.read_bytes() == b"precious"
    bad = write(tmp_path / "bad.csv", "a,b\n1,0\n1,7\n")
    with pytest.raises(InputError, match="holds 7"):
        convert(bad, target, force=True)
    assert target.read_bytes() == b"precious"
    assert convert(source, target, force=True).matrix == read(source).matrix


def test_a_file_can_be_converted_in_place(tmp_path):
    source, _ = write_as(".felb", tmp_path)
    before = read(source).matrix
    assert convert(source, source, force=True).matrix == before


@pytest.mark.parametrize("target", ["t.npz", "t", "t.felb.gz"])
def test_the_target_says_its_format(target, tmp_path):
    source, _ = write_as(".csv", tmp_path)
    with pytest.raises(InputError, match=r"\.felb; use .*t(\.felb)?\.felb"):
        convert(source, tmp_path / target)


def test_places_that_cannot_be_written_are_told_at_once(tmp_path):
    source, _ = write_as(".csv", tmp_path)
    with pytest.raises(InputError, match=r"t\.felb: No such file"):
        convert(source, tmp_path / "none" / "t.felb")
    (tmp_path / "t.felb").mkdir()
    with pytest.raises(InputError, match=r"t\.felb: Is a directory"):
        convert(source, tmp_path / "t.felb", force=True)


@pytest.mark.usefixtures("small_blocks")
def test_an_interruption_leaves_nothing(tmp_path):
    source, _ = write_as(".mtx", tmp_path)
    before = names_in(tmp_path)

    def interrupt(rows):
        if rows > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "t.felb", on_rows=interrupt)
    assert names_in(tmp_path) == before


def test_item_lists_that_change_between_the_two_readings_are_refused(tmp_path, monkeypatch):
    source = write(tmp_path / "a.dat", "1 2\n3\n")
    parse, turns = readers._parse_items, []

    def changing(block, first_line):
        turns.append(block)
        return parse(block if len(turns) == 1 else b"1 2\n4\n", first_line)

    monkeypatch.setattr(readers, "_parse_items", changing)
    with pytest.raises(InputError, match="changed"):
        convert(source, tmp_path / "t.felb")
    assert names_in(tmp_path) == ["a.dat"]


# -- memory -------------------------------------------------------------------------------------------------------

MEASURE = """
import sys, tracemalloc
from felb.data import binary, coercion, convert, readers, storage
coercion.SPARSE_BLOCK_ENTRIES = 1 << 13
readers.BLOCK_CELLS = readers.BLOCK_BYTES = readers.BATCH_CELLS = 1 << 14
coercion.DENSE_BLOCK_CELLS = binary.ONES_AT_A_TIME = storage.COPY_BYTES = 1 << 14
small, large, target = sys.argv[1:]
convert(small, target)  # what is imported on the way is not what is measured
tracemalloc.start()
table = convert(large, target, force=True)
print(tracemalloc.get_traced_memory()[1], table.matrix.nnz * table.matrix.indices.itemsize, len(table.matrix))
"""


def write_cells(cells, path):
    kind, (n, m) = "".join(path.suffixes), cells.shape
    if kind == ".csv.gz":
        path.write_bytes(gzip.compress(b"".join(b",".join(row) + b"\n" for row in np.where(cells, b"1", b"0")), 1))
    elif kind == ".dat":
        path.write_text("".join(" ".join(map(str, np.flatnonzero(row))) + "\n" for row in cells))
    elif kind == ".npz":
        sp.save_npz(path, sp.csr_array(cells))
    elif kind == ".npy":
        np.save(path, cells)
    elif kind == ".mtx":
        entries = np.argwhere(cells.T)[:, ::-1] + 1  # column by column
        head = f"%%MatrixMarket matrix coordinate pattern general\n{n} {m} {len(entries)}\n"
        path.write_text(head + "".join(f"{i} {j}\n" for i, j in entries.tolist()))
    elif kind == ".parquet":
        pytest.importorskip("pyarrow")
        pd.DataFrame(cells, columns=[f"f{i}" for i in range(m)]).to_parquet(path, row_group_size=100)
    elif kind == ".h5ad":
        anndata = pytest.importorskip("anndata")
        frames = [pd.DataFrame(index=[str(i) for i in range(size)]) for size in (n, m)]
        anndata.AnnData(sp.csr_matrix(cells.astype(np.float32)), *frames).write_h5ad(path)
    else:
        BinaryMatrix.of(cells).save(path)
    return path


@pytest.mark.parametrize("kind", [".csv.gz", ".dat", ".npz", ".npy", ".mtx", ".parquet", ".h5ad", ".felb"])
def test_no_more_than_a_few_blocks_are_held(kind, tmp_path):
    shape = (2000, 1000) if kind == ".h5ad" else (20_000, 100)  # AnnData holds the names of all rows
    cells = np.random.default_rng(0).random(shape) < 0.9
    small, large = write_cells(cells[:20], tmp_path / f"small{kind}"), write_cells(cells, tmp_path / f"large{kind}")
    command = [sys.executable, "-c", MEASURE, str(small), str(large), str(tmp_path / "t.felb")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, ones, rows = map(int, done.stdout.split())
    assert rows == len(cells)
    assert ones > 3_500_000
    assert peak < ones * 2 / 3, f"{peak} bytes held to write {ones} bytes of ones"


# -- used from disk -----------------------------------------------------------------------------------------------


@pytest.fixture
def mapped(tmp_path) -> tuple[BinaryMatrix, BinaryMatrix]:
    """The same data in memory and from disk."""
    held = planted(300, 40, 4, noise=0.05, seed=1).A
    sp.save_npz(tmp_path / "a.npz", held.to_scipy())
    return held, convert(tmp_path / "a.npz", tmp_path / "a.felb").matrix


@pytest.mark.parametrize("clients", [1, 7])
def test_runs_of_rows_are_views_of_the_file(mapped, clients):
    held, from_disk = mapped
    labels = partition.consecutive(300, clients)
    assert np.bincount(labels).max() - np.bincount(labels).min() <= 1
    shards, _ = split(from_disk, labels)
    for name, shard in shards.items():
        assert np.shares_memory(shard.indices, from_disk.indices)
        assert not shard.indices.flags.writeable
        assert shard == held.take(np.flatnonzero(labels == int(name)))


@pytest.mark.filterwarnings("ignore::felb.ConvergenceWarning")
@pytest.mark.parametrize("model", [felb.FELB, felb.FELBMU])
@pytest.mark.parametrize("clients", [1, 3])
def test_a_fit_from_disk_is_the_fit_from_memory(mapped, model, clients):
    held, from_disk = mapped
    groups = partition.consecutive(300, clients)
    options = {"n_components": 4, "max_iter": 20, "random_state": 0}
    one, other = model(**options), model(**options)
    U, W = one.fit_transform(held, groups=groups), other.fit_transform(from_disk, groups=groups)
    np.testing.assert_array_equal(one.relaxed_components_, other.relaxed_components_)
    np.testing.assert_array_equal(U, W)
    np.testing.assert_array_equal(one.transform(held), other.transform(from_disk))
    assert one.counts_ == other.counts_
