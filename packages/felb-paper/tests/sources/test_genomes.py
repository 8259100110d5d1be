"""VCF files of 1000 Genomes into persons x variants."""

from __future__ import annotations

import numpy as np
import pytest
from raw_files import WAYS, put, refused

from felb.errors import InputError
from felb_paper.sources import load_genomes

COLUMNS = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", "HG00096", "HG00097", "NA1"]
HEAD = "##fileformat=VCFv4.1\n##source=1000G\n" + "\t".join(COLUMNS) + "\n"


def variant(position, name, *genotypes, form="GT"):
    return "\t".join(["22", str(position), name, "A", "G", "100", "PASS", "AC=1", form, *genotypes]) + "\n"


CALLED = (variant(7, "rs1", "0|1", "0|0", "1|1"), variant(8, ".", "0|0", "0|2", ".|."))
TEXT = HEAD + "".join(CALLED) + variant(9, "rs3", *["0|0"] * 3)


@pytest.mark.parametrize("way", WAYS)
def test_a_one_is_an_allele_that_is_not_the_reference(tmp_path, way):
    table = load_genomes(put(tmp_path / "raw", {"ALL.chr22.phase3.vcf": TEXT}, way))
    assert table.rows == ("HG00096", "HG00097", "NA1")
    assert table.matrix.columns == ("rs1", "22:8:A>G")
    np.testing.assert_array_equal(table.matrix.toarray(), [[1, 0], [0, 1], [1, 0]])


def test_chromosomes_stand_side_by_side_and_rare_variants_can_be_left_out(tmp_path):
    other = HEAD + variant(1, "rs1", "1", "0", "0", form="GT:DP")
    path = put(tmp_path, {"ALL.chr22.vcf": TEXT, "ALL.chrX.vcf": other}, "folder")
    assert load_genomes(path).matrix.columns == ("rs1", "22:8:A>G", "rs1 (2)")
    assert load_genomes(path, min_frequency=0.5).matrix.columns == ("rs1",)
    with pytest.raises(InputError, match="choose a smaller"):
        load_genomes(path, min_frequency=0.9)


def test_files_that_are_no_vcf_or_do_not_fit_together_are_refused(tmp_path):
    for number, (text, word) in enumerate([
        ("", "no header"),
        ("a,b\n", "line 1"),
        (HEAD + "22\t7\n", "2 fields, expected 12"),
        (HEAD + variant(7, "rs1", "x", "0|0", "0|0"), "'x'"),
        (HEAD + variant(7, "rs1", "3", "3", "3", form="DP"), "GT"),
    ]):  # fmt: skip
        refused(load_genomes, put(tmp_path / str(number), {"a.vcf": text}, "plain"), word)
    files = {"ALL.chr1.vcf": TEXT, "ALL.chr2.vcf": TEXT.replace("NA1", "NA2")}
    with pytest.raises(InputError, match="not those of the other files"):
        load_genomes(put(tmp_path / "two", files, "folder"))
