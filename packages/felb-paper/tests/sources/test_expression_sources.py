"""Read counts of the Human Protein Atlas and expression of TCGA."""

from __future__ import annotations

import numpy as np
import pytest
from raw_files import WAYS, put, refused

from felb.data import readers
from felb.errors import InputError
from felb_paper.sources import load_brain, load_cells, load_tcga

GENES = ("ENSG00000000003", "ENSG00000000005", "ENSG00000000419")
COUNTS = np.array([[0, 2, 15], [0, 0, 0], [1, 0, 0], [100, 0, 7]])
ONES = COUNTS > 0


def tsv(rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def cells(counts=COUNTS, genes=GENES, header=("Tissue", "Cell", "Cluster")):
    return tsv([[*header, *genes], *(["brain", i, f"c-{i % 2}", *row] for i, row in enumerate(counts))])


def genes_by_cells(counts=COUNTS, genes=GENES, corner="Gene"):
    return tsv([[corner, *range(len(counts))], *([gene, *row] for gene, row in zip(genes, counts.T, strict=True))])


@pytest.mark.parametrize("way", WAYS)
def test_a_cell_a_line(tmp_path, way):
    table = load_cells(put(tmp_path / "raw", {"rna_single_cell_read_count.tsv": cells()}, way))
    np.testing.assert_array_equal(table.matrix.toarray(), ONES)
    assert table.matrix.columns == GENES
    assert table.rows == ("brain/0/c-0", "brain/1/c-1", "brain/2/c-0", "brain/3/c-1")


@pytest.mark.parametrize("way", WAYS)
def test_a_gene_a_line(tmp_path, way):
    table = load_cells(put(tmp_path / "raw", {"brain/read_count.tsv": genes_by_cells()}, way))
    np.testing.assert_array_equal(table.matrix.toarray(), ONES)
    assert table.matrix.columns == GENES
    assert table.rows == ("0", "1", "2", "3")


@pytest.mark.parametrize("way", ["folder", "zip", "folder with zip"])
def test_tissues_are_put_below_each_other(tmp_path, way):
    files = {"brain/read_count.tsv": genes_by_cells(), "eye/read_count.tsv": genes_by_cells(COUNTS[:2])}
    table = load_cells(put(tmp_path / "raw", files, way))
    np.testing.assert_array_equal(table.matrix.toarray(), np.vstack([ONES, ONES[:2]]))
    assert table.rows == ("brain/0", "brain/1", "brain/2", "brain/3", "eye/0", "eye/1")
    files["eye/read_count.tsv"] = genes_by_cells(COUNTS[:2], GENES[::-1])
    refused(load_cells, put(tmp_path / "other", files, way), "same genes")


@pytest.mark.parametrize("way", ["folder", "zip", "folder with zip", "folder with gz"])
def test_the_brain_alone_of_the_archive_of_all_tissues(tmp_path, way):
    files = {f"{name}/read_count.tsv": genes_by_cells(COUNTS[:2]) for name in ("adipose tissue", "liver")}
    files |= {"brain/read_count.tsv": genes_by_cells(), "brain/cell_data.tsv": "cell_id\tcluster\tumap_x\tumap_y\n"}
    path = put(tmp_path / "raw", files, way)
    table = load_brain(path)
    np.testing.assert_array_equal(table.matrix.toarray(), ONES)
    assert table.rows == ("0", "1", "2", "3")
    assert load_cells(path).matrix.shape[0] == 8
    assert load_cells(path, tissue="Adipose_Tissue").matrix.shape[0] == 2
    refused(lambda place: load_cells(place, tissue="eye"), path, "'eye'", "adipose tissue, brain, liver")


@pytest.mark.parametrize("size", [1, 60, 1 << 22])
def test_the_brain_alone_of_one_file_with_all_tissues(tmp_path, monkeypatch, size):
    monkeypatch.setattr(readers, "BLOCK_BYTES", size)
    head, *lines = cells().splitlines()
    others = [line.replace("brain", "Liver") for line in lines]
    mixed = [head, *others, lines[0], others[0], *lines[1:], *others]
    path = put(tmp_path, {"rna_single_cell_read_count.tsv": "\n".join(mixed).replace("brain", "Brain")}, "plain")
    table = load_brain(path)
    np.testing.assert_array_equal(table.matrix.toarray(), ONES)
    assert table.rows == ("Brain/0/c-0", "Brain/1/c-1", "Brain/2/c-0", "Brain/3/c-1")
    assert load_cells(path).matrix.shape[0] == len(mixed) - 1
    refused(lambda place: load_cells(place, tissue="eye"), path, "'eye'", "Brain, Liver")
    path.write_text("\n".join([*mixed[:6], mixed[6], mixed[7].replace("\t0\t0\t0", "\t0\tx\t0")]))
    refused(load_brain, path, "line 8, field 5", "'x'")


def test_a_file_that_is_alone_need_not_name_its_tissue(tmp_path):
    table = load_brain(put(tmp_path / "hpa-brain", {"read_count.tsv": genes_by_cells()}, "folder"))
    np.testing.assert_array_equal(table.matrix.toarray(), ONES)
    unnamed = cells().replace("Tissue\t", "").replace("brain\t", "")
    assert load_brain(put(tmp_path, {"x.tsv": unnamed}, "plain")).matrix.shape == ONES.shape


def test_the_layout_is_told_from_the_header(tmp_path):
    symbols = ("A1BG", "A1CF", "A2M")
    by_name = put(tmp_path / "a", {"x.tsv": genes_by_cells(genes=symbols)}, "plain")
    assert load_cells(by_name).matrix.columns == symbols
    by_cell = put(tmp_path / "c", {"x.tsv": cells(genes=symbols)}, "plain")
    assert load_cells(by_cell).matrix.columns == symbols
    two = put(tmp_path / "d", {"x.tsv": cells().replace("Tissue\t", "").replace("brain\t", "")}, "plain")
    assert load_cells(two).rows[0] == "0/c-0"


def test_the_count_that_is_a_one_is_a_parameter(tmp_path):
    path = put(tmp_path, {"x.tsv": cells()}, "plain")
    np.testing.assert_array_equal(load_cells(path, above=2).matrix.toarray(), COUNTS > 2)
    with pytest.raises(InputError, match="above="):
        load_cells(path, above=float("inf"))


@pytest.mark.parametrize("size", [1, 100, 1 << 22])
def test_both_layouts_give_the_same(tmp_path, monkeypatch, size):
    monkeypatch.setattr(readers, "BLOCK_BYTES", size)
    counts = np.random.default_rng(size).poisson(0.5, (40, 25))
    genes = [f"ENSG{i:011}" for i in range(25)]
    one = load_cells(put(tmp_path / "a", {"x.tsv": cells(counts, genes)}, "plain")).matrix
    other = load_cells(put(tmp_path / "b", {"x.tsv": genes_by_cells(counts, genes)}, "plain")).matrix
    assert one == other
    np.testing.assert_array_equal(one.toarray(), counts > 0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (cells().replace("\t15\n", "\n"), ("line 2 has 5 fields, but 6 were expected",)),
        (cells().replace("\t15\n", "\tmany\n"), ("line 2, field 6", "'many'")),
        (cells().replace("\t15\n", "\t\n"), ("line 2, field 6", "''")),
        (cells(COUNTS[:0]), ("no cells",)),
        ("Tissue\tCell\tCluster\n", ("names no genes",)),
        (genes_by_cells().replace("\t100\n", "\n"), ("line 2 has 4 fields, but 5 were expected",)),
        (genes_by_cells().replace("\t100\n", "\tNA\n"), ("line 2, field 5", "'NA'")),
        ("Gene\n", ("names no samples",)),
        ("Gene\t0\t1\n", ("no genes",)),
        ("", ("line 1 is empty",)),
        (cells().encode("utf-16"), ("UTF-8",)),
        (cells().replace("brain", "hjärna").encode("latin-1"), ("line 2 is not UTF-8",)),
    ],
)
def test_read_counts_that_are_wrong(tmp_path, content, words):
    path = put(tmp_path, {"x.tsv": content}, "plain")
    refused(load_cells, path, *words)


