"""Raw files as their publishers describe them, and what is said of each kind if it is damaged."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, NamedTuple

import pytest
from raw_files import put, refused

from felb_paper.data import ENTRIES
from felb_paper.sources import (
    acs,
    load_arxiv,
    load_arxiv_words,
    load_brain,
    load_genomes,
    load_goodreads,
    load_income,
    load_movielens,
    load_netflix,
    load_poverty,
    load_tcga,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Kind(NamedTuple):
    """How a publisher writes a file: its name, header and lines, and what must be beside it."""

    load: Callable
    name: str
    header: str
    line: str
    beside: dict[str, str]
    one_value: str
    """Part of the line that is a value; in another encoding or spelled wrongly, the line is refused."""


COLUMNS = ("RT", "SERIALNO", "SPORDER", "PWGTP", "PINCP", *dict.fromkeys((*acs.INCOME, *acs.POVERTY)))
CODES = {"RT": "P", "SERIALNO": "2018GQ0000049", "SPORDER": "01", "PINCP": "30000", "AGEP": "40", "WKHP": "40"}
PERSON = ",".join(CODES.get(name, "01") for name in COLUMNS) + "\n"
PAPER = {
    "id": "0704.0001", "submitter": "A", "authors": "A, B", "title": "T", "comments": None, "journal-ref": None,
    "doi": None, "report-no": None, "categories": "cs.LG stat.ML", "license": None, "abstract": "A network.\\n",
    "versions": [{"version": "v1", "created": "Mon, 2 Apr 2007 19:18:42 GMT"}], "update_date": "2008-11-26",
    "authors_parsed": [["A", "B", ""]],
}  # fmt: skip
KINDS = {
    "acs-income": Kind(load_income, "psam_p06.csv", ",".join(COLUMNS) + "\n", PERSON, {}, "30000"),
    "acs-poverty": Kind(load_poverty, "psam_p06.csv", ",".join(COLUMNS) + "\n", PERSON, {}, "40"),
    "cs.LG": Kind(load_arxiv, "arxiv-metadata-oai-snapshot.json", "", json.dumps(PAPER) + "\n", {}, '"abstract"'),
    "cs.LG-R": Kind(
        load_arxiv_words, "arxiv-metadata-oai-snapshot.json", "", json.dumps(PAPER) + "\n", {}, '"abstract"'
    ),
    "genomics": Kind(
        load_genomes, "ALL.chr22.vcf",
        "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tHG00096\tHG00097\n",
        "22\t7\trs1\tA\tG\t100\tPASS\t.\tGT\t0|1\t0|0\n", {}, "0|1",
    ),
    "goodreads": Kind(
        load_goodreads, "ratings.json", "", '{"item_id": 41335427, "user_id": 0, "rating": 5}\n', {}, "41335427"
    ),
    "hpa-brain": Kind(
        load_brain, "rna_single_cell_read_count.tsv", "Tissue\tCell\tCluster\tENSG00000000003\tENSG00000000005\n",
        "Brain\t17\tc-0\t0\t12\n", {}, "12",
    ),
    "hpa-brain by gene": Kind(
        load_brain, "read_count.tsv", "\t0\t1\n", "ENSG00000000003\t0\t12\n", {}, "12",
    ),
    "movielens": Kind(
        load_movielens, "ratings.csv", "userId,movieId,rating,timestamp\n", "1,296,5.0,1147880044\n",
        {"movies.csv": "movieId,title,genres\n296,Pulp Fiction (1994),Comedy|Crime|Drama|Thriller\n"}, "5.0",
    ),
    "netflix": Kind(
        load_netflix, "combined_data_1.txt", "1:\n", "1488844,4,2005-09-06\n",
        {"movie_titles.csv": "1,2003,Dinosaur Planet\n"}, "1488844",
    ),
    "tcga": Kind(load_tcga, "HiSeqV2", "sample\tTCGA-S9-A7J2-01\tTCGA-G3-A3CH-11\n", "ZXDB\t10.51\t0.0\n", {}, "10.51"),
}  # fmt: skip
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def written(folder, kind, lines, way="plain"):
    return put(folder, {kind.name: kind.header + lines} | kind.beside, way)


def test_every_data_set_that_is_not_shipped_is_here():
    assert {entry.name for entry in ENTRIES if not entry.shipped} <= set(KINDS)


@EVERY_KIND
@pytest.mark.parametrize("way", ["plain", "gz", "zip"])
def test_files_as_they_are_described(tmp_path, kind, way):
    assert kind.load(written(tmp_path / "raw", kind, kind.line, way)).matrix.nnz > 0


@EVERY_KIND
def test_packed_files_that_were_cut_off(tmp_path, kind):
    path = written(tmp_path, kind, kind.line * 500, "gz")
    whole = path.read_bytes()
    for content in (whole[:-4], whole[:-9], whole[:12], whole[:3], b"<html>no such page</html>"):
        path.write_bytes(content)
        refused(kind.load, path, "damaged or incomplete", "download it again")
    path.write_bytes(gzip.compress(b""))
    refused(kind.load, path)


@EVERY_KIND
def test_the_line_that_is_wrong_is_said(tmp_path, kind):
    number = kind.header.count("\n") + 4
    for wrong in (kind.line.replace(kind.one_value, "x", 1), kind.line[: len(kind.line) // 3] + "\n"):
        path = written(tmp_path, kind, kind.line * 3 + wrong + kind.line)
        refused(kind.load, path, f"line {number}")


@EVERY_KIND
def test_a_file_that_ends_within_a_line(tmp_path, kind):
    number = kind.header.count("\n") + 4
    path = written(tmp_path, kind, kind.line * 3 + kind.line[: len(kind.line) // 3])
    refused(kind.load, path, f"line {number}")


@EVERY_KIND
def test_another_encoding(tmp_path, kind):
    path = written(tmp_path, kind, kind.line * 3)
    path.write_bytes((kind.header + kind.line * 3).encode("utf-16"))
    refused(kind.load, path, "line 1")


@EVERY_KIND
def test_no_such_file(tmp_path, kind):
    refused(kind.load, tmp_path / kind.name, "No such file", "check the path")
    (tmp_path / "empty").mkdir()
    refused(kind.load, tmp_path / "empty", "holds no ", "name the raw file")