# -- TCGA --------------------------------------------------------------------------------------------------------

SAMPLES = ("TCGA-S9-A7J2-01", "TCGA-G3-A3CH-11", "TCGA-EK-A2RE-01")
VALUES = np.array([[10.0, 9.6, 9.4], [0.0, 0.0, 0.0], [-2.5, -1.25, -3.0], [0.5, 12.125, 11.6]])
SYMBOLS = ("A1BG", "SLC35E2", "ARHGEF10L", "SLC35E2")


def xena(values=VALUES, corner="sample"):
    return tsv([[corner, *SAMPLES], *([name, *row] for name, row in zip(SYMBOLS, values.tolist(), strict=True))])


@pytest.mark.parametrize("way", WAYS)
def test_samples_by_genes_near_their_maximum(tmp_path, way):
    table = load_tcga(put(tmp_path / "raw", {"HiSeqV2": xena()}, way))
    assert table.rows == SAMPLES
    assert table.matrix.columns == ("A1BG", "SLC35E2 [2]", "ARHGEF10L", "SLC35E2 [4]")
    np.testing.assert_array_equal(table.matrix.toarray(), [[1, 0, 0, 0], [1, 0, 0, 1], [0, 0, 0, 1]])


def test_the_pooled_cohorts_come_before_other_files_of_xena(tmp_path):
    files = {name: xena(-VALUES) for name in ("HiSeqV2_PANCAN", "HiSeqV2_exon", "A.tsv")}
    path = put(tmp_path, files | {"TCGA.PANCAN.sampleMap__HiSeqV2": xena(corner="Sample")}, "folder with gz")
    assert load_tcga(path).matrix.nnz == 4


def test_the_share_of_the_maximum_is_a_parameter(tmp_path):
    path = put(tmp_path, {"t.tsv": xena()}, "plain")
    highest = (VALUES.max(axis=1, keepdims=True) == VALUES) & (VALUES > 0)
    np.testing.assert_array_equal(load_tcga(path, share=1.0).matrix.toarray(), highest.T)
    for bad in (0, 1.1):
        with pytest.raises(InputError, match="must lie"):
            load_tcga(path, share=bad)


def test_missing_values_are_no_ones(tmp_path):
    values = VALUES.astype(object)
    values[0, 0], values[1] = "NA", ["NA", "", "nan"]
    path = put(
        tmp_path, {"t.tsv": tsv([["sample", *SAMPLES], *([f"g{i}", *r] for i, r in enumerate(values))])}, "plain"
    )
    dense = load_tcga(path).matrix.toarray()
    assert not dense[0, 0]
    assert not dense[:, 1].any()
    assert dense[1, 0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (xena(corner="gene-ish"), ("line 1", "'gene-ish'", "'sample'")),
        (xena().replace("\t9.4\n", "\n"), ("line 2 has 3 fields, but 4 were expected",)),
        (xena().replace("\t9.4\n", "\thigh\n"), ("line 2, field 4", "'high'")),
        ("sample\n", ("names no samples",)),
        ("sample\ta\n", ("no genes",)),
    ],
)
def test_expression_that_is_wrong(tmp_path, content, words):
    path = put(tmp_path, {"t.tsv": content}, "plain")
    refused(load_tcga, path, *words)
